"""Which runs make up a release, group by group. Knows the flow and the record; starts nothing.

A run is identified by its basis: a hash of what it would compute from what. Equal basis, same result; so the
basis is the run's key, and a run that was seen is not asked for again.
"""

import dataclasses
from collections.abc import Iterator

from assets.factory import stage_version
from assets.partitions import partition_key
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.stage import Group, Stage

#: Tag of a run: what it computes from what.
BASIS_TAG = "datamask/basis"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A run of one job for one partition.

    Attributes:
        job: The job's name.
        partition_key: The partition.
        basis: Hash of the stages' versions, their settings and their inputs.
    """

    job: str
    partition_key: str
    basis: str

    @property
    def tags(self) -> dict[str, str]:
        """What marks the run as this one."""
        return {BASIS_TAG: self.basis}


def runs(pipeline: Pipeline, group: Group, release: str) -> list[Wanted]:
    """The runs of a release's part of a group; they do not depend on each other.

    Ask only after all runs of the groups that this one needs have succeeded: bases are made of what those left
    in the record.
    """
    return [wanted(pipeline, group, key) for key in pipeline.keys(group.scope, release)]


def wanted(pipeline: Pipeline, group: Group, key: str) -> Wanted:
    """The run of a group for one key of the record. Of a crawl's files, size and date count, or their tag in a store."""
    stages = [stage for stage in pipeline.config.stages() if stage.group is group]
    versions = [stage_version(stage, pipeline.config, key.partition("/")[2]) for stage in stages]
    read: list[object] = list(dict.fromkeys(item for stage in stages for item in _read(pipeline, stage, key)))
    if group.scope == "crawl":
        read += pipeline.source.states(key)
    basis = sha256_text(canonical_json([group.job, key, versions, read]))[:16]
    return Wanted(group.job, partition_key(group.scope, key), basis)


def _read(pipeline: Pipeline, stage: Stage, key: str) -> Iterator[tuple[str, str, str]]:
    """What a stage reads that another group made, in order: artefact, key, and what its result depends on of it."""
    for argument, of in pipeline.inputs(stage, key).items():
        if FLOW.maker(stage.reads[argument])[0].group is stage.group:
            continue
        for artefact in of.values() if isinstance(of, dict) else [of]:
            ref = pipeline.store.current(*artefact)
            identity = "missing" if ref is None else stage.identity(argument)(pipeline.store, ref)
            yield *artefact, identity
    for artefact in pipeline.held_inputs(stage, key).values():
        ref = pipeline.store.current(*artefact)
        yield *artefact, "missing" if ref is None else ref.content_digest

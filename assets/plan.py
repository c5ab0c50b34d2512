"""Which runs there are to ask for: one for each crawl, one for each release. Knows the flow and the record; starts nothing.

A run is identified by its basis: a hash of what it would compute from what. Equal basis, same result; so the
basis is the run's key, and a run that was seen is not asked for again, unless one of another basis has ended since.
"""

import dataclasses
from collections.abc import Iterable, Iterator

from assets.chain import chain_job
from assets.factory import stage_version
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.flow import CRAWLS
from datamask_pipeline.pipeline.stage import Stage

#: Tag of a run: what it computes from what.
BASIS_TAG = "datamask/basis"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A run of one job for one partition.

    Attributes:
        job: The job's name.
        partition_key: The partition: a crawl, or a release.
        basis: Hash of the stages' versions, their settings and their inputs.
        after: The run since which it is wanted once more; empty: it was not asked for yet.
    """

    job: str
    partition_key: str
    basis: str
    after: str = ""

    @property
    def run_key(self) -> str:
        """What Dagster asks for once."""
        return f"{self.basis}-{self.after}" if self.after else self.basis

    @property
    def tags(self) -> dict[str, str]:
        """What marks the run as this one."""
        return {BASIS_TAG: self.basis}


def crawl_run(pipeline: Pipeline, crawl: str) -> Wanted:
    """The run of a crawl. Of its files, size and date count, or their tag in a store."""
    versions = [stage_version(stage, pipeline.config) for stage in _stages(pipeline) if stage.group is CRAWLS]
    return _wanted(CRAWLS.job, crawl, versions, pipeline.source.states(crawl))


def release_run(pipeline: Pipeline, release: str) -> Wanted:
    """The run of all that is made of a release.

    Ask only once its crawls, and what it goes on from, stand in the record: its basis is made of these.
    """
    stages = [stage for stage in _stages(pipeline) if stage.group is not CRAWLS]
    versions = [
        [key, stage.name, stage_version(stage, pipeline.config, key.partition("/")[2])]
        for stage in stages
        for key in pipeline.keys(stage.scope, release)
    ]
    read = dict.fromkeys(
        item
        for stage in stages
        for key in pipeline.keys(stage.scope, release)
        for item in _read(pipeline, stage, key)
    )
    return _wanted(chain_job.name, release, versions, read)


def _stages(pipeline: Pipeline) -> list[Stage]:
    return pipeline.config.stages()


def _wanted(job: str, key: str, versions: object, read: Iterable[object]) -> Wanted:
    return Wanted(job, key, sha256_text(canonical_json([job, key, versions, list(read)]))[:16])


def _read(pipeline: Pipeline, stage: Stage, key: str) -> Iterator[tuple[str, str, str]]:
    """What a stage reads that no stage of the release makes, in order: artefact, key, and what counts of it."""
    for argument, of in pipeline.inputs(stage, key).items():
        if FLOW.maker(stage.reads[argument])[0].group is not CRAWLS:
            continue
        for artefact in of.values() if isinstance(of, dict) else [of]:
            ref = pipeline.store.current(*artefact)
            yield *artefact, "missing" if ref is None else stage.identity(argument)(pipeline.store, ref)
    for artefact in pipeline.held_inputs(stage, key).values():
        ref = pipeline.store.current(*artefact)
        yield *artefact, "missing" if ref is None else ref.content_digest
    if hasattr(stage.module, "beside"):
        release, _, _ = key.partition("/")
        if (beside := stage.module.beside(pipeline.store, pipeline.planned_crawls(release))) is not None:
            yield stage.name, key, beside

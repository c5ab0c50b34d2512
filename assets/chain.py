"""The whole chain of one release as one run, in one process: a step for each stage, over all its crawls, arms or runs.

A run of a job of assets has one partition, and so would be one crawl, one arm or one model: of a small release most of
the time would be spent on starting runs and processes, and on importing the same libraries in each. What these steps make is
told to Dagster as the assets' own steps tell it: by partition, with checks, versions, lineage and pages.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluation,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent

from assets.checks import Artefact, Shown, check_names, check_results
from assets.factory import RETRIES, shown_of, stage_version
from assets.interrupts import stoppable
from assets.partitions import RELEASES, dimension_tags, partition_key, partition_of
from assets.step import outcome, page_of
from datamask_pipeline.errors import DataMaskError, StorageError
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.differences import steps_of_releases
from datamask_pipeline.pipeline.stage import Output, Stage
from datamask_pipeline.pipeline.unmade import Unmade
from datamask_pipeline.storage import Ref
from resources import PipelineResource
from resources.progress import LogProgress

CHAIN_JOB: Final = "chain_job"


@dataclass
class _SoFar:
    """What became of a run's steps so far.

    Attributes:
        reasons: Of what failed.
        unmade: What is not made.
        made: What is; later steps read it, whatever another run makes current meanwhile.
    """

    reasons: list[str] = field(default_factory=list)
    unmade: Unmade = field(default_factory=Unmade)
    made: dict[tuple[str, str], Ref] = field(default_factory=dict)


#: The runs of this process: the steps of each are all in one.
_RUNS: Final[dict[str, _SoFar]] = {}


def _graph() -> dg.GraphDefinition:
    """Steps wait for each other as the stages do. An arm or model that fails holds up what is made from it alone; the last
    step, which waits for all, fails then, so that the run does.
    """
    steps = {stage.name: _step(stage) for stage in FLOW}
    dependencies = {
        steps[stage.name].name: {name: dg.DependencyDefinition(steps[name].name) for name in _before(stage)}
        for stage in FLOW
    }
    every = {name: dg.DependencyDefinition(step.name) for name, step in steps.items()}
    return dg.GraphDefinition(
        name=CHAIN_JOB,
        node_defs=[*steps.values(), all_made],
        dependencies={**dependencies, all_made.name: every},
        description="Everything of one release, from its crawls to its report, in one run; what is there already is found.",
    )


def _before(stage: Stage) -> list[str]:
    """The stages whose assets a stage reads."""
    return sorted({FLOW.maker(asset)[0].name for asset in stage.reads.values()})


def _step(stage: Stage) -> dg.OpDefinition:
    shown = shown_of(stage)

    @dg.op(
        name=f"all_{stage.name}",
        description=f"{stage.name} for each {stage.scope} of the release",
        ins={name: dg.In(dg.Nothing) for name in _before(stage)},
        out=dg.Out(dg.Nothing),
        pool=stage.uses,
        retry_policy=RETRIES,
        tags={"stage": stage.name},
    )
    def step(context: dg.OpExecutionContext, pipeline: PipelineResource) -> Iterator[Any]:
        yield from stoppable(_run(context, pipeline, stage, shown))
        yield dg.Output(None)

    return step


@dg.op(
    description="fails where an arm or a model failed",
    ins={stage.name: dg.In(dg.Nothing) for stage in FLOW},
    out=dg.Out(dg.Nothing),
)
def all_made(context: dg.OpExecutionContext, pipeline: PipelineResource) -> None:
    """Fail where an arm or a model did in this run; or, where it goes on from a run that failed, where any is missing."""
    reasons = _RUNS.pop(context.run_id, _SoFar()).reasons
    if not reasons and context.run.parent_run_id is not None:
        chain, release = pipeline.pipeline(run=context.run.run_id).looked_at(), context.partition_key
        gone = {*chain.release_crawls(release)}.difference(chain.crawls())
        left = [
            f"{step.stage} of {step.key}"
            for _, steps in steps_of_releases(chain, [release], standing=gone)
            for step in steps
        ]
        if left:
            reasons = [f"not made: {', '.join(left)}; run the whole job again, not only what failed"]
    if reasons:
        raise dg.Failure("; ".join(reasons), allow_retries=False)


def _run(
    context: dg.OpExecutionContext, resource: PipelineResource, stage: Stage, shown: Mapping[str, Shown]
) -> Iterator[Any]:
    """Run a stage for all its keys of the run's release; one that fails does not keep the others from being made.

    Raises:
        dagster.Failure: a crawl failed, or the release; of arms and models the last step tells.
    """
    try:
        so_far = _RUNS.setdefault(context.run_id, _SoFar())
        chain = resource.pipeline(LogProgress(context.log.info), so_far.made, run=context.run.run_id)
        if stage not in chain.config.stages():
            context.log.debug(f"{stage.name} is switched off")
            return
        release = partition_of(context)
        chain.refuse_retired(release)
        chain.release_crawls(release)  # the first step fixes them
        chain.store.sweep()  # of what killed steps left
        keys = chain.keys(stage.scope, release)
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    failed: list[str] = []
    reasons, unmade = so_far.reasons, so_far.unmade
    for key in keys:
        if unmade.keeps_from(chain, stage, key):
            unmade.add(stage, key)
            context.log.warning(f"{stage.name} of {key} is not made: it needs what failed")
            continue
        try:
            yield from _Step(context, chain, stage, shown, key).run()
        except StorageError:
            raise
        except DataMaskError as error:
            unmade.add(stage, key)
            reason = f"{stage.name} of {key}: {error}"
            context.log.error(reason)
            told = reasons if stage.scope in ("arm", "run") else failed
            if reason not in told:  # a step that is tried again comes to it again
                told.append(reason)
    if failed:
        del _RUNS[context.run_id]
        raise dg.Failure("; ".join([*failed, *reasons]), allow_retries=False)


class CheckFailed(DataMaskError):
    """A blocking check found that an artefact is not as it must be."""


class _Step:
    """One stage for one key.

    Args:
        context: The step of the run.
        pipeline: The chain.
        stage: The stage.
        shown: By asset, what its page shows beside what every artefact has.
        key: The key of the record.
    """

    def __init__(
        self,
        context: dg.OpExecutionContext,
        pipeline: Pipeline,
        stage: Stage,
        shown: Mapping[str, Shown],
        key: str,
    ) -> None:
        self._context, self._pipeline, self._stage, self._shown = context, pipeline, stage, shown
        self._key, self._partition = key, partition_key(stage.scope, key)

    def run(self) -> Iterator[Any]:
        """Run it, and tell Dagster of what was made that it does not know.

        Raises:
            DataMaskError: the stage refused its settings or its input, or a blocking check its result.
        """
        stage, store = self._stage, self._pipeline.store
        known = {output.asset: self._known(output) for output in stage.makes}
        for output in stage.makes:
            ref = store.current(output.artefact, self._key)
            if ref is None or known[output.asset] != _identity(ref):
                self._plan(output)
        started, waited = time.monotonic(), store.leases.waited
        refs = self._refs()
        seconds = round(time.monotonic() - started - (store.leases.waited - waited), 3)
        failed: list[str] = []
        for output, ref in zip(stage.makes, refs, strict=True):
            artefact = Artefact(self._pipeline, ref, store.manifest(ref))
            computed = ref.location in store.made
            for line in stage.told(artefact.manifest) if computed and output is stage.makes[0] else []:
                self._context.log.info(line)
            if known[output.asset] == _identity(ref):
                yield self._seen(output, artefact, seconds)
                continue
            extra = self._shown.get(output.asset, Shown())
            yield dg.AssetMaterialization(
                output.asset,
                partition=self._partition,
                metadata=outcome(computed, seconds) | page_of(artefact, output, extra),
                tags=self._tags(ref),
            )
            target = self._target(output)
            for result in check_results(output, extra, artefact):
                yield AssetCheckEvaluation(
                    asset_key=dg.AssetKey(output.asset),
                    check_name=str(result.check_name),
                    passed=result.passed,
                    metadata=result.metadata,
                    target_materialization_data=target,
                    severity=result.severity,
                    blocking=result.severity is dg.AssetCheckSeverity.ERROR,
                    partition=self._partition,
                )
                if not result.passed and result.severity is dg.AssetCheckSeverity.ERROR:
                    failed.append(f"{result.check_name} of {output.asset}")
        if failed:
            raise CheckFailed(f"blocking checks failed: {', '.join(failed)}")

    def _refs(self) -> tuple[Ref, ...]:
        """What the stage makes; of a crawl that the source has no more, what stands in the record."""
        store, stage, key = self._pipeline.store, self._stage, self._key
        if stage.scope == "crawl" and key not in self._pipeline.crawls():
            refs = [store.current(output.artefact, key) for output in stage.makes]
            if all(ref is not None for ref in refs):
                return tuple(ref for ref in refs if ref is not None)
        return self._pipeline.run(stage.name, key)

    def _known(self, output: Output) -> tuple[str, str] | None:
        """What Dagster has of an asset's partition, if no blocking check of it failed or is missing.

        Not what was told by another code version: Dagster marks that as outdated, until it is told again.
        """
        instance, asset = self._context.instance, dg.AssetKey(output.asset)
        told = instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[self._partition]), limit=1
        ).records
        if not told or (materialization := told[0].asset_materialization) is None:
            return None
        tags = materialization.tags or {}
        if tags.get(CODE_VERSION_TAG) != stage_version(self._stage, self._pipeline.config):
            return None
        extra = self._shown.get(output.asset, Shown())
        names = check_names(output, extra)
        checks = [dg.AssetCheckKey(asset, name) for name in names]
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            checks, partition_filter=PartitionKeyFilter(key=self._partition)
        )
        for check in checks:
            event = found[check].event if check in found else None
            if event is None or event.timestamp < told[0].timestamp or event.dagster_event is None:
                return None
            evaluation = event.dagster_event.event_specific_data
            if not isinstance(evaluation, AssetCheckEvaluation):
                return None
            if not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR:
                return None
        fingerprint = materialization.metadata.get("fingerprint")
        version = tags.get(DATA_VERSION_TAG, "")
        return ("" if fingerprint is None else str(fingerprint.value), version)

    def _plan(self, output: Output) -> None:
        """Have pages show the partition as being made, and as failed if the run ends without it."""
        planned = AssetMaterializationPlannedData(dg.AssetKey(output.asset), self._partition)
        event = DagsterEvent.build_asset_materialization_planned_event(
            self._context.job_name, self._context.op_handle.name, planned
        )
        self._context.instance.report_dagster_event(event, self._context.run_id, logging.DEBUG)

    def _seen(self, output: Output, artefact: Artefact, seconds: float) -> dg.AssetObservation:
        """That an artefact which Dagster knows stands as it is."""
        rows = {"dagster/row_count": artefact.ref.rows} if artefact.manifest["parts"] else {}
        return dg.AssetObservation(
            output.asset,
            partition=self._partition,
            metadata=outcome(False, seconds) | rows,
            tags={DATA_VERSION_TAG: artefact.ref.content_digest},
        )

    def _target(self, output: Output) -> AssetCheckEvaluationTargetMaterializationData:
        """The materialisation that checks are of: the one that was told last."""
        record = self._context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=dg.AssetKey(output.asset), asset_partitions=[self._partition]),
            limit=1,
        ).records[0]
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )

    def _tags(self, ref: Ref) -> dict[str, str]:
        """The tags that Dagster gives what an asset's own step makes: it marks by them what is outdated."""
        config, asset_of = self._pipeline.config, {}
        for argument, of in self._pipeline.inputs(self._stage, self._key).items():
            asset_of[config.reads(self._stage)[argument]] = of
        tags = {
            CODE_VERSION_TAG: stage_version(self._stage, config),
            DATA_VERSION_TAG: ref.content_digest,
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
            **dimension_tags(self._partition),
        }
        keys = [dg.AssetKey(asset) for asset in asset_of]
        records = {
            each.asset_entry.asset_key: each for each in self._context.instance.get_asset_records(keys)
        }
        for asset, of in asset_of.items():
            read = list(of.values()) if isinstance(of, dict) else [of]
            versions = [self._pipeline.reference(artefact).content_digest for artefact in read]
            version = versions[0] if len(versions) == 1 else sha256_text(canonical_json(versions))
            record = records.get(dg.AssetKey(asset))
            last = None if record is None else record.asset_entry.last_materialization_record
            tags[get_input_data_version_tag(dg.AssetKey(asset))] = version
            tags[get_input_event_pointer_tag(dg.AssetKey(asset))] = (
                NULL_EVENT_POINTER if last is None else str(last.storage_id)
            )
        return tags


def _identity(ref: Ref) -> tuple[str, str]:
    """What a materialisation tells of an artefact: its fingerprint and its content digest."""
    return ref.fingerprint, ref.content_digest


chain_job: Final = _graph().to_job(partitions_def=RELEASES, executor_def=dg.in_process_executor)

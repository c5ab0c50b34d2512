"""Runs one stage for one partition and tells Dagster what came of it. Knows no stage."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import dagster as dg

from assets.metadata import Metadata, artefact_metadata
from assets.partitions import record_key
from datamask_pipeline.errors import DataMaskError, StorageError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref
from resources import PipelineResource
from resources.progress import LogProgress

#: Steps that fill the machine (encoder, learner, training) wait for each other across runs.
COMPUTE_POOL: Final = "compute"
#: Steps that read the source wait for each other: a hub counts requests.
SOURCE_POOL: Final = "source"

#: What every asset has in common. A killed or disconnected step goes on where it was, so trying again is cheap.
COMMON: Final[Mapping[str, Any]] = {
    "owners": ["team:data-curation"],
    "retry_policy": dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL),
    "backfill_policy": dg.BackfillPolicy.multi_run(max_partitions_per_run=1),
}

Headline = Callable[[Pipeline, Ref, Mapping[str, Any]], Metadata]


def run_stage(
    context: dg.AssetExecutionContext,
    resource: PipelineResource,
    stage: str,
    *,
    headline: Headline | None = None,
    plots: tuple[str, ...] = (),
) -> dg.MaterializeResult[None]:
    """Run a stage that makes one artefact.

    Args:
        context: Names the partition and holds what was changed in the launchpad.
        resource: Builds the chain.
        stage: The stage's name.
        headline: Numbers and tables of this stage for the UI.
        plots: PNG files that the stage writes beside its parts.
    """
    (result,) = run_stages(context, resource, stage, {context.asset_key.to_user_string(): (headline, plots)})
    return result


def run_stages(
    context: dg.AssetExecutionContext,
    resource: PipelineResource,
    stage: str,
    shown: Mapping[str, tuple[Headline | None, tuple[str, ...]]],
) -> Iterator[dg.MaterializeResult[None]]:
    """Run a stage that makes several artefacts, in the order of ``shown``: asset -> its headline and plots.

    Raises:
        dagster.Failure: the stage refused its settings or its input; trying again cannot help.
    """
    pipeline = _build(resource, LogProgress(context.log.info))
    started, marker = time.monotonic(), time.time_ns()
    try:
        refs = pipeline.run(
            stage, *record_key(context.partition_key), overrides=context.op_execution_context.op_config
        )
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    seconds = round(time.monotonic() - started, 3)
    for (asset, (headline, plots)), ref in zip(shown.items(), refs, strict=True):
        manifest = pipeline.store.manifest(ref)
        computed = int(manifest["written_at_ns"]) >= marker
        metadata: Metadata = {"outcome": "computed" if computed else "unchanged, reused", "seconds": seconds}
        metadata |= headline(pipeline, ref, manifest) if headline else {}
        metadata |= artefact_metadata(pipeline.store, ref, manifest, plots=plots)
        yield dg.MaterializeResult(
            asset_key=asset, metadata=metadata, data_version=dg.DataVersion(ref.content_digest)
        )


def _build(resource: PipelineResource, progress: LogProgress) -> Pipeline:
    try:
        return resource.pipeline(progress)
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error

"""Runs one stage and its checks for one partition, and tells Dagster what came of it. Knows no stage by name."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from assets.checks import Artefact, Shown, check_results
from assets.column_lineage import column_lineage
from assets.jobs import CRAWL_JOB
from assets.metadata import Metadata, artefact_metadata, parts_schema, scalars
from assets.partitions import dimension_tags, partition_of, record_key
from datamask_pipeline.errors import DataMaskError, StorageError
from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.pipeline.check import check_score_columns
from datamask_pipeline.pipeline.stage import Output, Stage
from datamask_pipeline.storage import require
from resources import PipelineResource
from resources.progress import LogProgress

COMPUTED, REUSED = "computed", "unchanged, reused"


def run_stage(
    context: dg.AssetExecutionContext,
    resource: PipelineResource,
    stage: Stage,
    shown: Mapping[str, Shown],
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Run a stage for the step's partition, then its checks; the checks alone where none of its assets is asked for.

    Args:
        context: Names the partition and holds what was changed in the launchpad.
        resource: Builds the chain.
        stage: The stage.
        shown: By asset, what its page shows beside what every artefact has.

    Raises:
        dagster.Failure: the stage refused its settings or its input; trying again cannot help.
    """
    started = time.monotonic()
    try:
        pipeline = resource.pipeline(LogProgress(context.log.info), run=context.run.run_id)
        key = "/".join(record_key(partition_of(context)))
        if context.selected_asset_keys:
            # Of every step of the run, so that its first one tells before anything is computed.
            given: Any = context.run.run_config.get("ops", {})
            for each in (each for each in FLOW if each.name in given):
                pipeline.settings(each, key, given[each.name].get("config"))
            if stage.scope != "crawl":
                pipeline.refuse_retired(key.partition("/")[0])
            if stage.uses == "source" and context.run.job_name == CRAWL_JOB.name:
                check_score_columns(pipeline.config, pipeline.source, key)  # before vectors are computed
            pipeline.store.sweep()  # of what killed steps left
            refs = pipeline.run(stage.name, key, overrides=context.op_execution_context.op_config)
        else:
            refs = tuple(require(pipeline.store, output.artefact, key) for output in stage.makes)
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    seconds = round(time.monotonic() - started - pipeline.store.leases.waited, 3)
    for output, ref in zip(stage.makes, refs, strict=True):
        artefact = Artefact(pipeline, ref, pipeline.store.manifest(ref))
        extra = shown.get(output.asset, Shown())
        if context.selected_asset_keys:
            computed = ref.location in pipeline.store.made
            for line in stage.told(artefact.manifest) if computed and output is stage.makes[0] else []:
                context.log.info(line)
            metadata = outcome(computed, seconds) | page_of(artefact, output, extra)
            yield from _told(context, output, artefact, metadata)
        asset = dg.AssetKey(output.asset)
        wanted = {check.name for check in context.selected_asset_check_keys if check.asset_key == asset}
        yield from check_results(output, extra, artefact, wanted)


def _told(
    context: dg.AssetExecutionContext, output: Output, artefact: Artefact, metadata: Metadata
) -> Iterator[dg.MaterializeResult[None]]:
    """Tell Dagster that an asset was made."""
    version = dg.DataVersion(artefact.ref.content_digest)
    if dg.AssetKey(output.asset) in context.selected_asset_keys:
        yield dg.MaterializeResult(asset_key=output.asset, metadata=metadata, data_version=version)
    else:  # written by the same step, though only another output was asked for
        partition = context.partition_key
        tags = {DATA_VERSION_TAG: version.value, **dimension_tags(partition)}
        context.log_event(
            dg.AssetMaterialization(output.asset, partition=partition, metadata=metadata, tags=tags)
        )


def outcome(computed: bool, seconds: float) -> Metadata:
    """Whether a stage computed an artefact or found it, and in how many seconds, without those of waiting for other runs."""
    return {"outcome": COMPUTED if computed else REUSED, "seconds": seconds}


def page_of(artefact: Artefact, output: Output, extra: Shown) -> Metadata:
    """What an asset's page shows."""
    metadata = scalars(artefact.found, *extra.numbers) | extra.headline(artefact)
    metadata |= artefact_metadata(
        artefact.pipeline.store, artefact.ref, artefact.manifest, plot_files=extra.plots
    )
    if artefact.manifest["parts"]:
        metadata["dagster/column_lineage"] = _lineage(artefact, output.asset)
    return metadata


def _lineage(artefact: Artefact, asset: str) -> dg.TableColumnLineage:
    """Where its columns come from; not from what its stage reads for other settings, as rules read no vectors."""
    store, (stage, _) = artefact.pipeline.store, FLOW.maker(asset)
    read = {name.partition("/")[0] for name in artefact.manifest["basis"]["inputs"]}
    unread = {*stage.reads.values()} - {of for argument, of in stage.reads.items() if argument in read}

    def names_of(other: str) -> list[str]:
        made_by, output = FLOW.maker(other)
        key = artefact.release if made_by.scope == "release" else artefact.ref.key
        return parts_schema(store, artefact.neighbour(output.artefact, key)).names

    return column_lineage(asset, parts_schema(store, artefact.ref).names, names_of, unread)

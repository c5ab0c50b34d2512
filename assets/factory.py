"""Makes the assets of each stage of the flow, with their checks. Knows no stage by name.

What is special to a stage, its checks and what its page shows, stands in the file of its name beside this one.
"""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, Final

import dagster as dg

from assets import partitions
from assets.checks import Shown, check_specs
from assets.freshness import freshness_policy
from assets.interrupts import stoppable
from assets.launchpad import code_version, launchpad
from assets.step import run_stage
from datamask_pipeline.pipeline import FLOW, PipelineConfig
from datamask_pipeline.pipeline.stage import Stage
from resources import PipelineResource

OWNERS: Final = ["team:data-curation"]
#: A killed or disconnected step goes on where it was, so trying again is cheap.
RETRIES: Final = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)


def stage_definitions(stage: Stage, config: PipelineConfig) -> dg.Definitions:
    """A stage's assets, made by one step, which evaluates the checks of each as well."""
    partitioned = partitions.of_scope(stage.scope, config)
    shown = shown_of(stage)
    specs = [
        dg.AssetSpec(
            output.asset,
            description=output.description,
            deps=[_dependency(stage, asset, config) for asset in config.reads(stage).values()],
            group_name=stage.group.name,
            kinds=set(output.kinds.split()),
            owners=OWNERS,
            code_version=stage_version(stage, config),
            partitions_def=partitioned,
            tags={"stage": stage.name},
            freshness_policy=freshness_policy(output.asset, config),
        )
        for output in stage.makes
    ]

    checks = [
        spec
        for output in stage.makes
        for spec in check_specs(output, partitioned, shown.get(output.asset, Shown()))
    ]

    @dg.multi_asset(
        name=stage.name,
        specs=specs,
        check_specs=checks,
        partitions_def=partitioned,
        config_schema=launchpad(*config.settings(stage).values(), fixed=frozenset(stage.named)),
        pool=stage.uses,
        can_subset=True,  # each of several outputs can be asked for alone, without a warning in the UI
        retry_policy=RETRIES,
    )
    def run_step(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        yield from stoppable(run_stage(context, pipeline, stage, shown))

    return dg.Definitions(assets=[run_step])


def stage_version(stage: Stage, config: PipelineConfig, member: str | None = None) -> str:
    """A stage's version and settings: of one arm or run, or of all of them."""
    settings = config.settings(stage)
    configured = [settings[member]] if stage.varies and member else list(settings.values())
    # What the source gives follows from its settings, so they count as the ingesting stage's.
    return code_version(stage.version, *configured, *([config.source] if stage.uses == "source" else []))


def shown_of(stage: Stage) -> Mapping[str, Shown]:
    """The stage's own checks and headlines by asset; none if there is no file of its name."""
    name = f"assets.{stage.name}"
    if importlib.util.find_spec(name) is None:
        return {}
    shown: Mapping[str, Any] = importlib.import_module(name).SHOWN
    return shown


def _dependency(stage: Stage, asset: str, config: PipelineConfig) -> dg.AssetDep:
    maker, _ = FLOW.maker(asset)
    return dg.AssetDep(
        asset, partition_mapping=partitions.mapping(of=maker.scope, onto=stage.scope, config=config)
    )

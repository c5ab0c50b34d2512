"""The composition root: assets, checks, jobs, schedule, sensors and resources. Computes nothing, loads no torch."""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.alerts import tell_of_failure
from assets.chain import chain_job
from assets.data_set import data_set_definitions
from assets.experiment import EXPERIMENT_ASSETS, experiment_job
from assets.factory import stage_definitions
from assets.freeze import freeze_job
from assets.jobs import JOBS
from assets.schedules import SCHEDULES
from assets.sensors import SENSORS
from assets.sweep import sweep_job, sweep_weekly
from datamask_pipeline.pipeline import load_config
from datamask_pipeline.pipeline.config import CONFIG_VARIABLE, DEFAULT_CONFIG
from resources import PipelineResource

#: What every step's process needs, imported once a run and inherited by each: of Dagster what it reads definitions and
#: writes events with. None of these starts a thread. No torch, which half of the steps do not need.
PRELOADED = (
    "datamask_pipeline.own_modules",  # the first, as it decides which others are found
    "datamask_pipeline.definitions",
    "dagster._utils.test",
    "dagster._core.storage.event_log.sqlite",
    "dagster._core.storage.runs.sqlite",
    "dagster._core.storage.schedules.sqlite",
    "duckdb",
    "pandas",
    "pyarrow.parquet",
)
#: A step fills the machine's cores by itself; the second one is for steps that wait for a disk or a network.
EXECUTOR = dg.multiprocess_executor.configured(
    {
        "max_concurrent": 2,
        "start_method": {"forkserver": {"preload_modules": list(PRELOADED)}},
    }
)


def build_defs(
    *,
    config: str | None = None,
    settings: Mapping[str, Any] | None = None,
    resource_overrides: Mapping[str, Any] | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """Everything Dagster needs to know.

    Args:
        config: A packaged configuration's name or a YAML file; by default what DATAMASK_CONFIG names.
        settings: Settings by dotted name that win over the file's.
        resource_overrides: Resources by name that replace the ones built here, for tests.
        loggers: Loggers by name that a run's configuration may ask for, instead of Dagster's own.

    Raises:
        ConfigurationError: the configuration is missing or wrong.
    """
    wanted = config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
    loaded = load_config(wanted, settings)
    with warnings.catch_warnings():
        # Partition mappings and partitioned checks are what they are called in Dagster 1.13, which the constraints file
        # pins.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        stages = [stage_definitions(stage, loaded) for stage in loaded.stages()]
        data_set = data_set_definitions(loaded)
    return dg.Definitions.merge(
        *stages,
        data_set,
        dg.Definitions(
            assets=EXPERIMENT_ASSETS,
            jobs=[*JOBS, chain_job, freeze_job, sweep_job, experiment_job],
            schedules=[*SCHEDULES, sweep_weekly],
            sensors=[*SENSORS, tell_of_failure],
            resources={
                "pipeline": PipelineResource(config=wanted, settings=dict(settings or {})),
                **(resource_overrides or {}),
            },
            executor=EXECUTOR,
            loggers=loggers,
        ),
    )


defs = build_defs()

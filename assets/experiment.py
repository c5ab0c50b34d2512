"""An experiment as one job: the collection's shared stages, every draw a step of its own, the report.

Draws are steps that need nothing of each other: as many run at once as the executor allows, and a run that failed goes on
from those that did. What was measured lies in the record, as by `datamask experiment`, whose results are the same. An
experiment has a chain and a record of its own, so its assets hang on none of the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from assets.factory import OWNERS, RETRIES
from assets.metadata import Metadata, image, table
from datamask_pipeline.errors import DataMaskError, StorageError
from datamask_pipeline.pipeline.chain import Artefact
from datamask_pipeline.storage import Ref
from resources import ExperimentResource
from resources.progress import LogProgress

DRAW, REPORT = "experiment_draw", "experiment_report"
#: Of draws as ``<experiment>/<pool>/<number>``, and of experiments by name.
DRAWS = dg.DynamicPartitionsDefinition(name="experiment_draws")
EXPERIMENTS = dg.DynamicPartitionsDefinition(name="experiments")

EXPERIMENT_ASSETS = [
    dg.AssetSpec(
        DRAW,
        partitions_def=DRAWS,
        group_name="experiment",
        owners=OWNERS,
        kinds={"parquet"},
        description="Every arm of an experiment, chosen from one half of one pool and measured. Made by `experiment_job`.",
    ),
    dg.AssetSpec(
        REPORT,
        deps=[dg.AssetDep(DRAW, partition_mapping=dg.AllPartitionMapping())],
        partitions_def=EXPERIMENTS,
        group_name="experiment",
        owners=OWNERS,
        kinds={"markdown"},
        description="An experiment's answer, with its tables and plots. Made by `experiment_job`.",
    ),
]


@dg.op(
    out=dg.DynamicOut(dict[str, Any]),
    description="Makes what all draws share, and lists them.",
    retry_policy=RETRIES,
)
def draws_to_measure(
    context: dg.OpExecutionContext, experiment: ExperimentResource
) -> Iterator[dg.DynamicOutput[dict[str, Any]]]:
    """One output for each draw of each pool, with what all draws read."""
    from datamask_pipeline.experiment.run import make_shared, refuse_unwritable

    told = LogProgress(context.log.info)
    with _refusals():
        config, pipeline = experiment.load(progress=told)
        refuse_unwritable(
            to=None if experiment.to is None else Path(experiment.to), kept=experiment.kept_folder
        )
        make_shared(config, pipeline, told, context.log.warning)
    draws = [(place, pool, number) for place, pool in enumerate(config.pools) for number in config.draws(())]
    context.instance.add_dynamic_partitions(str(EXPERIMENTS.name), [config.name])
    context.instance.add_dynamic_partitions(
        str(DRAWS.name), [f"{config.name}/{pool}/{number:03d}" for _, pool, number in draws]
    )
    made = [ref.as_dict() for ref in pipeline.made.values()]
    for place, pool, number in draws:
        # Not every name of a pool is one of a step.
        yield dg.DynamicOutput(
            {"pool": pool, "number": number, "made": made}, mapping_key=f"pool_{place}_draw_{number}"
        )


@dg.op(description="Measures every arm on one draw, or finds it measured.", retry_policy=RETRIES)
def measure(
    context: dg.OpExecutionContext, draw: dict[str, Any], experiment: ExperimentResource
) -> dict[str, Any]:
    """Tells Dagster of the draw; gives it on."""
    from datamask_pipeline.experiment.run import measure_draws

    with _refusals():
        config, pipeline = experiment.load((draw["pool"],), made=_made(draw))
        (ref,) = measure_draws(
            config,
            pipeline,
            draw["pool"],
            [draw["number"]],
            LogProgress(context.log.info),
            kept=experiment.kept_folder,
        )
    rows = pipeline.store.read_table(ref).to_pylist()
    context.log_event(
        dg.AssetMaterialization(
            DRAW,
            partition=ref.key,
            metadata={
                "fingerprint": ref.fingerprint,
                "content digest": ref.content_digest,
                "bits per byte": table(
                    [{**row, "bits_per_byte": row["bits"] / row["bytes"]} for row in rows],
                    "arm",
                    "task",
                    "documents",
                    "tokens",
                    "bits_per_byte",
                ),
            },
        )
    )
    return draw


@dg.op(
    ins={"draws": dg.In(list[dict[str, Any]])},
    description="Judges all draws, and writes the report.",
    retry_policy=RETRIES,
)
def report(
    context: dg.OpExecutionContext, draws: list[dict[str, Any]], experiment: ExperimentResource
) -> None:
    """Tells Dagster of the answer."""
    from datamask_pipeline.experiment.report import conclusion, plot, write_report
    from datamask_pipeline.experiment.report_sweep import recommendation
    from datamask_pipeline.experiment.run import run_experiment

    with _refusals():
        config, pipeline = experiment.load(made=_made(draws[0]))
        verdicts = run_experiment(
            config, pipeline, LogProgress(context.log.info), kept=experiment.kept_folder
        )
        written = [] if experiment.to is None else write_report(Path(experiment.to), config, verdicts)
    metadata: Metadata = {"question": config.question, "draws": len(draws)}
    for pool, verdict in verdicts.items():
        metadata[f"pool {pool}"] = conclusion(config, verdict)
        if verdict.recommendation is not None:
            metadata[f"pool {pool}: recommendation"] = recommendation(config, verdict)
    if (drawn := plot(config, verdicts)) is not None:
        metadata["each arm less the baseline"] = image("each arm less the baseline", drawn)
    for path in written:
        metadata[path.name] = dg.MetadataValue.path(path)
    context.log_event(dg.AssetMaterialization(REPORT, partition=config.name, metadata=metadata))


@dg.job(
    resource_defs={"experiment": ExperimentResource.configure_at_launch()},
    description="One experiment, from subsets to report, as `datamask experiment`; name its file and data in the launchpad.",
)
def experiment_job() -> None:
    """Shared stages, draws side by side, report."""
    report(draws_to_measure().map(measure).collect())


def _made(draw: dict[str, Any]) -> dict[Artefact, Ref]:
    """What the first step made or found: draws are of that, whatever another run makes current meanwhile."""
    return {(ref.stage, ref.key): ref for ref in (Ref(**each) for each in draw["made"])}


@contextmanager
def _refusals() -> Iterator[None]:
    """What trying again cannot help is told as a failure without retries."""
    try:
        yield
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error

"""The whole chain through Dagster in one process: `python -m datamask_pipeline.demo`. Knows jobs, no stage.

It runs what the sensor `advance` would ask for, each crawl and then the release, against the instance in DAGSTER_HOME,
so that the UI shows all of it afterwards.
"""

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import typer
from dagster import DagsterEventType, DagsterRunStatus
from dagster._core.definitions.repository_definition.valid_definitions import SINGLETON_REPOSITORY_NAME
from dagster._core.remote_origin import RemoteRepositoryOrigin
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG
from dagster._core.workspace.load_target import WorkspaceFileTarget
from filelock import FileLock, Timeout

from assets.partitions import CRAWLS, RELEASES, record_key
from assets.plan import Wanted, crawl_run, release_run
from assets.step import REUSED
from datamask_pipeline.cli.options import ConfigOption, SetOption, releases_of
from datamask_pipeline.cli.pairs import parse_pairs
from datamask_pipeline.cli.summary import print_summary
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.printable import inert

#: Marks the runs that the demo started, against those of a daemon on the same instance.
LAUNCHED_BY = {"datamask/launched_by": "demo"}
#: The code location that `make dev` shows.
WORKSPACE = Path(__file__).parents[1] / "workspace.yaml"


class AlreadyRunning(DataMaskError):
    """Another demo is at work on the same Dagster instance."""


class StepFailed(DataMaskError):
    """A step of a run failed; the message is the library's."""


def run(config: ConfigOption = None, settings: SetOption = None) -> None:
    """Run every release of the configuration and print the table over its arms."""
    # Here, so that `--help` answers at once.
    from datamask_pipeline.definitions import build_defs

    changed = parse_pairs(settings)
    pipeline = Pipeline(load_config(config, changed))
    names = releases_of(pipeline, None, new=True)
    pipeline.check(wanted=names)
    narrator = Narrator(functools.partial(plain_console().print, soft_wrap=True))
    defs = build_defs(config=config, settings=changed, loggers={"narrator": narrator.logger()})
    pipeline.store.sweep()
    with dg.DagsterInstance.get() as instance, only_demo_of(instance):
        end_abandoned_runs(instance)
        for release in names:
            run_release(instance, defs, pipeline, release, narrator)
    print(f"\n{narrator.summary()}")
    for release in names:
        print()
        print_summary(pipeline, release)
        print(f"a page of it, to look at:  {_page(pipeline, release)}")


def _page(pipeline: Pipeline, release: str) -> Path:
    """The page of the release's last arm, beside the record: in it lies nothing that no manifest names."""
    # Here, as only this needs matplotlib and templates.
    from datamask_pipeline.look.page import write_page

    arm = list(pipeline.config.arms)[-1]
    store = pipeline.store
    folder = Path(store.root).parent if store.is_local else Path()
    return write_page(store, release, arm, folder / "pages" / f"{release}-{arm}.html")


@contextmanager
def only_demo_of(instance: dg.DagsterInstance) -> Iterator[None]:
    """Be the only demo on an instance; the lock goes with the process, however that ends.

    Raises:
        AlreadyRunning: another demo holds the instance.
    """
    lock = FileLock(Path(instance.root_directory) / "demo.lock", blocking=False)
    try:
        held = lock.acquire()
    except Timeout:
        raise AlreadyRunning(
            f"another demo is running on the Dagster instance {instance.root_directory}: "
            "wait for it, stop it, or take another instance: make demo DAGSTER_HOME=/whole/path"
        ) from None
    with held:
        yield


def end_abandoned_runs(instance: dg.DagsterInstance) -> None:
    """Mark as failed what a killed demo left unfinished, and free the places in pools that it still holds.

    Only the instance's one demo may call this: an unfinished run of a demo is then a dead one. Without it, the
    next demo would wait for those places for ever, as there is no daemon that frees them.
    """
    unfinished = [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    for dead in instance.get_runs(dg.RunsFilter(tags=LAUNCHED_BY, statuses=unfinished)):
        instance.report_run_failed(dead, "The demo that ran this was killed.")
    holders = list(instance.event_log_storage.get_concurrency_run_ids())
    for over in instance.get_runs(dg.RunsFilter(tags=LAUNCHED_BY, run_ids=holders)) if holders else []:
        instance.event_log_storage.free_concurrency_slots_for_run(over.run_id)


def run_release(
    instance: dg.DagsterInstance,
    defs: dg.Definitions,
    pipeline: Pipeline,
    release: str,
    narrator: "Narrator",
) -> None:
    """Run one release: its crawls, one by one, and then all else.

    Raises:
        StepFailed: a step failed.
    """
    crawls = pipeline.release_crawls(release)
    instance.add_dynamic_partitions(str(CRAWLS.name), crawls)
    instance.add_dynamic_partitions(str(RELEASES.name), [release])
    for crawl in crawls:
        _run_job(instance, defs, crawl_run(pipeline, crawl))
    _run_job(instance, defs, release_run(pipeline, release))


def _run_job(instance: dg.DagsterInstance, defs: dg.Definitions, wanted: Wanted) -> None:
    origin = _jobs_origin()
    result = defs.resolve_job_def(wanted.job).execute_in_process(
        instance=instance,
        partition_key=wanted.partition_key,
        tags=wanted.tags | LAUNCHED_BY | {REPOSITORY_LABEL_TAG: origin.get_label()},
        run_config={"loggers": {"narrator": {}}},
        raise_on_error=False,
    )
    # A run of this process belongs to no code location: the UI's timeline and the pages of jobs would leave it out.
    storage: Any = instance.run_storage
    storage.replace_job_origin(instance.get_run_by_id(result.run_id), origin.get_job_origin(wanted.job))
    if not result.success:
        raise StepFailed(f"{wanted.job} of {wanted.partition_key}: {_reason(result)}")


@functools.cache
def _jobs_origin() -> RemoteRepositoryOrigin:
    """Where `make dev` finds the jobs."""
    (location,) = WorkspaceFileTarget([str(WORKSPACE)]).create_origins()
    return RemoteRepositoryOrigin(location, SINGLETON_REPOSITORY_NAME)


def _reason(result: dg.ExecuteInProcessResult) -> str:
    """The first failed step's message, or the first failed blocking check's name."""
    for event in result.all_events:
        if event.event_type == DagsterEventType.STEP_FAILURE:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            error = data.error
            while error is not None and error.cause is not None:
                error = error.cause
            return error.message.strip() if error else "failed"
    return "failed"


class Narrator(logging.Handler):
    """Turns a run's events into one line a step, and says nothing of the rest.

    Args:
        write: Takes one line.
    """

    def __init__(self, write: Callable[[str], Any]) -> None:
        super().__init__(logging.DEBUG)  # Dagster's events are debug records
        self._write = write
        self._outcomes: dict[tuple[str, str], str] = {}

    def logger(self) -> dg.LoggerDefinition:
        """This handler as a logger that Dagster can be given."""

        def init(context: dg.InitLoggerContext) -> logging.Logger:
            logger = logging.Logger("narrator", logging.DEBUG)
            logger.addHandler(self)
            return logger

        return dg.LoggerDefinition(init, description="One line a step.")

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of materialised assets, failed checks and the stages' own progress."""
        event = getattr(record, "dagster_meta", {}).get("dagster_event")
        if event is None:
            if record.levelno >= logging.INFO:
                self._write(f"    {inert(_own_words(record))}")
        elif event.event_type == DagsterEventType.ASSET_MATERIALIZATION:
            self._tell(event.step_materialization_data.materialization)
        elif event.event_type == DagsterEventType.ASSET_OBSERVATION:
            self._tell(event.asset_observation_data.asset_observation)
        elif event.event_type == DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            if not evaluation.passed:
                metadata = {name: value.value for name, value in evaluation.metadata.items()}
                self._write(f"  {evaluation.severity.value}: {evaluation.check_name} failed: {metadata}")

    @property
    def outcomes(self) -> list[str]:
        """What came of each artefact."""
        return [*self._outcomes.values()]

    def summary(self) -> str:
        """How much was computed and how much reused."""
        reused = self.outcomes.count(REUSED)
        computed = len(self.outcomes) - reused
        if computed == 0:
            return f"nothing was computed again: all {reused} artefacts are unchanged and were reused"
        return f"{computed} artefacts computed, {reused} unchanged and reused"

    def _tell(self, told: dg.AssetMaterialization | dg.AssetObservation) -> None:
        metadata = {name: value.value for name, value in told.metadata.items()}
        outcome, rows = str(metadata["outcome"]), metadata.get("dagster/row_count")
        asset, key = told.asset_key.to_user_string(), "/".join(record_key(told.partition or ""))
        if (asset, key) in self._outcomes:  # the release's run finds what its crawls' runs have made
            return
        self._outcomes[asset, key] = outcome
        size = f"{rows:>9,} rows" if rows is not None else " " * 14
        self._write(f"{asset:<22}{key:<40}{size}  {metadata['seconds']:>7.1f} s  {outcome}")


def _own_words(record: logging.LogRecord) -> str:
    """The stage's message without the run id and step name that Dagster puts before it."""
    return str(getattr(record, "dagster_meta", {}).get("orig_message", record.getMessage()))


def main() -> None:
    """Entry point: what the library refuses becomes one line on standard error and exit status 1."""
    try:
        typer.run(run)
    except DataMaskError as error:
        print(f"error: {inert(error)}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

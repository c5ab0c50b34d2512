"""The tiny chain through Dagster: once, on an ephemeral instance, into a record of its own."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from datamask_pipeline.definitions import build_defs
from datamask_pipeline.demo import Narrator, run_release
from datamask_pipeline.pipeline import Pipeline, load_config


@dataclasses.dataclass(frozen=True)
class DagsterRun:
    """What the fixture leaves behind; tests add runs, but leave the record's artefacts as they are."""

    instance: dg.DagsterInstance
    config_file: Path
    settings: dict[str, object]
    pipeline: Pipeline
    lines: list[str]
    outcomes: list[str]

    def defs(self, **settings: object) -> tuple[dg.Definitions, list[str], Narrator]:
        """Definitions with further settings, and what their runs will say."""
        lines: list[str] = []
        narrator = Narrator(lines.append)
        changed = {**self.settings, **settings}
        loggers = {"narrator": narrator.logger()}
        return build_defs(config=str(self.config_file), settings=changed, loggers=loggers), lines, narrator

    def job(
        self, name: str, partition_key: str, *, ops: dict[str, object] | None = None, **settings: object
    ) -> dg.ExecuteInProcessResult:
        """Run one job."""
        defs, _, _ = self.defs(**settings)
        return defs.resolve_job_def(name).execute_in_process(
            instance=self.instance,
            partition_key=partition_key,
            run_config={"ops": ops or {}, "loggers": {"narrator": {}}},
            raise_on_error=False,
        )


@pytest.fixture(scope="session")
def tiny_defs(tiny_config_file: Path) -> dg.Definitions:
    """Definitions over the tiny chain's configuration."""
    return build_defs(config=str(tiny_config_file))


@pytest.fixture(scope="session")
def dagster_run(tiny_config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterRun]:
    """The whole tiny chain, run as `make demo` runs it."""
    settings: dict[str, object] = {"store": str(tmp_path_factory.mktemp("dagster") / "record")}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    with dg.DagsterInstance.ephemeral() as instance:
        run = DagsterRun(instance, tiny_config_file, settings, pipeline, [], [])
        defs, lines, narrator = run.defs()
        run_release(instance, defs, pipeline, "first", narrator)
        yield dataclasses.replace(run, lines=lines, outcomes=narrator.outcomes)

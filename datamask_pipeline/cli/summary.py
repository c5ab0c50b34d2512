"""The table that closes a run: one column an arm, and where to look next."""

import math
import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.report.comparison import final_rows
from datamask_pipeline.storage import Ref, require

#: A score further above chance than this, in its standard errors, is more than luck.
ABOVE_LUCK = 2.0


def print_summary(pipeline: Pipeline, release: str, *, console: Console | None = None) -> None:
    """Print what each arm selected and how its models did.

    Raises:
        ConfigurationError: the release has not been compared yet.
    """
    console = console or Console()
    ref = require(pipeline.store, "compare", release)
    metadata = pipeline.store.manifest(ref)["metadata"]
    arms: list[dict[str, Any]] = metadata["arms"]
    table = Table(
        title=f"release {release}: {', '.join(pipeline.release_crawls(release))}", title_justify="left"
    )
    table.add_column("")
    for arm in arms:
        table.add_column(arm["arm"], justify="right")
    _row(table, "documents", [f"{arm['documents']:,}" for arm in arms])
    _row(table, "tokens", [f"{arm['tokens']:,}" for arm in arms])
    _row(table, "objective", [_number(arm["objective"]) for arm in arms])
    _row(table, "certified gap", [_number(arm["gap"]) for arm in arms])
    _row(table, "validation bits per byte", [_number(arm["bits_per_byte"]) for arm in arms])
    table.add_section()
    for task in sorted({task for arm in arms for task in arm["tasks"]}):
        _row(table, task, [_number(arm["tasks"].get(task)) for arm in arms])
    _row(table, "mean of tasks", [_number(arm["mean"]) for arm in arms])
    console.print(table)
    _print_next(pipeline, release, console)


def _print_next(pipeline: Pipeline, release: str, console: Console) -> None:
    arm = list(pipeline.config.arms)[-1]
    subset = require(pipeline.store, "materialise", f"{release}/{arm}")
    first = next((batch for batch in pipeline.store.iter_batches(subset, ["id"], batch_rows=1)), None)
    document = first.column(0)[0].as_py() if first is not None and first.num_rows else "<id>"
    results = require(pipeline.store, "compare", release)
    lines = [
        f"subset of {arm}:  {pipeline.store.root}/{subset.location}/",
        f"all results:  {pipeline.store.root}/{results.location}/results.parquet",
        f"why a document is in or out:  .venv/bin/datamask audit why {shlex.quote(document)} {_this_record(pipeline)}",
        "in the browser:  make dev",
        *_verdict_on_the_models(pipeline, results),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _this_record(pipeline: Pipeline) -> str:
    """The option by which another command asks the same record."""
    if pipeline.config.storage_options:  # they may hold secrets: not for a terminal
        return "-c YOUR.yaml"
    return f"-s {shlex.quote(f'store={pipeline.store.root_url}')}"


def _verdict_on_the_models(pipeline: Pipeline, results: Ref) -> Iterator[str]:
    """A warning, where no model learnt enough for most of the tasks to tell arms apart."""
    above: dict[str, bool] = {}
    for row in final_rows(pipeline.store.read_table(results).to_pylist()):
        if row["headline"]:
            lucky = row["stderr"] is None or row["value"] <= row["chance"] + ABOVE_LUCK * row["stderr"]
            above[row["task"]] = above.get(row["task"], False) or not lucky
    near = list(above.values()).count(False)
    if 2 * near > len(above):
        yield (
            f"On {near} of {len(above)} tasks no model is clearly above chance: the table shows that the chain works, "
            "not which arm is better."
        )


def _row(table: Table, name: str, cells: list[str]) -> None:
    table.add_row(name, *cells)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"

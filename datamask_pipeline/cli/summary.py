"""What closes a run: tables of the arms and of their differences, and where to look next; the same as JSON or CSV."""

import csv
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from datamask_pipeline.cli.tables import Row, figure, print_in_blocks
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.report.comparison import final_rows, tasks_asked
from datamask_pipeline.report.objectives import AFFINE_SCALE
from datamask_pipeline.storage import require
from datamask_pipeline.storage.changes import current_manifest, reasons
from datamask_pipeline.storage.ref import ref_of


def print_summary(pipeline: Pipeline, release: str, *, console: Console | None = None) -> None:
    """Print what each arm selected, how its models did, and how far that is from the baseline.

    Raises:
        ConfigurationError: the release has not been compared yet.
    """
    console = console or Console()
    about = release_summary(pipeline, release)
    arms: list[dict[str, Any]] = about["arms"]
    objectives = _objectives(arms)
    title = f"release {release}: {', '.join(about['crawls'])}"
    sections = [_selections(arms, objectives), _results(arms, about["tasks"])]
    print_in_blocks(console, title, [arm["arm"] for arm in arms], sections)
    for function, row_name in objectives.items():
        if function:
            scale = "" if function.endswith("(raw units)") else f"; {AFFINE_SCALE}"
            console.print(f"{row_name}: {function}{scale}", highlight=False, markup=False, soft_wrap=True)
    if about["differences"]:
        _print_differences(console, about)
    _print_next(pipeline, about, console)


def release_summary(pipeline: Pipeline, release: str) -> dict[str, Any]:
    """All figures of a release: its crawls, its arms and their differences, as its comparison recorded them.

    ``tasks`` says of each task how many questions were asked and what guessing scores; ``caveat`` warns where most
    tasks tell arms not apart; ``subsets`` are those that the models were trained on, by arm; ``superseded`` says
    which arms have another selection by now.

    Raises:
        ConfigurationError: the release has not been compared yet.
    """
    results = require(pipeline.store, "compare", release)
    manifest = pipeline.store.manifest(results)
    rows = final_rows(pipeline.store.read_table(results).to_pylist())
    tasks = tasks_asked([row for row in rows if row["headline"]])
    return {
        "release": release,
        "crawls": pipeline.release_crawls(release),
        **manifest["metadata"],
        "tasks": tasks,
        "caveat": _caveat(tasks),
        "subsets": _locations(manifest, "subsets"),
        "superseded": dict(_superseded(pipeline, release, _locations(manifest, "selections"))),
    }


def as_csv(summaries: Sequence[Mapping[str, Any]]) -> str:
    """One row an arm; figures unrounded, nothing where there is none."""
    rows = [
        {
            "release": about["release"],
            **{key: arm[key] for key in arm if key != "tasks"},
            **arm["tasks"],
            **{f"{task} {name}": of[name] for task, of in about["tasks"].items() for name in ("n", "chance")},
            "caveat": about["caveat"],
        }
        for about in summaries
        for arm in about["arms"]
    ]
    table = io.StringIO()
    writer = csv.DictWriter(
        table, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()


def _objectives(arms: Sequence[Mapping[str, Any]]) -> dict[str | None, str]:
    """Each function that an arm's objective is a value of, and the name of its row: only equal ones share a row."""
    functions = list(dict.fromkeys(arm.get("objective_of") for arm in arms))
    if len(functions) == 1:
        return {functions[0]: "objective"}
    return {function: f"objective {number}" for number, function in enumerate(functions, start=1)}


def _selections(arms: Sequence[Mapping[str, Any]], objectives: Mapping[str | None, str]) -> list[Row]:
    counted = [(name, [arm[name] for arm in arms]) for name in ("documents", "tokens")]
    rows: list[Row] = [
        (name, ["-" if value is None else f"{value:,}" for value in of]) for name, of in counted
    ]
    for function, row_name in objectives.items():
        mine = [figure(arm["objective"]) if arm.get("objective_of") == function else "-" for arm in arms]
        rows.append((row_name, mine))
    return [*rows, ("certified gap", [figure(arm["gap"]) for arm in arms])]


def _results(arms: Sequence[Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = [("validation bits per byte", [figure(arm["bits_per_byte"]) for arm in arms])]
    for task, asked in tasks.items():
        name = f"{task} (n {asked['n']})"
        rows.append((name, [figure(arm["tasks"].get(task)) for arm in arms]))
    return [*rows, ("mean of tasks", [figure(arm["mean"]) for arm in arms])]


def _print_differences(console: Console, about: Mapping[str, Any]) -> None:
    found = {(row["arm"], row["architecture"], row["task"]): row for row in about["differences"]}
    columns = list(dict.fromkeys((arm, architecture) for arm, architecture, _ in found))
    rows = [
        (task, [_difference(found.get((*column, task))) for column in columns])
        for task in dict.fromkeys(task for *_, task in found)
    ]
    title = f"score less that of {about['baseline']}, with its 95 % interval"
    print_in_blocks(console, title, [" ".join(column) for column in columns], [rows])


def _difference(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if not row["half_width"]:
        return f"{row['difference']:+.4f} ({row.get('no_interval') or 'no spread'})"
    return f"{row['difference']:+.4f} ± {row['half_width']:.4f}"


def _print_next(pipeline: Pipeline, about: Mapping[str, Any], console: Console) -> None:
    arm = about["arms"][-1]["arm"]
    location = about["subsets"][arm]
    subset = ref_of(pipeline.store.manifest_at(location))
    first = next((batch for batch in pipeline.store.iter_batches(subset, ["id"], batch_rows=1)), None)
    document = first.column(0)[0].as_py() if first is not None and first.num_rows else "<id>"
    results = require(pipeline.store, "compare", about["release"])
    lines = [
        "tokens: counted by the release's tokenizer, with an end of text after each document",
        f"subset of {arm}:  {pipeline.store.root}/{location}/",
        f"all results:  {pipeline.store.root}/{results.location}/results.parquet",
        f"why a document is in or out:  .venv/bin/datamask audit why {shlex.quote(document)} {_this_record(pipeline)}",
        "in the browser:  make dev",
    ]
    for name, why in about["superseded"].items():
        lines.append(
            f"{name} has a newer selection, not in this table ({'; '.join(why)}): `datamask run` compares it"
        )
    if about["caveat"]:
        lines.append(about["caveat"])
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _locations(manifest: Mapping[str, Any], of: str) -> dict[str, str]:
    """Where the artefacts lie that a comparison was made from, by arm."""
    return {
        name.partition("/")[2]: ref["location"]
        for name, ref in manifest["inputs"].items()
        if name.startswith(f"{of}/")
    }


def _superseded(
    pipeline: Pipeline, release: str, selections: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """The arms whose selection is another by now than the compared one, and why it was made."""
    for arm, location in selections.items():
        now = current_manifest(pipeline.store, "select", f"{release}/{arm}")
        if now is not None and now["location"] != location:
            compared = pipeline.store.manifest_at(location)
            if compared["content_digest"] != now["content_digest"]:
                yield arm, reasons(pipeline.store, compared, ref_of(now))


def _this_record(pipeline: Pipeline) -> str:
    """The option by which another command asks the same record."""
    if pipeline.config.storage_options:  # they may hold secrets: not for a terminal
        return "-c YOUR.yaml"
    return f"-s {shlex.quote(f'store={pipeline.store.root_url}')}"


def _caveat(tasks: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A warning, where no model learnt enough for most of the tasks to tell arms apart."""
    near = sum(not about["above_chance"] for about in tasks.values())
    if 2 * near <= len(tasks):
        return None
    return (
        f"On {near} of {len(tasks)} tasks no model is clearly above chance: the table shows that the chain works, "
        "not which arm is better."
    )

"""What closes a run: the figures of a release out of its record, their tables, and where to look next."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console

from datamask_pipeline import schema
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.near_copies.recall import about_recall
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.beside import compared, ngram_figures_of, redundancy_of, weak_models
from datamask_pipeline.pipeline.held_against import was_not_held_against
from datamask_pipeline.printable import inert
from datamask_pipeline.report.arms import caveat, print_arms
from datamask_pipeline.report.comparison import final_rows, tasks_asked
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.changes import current_manifest, reasons
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.whole import check_tables

#: A command line out of a command with what stands before its options.
CommandLine = Callable[[str], str]


def print_summary(
    pipeline: Pipeline, release: str, *, again: CommandLine | None = None, console: Console | None = None
) -> None:
    """Print what each arm selected, how its models did, and how far that is from the baseline.

    Args:
        pipeline: The chain.
        release: Its release.
        again: Makes the command lines that ask the same record; by default as they stand in the source code's folder.
        console: Where to print.

    Raises:
        ConfigurationError: the release has not been compared yet.
    """
    console = console or plain_console()
    about = release_summary(pipeline, release)
    print_arms(console, about)
    _print_next(pipeline, about, again, console)


def release_summary(pipeline: Pipeline, release: str) -> dict[str, Any]:
    """All figures of a release: its crawls, its arms and their differences, as its comparison recorded them.

    ``no_power`` names the arms whose models predict held-out documents worse than n-gram models of theirs;
    ``tasks`` says of each task how many questions were asked and what guessing scores; ``checkpoints`` of how many last
    checkpoints a model's scores are the mean; ``caveat`` warns where most
    tasks cannot tell arms apart; ``redundancy`` is what was measured on each arm's documents without training, as
    `schema.REDUNDANCY` names it; ``ngram`` what n-gram models of those documents say; ``subsets`` are those that the
    models were trained on, by arm; ``not_held_against`` warns where documents were not held against the curated ones that
    models are asked; ``superseded`` says which arms have another selection by now; ``stale`` what else it was made from is
    another by now.

    Raises:
        ConfigurationError: the release has not been compared yet.
        IntegrityError: its table of results was altered.
    """
    results = require(pipeline.store, "compare", release)
    check_tables(pipeline.store, results)
    manifest = pipeline.store.manifest(results)
    rows = final_rows(pipeline.store.read_table(results).to_pylist())
    tasks = tasks_asked([row for row in rows if row["headline"]])
    checkpoints = sorted({row["checkpoints"] for row in rows})
    made = [current_manifest(pipeline.store, stage, release) for stage in ("questions", "pool")]
    superseded = dict(_superseded(pipeline, release, compared(manifest, "selections")))
    ngram = ngram_figures_of(pipeline.store, manifest)
    selections = tuple(f"select of {release}/{arm} was made again" for arm in superseded)
    return {
        "release": release,
        "crawls": pipeline.release_crawls(release),
        **manifest["metadata"],
        "tasks": tasks,
        "caveat": caveat(tasks),
        "checkpoints": checkpoints,
        "redundancy": dict(_redundancy(pipeline.store, manifest)),
        "no_power": weak_models(manifest, ngram),
        "ngram": ngram,
        "subsets": compared(manifest, "subsets"),
        "not_held_against": list(was_not_held_against(pipeline.store, *made)),
        "superseded": superseded,
        "stale": [line for line in stale(pipeline.store, results) if not line.startswith(selections)],
    }


def _print_next(
    pipeline: Pipeline, about: Mapping[str, Any], again: CommandLine | None, console: Console
) -> None:
    def command(words: str) -> str:
        return again(words) if again else f".venv/bin/datamask {words} {_this_record(pipeline)}"

    arm = about["arms"][-1]["arm"]
    location = about["subsets"][arm]
    subset = ref_of(pipeline.store.manifest_at(location))
    first = next((batch for batch in pipeline.store.iter_batches(subset, ["id"], batch_rows=1)), None)
    named = first.column(0)[0].as_py() if first is not None and first.num_rows else "<id>"
    document = named if inert(named) == named else "<id>"
    results = require(pipeline.store, "compare", about["release"])
    lines = [
        "tokens: counted by the release's tokenizer, with an end of text after each document",
        *_about_redundancy(about["redundancy"]),
        f"subset of {arm}:  {pipeline.store.address(location)}/",
        f"all results:  {pipeline.store.address(results.location)}/results.parquet",
        f"why a document is in or out:  {command(f'audit why {shlex.quote(document)}')}",
    ]
    if again is None:
        lines.append("in the browser:  make dev")
    for name, why in about["superseded"].items():
        lines.append(
            f"{name} has a newer selection, not in this table ({'; '.join(why)}): `{command('run')}` compares it"
        )
    lines += [f"STALE: {line}, and is not in this table: `{command('run')}`" for line in about["stale"]]
    lines += about["not_held_against"]
    if about["caveat"]:
        lines.append(about["caveat"])
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _about_redundancy(redundancy: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What the rows mean, once for all arms."""
    # Of arms of several sizes the one of which fewest are found.
    measured = sorted(redundancy.values(), key=lambda found: found.get("near_copy_recall") or 0.0)
    for found in measured[:1]:
        yield (
            f"near-copies: documents whose embedding has a cosine of at least {found['near_copy_cosine']} to that of an "
            f"earlier one of the arm{about_recall(found.get('near_copy_recall'))}"
        )
        yield "quality rank: mean among all that the arm could select, by the arm's own quality; 1 is the best"
        drawn, pool = found["coverage_documents"], found["pool_documents"]
        over = "all" if drawn == pool else f"{drawn:,} of the {pool:,}"
        yield (
            f"coverage: mean of the largest cosine to a document of the arm, over {over} documents that it could select. "
            f"{schema.ABOUT_COVERAGE}"
        )


def _redundancy(store: Store, comparison: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured on the compared selections, by arm."""
    of_row = schema.REDUNDANCY.names
    for arm, measured in redundancy_of(store, comparison).items():
        found = store.manifest(measured)["metadata"]
        yield arm, {name: found[name] for name in of_row if name in found}  # an older one lacks some


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

"""`datamask run` and `datamask report`: the whole chain without Dagster, and its closing table."""

import contextlib
import functools
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer
from rich.console import Console

from datamask_pipeline.cli import summary
from datamask_pipeline.cli.options import (
    ConfigOption,
    ReleaseOption,
    SetOption,
    build_pipeline,
    called_again,
    is_configured,
    releases_of,
)
from datamask_pipeline.cli.progress import Lines, Tracker, followed
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.errors import ConfigurationError, DataMaskError, is_of_storage
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.differences import (
    other_settings_of_report,
    set_back,
    set_back_line,
    steps_of_releases,
)
from datamask_pipeline.pipeline.estimate import told
from datamask_pipeline.pipeline.order import waits
from datamask_pipeline.pipeline.rolling import planned_member
from datamask_pipeline.pipeline.unmade import Unmade
from datamask_pipeline.printable import cell, inert
from datamask_pipeline.report import arms
from datamask_pipeline.stages import ingest, takedown
from datamask_pipeline.storage import require
from datamask_pipeline.storage.changes import current_manifest, reasons

#: Seconds of waiting for others from which on it is told.
LEAST_WAIT: Final = 0.1


def run(
    config: ConfigOption = None,
    settings: SetOption = None,
    release: ReleaseOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help=f"Run only this stage and those it needs: {', '.join(stage.name for stage in FLOW)}.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="This is task I of N that share the work and the record, each started by this same command, e.g. "
            "as a Slurm array: 0/8 to 7/8, or 1/8 to 8/8. In any order, any number of times; each ends when all is done.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be computed, why, and for about how long; write nothing.",
        ),
    ] = False,
) -> None:
    """Run the whole chain, from raw documents to a benchmark table, in this process.

    What the record holds already is not computed again; of what is, the line below says why. A killed run goes on
    where it was. Where a release or an arm fails, what is made of it is not made, in releases that go on from it either;
    everything else is. Where storage fails, the run ends. A line names each that fails; the last lines name the releases,
    each with the first reason; exit status is 1.

    Examples:

        datamask run

        datamask run -c my.yaml -s select.lamb=0.3 --until materialise

        datamask run -c my.yaml --until score --shard $SLURM_ARRAY_TASK_ID/8
    """
    console = plain_console(stderr=True)
    unmade = Unmade()
    with followed(console) as tracker:
        pipeline = build_pipeline(config, settings, tracker)
        if dry_run:
            pipeline = pipeline.looked_at()
        pipeline.start = _start(shard)
        names = releases_of(pipeline, release, new=True)
        for name in names:
            pipeline.refuse_retired(name)
        failed = pipeline.check_each(until, names)
        if len(failed) == len(names):
            pipeline.check(until, names)  # which refuses them all at once
        unmade.releases.update(failed)
        names = [name for name in names if name not in failed]
        for name in pipeline.config.releases if release is None else ():
            if waits(pipeline, name):
                console.print(_waits_line(pipeline, name), highlight=False, markup=False, soft_wrap=True)
        for name, error in failed.items():
            tracker.clear()
            _say_failed(name, error, console)
        if dry_run:
            _print_forecast(pipeline, names, until)
            return _end(failed)
        pipeline.store.sweep()
        for member in filter(None, (planned_member(pipeline, name) for name in names)):
            pipeline.freeze(member)  # at once: a crawl that comes meanwhile is another release's
        if len(names) > 1 and takedown.STAGE in {stage.name for stage in pipeline.config.stages(until)}:
            for name in (
                names
            ):  # what is withdrawn by a copy in a later release's crawl goes from the earlier ones at once
                with _others_go_on(name, [*names, *failed], failed, console, tracker):
                    _run_steps(pipeline, name, ingest.STAGE, console, tracker, unmade)
        for name in [name for name in names if name not in failed]:
            with _others_go_on(name, [*names, *failed], failed, console, tracker):
                unmade.releases.add(name)
                if (given := pipeline.given(name)) in unmade.releases:
                    raise ConfigurationError(f"it goes on from {given}, which failed")
                if new := pipeline.left_out(name, names):
                    console.print(
                        _left_out_line(pipeline, name, new), highlight=False, markup=False, soft_wrap=True
                    )
                computed = _run_steps(pipeline, name, until, console, tracker, unmade)
                line = f"{name}: {sum(computed)} steps computed, {computed.count(False)} unchanged and reused"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    for name in names:
        if until in (None, "compare") and name not in failed:
            summary.print_summary(pipeline, name, again=_again(config, settings))
    if moved := _moved(pipeline):
        typer.echo(
            f"warning: of {', '.join(moved)} a run with other settings made another version current meanwhile; what is told "
            "of each step above is this run's own",
            err=True,
        )
    _end(failed)


def report(
    config: ConfigOption = None,
    settings: SetOption = None,
    release: ReleaseOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON list of releases: every figure, unrounded.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a row for each arm, figures unrounded.")
    ] = False,
) -> None:
    """Print the table over the arms of a release that has been run.

    The figures are the record's; where it was made with other settings than a configuration given, a line says so.
    """
    if as_json and as_csv:
        raise ConfigurationError("one form at a time: give --json or --csv")
    pipeline = build_pipeline(config, settings)
    pipeline.store.refuse_missing()
    names = releases_of(pipeline, release)
    if as_json or as_csv:
        found = [summary.release_summary(pipeline, name) for name in names]
        text = arms.as_csv(found) if as_csv else json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        typer.echo(text, nl=False)
    else:
        for name in names:
            summary.print_summary(pipeline, name, again=_again(config, settings))
    if is_configured(config, settings):
        for name in names:
            manifest = pipeline.store.manifest(require(pipeline.store, "compare", name))
            for line, made in other_settings_of_report(pipeline, manifest).items():
                typer.echo(f"not as configured: {line} ({', '.join(made)})", err=True)


def _moved(pipeline: Pipeline) -> list[str]:
    """Artefacts of this run that are not current any more."""
    moved = []
    for (artefact, key), ref in pipeline.made.items():
        current = current_manifest(pipeline.store, artefact, key)
        if current is None or current["fingerprint"] != ref.fingerprint:
            moved.append(f"{artefact} of {key}")
    return moved


def _start(shard: str | None) -> float:
    """Where a task of several begins in each list, as a share of its length.

    Raises:
        ConfigurationError: what is given is no task of so many.
    """
    if shard is None:
        return 0.0
    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, total = map(int, found.groups()) if found else (1, 0)
    if number > total or total == 0:
        raise ConfigurationError(
            f"--shard {shard}: give task and number of tasks, e.g. 0/8 to 7/8 or 1/8 to 8/8"
        )
    return number % total / total


def _again(config: str | None, settings: list[str] | None) -> summary.CommandLine:
    return functools.partial(called_again, config=config, settings=settings)


def _print_forecast(pipeline: Pipeline, releases: list[str], until: str | None) -> None:
    for release, steps in steps_of_releases(pipeline, releases, until):
        for step in steps:
            why = "; ".join(step.why) if step.counted_in is None else f"counted above, for {step.counted_in}"
            typer.echo(inert(f"{cell(step.stage, 14)}{cell(step.key, 44)}{why}"))
        new = [(step.stage, step.key) for step in steps if step.counted_in is None]
        for line in told(pipeline, release, new) if new else ():
            typer.echo(inert(line))
        above = f", {len(steps) - len(new)} more counted above" if len(new) < len(steps) else ""
        typer.echo(f"{release}: {len(new)} steps to compute{above}")
    for each in (again := set_back(pipeline)):
        typer.echo(inert(set_back_line(each.ref.stage, each.ref.key, each.why)))
    if again:
        typer.echo(f"{len(again)} artefacts were made before and would be current again")


@contextlib.contextmanager
def _others_go_on(
    name: str, names: list[str], failed: dict[str, DataMaskError], console: Console, tracker: Tracker | Lines
) -> Iterator[None]:
    """Inside it, what one of several releases is refused for is told and kept; of storage that fails nobody goes on."""
    try:
        yield
    except DataMaskError as error:
        if len(names) == 1 or is_of_storage(error):
            raise
        failed[name] = error
        tracker.clear()
        _say_failed(name, error, console)


def _say_failed(name: str, error: DataMaskError, console: Console) -> None:
    line = f"release {name} failed: {inert(error)}"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _end(failed: Mapping[str, DataMaskError]) -> None:
    for name, error in failed.items():
        typer.echo(f"error: release {name}: {inert(error)}", err=True)
    if failed:
        raise typer.Exit(1)


def _run_steps(
    pipeline: Pipeline,
    release: str,
    until: str | None,
    console: Console,
    tracker: Tracker | Lines,
    unmade: Unmade,
) -> list[bool]:
    """Run the steps, and tell of each; of each step whether it was computed. Of arms, others go on where one fails.

    Raises:
        DataMaskError: a crawl or the release failed, at once; or the first arm that did, once all that does not need it is
            done; or, then too, something needs what failed of the release that this one goes on from.
    """

    def say(line: str) -> None:
        console.print(inert(line), highlight=False, markup=False, soft_wrap=True)

    computed: list[bool] = []
    told: set[str] = set()
    errors: list[DataMaskError] = []
    lacking = False
    unmade.releases.add(release)
    steps = pipeline.steps(release, until)
    for name, key, call in steps:
        stage = FLOW.stage(name)
        if unmade.keeps_from(pipeline, stage, key):
            unmade.add(stage, key)
            lacking = True
            say(f"{cell(name, 14)}{cell(key, 44)}not made: it needs what failed")
            continue
        before = current_manifest(pipeline.store, stage.makes[0].artefact, key)
        started, waited = time.monotonic(), pipeline.store.leases.waited
        try:
            refs = call()
        except DataMaskError as error:
            if stage.scope == "crawl" or is_of_storage(error):
                raise
            unmade.add(stage, key)
            if stage.scope == "release":
                unmade.add_all_of([(later, of) for later, of, _ in steps])
                unmade.releases.discard(release)
                raise
            errors.append(error)
            tracker.clear()
            say(f"{cell(name, 14)}{cell(key, 44)}failed: {error}")
            continue
        waited = pipeline.store.leases.waited - waited
        seconds = time.monotonic() - started - waited
        tracker.clear()
        manifest = pipeline.store.manifest(refs[0])
        fresh = any(ref.location in pipeline.store.made for ref in refs)
        computed.append(fresh)
        again = not fresh and any(ref.location in pipeline.store.again for ref in refs)
        state = f"{seconds:7.1f} s" if fresh else "current again" if again else "unchanged"
        if waited >= LEAST_WAIT:
            state += f", after {waited:.1f} s of waiting for another run"
        say(f"{cell(name, 14)}{cell(key, 44)}{stage.amount(manifest):>14}  {state}  {refs[0].short}")
        lines = _dropped(name, manifest["counts"])
        other = before is not None and before["fingerprint"] != refs[0].fingerprint
        why = reasons(pipeline.store, before, refs[0]) if fresh or (again and other) else []
        lines += [f"current again: {reason}" for reason in why if again]
        if fresh:
            lines += [f"computed again: {reason}" for reason in why]
            if carried := manifest["rows_carried"]:
                lines.append(f"of {manifest['rows']:,} rows {carried:,} are carried over as they were")
            lines += [line for line in stage.told(manifest) if line not in told]
            told.update(lines)
        for line in lines:
            say(f"            {line}")
    unmade.releases.discard(release)
    if errors:
        raise errors[0]
    if lacking:
        raise ConfigurationError(
            f"it goes on from {pipeline.given(release)}, and what it needs of that was not made"
        )
    return computed


def _left_out_line(pipeline: Pipeline, release: str, new: list[str]) -> str:
    frozen = ", ".join(pipeline.planned_crawls(release))
    verb, it = ("crawl {} is", "it") if len(new) == 1 else ("crawls {} are", "them")
    return (
        f"{verb.format(', '.join(new))} not in release {release}, which was frozen with {frozen}; "
        f"name a new release to take {it} in, or have one made with each (`every: crawl`)"
    )


def _waits_line(pipeline: Pipeline, release: str) -> str:
    return f"release {release} waits for a crawl to add to those of {pipeline.given(release)}"


def _dropped(stage: str, counts: Mapping[str, int]) -> list[str]:
    """A line of the rows that a stage left out, by reason, the most frequent first; none where it left out none."""
    dropped = {name.removeprefix("dropped_"): counts[name] for name in counts if name.startswith("dropped_")}
    found = sorted((item for item in dropped.items() if item[1]), key=lambda item: (-item[1], item[0]))
    if not found:
        return []
    what = "rejected" if stage == "ingest" else "left out"
    told = ", ".join(f"{number} {reason}" for reason, number in found)
    return [f"{sum(number for _, number in found)} {what}: {told}"]

"""`datamask audit takedown`: what was asked to be withdrawn from a release, what was found, what was done."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.compliance.cost import COUNTED
from datamask_pipeline.compliance.takedown import PURGED, takedown_report

#: So many of the entries that a purge rested on are named.
_NAMED: Final = 5


def takedown(
    release: Annotated[str, typer.Argument(help="The release, e.g. `first`.")],
    as_json: Annotated[bool, typer.Option("--json", help="The whole export as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Tell what was asked to be withdrawn from a release, what was found, what was done, and what it cost.

    Each entry of `pool.takedown` is listed with the documents that it names, and told where it names none; of
    `pool.robots`, each host of which something is withdrawn. The cost is read from the selections before and after.

    Example:

        datamask audit takedown first --json > withdrawn.json
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    with plain_console(stderr=True).status("reading the record"):
        report = takedown_report(store, release)
    print_answer(report, _lines(report), as_json=as_json)


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    totals, robots = report["totals"], report["robots"]
    naming = [entry["kind"] for entry in report["entries"] if entry["named"]]
    hosts, purges = naming.count("robots"), naming.count(PURGED)
    yield f"release {report['release']}: withdrawn by {report['pool']} on {report['decided_at']}"
    for entry in report["entries"]:
        by_text = entry.get("by_text")  # reports of earlier versions have none
        of_it = f" ({by_text} by the text of what it names in other crawls)" if by_text else ""
        told = f"names {entry['named']}{of_it}, withdrawn with copies {entry['withdrawn']}"
        yield f"  {entry['asked']}: {told}; {entry['done']}"
        if then := entry.get("asked_then"):
            more = f", and {len(then) - _NAMED} more" if len(then) > _NAMED else ""
            yield f"    asked then: {', '.join(then[:_NAMED])}{more}"
        for example in entry["examples"]:
            yield f"    e.g. {example['id']} of {example['crawl']}"
    if robots:
        agents = ", ".join(robots["user_agents"])
        yield f"  robots snapshot of {robots['date']} for {agents}: {hosts} of its {totals['robots_hosts']} hosts withdraw"
    texts = f", {hosts} robots.txt and the texts of {purges} purges" if purges else f" and {hosts} robots.txt"
    yield (
        f"  in all {totals['documents_withdrawn']} documents by {len(naming) - hosts - purges} of {totals['entries']} "
        f"entries{texts}; {totals['entries_that_name_nothing']} entries name nothing"
    )
    near = report["near_copies_left"]
    for each in report["purged"]:
        size = (
            ""
            if each["bytes"] is None
            else f", {each['bytes']:,} bytes of {len(each['domains']):,} registrable domains"
        )
        by = f"request {each['number']} ({each['request']}) of {each['date']}"
        yield (
            f"  purged by {by}: {each['documents']:,} documents of its crawls{size}; {each['not_in_pool']:,} of them not "
            "counted above, as they were gone when the pool was made"
        )
        if each["report"] and each["report"]["pool"] != report["pool"]:
            yield from _then(each["report"], with_cost=not report["cost"])
    if near is None:
        yield "  near-copies by embedding were not sought (copies.threshold), so those that stay are not known"
    else:
        yield f"  near-copies by embedding that stay: {near['documents']}{_of_near_copies(near)}"
        for example in near["examples"]:
            yield f"    e.g. {example['id']} of {example['crawl']}"
    for arm in report["cost"]:
        yield from _cost_lines(arm)


def _of_near_copies(near: Mapping[str, Any]) -> str:
    """What the number is of; reports of earlier versions do not say."""
    if "texts_compared" not in near:
        return ""
    return (
        f" ({near['held_out']} of them held out for validation), as far as is known: "
        f"{near['texts_compared']} of {near['texts_withdrawn']} withdrawn texts were compared before they were withdrawn"
    )


def _then(report: Mapping[str, Any], *, with_cost: bool) -> Iterator[str]:
    """What was withdrawn when a purge began, and what that cost."""
    yield f"    then withdrawn by {report['pool']} on {report['decided_at']}:"
    for entry in report["entries"]:
        yield f"      {entry['asked']}: named {entry['named']}, withdrawn with copies {entry['withdrawn']}"
    for arm in report["cost"] if with_cost else []:
        yield from (f"    {line}" for line in _cost_lines(arm))


def _cost_lines(arm: Mapping[str, Any]) -> Iterator[str]:
    before, after, difference = arm["before"], arm["after"], arm["difference"]
    if not arm["applied"]:
        yield f"  arm {arm['arm']}: still selected from a pool before these requests; `datamask run` selects it anew"
        return
    if before is None:
        yield f"  arm {arm['arm']}: the record holds no selection from before"
        return
    yield f"  arm {arm['arm']}: {before['selection']} -> {after['selection']}"
    if arm.get("crawls_changed"):  # tombstones of earlier versions do not say
        changed = ", ".join(arm["crawls_changed"])
        yield (
            f"    crawls were added, left out or read from other files between the two ({changed}): the differences are of "
            "that too, not of the withdrawal alone"
        )
    if arm.get("settings_changed"):
        yield (
            f"    other settings differ between the two ({', '.join(arm['settings_changed'])}): the differences are of that "
            "too, not of the withdrawal alone"
        )
    if arm.get("is_drawn"):
        yield "    it is drawn at random, and was drawn anew: the differences are of that too, not of the withdrawal alone"
    yield f"    budget: {_budget(before, after)}"
    for name in COUNTED:
        values = [
            of.get(name) for of in (before, after, difference)
        ]  # tombstones of earlier versions keep fewer
        if name == "documents_without_tokens" and not any(values):
            continue
        shown = [_shown(value) for value in values]
        yield f"    {name.replace('_', ' ')}: {shown[0]} -> {shown[1]} (difference {shown[2]})"
    yield f"    objective, each on its own scale: {_shown(before['objective'])} -> {_shown(after['objective'])}"


def _budget(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The arm's own budget, and of how many a ratio is."""
    own, of_new = str(after["budget"]), after.get("new_candidates") is not None
    number, what = ("new_candidates", "new candidates") if of_new else ("candidates", "candidates")
    if not own.startswith("ratio"):
        return f"{own} of what is added, before and after" if of_new else f"{own}, before and after"
    was = _shown(before.get(number))
    return f"{own} of {was} {what} before, of {_shown(after[number])} after; num_documents would refill the same number"


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

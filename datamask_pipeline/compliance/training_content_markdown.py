"""A summary of training content as Markdown. Knows the summary's shape; what strangers named is inert in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from datamask_pipeline.printable import code_span
from datamask_pipeline.token_totals import in_words

#: So many domains of a purge are listed; `--json` has all.
_MOST_PURGED: Final = 20


def as_markdown(summary: Mapping[str, Any]) -> str:
    """The whole summary, the domains last."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    text, collected = summary["modalities"]["text"], summary["collected"]
    found, reserved = summary["domains"], summary["reservations"]
    yield f"# Training content of {code_span(summary['release'] + '/' + summary['arm'])}"
    yield ""
    yield "Facts of one subset for the public summary that Article 53(1)(d) of the EU's AI Act asks for, from its record."
    if summary["purged"]:
        yield f"It was purged by {_request(summary['purged'])}; these are the numbers that its tombstone keeps."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield "| modality | text |"
    counted = in_words(text["tokens"], text["without_tokens"])
    yield f"| size | {text['size_band'] or 'unknown'}: {counted}, as the source counts them |"
    yield f"| documents, bytes | {text['documents']:,}; {text['bytes']:,} of UTF-8 |"
    yield (
        f"| collected | {_dates(collected)}; {collected['documents_without_date']:,} documents without a date |"
    )
    languages = ", ".join(
        f"{code_span(each['language'] or 'not stated')} {each['share']:.1%}" for each in summary["languages"]
    )
    yield f"| languages, by bytes | {languages or 'none'} |"
    yield f"| subset | {code_span(summary['subset'])} |"
    yield ""
    yield "## Sources"
    yield ""
    yield "| source | data set | revision | crawls | licence |"
    yield "|---|---|---|---|---|"
    for source in summary["sources"]:
        crawls = ", ".join(map(code_span, source["crawls"]))
        named = (code_span(source[name] or "not stated") for name in ("data_set", "revision"))
        licence = code_span(source["license"] or "not stated")
        yield f"| {code_span(source['kind'])} | {' | '.join(named)} | {crawls} | {licence} |"
    yield ""
    yield "## Reservation of rights"
    yield ""
    nothing = reserved["entries_that_name_nothing"]
    of_these = f", {nothing:,} of which name nothing" if nothing else ""
    by = f"{reserved['entries']:,} entries of a list{of_these}"
    yield f"{reserved['documents_withdrawn']:,} documents were withdrawn, by {by}."
    if robots := reserved["robots_snapshot"]:
        agents = ", ".join(map(code_span, robots["user_agents"]))
        yield (
            f"The robots.txt files of {reserved['robots_hosts']:,} hosts as of {robots['date']} were applied, for {agents}."
        )
    yield from _purged(reserved["purged"])
    yield ""
    yield from _models(summary)
    yield "## Domains"
    yield ""
    yield (
        f"{found['number']:,} registrable domains; listed are {found['rule']}: {len(found['listed']):,}, "
        f"{found['share_of_listed']:.1%} of the bytes. {found['documents_without_domain']:,} documents have no URL with a "
        f"host. Public suffixes: {code_span(summary['domain_list'])}."
    )
    yield ""
    yield "| domain | share of bytes | bytes | documents |"
    yield "|---|---|---|---|"
    for each in found["listed"]:
        yield f"| {code_span(each['domain'])} | {each['share']:.3%} | {each['bytes']:,} | {each['documents']:,} |"


def _purged(purges: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was erased of the crawls, by request and registrable domain."""
    for each in purges:
        yield ""
        yield f"Of these crawls {each['documents']:,} documents were purged by {_request(each)}."
        if each["domains"] is None:
            yield "How many bytes of which domains they were was not kept."
            continue
        yield ""
        yield "| purged of domain | documents | bytes |"
        yield "|---|---|---|"
        named = list(each["domains"].items())
        for domain, (documents, size) in named[:_MOST_PURGED]:
            yield f"| {code_span(domain or 'none')} | {documents:,} | {size:,} |"
        if rest := named[_MOST_PURGED:]:
            yield f"| {len(rest):,} more | {sum(n for _, (n, _) in rest):,} | {sum(n for _, (_, n) in rest):,} |"


def _models(summary: Mapping[str, Any]) -> Iterator[str]:
    """Which models were trained on this subset, and which on another version of it."""
    if not summary["models"]:
        return
    yield "## Models"
    yield ""
    yield "| model | trained on | |"
    yield "|---|---|---|"
    for each in summary["models"]:
        stands = "" if each["purged"] is None else f", purged by {_request(each['purged'])}"
        if each["subset"] == summary["subset"]:
            told = "this subset"
        else:
            gone = each["subset_purged"]
            told = "another version" + (f", purged by {_request(gone)}" if gone else "")
            told += f": `--version {each['subset'].rpartition('/')[2]}` summarises it"
        if each["read"] < 1:
            told += f"; {each['read']:.1%} of its tokens were read, so not all of its documents"
        yield f"| {code_span(each['model'])}{stands} | {code_span(each['subset'])} | {told} |"
    yield ""


def _request(by: Mapping[str, Any]) -> str:
    return f"request {by['number']} ({code_span(by['request'])}) of {by['date']}"


def _dates(collected: Mapping[str, Any]) -> str:
    return "unknown" if collected["first"] is None else f"{collected['first']} to {collected['last']}"

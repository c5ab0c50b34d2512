"""A summary of training content as Markdown. Knows the summary's shape; what strangers named is inert in it."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.printable import code_span


def as_markdown(summary: Mapping[str, Any]) -> str:
    """The whole summary, the domains last."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    text, collected = summary["modalities"]["text"], summary["collected"]
    found, reserved = summary["domains"], summary["reservations"]
    yield f"# Training content of {code_span(summary['release'] + '/' + summary['arm'])}"
    yield ""
    yield "Facts of one subset for the public summary that Article 53(1)(d) of the EU's AI Act asks for, from its record."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield "| modality | text |"
    yield f"| size | {text['size_band'] or 'unknown'}: {_number(text['tokens'])} tokens as the source counts them |"
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
    yield f"{reserved['documents_withdrawn']:,} documents were withdrawn, by {reserved['entries']:,} entries of a list."
    if robots := reserved["robots_snapshot"]:
        agents = ", ".join(map(code_span, robots["user_agents"]))
        yield (
            f"The robots.txt files of {reserved['robots_hosts']:,} hosts as of {robots['date']} were applied, for {agents}."
        )
    yield ""
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


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _dates(collected: Mapping[str, Any]) -> str:
    return "unknown" if collected["first"] is None else f"{collected['first']} to {collected['last']}"

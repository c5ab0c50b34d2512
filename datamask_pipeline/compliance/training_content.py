"""The facts for a public summary of training content, as Article 53(1)(d) of the EU's AI Act asks for. Writes nothing.

Source: the AI Office's template for the public summary of training content (July 2025): sources by kind, period of
collection, size in bands, the domains most was taken from, and how rights were reserved. What only the provider knows
(names, purposes, other data) is not here.
"""

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from datamask_pipeline import domains, duck
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.publish.facts import Facts, facts_of, subset_of
from datamask_pipeline.publish.licences import OF_DATASETS
from datamask_pipeline.storage import Store

#: Size of text in tokens: upper ends of the bands.
_BANDS: Final = (
    (10**9, "less than 1 billion tokens"),
    (10**13, "1 billion to 10 trillion tokens"),
    (math.inf, "more than 10 trillion tokens"),
)
#: Share of the domains that are listed, by size; small providers list the fewer of their share and of so many.
_LISTED, _LISTED_BY_SMALL, _MOST_BY_SMALL = 10, 5, 1_000

Summary = dict[str, Any]


def training_content(
    store: Store, release: str, arm: str | None = None, *, small: bool = False, licence: str | None = None
) -> Summary:
    """What a subset holds, as JSON values.

    Args:
        store: The record.
        release: The release.
        arm: The arm whose subset it is; needed where there are several.
        small: List the domains that a small or medium-sized provider has to.
        licence: Licence of the source, where it is not known of its data set.

    Returns:
        ``modalities`` (text: documents, bytes of UTF-8, tokens as the source counts them, size band), ``collected`` (first
        and last date, documents without one), ``sources`` (kind, data set, pinned revision, crawls, licence),
        ``languages`` by share of bytes, ``domains`` (number, how many are listed by which rule,
        and of each share, bytes and documents),
        ``reservations`` (what was withdrawn, by which requests), ``subset`` and ``domain_list``.

    Raises:
        UnknownNameError: the record has no subset of such a release or arm.
        ConfigurationError: no arm is named and there are several.
    """
    subset = subset_of(store, release, arm)
    with tempfile.TemporaryDirectory() as folder:
        facts = facts_of(store, subset, Path(folder) / "facts")
        rows = duck.parts_sql(store, [subset], "text, url, date, language, token_count")
        with duck.connect(store, Path(folder)) as connection:
            ((documents, size, tokens, first, last, undated),) = connection.execute(f"""
                SELECT count(*), coalesce(sum(strlen(text)), 0)::BIGINT,
                    CASE WHEN count(token_count) = count(*) THEN sum(token_count)::BIGINT END,
                    min(try_cast(date AS TIMESTAMP))::DATE::VARCHAR, max(try_cast(date AS TIMESTAMP))::DATE::VARCHAR,
                    count(*) FILTER (try_cast(date AS TIMESTAMP) IS NULL)
                FROM {rows}
            """).fetchall()
            languages = connection.execute(f"""
                SELECT coalesce(language, ''), sum(strlen(text))::BIGINT FROM {rows} GROUP BY 1 ORDER BY 2 DESC, 1
            """).fetchall()
            hosts = connection.execute(f"""
                SELECT {domains.host_sql("url")} AS host, sum(strlen(text))::BIGINT, count(*) FROM {rows} GROUP BY 1
            """)
            by_domain = _by_domain(hosts)
    return {
        "subset": subset.location,
        "release": facts.release,
        "arm": facts.arm,
        "modalities": {
            "text": {"documents": documents, "bytes": size, "tokens": tokens, "size_band": _band(tokens)}
        },
        "collected": {"first": first, "last": last, "documents_without_date": undated},
        "sources": _sources(facts, licence),
        "languages": [
            {"language": name or None, "bytes": own, "share": own / size} for name, own in languages
        ],
        "domains": _listed(by_domain, size, small=small),
        "reservations": _reservations(store, facts),
        "domain_list": domains.list_version(),
    }


def _by_domain(hosts: Any) -> dict[str, tuple[int, int]]:
    """Bytes and documents of each registrable domain; the empty name: documents without a host."""
    sizes: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    while batch := hosts.fetchmany(10_000):
        for host, size, number in batch:
            name = domains.registrable_domain(domains.canonical_host(host)) if host else ""
            sizes[name] += size
            documents[name] += number
    return {name: (sizes[name], documents[name]) for name in sizes}


def _listed(by_domain: dict[str, tuple[int, int]], size: int, *, small: bool) -> Summary:
    without = by_domain.pop("", (0, 0))
    number = len(by_domain)
    listed = math.ceil(number * (_LISTED_BY_SMALL if small else _LISTED) / 100)
    if small:
        listed = min(listed, _MOST_BY_SMALL)
        rule = f"the fewer of {_LISTED_BY_SMALL} % of the domains and {_MOST_BY_SMALL:,}, by bytes of text"
    else:
        rule = f"{_LISTED} % of the domains, by bytes of text"
    ordered = sorted(by_domain.items(), key=lambda item: (-item[1][0], item[0]))[:listed]
    top = [
        {"domain": name, "share": own / size, "bytes": own, "documents": documents}
        for name, (own, documents) in ordered
    ]
    return {
        "number": number,
        "rule": rule,
        "share_of_listed": sum(each["share"] for each in top),
        "bytes_without_domain": without[0],
        "documents_without_domain": without[1],
        "listed": top,
    }


def _band(tokens: int | None) -> str | None:
    return None if tokens is None else next(name for end, name in _BANDS if tokens < end)


def _sources(facts: Facts, licence: str | None) -> list[Summary]:
    """One entry a source, with the crawls that were taken from it."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for source in facts.sources:
        found.setdefault((source.kind, source.dataset, source.revision), []).append(source.crawl)
    return [
        {
            "kind": kind,
            "data_set": dataset,
            "revision": revision,
            "crawls": crawls,
            "license": licence or OF_DATASETS.get(dataset or ""),
        }
        for (kind, dataset, revision), crawls in found.items()
    ]


def _reservations(store: Store, facts: Facts) -> Summary:
    asked = dict(inputs_of(facts.pool)).get("takedown")
    about = {} if asked is None else store.manifest(asked)["metadata"]
    return {
        "documents_withdrawn": facts.pool["counts"].get("dropped_takedown", 0),
        "entries": about.get("entries", 0),
        "robots_snapshot": about.get("robots"),
        "robots_hosts": about.get("robots_hosts", 0),
    }

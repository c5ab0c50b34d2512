"""The facts for a public summary of training content, as Article 53(1)(d) of the EU's AI Act asks for. Writes nothing.

Source: the AI Office's template for the public summary of training content (July 2025): sources by kind, period of
collection, size in bands, the domains most was taken from, and how rights were reserved. What only the provider knows
(names, purposes, other data) is not here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from datamask_pipeline import domains
from datamask_pipeline.compliance.content import content_of
from datamask_pipeline.compliance.versions import Versions
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.publish.facts import Source, source_of
from datamask_pipeline.publish.licences import OF_DATASETS
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import ref_of

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
    store: Store,
    release: str,
    arm: str | None = None,
    *,
    version: str | None = None,
    small: bool = False,
    licence: str | None = None,
) -> Summary:
    """What a subset holds, as JSON values; of one that was purged, what its tombstone keeps.

    Args:
        store: The record.
        release: The release.
        arm: The arm whose subset it is; needed where there are several.
        version: An earlier version of the subset, by the first digits of its fingerprint; the current one by default.
        small: List the domains that a small or medium-sized provider has to.
        licence: Licence of the source, where it is not known of its data set.

    Returns:
        ``modalities`` (text: documents, bytes of UTF-8, tokens as the source counts them, documents without a count, size
            band), ``collected`` (first
        and last date, documents without one), ``sources`` (kind, data set, pinned revision, crawls, licence),
        ``languages`` by share of bytes, ``domains`` (number, how many are listed by which rule, and of each share, bytes
        and documents), ``reservations`` (what was withdrawn, by which requests, and of it what was ``purged``),
        ``models`` (each that was trained on a version of the subset, and on which), ``subset``, ``purged`` (the request
        that purged it; null: it stands) and ``domain_list``.

    Raises:
        UnknownNameError: the record has, and had, no subset of such a release, arm or version.
        ConfigurationError: no arm is named and there are several; or the subset was purged by an earlier version of this
            program, which kept no numbers.
    """
    versions = Versions(store)
    subset = versions.subset(release, arm, version)
    content, by = subset.get("content"), versions.purged_by(subset["location"])
    if by is None:
        content = content_of(store, ref_of(subset))
    if content is None:
        raise ConfigurationError(
            f"{subset['location']} was purged by {by.title if by else ''}, and its tombstone has no numbers of it: "
            "summarise the current subset (without --version)"
        )
    size, without = content["bytes"], content.get("without_tokens", 0)
    inputs = dict(inputs_of(subset))
    pool = versions.manifest(inputs["candidates"].location)
    crawls = pool["basis"]["config"]["crawls"]
    found = [source_of(crawl, versions.manifest(inputs[f"documents/{crawl}"].location)) for crawl in crawls]
    return {
        "subset": subset["location"],
        "purged": by and by.named,
        "release": release,
        "arm": subset["key"].split("/", 1)[1],
        "modalities": {
            "text": {name: content[name] for name in ("documents", "bytes", "tokens")}
            | {"without_tokens": without, "size_band": _band(content["tokens"], size if without else 0)}
        },
        "collected": {
            "first": content["first"],
            "last": content["last"],
            "documents_without_date": content["undated"],
        },
        "sources": _sources(found, licence),
        "languages": [
            {"language": name or None, "bytes": own, "share": own / size if size else 0.0}
            for name, own in content["languages"].items()
        ],
        "domains": _listed(dict(content["domains"]), size, small=small),
        "reservations": _reservations(versions, pool),
        "models": versions.models(subset["key"]),
        "domain_list": domains.list_version(),
    }


def _listed(by_domain: dict[str, Sequence[int]], size: int, *, small: bool) -> Summary:
    without = by_domain.pop("", (0, 0))
    number = len(by_domain)
    listed = math.ceil(number * (_LISTED_BY_SMALL if small else _LISTED) / 100)
    if small:
        listed = min(listed, _MOST_BY_SMALL)
        rule = f"the fewer of {_LISTED_BY_SMALL} % of the domains and {_MOST_BY_SMALL:,}, by bytes of text"
    else:
        rule = f"{_LISTED} % of the domains, by bytes of text"
    ordered = sorted(by_domain.items(), key=lambda item: (-item[1][1], item[0]))[:listed]
    top = [
        {"domain": name, "share": own / size if size else 0.0, "bytes": own, "documents": documents}
        for name, (documents, own) in ordered
    ]
    return {
        "number": number,
        "rule": rule,
        "share_of_listed": sum(each["share"] for each in top),
        "bytes_without_domain": without[1],
        "documents_without_domain": without[0],
        "listed": top,
    }


def _band(tokens: int | None, more: int) -> str | None:
    """The band of so many tokens and at most so many more; ``None`` where it may be one or another."""
    if tokens is None:
        return None
    least, most = (next(name for end, name in _BANDS if number < end) for number in (tokens, tokens + more))
    return least if least == most else None


def _sources(sources: Sequence[Source], licence: str | None) -> list[Summary]:
    """One entry a source, with the crawls that were taken from it."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for source in sources:
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


def _reservations(versions: Versions, pool: Mapping[str, Any]) -> Summary:
    """What was withdrawn from a pool's crawls, by it or before it."""
    asked = dict(inputs_of(pool)).get("takedown")
    about = {} if asked is None else versions.manifest(asked.location)["metadata"]
    purged = versions.purged_from(pool)
    by_pool = pool["counts"].get("dropped_takedown", 0)
    return {
        "documents_withdrawn": by_pool + sum(each["not_in_pool"] for each in purged),
        "entries": about.get("entries", 0),
        "entries_that_name_nothing": len(pool["metadata"].get("takedown_unmatched", ())),
        "robots_snapshot": about.get("robots"),
        "robots_hosts": about.get("robots_hosts", 0),
        "purged": purged,
    }

"""Who came and who went between two selections, and why, in totals and one by one. Knows no learner; changes nothing.

How a document's reason is found, `diff_reasons` says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.ahead import drawn_ahead
from datamask_pipeline.arrays import are_null, int64_array, string_array, values_of
from datamask_pipeline.audit.arm_settings import differences
from datamask_pipeline.audit.diff_reasons import SIDES, Side, find_changed
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.storage import Ref, Store

#: Counts by crawl, domain and reason that wait to be added up.
_MOST_WAITING: Final = 1 << 21

#: Why a document is chosen on one side alone; the first that holds, of what the other side says of it.
REASONS: Final[Mapping[str, Mapping[Side, str]]] = {
    "crawl": {"came": "of a new crawl", "went": "its crawl is no longer in the release"},
    "documents": {
        "came": "not among the crawl's documents before",
        "went": "no longer among the crawl's documents",
    },
    "takedown": {"came": "had been taken down", "went": "taken down"},
    "near_duplicate": {
        "came": "was a near-duplicate of another text",
        "went": "a near-duplicate of another text now",
    },
    "duplicate_content": {"came": "was an exact copy of another", "went": "an exact copy of another now"},
    "duplicate_id": {"came": "its id stood twice before", "went": "its id stands twice now"},
    "validation": {"came": "was held out for validation", "went": "held out for validation now"},
    "contaminated": {
        "came": "it or a near-duplicate of it had words of a question",
        "went": "it or a near-duplicate of it has words of a question",
    },
    "near_copy": {"came": "was a near-copy of another", "went": "a near-copy of another now"},
    "no_score": {"came": "had no score before", "went": "has no score now"},
    "configuration": {"came": "other settings", "went": "other settings"},
    "text": {"came": "another text under its id", "went": "another text under its id"},
    "score": {"came": "its score changed", "went": "its score changed"},
    "earlier_release": {
        "came": "held from an earlier release now, or passed over by one before",
        "went": "held from an earlier release before, or passed over by one now",
    },
    "draw": {"came": "drawn this time", "went": "not drawn this time"},
    "quality": {
        "came": "same score; its quality against the threshold weighs more now",
        "went": "same score; its quality against the threshold weighs less now",
    },
    "diversity": {
        "came": "same score; its diversity weighs more now",
        "went": "same score; its diversity weighs less now",
    },
    "displaced": {
        "came": "same score; chosen now, by what the record does not say",
        "went": "same score; not chosen now, by what the record does not say",
    },
}


def compare_selections(store: Store, before: Ref, after: Ref) -> dict[str, Any]:
    """Who came and who went, in totals.

    Args:
        store: The record.
        before: A mask.
        after: Another.

    Returns:
        ``before`` and ``after`` (key, and as version the first digits of the fingerprint), ``stayed``, ``settings`` (those
        that differ, one line each), ``settings_not_read`` (those that differ and are not read by the arm) and for ``came``
        and ``went`` ``documents``, ``tokens`` (of those whose length is known), ``without_tokens``, and as lists of rows
        with the same three numbers ``reasons``, ``crawls`` and ``domains``, the most documents first. The reasons, and the
        crawls, and the domains, each add up to the totals.
    """
    old, new = Selection.of(store, before), Selection.of(store, after)
    settings = differences(store, old, new)
    counted, stayed = {side: _Counts() for side in SIDES}, 0
    for changed in drawn_ahead(find_changed(store, old, new, are_others=settings.are_others)):
        counted[changed.side].add(changed.crawl, changed.rows)
        stayed += changed.stayed if changed.side == "went" else 0
    found: dict[str, Any] = {
        "before": {"key": before.key, "version": before.short},
        "after": {"key": after.key, "version": after.short},
        "settings": settings.told,
        "settings_not_read": settings.unread,
    }
    return found | {side: counts.totals() for side, counts in counted.items()} | {"stayed": stayed}


def changed_documents(store: Store, before: Ref, after: Ref, side: Side) -> Iterator[dict[str, Any]]:
    """Every document that came, or went, in the order of the release that chose it.

    Yields:
        ``crawl``, ``id``, ``domain``, ``tokens``, ``reason`` (a key of ``REASONS``) and ``told``, its words.
    """
    old, new = Selection.of(store, before), Selection.of(store, after)
    are_others = differences(store, old, new).are_others
    for changed in find_changed(store, old, new, [side], are_others=are_others, with_ids=True):
        for row in changed.rows.to_pylist():
            yield {"crawl": changed.crawl, **row, "told": REASONS[row["reason"]][side]}


class _Counts:
    """Documents and tokens by crawl, domain and reason; memory grows with how many of these there are together."""

    _BY: Final = ("crawl", "domain", "reason")
    _NUMBERS: Final = ("documents", "tokens", "with_tokens")

    def __init__(self) -> None:
        self._counted: list[pa.Table] = []
        self._waiting = 0

    def add(self, crawl: str, rows: pa.Table) -> None:
        """Count some documents of a crawl."""
        tokens = rows["tokens"].combine_chunks()
        are_known_n = ~are_null(tokens)
        numbers = {
            "documents": np.ones(len(tokens), np.int64),
            "tokens": np.where(are_known_n, values_of(tokens, np.int64), 0),
            "with_tokens": are_known_n.astype(np.int64),
        }
        crawls = string_array([crawl]).take(int64_array(np.zeros(len(tokens), np.int64)))
        keys = {"crawl": crawls} | {name: rows[name].combine_chunks() for name in self._BY[1:]}
        self._counted.append(_summed(keys, numbers))
        self._waiting += self._counted[-1].num_rows
        if self._waiting > _MOST_WAITING:
            self._counted, self._waiting = [self._by(self._BY)], 0

    def totals(self) -> dict[str, Any]:
        """All of them, and as lists by reason, crawl and domain."""
        found: dict[str, Any] = {"documents": 0, "tokens": 0, "without_tokens": 0}
        lists = {f"{name}s": self._listed(name) for name in ("reason", "crawl", "domain")}
        for row in lists["reasons"]:
            found |= {name: found[name] + row[name] for name in found}
        return found | lists

    def _listed(self, by: str) -> list[dict[str, Any]]:
        rows = self._by([by]).to_pylist() if self._counted else []
        named = [
            {"name": row[by], "documents": row["documents"], "tokens": row["tokens"]}
            | {"without_tokens": row["documents"] - row["with_tokens"]}
            for row in rows
        ]
        return sorted(named, key=lambda row: (-row["documents"], row["name"] is None, row["name"]))

    def _by(self, names: Sequence[str]) -> pa.Table:
        rows = pa.concat_tables(self._counted).combine_chunks()
        numbers = {name: values_of(rows[name].combine_chunks(), np.int64) for name in self._NUMBERS}
        return _summed({name: rows[name].combine_chunks() for name in names}, numbers)


def _summed(keys: Mapping[str, pa.Array], numbers: Mapping[str, NDArray[np.int64]]) -> pa.Table:
    """Sums of numbers by keys, of which each combination is one row."""
    encoded = {name: key.dictionary_encode(null_encoding="encode") for name, key in keys.items()}
    codes_n = np.zeros(len(next(iter(keys.values()))), np.int64)
    for key in encoded.values():
        codes_n = codes_n * len(key.dictionary) + values_of(key.indices, np.int32)
    groups = int64_array(codes_n).dictionary_encode()
    which_n, codes_g = values_of(groups.indices, np.int32), values_of(groups.dictionary, np.int64)
    columns = {}
    for name, key in reversed(encoded.items()):
        codes_g, places_g = np.divmod(codes_g, max(len(key.dictionary), 1))
        columns[name] = key.dictionary.take(int64_array(places_g))
    # Sums of whole numbers are exact in float64 up to 2**53.
    sums = {
        name: int64_array(np.bincount(which_n, each, minlength=len(codes_g)).astype(np.int64))
        for name, each in numbers.items()
    }
    return pa.table(columns | sums)

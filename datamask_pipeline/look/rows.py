"""Rows of documents by their place, each out of its row group. Knows parts in canonical order; knows no query."""

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from datamask_pipeline import duck
from datamask_pipeline.storage import Ref, Store


class Rows:
    """The rows of several artefacts one after another, counted from 0.

    Args:
        store: The record.
        refs: The artefacts, by crawl.
    """

    def __init__(self, store: Store, refs: dict[str, Ref]) -> None:
        self.store, self.refs = store, refs
        self.firsts = dict(
            zip(refs, accumulate((ref.rows for ref in refs.values()), initial=0), strict=False)
        )
        self.total = sum(ref.rows for ref in refs.values())

    def place(self, position: int) -> tuple[str, int]:
        """The crawl of a row, and its row there."""
        crawls = list(self.firsts)
        crawl = crawls[bisect.bisect_right([self.firsts[name] for name in crawls], position) - 1]
        # An artefact without rows begins where the next one does, which stands after it and so is found.
        return crawl, position - self.firsts[crawl]

    def part(self, crawl: str, row: int) -> tuple[str, int]:
        """The part of a crawl's row, and its row there."""
        first = 0
        for part in self.store.manifest(self.refs[crawl])["parts"]:
            if row < first + part["rows"]:
                return str(part["name"]), row - first
            first += part["rows"]
        raise IndexError(f"crawl {crawl!r} has no row {row}")

    def read(
        self, positions: Sequence[int], columns: Sequence[str] | None = None
    ) -> dict[int, dict[str, Any]]:
        """Rows by position; no more than one row group is in memory at a time."""
        by_part: dict[tuple[str, str], dict[int, int]] = {}
        for position in sorted(positions):
            crawl, row = self.place(position)
            name, row = self.part(crawl, row)
            by_part.setdefault((crawl, name), {})[row] = position
        found: dict[int, dict[str, Any]] = {}
        for (crawl, name), wanted in by_part.items():
            for first, batch in _groups(self.store, self.refs[crawl], name, columns, wanted):
                inside = [row for row in wanted if first <= row < first + batch.num_rows]
                taken = batch.take([row - first for row in inside]).to_pylist()
                found |= {wanted[row]: values for row, values in zip(inside, taken, strict=True)}
        return found

    def sql(self, columns: str, begin: int, end: int) -> str:
        """Columns of the rows from ``begin`` to before ``end``, with ``position``; other row groups are not read."""
        selects = []
        for crawl, ref in self.refs.items():
            for part in duck.part_sources(self.store, ref):
                first = self.firsts[crawl] + part.first
                if first < end and first + part.rows > begin:
                    selects.append(
                        f"SELECT {columns}, {first} + file_row_number AS position FROM {part.source} "
                        f"WHERE file_row_number BETWEEN {begin - first} AND {end - 1 - first}"
                    )
        return "(" + " UNION ALL ".join(selects) + ")"

    def scan(self, column: str, after: int, crawl: str | None) -> Iterator[tuple[int, pa.ChunkedArray]]:
        """A column in pieces of one row group, from the row after one on: the position of the first, and the values."""
        for name, ref in self.refs.items():
            first = self.firsts[name]
            if crawl not in (None, name) or first + ref.rows <= after + 1:
                continue
            for part in self.store.manifest(ref)["parts"]:
                if first + part["rows"] > after + 1:
                    for start, group in _groups(
                        self.store, ref, part["name"], [column], None, skip=after + 1 - first
                    ):
                        skipped = max(after + 1 - first - start, 0)
                        yield first + start + skipped, group.column(0).slice(skipped)
                first += part["rows"]


def _groups(
    store: Store, ref: Ref, name: str, columns: Sequence[str] | None, wanted: Any, skip: int = 0
) -> Iterator[tuple[int, pa.Table]]:
    """Row groups of a part, each with its first row: those that hold a wanted row, or all from ``skip`` on."""
    first = 0
    with store.part_file(ref, name) as part:
        for number in range(part.num_row_groups):
            rows = part.metadata.row_group(number).num_rows
            has_one = (
                first + rows > skip if wanted is None else any(first <= row < first + rows for row in wanted)
            )
            if has_one:
                yield first, part.read_row_group(number, columns=list(columns) if columns else None)
            first += rows

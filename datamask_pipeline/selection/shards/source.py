"""Where documents lie, and which of them a process looks after. Knows no metric and no transport.

Shape suffixes: n rows of a shard or of a process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.selection.groups import names_of
from datamask_pipeline.selection.sharded import ShardedVectors, open_npy
from datamask_pipeline.spill import Room

MOST_CHUNKS = 16
"""Chunks of a unit, from 16 times `UNITS` chunks on."""
UNITS = 64


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some documents next to each other, in files that every process can open.

    Attributes:
        vectors: A ``.npy`` of vectors, floating, as wide as every shard's.
        quality: A ``.npy`` of each quality score by name.
        token_counts: A ``.npy``; whole numbers, above 0.
        groups: A ``.npy`` of group names, for quotas.
        rows: A ``.npy`` of the rows of ``vectors`` that these documents are; none where row and document agree.
        start: The shard's first row in these files: in ``vectors`` too, if there are no ``rows``.
        num_rows: Its documents; none for all to the end of its files, which then are of one length.
        first: Global number of its first document. Where none is given, shards follow each other as listed.

    Raises:
        InputError: what is no path or no whole number from 0 on.
    """

    vectors: str | Path
    quality: Mapping[str, str | Path]
    token_counts: str | Path | None = None
    groups: str | Path | None = None
    rows: str | Path | None = None
    start: int = 0
    num_rows: int | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.quality, Mapping):
            raise InputError(
                "a shard's quality is a file by the name of each score",
                field="quality",
                value=self.quality,
                remedy='give e.g. {"quality": "scores.npy"}',
            )
        files = {"vectors": self.vectors} | {
            f"quality[{name!r}]": path for name, path in self.quality.items()
        }
        optional = {name: getattr(self, name) for name in ("token_counts", "groups", "rows")}
        files |= {name: path for name, path in optional.items() if path is not None}
        for name, path in files.items():
            if not isinstance(path, str | Path):
                raise InputError(
                    "a shard's columns lie in files that every process can open",
                    field=name,
                    value=type(path).__name__,
                    remedy="give the path of a .npy",
                )
        for name in ("start", "num_rows", "first"):
            number = getattr(self, name)
            if number is not None and (
                type(number) is bool or not isinstance(number, Integral) or number < 0
            ):
                raise InputError("a shard counts in whole numbers from 0 on", field=name, value=number)

    def part(self, start: int, stop: int) -> Shard:
        """The documents with these global numbers."""
        assert self.first is not None, "numbered before it is cut"
        return replace(self, first=start, start=self.start + start - self.first, num_rows=stop - start)

    def column(self, path: str | Path) -> NDArray[Any]:
        """Its rows of a file, mapped.

        Raises:
            InputError: the file is missing, has another form or ends before the shard.
        """
        values = open_npy(path)
        assert self.num_rows is not None, "numbered before it is read"
        part = values[self.start : self.start + self.num_rows]
        if values.ndim != 1 or len(part) != self.num_rows:
            raise InputError(
                f"{self.num_rows} documents from row {self.start} on need as many values",
                file=str(path),
                value=values.shape,
            )
        return part

    def places(self) -> NDArray[np.int64]:
        """Its rows of `vectors`.

        Raises:
            InputError: the file of rows holds anything but whole numbers, of which others would be made.
        """
        if self.rows is None:
            return np.arange(self.start, self.start + (self.num_rows or 0), dtype=np.int64)
        rows_n = self.column(self.rows)
        if rows_n.dtype.kind not in "iu":
            raise InputError(
                "rows of a shard's vectors are whole numbers",
                file=str(self.rows),
                field="rows",
                value=rows_n.dtype,
                remedy="give their numbers, of a mask its np.flatnonzero",
            )
        return rows_n.astype(np.int64)

    def rows_to_end(self) -> int:
        """How many documents there are from its first row to the end of its files.

        Raises:
            InputError: files of different lengths, or that end before it begins, or one that cannot be opened.
        """
        placed = self.vectors if self.rows is None else self.rows
        length = len(open_npy(placed))
        for path in (*self.quality.values(), self.token_counts, self.groups):
            if path is not None and (other := open_npy(path)).shape != (length,):
                raise InputError(
                    f"{placed} has {length} documents, and another file of the shard has not as many values",
                    file=str(path),
                    value=other.shape,
                    remedy="give files of one length, or say by `num_rows` how many documents the shard has",
                )
        if length < self.start:
            raise InputError(
                f"a shard begins at row {self.start} of {length}",
                file=str(placed),
                field="start",
                value=self.start,
            )
        return length - self.start

    def plain(self) -> dict[str, Any]:
        """As JSON values, files by their whole paths."""
        values = asdict(self)
        values["quality"] = {name: str(Path(path).absolute()) for name, path in self.quality.items()}
        for name in ("vectors", "token_counts", "groups", "rows"):
            values[name] = None if values[name] is None else str(Path(values[name]).absolute())
        return values


def numbered(shards: Sequence[Shard]) -> list[Shard]:
    """The shards in the order of their documents' numbers, each with its length and its first number.

    Raises:
        InputError: no document, numbers that overlap or leave gaps, a file that cannot be opened, or files that differ in
            length where no number of documents is given.
    """
    if not isinstance(shards, Sequence) or not all(isinstance(shard, Shard) for shard in shards):
        raise InputError(
            "documents over shards are given as a list of Shard", field="shards", value=type(shards).__name__
        )
    found, following = [], 0
    for shard in shards:
        length = shard.rows_to_end() if shard.num_rows is None else shard.num_rows
        first = following if shard.first is None else shard.first
        found.append(replace(shard, num_rows=length, first=first, quality=dict(shard.quality)))
        following = first + length
    found = sorted((shard for shard in found if shard.num_rows), key=lambda shard: shard.first or 0)
    if not found:
        raise InputError("no document in any shard", field="shards")
    expected = 0
    for shard in found:
        if shard.first != expected:
            raise InputError(
                f"numbers of documents must follow each other: {expected} is expected",
                file=str(shard.vectors),
                field="first",
                value=shard.first,
                remedy="give every shard its `first`, or none of them",
            )
        expected += shard.num_rows or 0
    return found


def total_rows(shards: Sequence[Shard]) -> int:
    """N of numbered shards."""
    return sum(shard.num_rows or 0 for shard in shards)


def unit_rows(num_rows: int, chunk_rows: int) -> int:
    """Rows of a unit, within which sums are added as floats: by number of rows alone, so that no process matters."""
    return chunk_rows * min(max(num_rows // (UNITS * chunk_rows), 1), MOST_CHUNKS)


def dealt(shards: Sequence[Shard], num_workers: int, chunk_rows: int) -> list[list[Shard]]:
    """The documents of each process: nearly equal numbers of whole units, in order; a process may have none."""
    num_rows = total_rows(shards)
    unit = unit_rows(num_rows, chunk_rows)
    num_units = -(-num_rows // unit)
    edges = [min(num_units * place // num_workers * unit, num_rows) for place in range(num_workers + 1)]
    return [_between(shards, start, stop) for start, stop in itertools.pairwise(edges)]


def _between(shards: Sequence[Shard], start: int, stop: int) -> list[Shard]:
    parts = []
    for shard in shards:
        begin = shard.first or 0
        first, last = max(start, begin), min(stop, begin + (shard.num_rows or 0))
        if first < last:
            parts.append(shard.part(first, last))
    return parts


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a process reads of its shards.

    Attributes:
        vectors: Where they lie.
        columns: Its numbers, read: every quality score, and ``token_counts`` and ``groups`` where they are asked for.
    """

    vectors: ShardedVectors
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)


def opened(shards: Sequence[Shard], tokens: bool, groups: bool, room: Room) -> Held:
    """The documents of one process, at least one of them.

    Args:
        shards: Where they lie.
        tokens: Whether their token counts are read.
        groups: Whether their groups are.
        room: Where what is long lies.

    Raises:
        InputError: a file that cannot be used, or one that is not named.
    """
    files = list(dict.fromkeys(str(shard.vectors) for shard in shards))
    places = {file: place for place, file in enumerate(files)}
    num_rows = total_rows(shards)
    files_n, rows_n = room.array(num_rows, np.int32), room.array(num_rows, np.int64)
    for shard, span in _spans(shards):
        files_n[span], rows_n[span] = places[str(shard.vectors)], shard.places()
    columns = {
        name: _together([shard.column(shard.quality[name]) for shard in shards], room)
        for name in shards[0].quality
    }
    for wanted, name in ((tokens, "token_counts"), (groups, "groups")):
        if wanted:
            paths = [getattr(shard, name) for shard in shards]
            if None in paths:
                need = "a budget in tokens needs" if tokens and name == "token_counts" else "quotas need"
                raise InputError(
                    f"{need} `{name}` of every shard", file=str(shards[paths.index(None)].vectors)
                )
            found = [shard.column(path) for shard, path in zip(shards, paths, strict=True)]
            if name == "groups" and len({values.dtype.kind for values in found}) > 1:
                # As one array these would be of a kind in which they have other names.
                found = [_named(*one) for one in zip(shards, found, strict=True)]
            columns[f"\0{name}"] = _together(found, room)
    return Held(vectors=ShardedVectors(files, files_n, rows_n), columns=columns)


def _spans(shards: Sequence[Shard]) -> Iterator[tuple[Shard, slice]]:
    """Each shard with the places of its documents among those of all these."""
    first = 0
    for shard in shards:
        yield shard, slice(first, first + (shard.num_rows or 0))
        first += shard.num_rows or 0


def _together(parts: Sequence[NDArray[Any]], room: Room) -> NDArray[Any]:
    """Columns one after the other, of the type that holds the numbers of all."""
    whole_n = room.array(sum(map(len, parts)), np.result_type(*parts))
    return np.concatenate(parts, out=whole_n)


def _named(shard: Shard, groups_n: NDArray[Any]) -> NDArray[np.str_]:
    """The name of each document's group.

    Raises:
        InputError: a group that has none, by its row of the file.
    """
    groups, inverse_n = np.unique(groups_n, return_inverse=True)
    try:
        return np.array(names_of(groups))[inverse_n]
    except InputError as error:
        row = shard.start + int(np.argmax(inverse_n == error.row))
        raise InputError(
            error.problem,
            file=str(shard.groups),
            row=row,
            field=error.field,
            value=error.value,
            remedy=error.remedy,
        ) from error

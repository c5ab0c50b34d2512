"""Rows of a table by their numbers, a few row groups in memory at a time. Knows the column `position`; knows no stage."""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.arrays import int64_array, values_of
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.refusals import reading
from datamask_pipeline.storage.store import Store

POSITION: Final = "position"
#: Row groups read at a time, of tables without texts, and how many such pieces are held.
GROUPS: Final = 16
_HELD: Final = 2


@dataclasses.dataclass
class _Piece:
    """Row groups side by side: all rows of numbers from ``low`` to below ``high``, as the columns that were read so far."""

    low: float
    high: float
    file: int
    groups: list[int]
    numbers_n: NDArray[np.int64]
    columns: dict[str, pa.ChunkedArray]


class Aligned:
    """Rows of a table, asked for by numbers; fast where these ascend from call to call, or nearly.

    Args:
        store: The record.
        ref: The artefact.
        first: The number of its first row, where rows are numbered one after the other; ``None``: a row's number is its
            `position`.
        groups: Row groups read at a time.
    """

    def __init__(
        self,
        store: Store,
        ref: Ref,
        *,
        first: int | None = None,
        groups: int = GROUPS,
    ) -> None:
        self._store, self._by_position, self._groups = store, first is None, groups
        self._paths = store.part_paths(ref)
        self._places: list[tuple[int, int]] = []
        self._firsts: list[int] = []
        self._sizes: list[int] = []
        number = first or 0
        for file, path in enumerate(self._paths):
            # One at a time: a table may have more parts than a process may have files.
            with store.open_parquet(path) as part:
                if not file:
                    self.schema: pa.Schema = part.schema_arrow
                place = part.schema_arrow.get_field_index(POSITION)
                for group in range(part.metadata.num_row_groups):
                    rows = part.metadata.row_group(group)
                    if rows.num_rows:
                        self._places.append((file, group))
                        lowest = rows.column(place).statistics.min if self._by_position else number
                        self._firsts.append(int(lowest))
                        self._sizes.append(rows.num_rows)
                    number += rows.num_rows
        if self._firsts != sorted(self._firsts):
            raise self._disordered(self._paths[0])
        self._held: list[_Piece] = []

    def at(self, wanted_n: NDArray[np.int64], columns: Sequence[str]) -> tuple[pa.Table, NDArray[np.bool_]]:
        """Some rows.

        Args:
            wanted_n: Their numbers, ascending, each once.
            columns: The columns wanted of them; others are not read.

        Returns:
            Those that the table has, in order, and of each number whether it has it.

        Raises:
            IntegrityError: positions do not ascend, or a file is damaged.
        """
        is_found_n, found, start = np.zeros(len(wanted_n), bool), [], 0
        while start < len(wanted_n) and self._firsts:
            piece = self._piece(int(wanted_n[start]))
            stop = start + int(np.searchsorted(wanted_n[start:], piece.high))
            places_n, is_found_n[start:stop] = _places(piece.numbers_n, wanted_n[start:stop])
            found.append(_taken(self._rows(piece, columns), places_n))
            start = stop
        if not found:
            found = [pa.Table.from_batches([], pa.schema([self.schema.field(name) for name in columns]))]
        return pa.concat_tables(found), is_found_n

    def _piece(self, number: int) -> _Piece:
        """The row groups where a number stands, if it does."""
        for piece in self._held:
            if piece.low <= number < piece.high:
                return piece
        start = max(bisect.bisect_right(self._firsts, number) - 1, 0)
        file, _ = self._places[start]
        stop = start + 1
        while stop < len(self._places) and stop - start < self._groups and self._places[stop][0] == file:
            stop += 1
        groups = [number for _, number in self._places[start:stop]]
        first = self._firsts[start]
        low = first if start else float("-inf")
        high = float("inf") if stop == len(self._places) else self._firsts[stop]
        piece = _Piece(low, high, file, groups, np.empty(0, np.int64), {})
        if self._by_position:
            piece.numbers_n = values_of(self._rows(piece, [POSITION])[POSITION].chunk(0), np.int64)
        else:
            piece.numbers_n = np.arange(first, first + sum(self._sizes[start:stop]))
        numbers_n = piece.numbers_n
        if numbers_n[0] != first or numbers_n[-1] >= high or not (np.diff(numbers_n) > 0).all():
            raise self._disordered(self._paths[file])
        self._held = [*self._held[1 - _HELD :], piece]
        return piece

    def _rows(self, piece: _Piece, columns: Sequence[str]) -> pa.Table:
        """Some columns of row groups, read unless they are held."""
        if missing := [name for name in columns if name not in piece.columns]:
            path = self._paths[piece.file]
            with self._store.open_parquet(path) as part, reading(path):
                read = part.read_row_groups(piece.groups, columns=missing).combine_chunks()
            piece.columns |= {name: read[name] for name in missing}
        fields = [self.schema.field(name) for name in columns]
        return pa.Table.from_arrays([piece.columns[name] for name in columns], schema=pa.schema(fields))

    def _disordered(self, path: str) -> IntegrityError:
        return IntegrityError(
            f"{path}: column {POSITION!r} does not ascend; `datamask audit prove` tells more, and running its stage "
            "again after deleting it makes it anew"
        )


def _places(
    numbers_n: NDArray[np.int64], wanted_n: NDArray[np.int64]
) -> tuple[NDArray[np.int64] | slice, NDArray[np.bool_]]:
    """Where numbers stand that are there, and whether each is; both ascend."""
    first, last = int(wanted_n[0]), int(wanted_n[-1])
    if last - first == len(wanted_n) - 1:  # a range needs no search for each
        start, stop = (int(np.searchsorted(numbers_n, edge)) for edge in (first, last + 1))
        hits_n = np.zeros(len(wanted_n), bool)
        hits_n[numbers_n[start:stop] - first] = True
        return slice(start, stop), hits_n
    places_n = np.minimum(np.searchsorted(numbers_n, wanted_n), len(numbers_n) - 1)
    hits_n = numbers_n[places_n] == wanted_n
    return places_n[hits_n], hits_n


def _taken(rows: pa.Table, places_n: NDArray[np.int64] | slice) -> pa.Table:
    """Rows by their places, which ascend; not copied where they lie side by side."""
    if isinstance(places_n, slice):
        return rows.slice(places_n.start, places_n.stop - places_n.start)
    if len(places_n) and places_n[-1] - places_n[0] == len(places_n) - 1:
        return rows.slice(int(places_n[0]), len(places_n))
    return rows.take(int64_array(places_n))

"""What an arm says of every document, in canonical order and in files: memory holds what one block says. Knows no learner.

Shape suffixes: N documents with every score of the arm.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from datamask_pipeline import schema
from datamask_pipeline.disk import new_array
from datamask_pipeline.selection.reasons import HELD, PASSED_OVER
from datamask_pipeline.stages.held import Held

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import Certificate, Objective, SelectionResult
    from datamask_pipeline.selection.shards.result import ShardedSelection

_CERTIFIED: Final = "certified"
_PIECE: Final = 1 << 16
"""Words looked up together."""


@dataclass(frozen=True, kw_only=True)
class BlockTold:
    """What a block's result says of the block as a whole; the attributes are those of `SelectionResult`."""

    selected: int
    curve: pa.Table
    objective: "Objective"
    certificate: "Certificate"
    threshold: float
    normalisation: dict[str, tuple[float, float]]
    timings: dict[str, float]
    record: dict[str, Any]

    @classmethod
    def of(cls, result: "SelectionResult | ShardedSelection") -> Self:
        """Without what it says of each document."""
        shared = {name: getattr(result, name) for name in cls.__dataclass_fields__ if name != "selected"}
        return cls(selected=result.record["selected"], **shared)


class MaskColumns:
    """The columns of a mask, filled block by block, in files.

    Args:
        folder: Where; what lies there is replaced.
        num_rows: N.
        before: What an earlier release judged, if the arm goes on from one: it is as it was there.

    Attributes:
        values: By name; N numbers each.
        reasons: Why each document is in or out.
    """

    def __init__(self, folder: Path, num_rows: int, before: Held | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / _CERTIFIED).mkdir(parents=True)
        self._folder, self._num_rows = folder, num_rows
        self._certified: dict[str, NDArray[np.float64]] = {}
        self._cliques: pq.ParquetWriter | None = None
        self._num_cliques = 0
        self.values: dict[str, NDArray[Any]] = {}
        self.reasons = _Words(_mapped(folder / "reason.npy", num_rows, np.uint8))
        for name, values_N in judged_before(num_rows, before):
            if name == "reason":
                self.reasons[:] = values_N
            else:
                self.values[name] = _mapped(folder / f"{name}.npy", num_rows, values_N.dtype)
                self.values[name][:] = values_N

    def take(self, block: NDArray[np.int64], result: "SelectionResult") -> None:
        """Write what a block's result says of its documents.

        Args:
            block: Their rows.
            result: Of them, in their order.
        """
        of_block = {
            "selected": result.mask,
            "logit": result.logits,
            "probability": result.probabilities,
            "quality_marginal": result.marginals.quality_N,
            "diversity_marginal": result.marginals.diversity_N,
            "threshold": result.threshold,
        }
        for name, values in of_block.items():
            self.values[name][block] = values
        self.reasons[block] = result.reasons
        for name, values in result.certified_at.items():
            if name not in self._certified:
                path = self._folder / _CERTIFIED / f"{name}.npy"
                self._certified[name] = _mapped(path, self._num_rows, np.float64)
                self._certified[name][:] = np.nan
            self._certified[name][block] = values
        if result.cliques is not None:
            self._take_cliques(block, result.cliques)

    def _take_cliques(self, block: NDArray[np.int64], of_block: pa.Table) -> None:
        """Append cliques of a block, numbered on."""
        named = {
            "clique": pc.add(of_block.column("clique"), self._num_cliques),
            "row": block[of_block.column("row").to_numpy()],
            "weight": of_block.column("weight"),
            "slope": of_block.column("slope"),
        }
        table = pa.table(named, schema=schema.CLIQUES)
        if self._cliques is None:
            self._cliques = pq.ParquetWriter(self._folder / _CERTIFIED / "cliques.parquet", schema.CLIQUES)
        self._cliques.write_table(table)
        self._num_cliques += len(of_block.column("clique").unique())

    def certificates(self) -> Iterator[tuple[str, Path]]:
        """What bounds were computed from: each a `.npy` of N numbers, NaN of blocks without any; and cliques."""
        for name, values_N in self._certified.items():
            assert isinstance(values_N.base, np.memmap)
            values_N.base.flush()
            yield f"{name}.npy", self._folder / _CERTIFIED / f"{name}.npy"
        if self._cliques is not None:
            self._cliques.close()
            yield "cliques.parquet", self._folder / _CERTIFIED / "cliques.parquet"


class _Words:
    """A word of each document, of few that there are: kept as their numbers.

    Args:
        numbers_N: Where the numbers are kept.
    """

    def __init__(self, numbers_N: NDArray[np.uint8]) -> None:
        self._numbers_N = numbers_N
        self._number_of: dict[str, int] = {}

    def __setitem__(self, places: slice | NDArray[np.int64], words_n: NDArray[np.object_]) -> None:
        numbers_n = np.empty(len(words_n), np.uint8)
        for start in range(0, len(words_n), _PIECE):
            words = words_n[start : start + _PIECE].tolist()
            for word in sorted(set(words) - self._number_of.keys()):
                self._number_of[word] = len(self._number_of)
            numbers_n[start : start + len(words)] = [self._number_of[word] for word in words]
        self._numbers_N[places] = numbers_n

    def __getitem__(self, places: slice) -> pa.StringArray:
        numbers = pa.array(self._numbers_N[places])
        return pa.DictionaryArray.from_arrays(numbers, [*self._number_of]).dictionary_decode()


def judged_before(num_rows: int, before: Held | None) -> Iterator[tuple[str, NDArray[Any]]]:
    """The columns of documents that an earlier release judged, one after another; of all others nothing yet."""
    from datamask_pipeline.selection.result import CERTAIN

    out_and_in: dict[str, tuple[Any, Any]] = {
        "selected": (False, True),
        "logit": (-CERTAIN, CERTAIN),
        "probability": (0.0, 1.0),
        **dict.fromkeys(("quality_marginal", "diversity_marginal", "threshold"), (np.nan, np.nan)),
        "reason": (PASSED_OVER, HELD),
    }
    for name, both in out_and_in.items():
        values = np.array(both, object if name == "reason" else None)
        yield (
            name,
            np.broadcast_to(values[0], num_rows) if before is None else values[before.held_N.view(np.uint8)],
        )


def runners_up(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The total marginal of each document that was judged and is out; NaN of all others."""
    totals_N = columns["quality_marginal"] + columns["diversity_marginal"]
    totals_N[columns["selected"]] = np.nan
    return totals_N


def _mapped(path: Path, num_rows: int, dtype: DTypeLike) -> NDArray[Any]:
    """A file of so many numbers, mapped."""
    return np.asarray(new_array(path, dtype, (num_rows,)))

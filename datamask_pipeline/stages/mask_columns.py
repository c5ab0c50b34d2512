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
from numpy.typing import NDArray

from datamask_pipeline.disk import new_array
from datamask_pipeline.selection.reasons import HELD, PASSED_OVER
from datamask_pipeline.stages.held import Held

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import Certificate, Objective, SelectionResult

_CERTIFIED: Final = "certified"


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
    def of(cls, result: "SelectionResult") -> Self:
        """Without what it says of each document."""
        shared = {name: getattr(result, name) for name in cls.__dataclass_fields__ if name != "selected"}
        return cls(selected=int(result.mask.sum()), **shared)


class MaskColumns:
    """The columns of a mask, filled block by block; numbers are mapped from files.

    Args:
        folder: Where; what lies there is replaced.
        num_rows: N.
        before: What an earlier release judged, if the arm goes on from one: it is as it was there.

    Attributes:
        values: By name; N values each.
    """

    def __init__(self, folder: Path, num_rows: int, before: Held | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / _CERTIFIED).mkdir(parents=True)
        self._folder, self._num_rows = folder, num_rows
        self._certified: dict[str, NDArray[np.float64]] = {}
        self.values: dict[str, NDArray[Any]] = {}
        for name, values_N in judged_before(num_rows, before):
            if values_N.dtype == np.float64:
                self.values[name] = _mapped(folder / f"{name}.npy", num_rows)
                self.values[name][:] = values_N
            else:
                self.values[name] = values_N

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
            "reason": result.reasons,
        }
        for name, values in of_block.items():
            self.values[name][block] = values
        for name, values in result.certified_at.items():
            if name not in self._certified:
                self._certified[name] = _mapped(self._folder / _CERTIFIED / f"{name}.npy", self._num_rows)
                self._certified[name][:] = np.nan
            self._certified[name][block] = values

    def certificates(self) -> Iterator[tuple[str, Path]]:
        """What bounds were computed from, each a `.npy` of N numbers: NaN of blocks that have none of the kind."""
        for name, values_N in self._certified.items():
            assert isinstance(values_N.base, np.memmap)
            values_N.base.flush()
            yield name, self._folder / _CERTIFIED / f"{name}.npy"


def judged_before(num_rows: int, before: Held | None) -> Iterator[tuple[str, NDArray[Any]]]:
    """The columns of documents that an earlier release judged, one after another; of all others nothing yet."""
    from datamask_pipeline.selection.result import CERTAIN

    held_N = np.zeros(num_rows, bool) if before is None else before.held_N
    yield "selected", held_N.copy()
    yield "logit", np.where(held_N, CERTAIN, -CERTAIN)
    yield "probability", held_N.astype(np.float64)
    for name in ("quality_marginal", "diversity_marginal", "threshold"):
        yield name, np.full(num_rows, np.nan)
    yield "reason", np.array([PASSED_OVER, HELD], object)[held_N.astype(np.intp)]


def runners_up(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The total marginal of each document that was judged and is out; NaN of all others."""
    totals_N = columns["quality_marginal"] + columns["diversity_marginal"]
    totals_N[columns["selected"]] = np.nan
    return totals_N


def _mapped(path: Path, num_rows: int) -> NDArray[np.float64]:
    """A file of so many numbers, mapped."""
    return np.asarray(new_array(path, np.float64, (num_rows,)))

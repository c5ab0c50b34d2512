"""Scores that somebody else computed: what their numbers mean. Knows no column, no file and no document.

Shape suffixes: N scores.
"""

from typing import Self

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.settings import Settings


class GivenConfig(Settings):
    """Scale and direction of the numbers, and who computed them."""

    scale_min: float | None = pydantic.Field(None, description="Lowest score there can be, if there is one.")
    scale_max: float | None = pydantic.Field(None, description="Highest score there can be, if there is one.")
    higher_is_better: bool = pydantic.Field(True, description="False turns the sign of every score.")
    model: str = pydantic.Field("", description="What computed the scores, for the lineage.")
    revision: str = pydantic.Field("", description="The revision of that, for the lineage.")

    @pydantic.model_validator(mode="after")
    def _is_a_scale(self) -> Self:
        if self.scale_min is not None and self.scale_max is not None and self.scale_min > self.scale_max:
            raise ValueError(f"scale_min {self.scale_min} is above scale_max {self.scale_max}")
        return self

    def scale(self) -> tuple[float | None, float | None]:
        """Lowest and highest score there can be, once higher is better."""
        if self.higher_is_better:
            return self.scale_min, self.scale_max
        return (
            None if self.scale_max is None else -self.scale_max,
            None if self.scale_min is None else -self.scale_min,
        )

    def directed(self, numbers: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
        """The numbers as scores_N where higher is better; a null is NaN."""
        # An integer beyond 2 ** 53 is rounded, as in any other arithmetic on scores.
        values_N: NDArray[np.float64] = np.asarray(numbers.cast(pa.float64(), safe=False), dtype=np.float64)
        return values_N if self.higher_is_better else -values_N


def require_within(
    config: GivenConfig,
    values_N: NDArray[np.float64],
    column: str,
    ids: pa.ChunkedArray,
    file: str | None = None,
) -> None:
    """Refuse a score outside of the scale that is stated, which cards and the record tell as a fact.

    Args:
        config: The scale.
        values_N: The scores, where higher is better; NaN where there is none.
        column: Their column.
        ids: The documents'.
        file: The file they stand in.

    Raises:
        InputError: naming the first such document.
    """
    low, high = config.scale()
    outside_N = np.isfinite(values_N) & (
        (values_N < (-np.inf if low is None else low)) | (values_N > (np.inf if high is None else high))
    )
    if outside_N.any():
        row = int(np.argmax(outside_N))
        value = float(values_N[row])
        raise InputError(
            f"the score of document {ids[row].as_py()!r} lies outside of the scale that is stated, "
            f"{_bound(config.scale_min)} to {_bound(config.scale_max)}",
            file=file,
            field=column,
            value=value if config.higher_is_better else -value,
            remedy="correct the scorer's `scale_min` and `scale_max`, or leave them out",
        )


def _bound(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"


def require_numbers(kind: pa.DataType, column: str, file: str | None = None) -> None:
    """Refuse a column that holds no numbers.

    Args:
        kind: Its type.
        column: Its name.
        file: The file it stands in.

    Raises:
        InputError: its type is neither of integers, nor of floating-point numbers, nor of yes and no, which are 1 and 0.
    """
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise InputError(
            f"a score column has type {kind} where numbers are needed",
            file=file,
            field=column,
            remedy="name a column of numbers",
        )


def no_number(column: str) -> str:
    """Why a document has no score whose number is null, NaN or infinite."""
    return f"column {column} is null or not finite"

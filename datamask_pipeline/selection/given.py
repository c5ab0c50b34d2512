"""Documents that are held already, by their sums alone: what a later selection is conditioned on. Knows no vector.

Moments add up, so the objective of a union of held and new documents needs nothing of the held but these sums.

Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.errors import InputError
from datamask_pipeline.selection.inputs import (
    checked_quality,
    checked_token_counts,
    require_floats,
    stored_vectors,
)
from datamask_pipeline.selection.rows import norms, unit, unit_tolerance
from datamask_pipeline.selection.sharded import ShardedVectors, open_npy
from datamask_pipeline.vectors import are_unit

CHUNK_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Given:
    """Sums over the documents held, in float64.

    Attributes:
        count: Documents; a share of them, as of one of several blocks, need not be whole.
        first_D: Sum of their unit vectors.
        second_DD: Sum of the vectors' outer products; none where no metric needed it.
        squared: Sum of ``|x|^2``.
        quality: Sum of each quality score by name, as given, before any normalisation.
        tokens: Their tokens; none where not known of all.
        in_part: Whether the sums are a share of more documents', which may span more directions than `count`.
    """

    count: float
    first_D: NDArray[np.float64]
    second_DD: NDArray[np.float64] | None
    squared: float
    quality: Mapping[str, float]
    tokens: float | None = None
    in_part: bool = False

    @classmethod
    def of(
        cls,
        embeddings: Any,
        quality: Mapping[str, Any] | Any,
        *,
        second: bool = True,
        token_counts: Any = None,
    ) -> Given:
        """The sums over documents whose vectors are at hand.

        Args:
            embeddings: Shape (N, D), brought to unit norm, as `select_documents` takes them; from disk read by slices.
            quality: Shape (N,), or several such arrays by name; none of them, an empty mapping, leaves them out.
            second: Whether to sum outer products too, which DiSF, DiSF_uncentred, LogDet and Vendi need.
            token_counts: Shape (N,).

        Raises:
            InputError: as `select_documents`; a score or token count for each document is missing, or a vector has no
                direction, by its row.
        """
        if isinstance(embeddings, str | Path):
            embeddings = open_npy(embeddings)
        stored: Any = embeddings
        if isinstance(embeddings, np.memmap | ShardedVectors):
            require_floats(embeddings.dtype)
        else:
            stored = stored_vectors(embeddings)
        if len(stored.shape) != 2 or 0 in stored.shape:
            raise InputError(
                "embeddings must have two dimensions, documents by features, and some of each",
                field="embeddings",
                value=tuple(stored.shape),
            )
        num_rows, dim = stored.shape
        scores = {} if isinstance(quality, Mapping) and not quality else checked_quality(quality, num_rows)
        total = Moments.zero(dim, second)
        for start in range(0, num_rows, CHUNK_ROWS):
            part: Any = stored[start : start + CHUNK_ROWS]
            stored_nD = part if isinstance(part, torch.Tensor) else torch.from_numpy(np.array(part))
            rows_nD = stored_nD.float()
            norms_n = norms(rows_nD)
            directed_n = torch.isfinite(norms_n) & (norms_n > 0)
            if not directed_n.all():
                raise InputError(
                    "an embedding is zero, not finite or beyond the range of float32, so that it has no direction",
                    row=start + int((~directed_n).nonzero()[0]),
                    field="embeddings",
                    remedy="leave the document out, or embed it again",
                )
            if not are_unit(norms_n, unit_tolerance(stored_nD.dtype)).all():
                rows_nD = unit(rows_nD)
            total = total.plus(moments_of(rows_nD, torch.ones(len(rows_nD), dtype=torch.bool), second))
        return cls.of_moments(
            total,
            {name: float(values_N.numpy().sum()) for name, values_N in scores.items()},
            None
            if token_counts is None
            else float(checked_token_counts(token_counts, num_rows).numpy().sum()),
        )

    @classmethod
    def of_moments(cls, moments: Moments, quality: Mapping[str, float], tokens: float | None) -> Given:
        """The sums out of moments."""
        second_DD = moments.second_DD
        return cls(
            count=moments.count,
            first_D=moments.first_D.cpu().numpy(),
            second_DD=None if second_DD is None else second_DD.cpu().numpy(),
            squared=moments.squared,
            quality=dict(quality),
            tokens=tokens,
        )

    def moments(self, needs_second: bool) -> Moments:
        """The sums as moments, the second ones only where they are asked for."""
        second_DD = torch.from_numpy(self.second_DD) if needs_second and self.second_DD is not None else None
        first_D = torch.from_numpy(self.first_D)
        return Moments(count=self.count, first_D=first_D, second_DD=second_DD, squared=self.squared)

    def share(self, factor: float) -> Given:
        """The sums times a factor: what one of several blocks is conditioned on."""
        return Given(
            count=self.count * factor,
            first_D=self.first_D * factor,
            second_DD=None if self.second_DD is None else self.second_DD * factor,
            squared=self.squared * factor,
            quality={name: value * factor for name, value in self.quality.items()},
            tokens=None if self.tokens is None else self.tokens * factor,
            in_part=True,
        )

    @property
    def digest(self) -> str:
        """Hash of all sums that decide what is chosen; tokens are only told of."""
        found = hashlib.sha256(
            repr((self.count, self.squared, sorted(self.quality.items()), self.in_part)).encode()
        )
        for sums in (self.first_D, self.second_DD):
            found.update(b"" if sums is None else np.ascontiguousarray(sums).tobytes())
        return found.hexdigest()


def require_given(given: Any) -> None:
    """
    Raises:
        InputError: it is something else, such as a whole result.
    """
    if given is not None and not isinstance(given, Given):
        raise InputError(
            "what is held must be a Given",
            field="given",
            value=type(given).__name__,
            remedy="give an earlier result's `held`, or Given.of(vectors, quality) of the documents held",
        )


def require_fitting(given: Given, dim: int, names: list[str], needs_second: bool) -> None:
    """Refuse sums that are not of such vectors and scores.

    Raises:
        InputError: naming what is wrong.
    """
    if not given.count > 0 or not np.isfinite(given.count):
        raise InputError(
            "nothing is held", field="given.count", value=given.count, remedy="leave out `given`"
        )
    sums = {"first_D": (given.first_D, (dim,)), "second_DD": (given.second_DD, (dim, dim))}
    for name, (array, shape) in sums.items():
        if array is None:
            if needs_second:
                raise InputError(
                    "a metric needs the second moments of what is held",
                    field="given.second_DD",
                    remedy="make it by Given.of(..., second=True) from the held vectors",
                )
            continue
        if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
            raise InputError(
                f"sums over vectors of {dim} dimensions must be finite float64 of shape {shape}",
                field=f"given.{name}",
                value=f"{array.dtype} of shape {array.shape}",
            )
    if not abs(given.squared - given.count) <= 0.01 * given.count:
        raise InputError(
            "the squared norms of unit vectors add up to their number",
            field="given.squared",
            value=f"{given.squared} of {given.count}",
        )
    if not float(np.linalg.norm(given.first_D)) <= 1.01 * given.count:
        raise InputError(
            "the sum of unit vectors is not longer than their number",
            field="given.first_D",
            value=f"norm {float(np.linalg.norm(given.first_D)):.6g} of {given.count}",
        )
    if set(given.quality) != set(names):
        raise InputError(
            f"the scores held are {sorted(given.quality)}, those given {sorted(names)}",
            field="given.quality",
            remedy="give the scores, and `target` and `avoid`, that what is held was selected with",
        )
    if not all(np.isfinite(value) for value in given.quality.values()):
        raise InputError("a sum of scores is not finite", field="given.quality", value=dict(given.quality))

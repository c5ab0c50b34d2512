"""Brings the caller's arrays into the engine's form, or refuses them before any long work. Knows no metric and no policy.

Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.hardware import present_device
from datamask_pipeline.selection.budget import Budget, shared_out, unmet_quota
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.groups import groups_of, names_of, nearest
from datamask_pipeline.selection.list_columns import array_of
from datamask_pipeline.selection.moments.statistics import squared_of
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.ratio import documents_of
from datamask_pipeline.selection.rows import (
    MappedRows,
    MemoryRows,
    Rows,
    norms,
    on_processor,
    unit,
    unit_tolerance,
)
from datamask_pipeline.selection.sharded import ShardedVectors, open_npy
from datamask_pipeline.vectors import are_unit

ON_DEVICE = 4
"""Times the rows of a chunk where the block lies in an accelerator's memory."""


@dataclass(frozen=True, kw_only=True)
class CheckedRows:
    """Embeddings that passed, how many of them were not of unit norm, and a digest of their bytes.

    Attributes:
        squared_N: ``|x_i|^2`` in float64.
    """

    rows: Rows
    num_normalised: int
    digest: str
    squared_N: Tensor


def checked_rows(embeddings: Any, config: SelectionConfig, workers: Workers) -> CheckedRows:
    """Embeddings as unit rows; what lies on disk (``np.memmap``, the path of a ``.npy``, ``ShardedVectors``) stays there.

    Raises:
        InputError: not two-dimensional, not floating, empty, NaN, infinite or zero rows, or such as float32 does not hold,
            with the first such row.
    """
    device = present_device(config.device)
    if isinstance(embeddings, str | Path):
        embeddings = open_npy(embeddings)
    mapped = isinstance(embeddings, np.memmap | ShardedVectors)
    stored: Any = embeddings if mapped else stored_vectors(embeddings)
    if mapped:
        require_floats(stored.dtype)
    array: Any = stored if mapped else _of_engine(stored)
    if array.ndim != 2:
        raise InputError(
            "embeddings must have two dimensions, documents by features", value=tuple(array.shape)
        )
    if 0 in array.shape:
        raise InputError(
            "embeddings must have documents and features, some of each", value=tuple(array.shape)
        )
    source: Rows = (
        MappedRows(array, config.chunk_rows, torch.device("cpu"), normalise=False)
        if mapped
        else MemoryRows(array, rows_at_a_time(config, array.device))
    )

    digest, num_normalised = hashlib.sha256(), 0
    squared_N = torch.empty(source.num_rows, dtype=torch.float64)
    for span, (count, part, squared_n) in workers.map(
        lambda span: (span, inspected(source, config.chunk_rows, span, None if mapped else stored)),
        source.spans(),
    ):
        num_normalised += count
        digest.update(part)
        squared_N[slice(*span)] = squared_n
    if mapped:
        rows: Rows = MappedRows(array, config.chunk_rows, device, normalise=num_normalised > 0)
    else:
        rows = MemoryRows(
            (unit(array) if num_normalised else array).to(device), rows_at_a_time(config, device)
        )
    if num_normalised:
        squared_N = squared_of(rows, workers)
    return CheckedRows(
        rows=rows, num_normalised=num_normalised, digest=digest.hexdigest(), squared_N=squared_N
    )


def rows_at_a_time(config: SelectionConfig, device: torch.device) -> int:
    """Rows of a chunk of a block in memory: of an accelerator's, which computes many as fast as few, `ON_DEVICE` times as
    many."""
    return config.chunk_rows * (1 if device.type == "cpu" else ON_DEVICE)


def inspected(
    source: Rows, digest_rows: int, span: tuple[int, int], given_ND: Tensor | None = None
) -> tuple[int, bytes, Tensor]:
    """How many rows of a span are not of unit norm, the digests of their bytes, and their squared norms.

    Args:
        source: The rows.
        digest_rows: Rows of each digest: the record's does not depend on where vectors lay.
        span: Of these the first one, and the one after the last.
        given_ND: What the caller gave, if the rows were converted from it.

    Raises:
        InputError: a row that is not finite, or zero, or out of float32's range, by its number in the rows.
    """
    stored_nD = source.chunk(*span, source.stored_dtype)
    given_nD = stored_nD if given_ND is None else given_ND[slice(*span)]
    chunk_nD = stored_nD.float()
    # The norm of finite numbers is finite: it is taken in float64 where float32 does not hold it.
    norms_n = norms(chunk_nD)
    finite_n = torch.isfinite(norms_n)
    if not finite_n.all():
        row = int((~finite_n).nonzero()[0])
        if bool(torch.isfinite(given_nD[row]).all()):
            raise _beyond_float32(span[0] + row, given_nD[row])
        bad = chunk_nD[row][~torch.isfinite(chunk_nD[row])][0]
        raise InputError(
            "an embedding is not finite",
            row=span[0] + row,
            field="embeddings",
            value=float(bad),
            remedy="drop the document or embed it again",
        )
    if not (norms_n > 0).all():
        row = int((norms_n == 0).nonzero()[0])
        if bool(given_nD[row].any()):
            raise _beyond_float32(span[0] + row, given_nD[row])
        raise InputError(
            "an embedding is the zero vector and has no direction",
            row=span[0] + row,
            field="embeddings",
            remedy="drop the document or embed it again",
        )
    bits = on_processor(stored_nD).contiguous().view(torch.uint8).numpy()
    parts = (bits[start : start + digest_rows] for start in range(0, len(bits), digest_rows))
    digests = b"".join(hashlib.sha256(part.data).digest() for part in parts)
    off_n = ~are_unit(norms_n, unit_tolerance(source.stored_dtype))
    return int(off_n.sum()), digests, norms_n.double().square()


def _beyond_float32(row: int, given_D: Tensor) -> InputError:
    return InputError(
        "the numbers of an embedding are beyond the range of float32",
        row=row,
        field="embeddings",
        value=float(given_D.abs().max()),
        remedy="divide each vector by its largest absolute number; all are brought to unit norm anyway",
    )


def require_floats(dtype: Any) -> None:
    """Refuse mapped numbers that cannot be vectors.

    Raises:
        InputError: naming their type.
    """
    if dtype.kind != "f" or dtype.itemsize > 8 or not dtype.isnative:
        raise InputError(
            "a mapped array must hold float16, float32 or float64 in this machine's byte order",
            field="embeddings",
            value=dtype,
            remedy="convert it",
        )


def stored_vectors(embeddings: Any) -> Tensor:
    """Vectors in memory as a tensor, of the type that they have and where possible where they lie.

    Args:
        embeddings: Shape (N, D): an array, a tensor, nested lists, or an Arrow column of lists.

    Raises:
        InputError: not real numbers, ragged, masked, null or sparse.
    """
    _refuse_sparse(embeddings, "embeddings")
    if isinstance(embeddings, pa.Array | pa.ChunkedArray):
        embeddings = array_of(embeddings)
    if not isinstance(embeddings, Tensor):
        try:
            array = np.asarray(embeddings)
        except ValueError as error:
            raise InputError("embeddings are not all of one length", field="embeddings") from error
        if not np.issubdtype(array.dtype, np.number) or np.ma.is_masked(embeddings):
            is_arrays = array.dtype == object and array.ndim == 1 and len(array) and np.ndim(array[0])
            raise InputError(
                "embeddings must be real numbers, none of them masked",
                field="embeddings",
                value=array.dtype,
                remedy="these are arrays of their own: give np.stack of them" if is_arrays else None,
            )
        if np.issubdtype(array.dtype, np.floating) and array.dtype.itemsize > 8:
            array = array.astype(np.float64)
        with warnings.catch_warnings():
            # Nobody writes to it.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            embeddings = torch.from_numpy(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))
    tensor: Tensor = embeddings.detach().contiguous()
    if tensor.is_complex():
        raise InputError("embeddings must be real numbers", field="embeddings", value=tensor.dtype)
    return tensor


def _of_engine(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float64 or not tensor.is_floating_point():
        tensor = tensor.to(torch.float32)
    return tensor


def _refuse_sparse(values: Any, field: str) -> None:
    if isinstance(values, Tensor) and values.layout != torch.strided:
        raise InputError(
            "a sparse tensor cannot be read", field=field, value=values.layout, remedy="give its to_dense()"
        )
    if type(values).__module__.startswith("scipy.sparse"):
        raise InputError(
            "a sparse array cannot be read",
            field=field,
            value=type(values).__name__,
            remedy="give its toarray()",
        )


def checked_quality(quality: Any, num_rows: int) -> dict[str, Tensor]:
    """Quality scores by name, float64; one array alone is called ``quality``.

    Raises:
        InputError: a wrong length, or a score that is missing, NaN or infinite.
    """
    scores = dict(quality) if isinstance(quality, Mapping) else {"quality": quality}
    if not scores:
        raise InputError("no quality score was given", remedy="give one, or all zeros with lamb 0")
    for name in scores:
        if not isinstance(name, str):
            raise InputError("the name of a quality score must be a string", field="quality", value=name)
    return {name: checked_scores(values, num_rows, name) for name, values in scores.items()}


def checked_scores(values: Any, num_rows: int, name: str, what: str = "score") -> Tensor:
    """One number a document, float64.

    Raises:
        InputError: a wrong length, or one that is missing, NaN or infinite.
    """
    _refuse_sparse(values, name)
    array = np.asarray(array_of_tensor(values))
    if array.shape != (num_rows,):
        raise InputError(f"{num_rows} embeddings need as many {what}s", field=name, value=array.shape)
    texts = (
        [row for row, value in enumerate(array) if isinstance(value, str)] if array.dtype == object else []
    )
    if array.dtype.kind not in "biufO" or texts or np.ma.is_masked(values):
        raise InputError(
            f"{what}s must be real numbers, none of them missing",
            row=texts[0] if texts else None,
            field=name,
            value=array.dtype,
            remedy=f"convert them, and give every document a {what}",
        )
    try:
        scores_N = np.require(array, np.float64, ["C", "A", "W"])  # a copy only where torch cannot read it
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"a {what} is missing, or no number that float64 holds",
            field=name,
            remedy=f"give every document a {what}",
        ) from error
    bad = np.flatnonzero(~np.isfinite(scores_N))
    if len(bad):
        raise InputError(
            f"a {what} is not finite",
            row=int(bad[0]),
            field=name,
            value=float(scores_N[bad[0]]),
            remedy="drop the document, or give it a number",
        )
    with np.errstate(over="ignore"):
        total = np.abs(scores_N).sum()
    if not np.isfinite(total):
        row = int(np.abs(scores_N).argmax())
        raise InputError(
            f"{what}s are so large that float64 does not hold their sum",
            row=row,
            field=name,
            value=float(scores_N[row]),
            remedy=f"divide every {what} by this one, or drop the document",
        )
    return torch.from_numpy(scores_N)


def checked_token_counts(values: Any, num_rows: int) -> Tensor:
    """The tokens of each document where no budget rests on them, float64.

    Raises:
        InputError: a wrong length, or a count that is missing or below 0.
    """
    counts_N = checked_scores(values, num_rows, "token_counts", "token count")
    if (counts_N < 0).any():
        row = int((counts_N < 0).nonzero()[0])
        raise InputError(
            "a token count is below 0", row=row, field="token_counts", value=float(counts_N[row])
        )
    return counts_N


def array_of_tensor(values: Any) -> Any:
    """A tensor's numbers as an array, float64, wherever it lies; anything else as it is."""
    return values.to(torch.float64).numpy(force=True) if isinstance(values, Tensor) else values


def _refuse_unhashable(one: Any, row: int, field: str) -> None:
    try:
        hash(one)
    except TypeError as error:
        remedy = "give one string or number a document"
        raise InputError(
            "no value that can be looked up", row=row, field=field, value=one, remedy=remedy
        ) from error


def _is_column(values: Any) -> bool:
    """Whether these can be gone through at all, which an array without dimensions only seems to be."""
    return isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0


def checked_ids(ids: Sequence[Any] | NDArray[Any] | None, num_rows: int) -> None:
    """Refuse ids that are null or stand for two documents.

    Raises:
        InputError: naming the row and the id.
    """
    if ids is None:
        return
    if not _is_column(ids):
        raise InputError(f"{num_rows} embeddings need as many ids", field="ids", value=ids)
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(ids) != num_rows:
        raise InputError(f"{num_rows} embeddings need as many ids", field="ids", value=len(ids))
    seen: dict[Any, int] = {}
    for row, one in enumerate(ids):
        _refuse_unhashable(one, row, "ids")
        # What is not itself is a NaN; pandas' own null does not even say.
        if one is None or (one != one) is not False:
            raise InputError(
                "an id is null", row=row, field="ids", remedy="drop the document, or give it an id"
            )
        if seen.setdefault(one, row) != row:
            raise InputError(
                f"an id stands in row {seen[one]} already",
                row=row,
                field="ids",
                value=one,
                remedy="collapse duplicates before selecting",
            )


def budget_of(
    config: SelectionConfig,
    num_rows: int,
    token_counts: Any = None,
    groups: Sequence[Any] | None = None,
    copies: int = 1,
) -> Budget:
    """The budget of a block, in which each document may be taken so many times.

    Raises:
        ConfigurationError: nothing or more than everything to select, quotas that do not fit.
        InputError: token counts or groups that are missing.
    """
    costs_N = torch.ones(1, dtype=torch.float64).expand(num_rows)
    if config.num_tokens is not None:
        if token_counts is None:
            raise InputError("a budget in tokens needs token_counts", field="token_counts")
        costs_N = checked_scores(token_counts, num_rows, "token_counts", "token count")
        if not (costs_N > 0).all():
            row = int((costs_N <= 0).nonzero()[0])
            raise InputError(
                "a token count is not above 0",
                row=row,
                field="token_counts",
                value=float(costs_N[row]),
                remedy="drop the document, or count its tokens",
            )
        if config.num_tokens > copies * float(costs_N.sum()):
            raise ConfigurationError(
                f"num_tokens {config.num_tokens} is more than the block's {copies * int(costs_N.sum())} tokens"
            )
        limits: tuple[float, ...] = (float(config.num_tokens),)
        groups_N = torch.zeros(1, dtype=torch.int64).expand(num_rows)
    else:
        if token_counts is not None:
            checked_token_counts(token_counts, num_rows)
        total = config.num_documents
        if total is None:
            total = documents_of(config.ratio, num_rows)
        if total < 2:
            raise ConfigurationError(
                f"the budget is {total} of {num_rows} documents; select at least 2: raise `{config.budget}`, which is "
                f"{getattr(config, config.budget)}"
            )
        if total > copies * num_rows:
            raise ConfigurationError(
                f"the budget is {total} documents, the block has {copies * num_rows}: lower `num_documents`, or select by "
                "`ratio`"
            )
        groups_N, limits = _quotas(config, num_rows, total, groups, copies)
    return Budget(
        costs_N=costs_N,
        groups_N=groups_N,
        limits=limits,
        tokens=config.num_tokens is not None,
        seed=config.seed,
    )


def _quotas(
    config: SelectionConfig, num_rows: int, total: int, groups: Sequence[Any] | None, copies: int
) -> tuple[Tensor, tuple[float, ...]]:
    if config.quotas is None:
        return torch.zeros(1, dtype=torch.int64).expand(num_rows), (float(total),)
    if not (_is_column(groups) and isinstance(groups, Sized)) or len(groups) != num_rows:
        raise InputError("quotas need a group for each document", field="groups")
    names, groups_N = sorted(config.quotas), groups_of(config.quotas, groups)
    shares = [config.quotas[name] * total for name in names]
    limits = shared_out(shares, total)
    for place, name in enumerate(names):
        size = copies * int((groups_N == place).sum())
        if limits[place] > size:
            near = "" if size else nearest(name, {*names_of(groups)} - {*names})
            raise unmet_quota(name, config.quotas[name], limits[place], size, "block", near)
    return groups_N, tuple(float(limit) for limit in limits)

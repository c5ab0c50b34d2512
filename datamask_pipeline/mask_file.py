"""Mask learning's file format: a Parquet file of ids, scores and embeddings in, the same rows and the mask out.

Knows no metric and no learner. Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.disk import kind_of
from datamask_pipeline.errors import ConfigurationError, InputError, StorageError, suggestion
from datamask_pipeline.lineage import canonical_json, plain
from datamask_pipeline.storage import new_map

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import SelectionResult

BATCH_ROWS = 8192
ADDED = {"selected": pa.bool_(), "logit": pa.float64(), "probability": pa.float64()}
EXPLAINING = {"quality_marginal": pa.float64(), "diversity_marginal": pa.float64(), "reason": pa.string()}
METADATA_KEY = b"datamask"
OPTIONS = {"token_counts": "--token-column", "groups": "--group-column"}
"""What the engine may lack, and the option that names its column."""
EMBEDDING_OPTION = "--embedding-column"


@dataclass(frozen=True, kw_only=True)
class MaskInput:
    """What a file holds for the engine."""

    ids: list[Any]
    quality: dict[str, NDArray[np.float64]]
    embeddings: NDArray[np.floating]
    token_counts: NDArray[np.float64] | None
    groups: list[Any] | None


def read_input(
    path: Path,
    *,
    id_column: str = "chunk_id",
    quality_columns: Sequence[str] = ("quality_score",),
    embedding_column: str = "feature_arr",
    token_column: str | None = None,
    group_column: str | None = None,
    scratch: Path | None = None,
) -> MaskInput:
    """Read the columns that selecting needs.

    Args:
        path: The Parquet file.
        id_column: Ids of any type.
        quality_columns: One score or several.
        embedding_column: Lists of floats, all of one length.
        token_column: Tokens of each document, for a budget in tokens.
        group_column: Domain or crawl, for quotas.
        scratch: A folder for a memory-mapped copy of the embeddings, so that memory does not grow with the file;
            none reads them into memory.

    Raises:
        InputError: the file, a column or a value that cannot be used, by name and row.
    """
    file = _opened(path)
    # One column may serve twice, as lengths that are a score and a budget's.
    wanted = {id_column: "--id-column", **dict.fromkeys(quality_columns, "--quality-column")}
    wanted |= {
        name: option
        for name, option in ((token_column, OPTIONS["token_counts"]), (group_column, OPTIONS["groups"]))
        if name is not None
    }
    _require_columns(file, wanted | {embedding_column: EMBEDDING_OPTION}, path)
    _require_rows(file, path)
    with _reading(path):
        table = pq.read_table(path, columns=[*wanted])
    return MaskInput(
        ids=table.column(id_column).to_pylist(),
        quality={name: _numbers(table, name, path) for name in quality_columns},
        embeddings=_read_embeddings(file, embedding_column, path, scratch),
        token_counts=None if token_column is None else _numbers(table, token_column, path),
        groups=None if group_column is None else table.column(group_column).to_pylist(),
    )


def read_vectors(path: Path, embedding_column: str = "feature_arr") -> NDArray[np.floating]:
    """The embeddings of a file alone, such as those that a selection shall be like.

    Raises:
        InputError: the file, the column or a value that cannot be used, by name and row.
    """
    file = _opened(path)
    _require_columns(file, {embedding_column: EMBEDDING_OPTION}, path)
    _require_rows(file, path)
    return _read_embeddings(file, embedding_column, path, None)


@contextmanager
def users_names(
    path: Path, columns: Mapping[str, str | None], files: Mapping[str, Path] | None = None
) -> Iterator[None]:
    """Tell what the engine refuses by the user's file and columns.

    Args:
        path: The file whose rows the engine was given.
        columns: The engine's name of what it was given -> the file's column, None where none was named.
        files: The engine's name of what came from another file -> that file, read by the column of `embeddings`.
    """
    try:
        yield
    except InputError as error:
        remedy, field = error.remedy, error.field
        if field is not None and files is not None and field in files:
            path, field = files[field], "embeddings"
        if field is not None and field in columns:
            field = columns[field]
            if field is None:
                remedy = f"name their column by {OPTIONS[str(error.field)]}"
        raise InputError(
            error.problem, file=str(path), row=error.row, field=field, value=error.value, remedy=remedy
        ) from error


def check_output(path: Path, source: Path, *, explain: bool = False) -> None:
    """Refuse, before any work, an output that could not be written.

    Args:
        path: The output.
        source: The input, whose rows it will hold.
        explain: As for `write_output`.

    Raises:
        InputError: there is no such source, it is the output itself, or it has a column that is to be added.
        StorageError: the output is a folder, a link or no file, or its folder is not there or not to be written to.
        ConfigurationError: the output's name is that of another format.
    """
    if path.suffix.lower() not in ("", ".parquet"):
        raise ConfigurationError(
            f"--output {path}: what is written is Parquet; give it a name that ends in .parquet"
        )
    if path.is_file() and source.is_file() and path.samefile(source):
        raise InputError(
            f"the output {path} is the input itself",
            file=str(source),
            remedy="name another file for the output",
        )
    folder, special = path.parent, kind_of(path)
    if special or not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = f"it is {special}" if special else f"no folder {folder} that can be written to"
        raise StorageError(f"cannot write {path}: {problem}")
    names = _opened(source).schema_arrow.names
    for name in _added(explain):
        if name in names:
            raise InputError(
                "the input has a column of that name already",
                file=str(source),
                field=name,
                remedy="drop or rename it: the output adds one",
            )


def check_plot(path: Path) -> None:
    """Refuse a picture that could not be drawn.

    Raises:
        ConfigurationError: there is no such folder, it is one itself, or no picture of that suffix.
    """
    from matplotlib.figure import Figure

    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in formats:
        raise ConfigurationError(f"--plot {path}: the suffix must be one of {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--plot {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ConfigurationError(f"--plot {path}: it is a folder; name a file")


def write_output(path: Path, source: Path, result: SelectionResult, *, explain: bool = False) -> None:
    """Write every row of the source in order with ``selected``, ``logit`` and ``probability``.

    The run's record stands in the file's metadata under ``datamask`` as JSON. The file appears whole or not at all.

    Args:
        path: The output.
        source: The input.
        result: What was found for the input's rows.
        explain: Add what each row contributes and why it is in or out, too.

    Raises:
        InputError: the source has a column of one of these names already, or its rows cannot be read.
        StorageError: the output could not be written.
    """
    check_output(path, source, explain=explain)
    file = _opened(source)
    schema = file.schema_arrow
    columns = {
        "selected": result.mask,
        "logit": result.logits,
        "probability": result.probabilities,
        "quality_marginal": result.marginals.quality_N,
        "diversity_marginal": result.marginals.diversity_N,
        "reason": result.reasons,
    }
    added = _added(explain)
    for name, kind in added.items():
        schema = schema.append(pa.field(name, kind))
    schema = schema.with_metadata(
        {**(schema.metadata or {}), METADATA_KEY: canonical_json(plain(run_record(result))).encode()}
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.writing")
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for start, batch in _batches(file, source):
                stop = start + batch.num_rows
                more = [pa.array(columns[name][start:stop], kind) for name, kind in added.items()]
                writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema))
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def run_record(result: SelectionResult) -> dict[str, Any]:
    """All of a result that is not one number a document, for JSON."""
    return {
        **result.record,
        "objective": asdict(result.objective),
        "certificate": asdict(result.certificate),
        "normalisation": {name: list(pair) for name, pair in result.normalisation.items()},
        "threshold": None if np.isnan(result.threshold) else result.threshold,
        "timings_seconds": result.timings,
        "curve": result.curve.to_pydict(),
    }


def _opened(path: Path) -> pq.ParquetFile:
    if path.is_dir():
        remedy = "name one file; DuckDB joins several: COPY (FROM 'FOLDER/*.parquet') TO 'all.parquet'"
        raise InputError("a folder, not a Parquet file", file=str(path), remedy=remedy)
    if not path.is_file():
        raise InputError("no such file", file=str(path))
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"not a Parquet file: {error}", file=str(path)) from error


def _require_rows(file: pq.ParquetFile, path: Path) -> None:
    if file.metadata.num_rows == 0:
        raise InputError("the file has no rows", file=str(path), remedy="name one that has documents")


def _require_columns(file: pq.ParquetFile, columns: Mapping[str, str], path: Path) -> None:
    """
    Args:
        file: Opened.
        columns: Each with the option of ``datamask select`` that names it.
        path: The file's.

    Raises:
        InputError: one is not there, or there twice.
    """
    names = file.schema_arrow.names
    for column, option in columns.items():
        if column not in names:
            raise InputError(
                f"no column {column!r}{suggestion(column, names)}; there are {', '.join(names)}",
                file=str(path),
                remedy=f"name yours by `datamask select {option}`",
            )
        if names.count(column) > 1:
            problem = (
                f"the file has {names.count(column)} columns {column!r}; rename all but the one that is meant"
            )
            raise InputError(problem, file=str(path))


def _added(explain: bool) -> dict[str, pa.DataType]:
    return ADDED | EXPLAINING if explain else ADDED


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell damage of the file as its own: inside what writes, the other one would be blamed."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        problem = f"its rows cannot be read: {str(error).partition(chr(10))[0]}"
        raise InputError(problem, file=str(path), remedy="replace it by a whole copy") from error


def _batches(
    file: pq.ParquetFile, path: Path, columns: list[str] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    parts: list[list[int] | None] = [None]
    if any(_holds_dictionary(field.type) for field in file.schema_arrow):
        # Arrow reads these only where a batch lies in one row group.
        parts = [[group] for group in range(file.num_row_groups)]
    with _reading(path):
        for groups in parts:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
                yield start, batch
                start += batch.num_rows


def _holds_dictionary(kind: pa.DataType) -> bool:
    """Whether values inside a list or struct are dictionary-encoded."""
    inside = [kind.field(place).type for place in range(kind.num_fields)]
    return any(pa.types.is_dictionary(one) or _holds_dictionary(one) for one in inside)


def _numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.float64]:
    column = table.column(name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(
            "a value is missing", file=str(path), row=row, field=name, remedy="drop the row or fill it in"
        )
    refused = InputError(
        f"not numbers: {column.type}",
        file=str(path),
        field=name,
        remedy="cast them, or name a column of numbers",
    )
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raise refused  # a cast would read numbers from text
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise refused from error


def _read_embeddings(
    file: pq.ParquetFile, name: str, path: Path, scratch: Path | None
) -> NDArray[np.floating]:
    kind = file.schema_arrow.field(name).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise InputError(
            f"embeddings must be lists of floats, not {kind}",
            file=str(path),
            field=name,
            remedy="cast them, or name a column of such lists",
        )
    dtype = np.float16 if pa.types.is_float16(kind.value_type) else np.float32
    array_ND: NDArray[np.floating] | None = None
    for start, batch in _batches(file, path, [name]):
        column = batch.column(0)
        lengths = np.asarray(column.value_lengths().fill_null(-1))
        dim = int(lengths[0]) if array_ND is None else array_ND.shape[1]
        wrong = np.flatnonzero((lengths != dim) | (lengths <= 0))
        if len(wrong):
            row, length = start + int(wrong[0]), int(lengths[wrong[0]])
            problem = {-1: "an embedding is missing", 0: "an embedding is empty"}.get(
                length, f"an embedding has {length} dimensions, not {dim}"
            )
            raise InputError(
                problem,
                file=str(path),
                row=row,
                field=name,
                remedy="drop the document or embed it again",
            )
        if array_ND is None:
            array_ND = _allocate((file.metadata.num_rows, dim), dtype, scratch)
        values = column.flatten().to_numpy(zero_copy_only=False)
        array_ND[start : start + batch.num_rows] = values.reshape(-1, dim)
    assert array_ND is not None, "an empty file was refused"
    if isinstance(array_ND, np.memmap):
        array_ND.flush()
        array_ND.flags.writeable = False
    return array_ND


def _allocate(shape: tuple[int, int], dtype: type[np.floating], scratch: Path | None) -> NDArray[np.floating]:
    if scratch is None:
        return np.empty(shape, dtype)
    return new_map(scratch / "embeddings.raw", dtype, shape)

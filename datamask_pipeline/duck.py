"""DuckDB over the record: in-memory connections that read Parquet parts in canonical order. Knows no stage.

No shared ``.duckdb`` file: while one process holds such a file, a second is refused even for reading.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import pydantic

from datamask_pipeline import domains
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    import duckdb


#: Columns by which queries number rows, in any case; no part may have one of its own.
ROW_NUMBERS: Final = (
    "artefact_order",
    "artefact_row",
    "part_order",
    "part_row",
    "file_row_number",
    "file_index",
)

#: Units of memory, in bytes; DuckDB starts with a megabyte or more.
_UNITS: Final = {
    prefix + ending: base**power
    for power, prefix in enumerate("kmgt", 1)
    for ending, base in (("", 1_000), ("b", 1_000), ("ib", 1_024))
}


def _in_bytes(text: str) -> float:
    """An amount that is no share."""
    number, unit = re.fullmatch(r"([\d.]+) *([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS.get(unit.lower(), 1)


def _amount_of_memory(text: str) -> str:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) *(%|[a-z]+)", text.strip().lower(), re.ASCII)
    number, unit = (float(found[1]), found[2]) if found else (0.0, "")
    if not (1 <= number <= 100 if unit == "%" else 1e6 <= number * _UNITS.get(unit, 0) < 2**63):
        raise ValueError(
            "is no amount of memory from 1MB; give a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB, e.g. 2GB, or a "
            "share of this machine's, e.g. 50%"
        )
    return text


#: What stages give DuckDB by default: beyond it spills, so that memory is bounded however many documents there are.
STAGE_MEMORY: Final = "512MB"
#: What a thread of DuckDB is given at the least; fewer work where there is less.
_MEMORY_OF_A_THREAD: Final = 64e6

#: An amount of memory as DuckDB takes it.
MemoryLimit = Annotated[str, pydantic.AfterValidator(_amount_of_memory)]


class QuerySettings(Settings):
    """Settings of a stage that asks DuckDB."""

    memory_limit: MemoryLimit = execution_field(
        STAGE_MEMORY, description="Memory DuckDB may use before it spills to disk."
    )


@contextlib.contextmanager
def database(scratch: Path, *, memory_limit: str = "2GB") -> "Iterator[duckdb.DuckDBPyConnection]":
    """An in-memory database that spills to ``scratch`` instead of growing past ``memory_limit``.

    Raises:
        ConfigurationError: a query needs more memory than that at a time.
    """
    # Here, so that stages without a query start without a database.
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        connection.execute(f"SET temp_directory = {literal(str(scratch / 'duckdb'))}")
        connection.execute(f"SET memory_limit = {literal(memory_limit)}")
        threads, limit = connection.execute(
            "SELECT current_setting('threads'), current_setting('memory_limit')"
        ).fetchall()[0]
        at_most = max(1, int(_in_bytes(limit) / _MEMORY_OF_A_THREAD))
        connection.execute(f"SET threads = {min(int(threads), at_most)}")
        connection.execute(
            "SET enable_progress_bar = false"
        )  # its lines would stand among a command's answers
        yield connection
    except duckdb.OutOfMemoryException as error:
        problem = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"DuckDB needs more memory than its limit of {memory_limit}: {problem}; raise the stage's `memory_limit`"
        ) from error
    finally:
        connection.close()


@contextlib.contextmanager
def connect(
    store: Store, scratch: Path, *, memory_limit: str = "2GB"
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A ``database`` that reads the record, knows hosts, and tells in one line that a file of it cannot be read.

    Raises:
        IntegrityError: a file of the record is missing or damaged.
    """
    import duckdb

    of_the_query = (
        duckdb.ParserException,
        duckdb.SyntaxException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.OutOfMemoryException,
        duckdb.InterruptException,
    )
    with database(scratch, memory_limit=memory_limit) as connection:
        if not store.is_local:
            connection.register_filesystem(store.fs)
        domains.define(connection)
        try:
            yield connection
        except duckdb.IOException as error:
            problem = str(error).partition("\n")[0]
            raise IntegrityError(
                f"cannot read a part of {store.root_url}: {problem}; run its stage again, which writes a missing "
                "file anew"
            ) from error
        except of_the_query:
            raise
        except (
            duckdb.Error,
            UnicodeDecodeError,
        ) as error:  # the latter: names of columns, in a message of DuckDB's
            problem = str(error).partition("\n")[0]
            raise IntegrityError(
                f"a file of the record {store.root_url} is damaged: {problem}; `datamask audit prove` says which"
            ) from error


def parts_sql(store: Store, refs: Sequence[Ref], columns: str = "*") -> str:
    """A subquery over the rows of several artefacts that adds their canonical order.

    Args:
        store: The record.
        refs: The artefacts, in the order wanted.
        columns: Columns to read, as SQL.

    Returns:
        ``(SELECT ..., artefact_order, artefact_row, part_order, part_row ...)``: 0-based index of the artefact in
        ``refs``, of the row in the artefact, of the part in it, and of the row in the part.
    """
    selects = []
    for artefact_order, ref in enumerate(refs):
        parts = store.manifest(ref)["parts"]
        paths = [store.file_path(ref, f"{part['name']}.parquet") for part in parts]
        files = files_sql(store, paths, [part["rows"] for part in parts], columns)
        selects.append(f"SELECT *, {artefact_order} AS artefact_order FROM {files}")
    return "(" + " UNION ALL ".join(selects) + ")"


def files_sql(store: Store, paths: Sequence[str], rows: Sequence[int], columns: str) -> str:
    """A subquery over Parquet files of one schema that adds their order; planned at once, however many there are.

    Args:
        store: The record.
        paths: The files, in the order wanted.
        rows: Rows of each.
        columns: Columns to read, as SQL.

    Returns:
        ``(SELECT ..., artefact_row, part_order, part_row ...)``: 0-based index of the row among all, of the file, and of the
        row in the file.
    """
    files = ", ".join(file_literal(store, path) for path in paths)
    firsts = [0, *itertools.accumulate(rows)][: len(paths)]
    return (
        f"(SELECT {columns}, {firsts}[file_index::BIGINT + 1] + file_row_number AS artefact_row, "
        f"file_index::INTEGER AS part_order, file_row_number AS part_row "
        f"FROM read_parquet([{files}], file_row_number = true))"
    )


@dataclasses.dataclass(frozen=True)
class PartSource:
    """A part of an artefact as SQL reads it.

    Attributes:
        first: Its first row, counted over the artefact.
        rows: Its rows.
        source: What stands after ``FROM``; it has ``file_row_number``, counted from 0, beside the part's columns.
    """

    first: int
    rows: int
    source: str


def part_sources(store: Store, ref: Ref) -> Iterator[PartSource]:
    """The parts of an artefact in canonical order."""
    first = 0
    for part in store.manifest(ref)["parts"]:
        path = store.file_path(ref, f"{part['name']}.parquet")
        yield PartSource(
            first, part["rows"], f"read_parquet({file_literal(store, path)}, file_row_number = true)"
        )
        first += part["rows"]


def file_literal(store: Store, path: str) -> str:
    """One file of the record as an SQL literal for ``read_parquet``."""
    return path_literal(path if store.is_local else store.fs.unstrip_protocol(path))


def path_literal(path: str) -> str:
    """One file's path as an SQL literal for ``read_parquet``, which would take ``*``, ``?`` and ``[`` for patterns."""
    return literal(re.sub(r"[\[*?]", lambda sign: f"[{sign[0]}]", path))


def stream(
    connection: "duckdb.DuckDBPyConnection", sql: str, schema: pa.Schema, *, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, cast to a schema, one bounded batch at a time."""
    for batch in connection.sql(sql).to_arrow_reader(batch_rows):
        table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        yield from table.to_batches()


def literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A column name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'

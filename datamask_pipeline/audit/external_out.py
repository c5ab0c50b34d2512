"""Writes what was found of every row of somebody else's subset, as Parquet or JSON Lines. Knows no record."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage import storage_errors

if TYPE_CHECKING:
    import duckdb

PARQUET, JSON_LINES = ".parquet", ".jsonl"
BATCH_ROWS: Final = 8_192
#: One row a row of the subset, in its order.
VERDICTS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("found_by", pa.string()),
        ("why_not_found", pa.string()),
        ("crawl", pa.string()),
        ("document_id", pa.string()),
        ("altered", pa.bool_()),
        ("exact_copy", pa.bool_()),
        ("repeated_id", pa.bool_()),
    ]
)


def check_out(target: Path) -> None:
    """Refuse, before anything is read, a file that could not be written in one of the two formats.

    Raises:
        ConfigurationError: its name ends in neither.
        StorageError: there is no such folder, or no right to write there.
    """
    if target.suffix not in (PARQUET, JSON_LINES):
        raise ConfigurationError(f"{target}: a file of all rows must end in {PARQUET} or {JSON_LINES}")
    with storage_errors(str(target), "--out"):
        part = _private(target)
        part.touch()
        part.unlink()


def write_verdicts(connection: "duckdb.DuckDBPyConnection", names: Sequence[str], target: Path) -> None:
    """Write the rows; they stand under the file's name only when all of them do.

    Args:
        connection: It has ``theirs``, ``found`` and ``source``, as `external_sql` tells.
        names: Of the subset's files.
        target: Where to.

    Raises:
        StorageError: there is no room, or no right to write there.
    """
    reader = connection.sql("""
        SELECT t.file, t.file_row AS row, t.id, f.how AS found_by, f.why_not AS why_not_found, s.crawl,
            s.id AS document_id, f.altered,
            t.content_hash IS NOT NULL AND row_number() OVER (PARTITION BY t.content_hash ORDER BY t.row) > 1 AS exact_copy,
            t.id IS NOT NULL AND row_number() OVER (PARTITION BY t.id ORDER BY t.row) > 1 AS repeated_id
        FROM theirs AS t JOIN found AS f USING (row) LEFT JOIN source AS s ON s.position = f.position ORDER BY t.row
    """).to_arrow_reader(BATCH_ROWS)
    part = _private(target)
    with storage_errors(str(target), "--out"):
        try:
            _write(reader, pa.array(names), part, target.suffix)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _private(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")


def _write(reader: pa.RecordBatchReader, names: pa.Array, part: Path, suffix: str) -> None:
    batches = (
        pa.record_batch([names.take(batch.column(0)), *batch.columns[1:]], names=VERDICTS.names)
        for batch in reader
    )
    tables = (pa.Table.from_batches([batch]).cast(VERDICTS) for batch in batches)
    if suffix == PARQUET:
        with pq.ParquetWriter(part, VERDICTS) as writer:
            for table in tables:
                writer.write_table(table)
        return
    with part.open("w", encoding="utf-8") as stream:
        for table in tables:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())

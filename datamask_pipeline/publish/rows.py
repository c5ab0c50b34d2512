"""The rows of a subset as they are published: with columns of the source, in canonical or seeded order, in bounded memory.

Knows the record's tables; knows no file of the data set.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from datamask_pipeline import duck, schema
from datamask_pipeline.ahead import drawn_ahead
from datamask_pipeline.errors import InputError, IntegrityError, UnknownNameError
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

#: Rows of the seeded order are sorted in pieces of about so many bytes.
BUCKET_BYTES = 200_000_000


def source_fields(
    store: Store, documents: Mapping[str, Ref], columns: Sequence[str], where: str = "columns"
) -> pa.Schema:
    """Columns that only the source has, by name.

    Args:
        store: The record.
        documents: Documents of each crawl.
        columns: Those wanted.
        where: The setting that names them.

    Raises:
        UnknownNameError: no crawl has such a column.
        InputError: the subset has a column of that name itself, or two crawls have one of those in two types, or `datasets`
            cannot open one of its type.
    """
    found: dict[str, pa.Field] = {}
    for crawl, ref in documents.items():
        for field in _extras(store, ref):
            if found.setdefault(field.name, field).type != field.type and field.name in columns:
                raise InputError(
                    f"crawl {crawl!r} holds it as {field.type}, an earlier one as {found[field.name].type}",
                    field=field.name,
                    remedy="ingest both in one type, or leave the column out",
                )
    for name in columns:
        if name not in found:
            hint = (
                "of JSON Lines, columns are the keys that `extra_columns` in `source.options` declares with their type, "
                "e.g. {license: string}; others are kept as text in `extra_json`"
            )
            remedy = hint if schema.EXTRA_JSON.name in found else ""
            raise UnknownNameError("column of the source", name, found, where, remedy=remedy)
        if name in schema.TABLES["materialise"].columns.names or name.startswith(schema.SCORE_PREFIX):
            raise InputError(
                "this pipeline has a column of that name", field=name, remedy="rename it in the source"
            )
        _refuse_unopened(found[name], where)
    return pa.schema([schema.source_column(found[name]) for name in columns])


def _refuse_unopened(field: pa.Field, where: str) -> None:
    """Refuse a column that `datasets`, and so the hub, has no type for, as a map.

    Raises:
        InputError: it is one.
    """
    from datasets import Features

    try:
        Features.from_arrow_schema(pa.schema([field]))
    except ValueError as error:
        raise InputError(
            f"{where}: `datasets.load_dataset` cannot open a column of type {field.type}",
            field=field.name,
            remedy="leave the column out, or give it another type in the source",
        ) from error


def left_out(store: Store, documents: Mapping[str, Ref], published: Sequence[str]) -> list[pa.Field]:
    """Columns of the documents that are not published, those that only the source has once for each type.

    Args:
        store: The record.
        documents: Documents of each crawl.
        published: Names of the columns that are.
    """
    extras = {(field.name, field.type): field for ref in documents.values() for field in _extras(store, ref)}
    fields = [*schema.FINEWEB, *map(schema.source_column, extras.values())]
    return [field for field in fields if field.name not in published]


def subset_rows(
    store: Store, subset: Ref, documents: Mapping[str, Ref], carried: pa.Schema, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """The subset's rows in canonical order, with columns of the source after its own.

    Args:
        store: The record.
        subset: The subset: one part a crawl.
        documents: Documents of each crawl, in the order of the parts.
        carried: Columns of the source.
        scratch: Where DuckDB may spill.

    Raises:
        IntegrityError: a document of the subset does not stand in its crawl.
    """
    for path, ref in zip(store.part_paths(subset), documents.values(), strict=True):
        with store.open_parquet(path) as part:
            rows = part.iter_batches(batch_size=ROW_GROUP_ROWS)
            if not len(carried):
                yield from rows
                continue
            with contextlib.closing(_carried_rows(store, path, ref, carried, scratch)) as beside:
                yield from _side_by_side(rows, beside)


def shuffled(
    batches: Iterator[pa.RecordBatch],
    seed: int,
    scratch: Path,
    *,
    num_rows: int,
    num_bytes: int,
    bucket_bytes: int = BUCKET_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The rows in a uniformly random order, with one bucket of them in memory at a time.

    Args:
        batches: The rows.
        seed: Fixes the order, whatever the buckets.
        scratch: A folder for the buckets: as much room as the rows take.
        num_rows: How many rows there are.
        num_bytes: About how many bytes they take.
        bucket_bytes: About how many bytes a bucket may take.
    """
    place_R = np.random.default_rng(seed).permutation(num_rows)
    num_buckets = max(1, -(-num_bytes // bucket_bytes))
    edges = np.linspace(0, num_rows, num_buckets + 1).astype(np.int64)
    paths = [scratch / f"bucket-{number:05d}.arrow" for number in range(num_buckets)]
    first = 0
    with contextlib.ExitStack() as stack:
        writers: list[pa.ipc.RecordBatchFileWriter] = []
        for batch in drawn_ahead(batches):
            if not writers:
                writers = [stack.enter_context(pa.ipc.new_file(str(path), batch.schema)) for path in paths]
            place_n = place_R[first : first + batch.num_rows]
            first += batch.num_rows
            bucket_n = np.searchsorted(edges, place_n, side="right") - 1
            sorted_batch = batch.take(pa.array(np.argsort(bucket_n, kind="stable")))
            ends = np.cumsum(np.bincount(bucket_n, minlength=num_buckets)).tolist()
            for writer, start, stop in zip(writers, [0, *ends[:-1]], ends, strict=True):
                if stop > start:
                    writer.write(sorted_batch.slice(start, stop - start))
    at_place_R = np.empty_like(place_R)
    at_place_R[place_R] = np.arange(num_rows)
    for number, path in enumerate(paths):
        if not path.exists():
            continue
        # Rows stand in a bucket as they came; their places in the new order say where each goes.
        came = np.sort(at_place_R[edges[number] : edges[number + 1]])
        order = np.argsort(place_R[came])
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            # Of a table in pieces, each take would put all of them together again.
            table = reader.read_all().combine_chunks()
        path.unlink()
        for start in range(0, len(order), ROW_GROUP_ROWS):
            yield from table.take(order[start : start + ROW_GROUP_ROWS]).combine_chunks().to_batches()


def _extras(store: Store, documents: Ref) -> list[pa.Field]:
    """Columns of a crawl's documents that only its source has."""
    (first, *_) = store.part_names(documents)
    with store.part_file(documents, first) as part:
        return list(part.schema_arrow)[len(schema.DOCUMENTS) :]


def _carried_rows(
    store: Store, part: str, documents: Ref, carried: pa.Schema, scratch: Path
) -> Generator[pa.RecordBatch]:
    """The source's columns for each row of a part of the subset, in its order."""
    there = {field.name for field in _extras(store, documents)}
    read = [duck.identifier(name) for name in carried.names if name in there]
    names = ", ".join(
        f"d.{duck.identifier(name)}" if name in there else f"NULL AS {duck.identifier(name)}"
        for name in carried.names
    )
    sql = f"""
        SELECT {names}, d.found
        FROM read_parquet({duck.file_literal(store, part)}, file_row_number = true) AS s
        LEFT JOIN {duck.parts_sql(store, [documents], ", ".join(["shard", '"row"', "id", "true AS found", *read]))} AS d
        ON d.shard = s.shard AND d."row" = s."row" AND d.id = s.id
        ORDER BY s.file_row_number
    """
    columns = pa.schema([*carried, pa.field("found", pa.bool_())])
    with duck.connect(store, scratch, memory_limit="1GB") as connection:
        for batch in duck.stream(connection, sql, columns, batch_rows=ROW_GROUP_ROWS):
            if batch.column("found").null_count:
                raise IntegrityError(
                    f"a document of {part} does not stand in {documents.location}; run `materialise` again"
                )
            yield batch.select(carried.names)


def _side_by_side(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of two streams of equal length, however each is cut."""
    rest: pa.RecordBatch | None = None
    for batch in left:
        done = 0
        while done < batch.num_rows:
            if rest is None or not rest.num_rows:
                rest = next(right)
            count = min(batch.num_rows - done, rest.num_rows)
            beside, rest = rest.slice(0, count), rest.slice(count)
            own = batch.slice(done, count)
            fields = [*own.schema, *beside.schema]
            yield pa.RecordBatch.from_arrays([*own.columns, *beside.columns], schema=pa.schema(fields))
            done += count

"""Puts a table's columns into FineWeb's explicit schema. Knows Arrow types; no file format, no values.

A type is widened when no value can change by it (string layouts, float32 to float64, int32 to int64); whole numbers may
be written as floats; anything else is refused with the file, the column, both types and the remedy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from datamask_pipeline.errors import InputError, suggestion
from datamask_pipeline.schema import FINEWEB

#: Whole numbers up to this are the same in float64; what is written as this may have been the next one.
WHOLE: Final = 2**53

#: Columns without which a row is no document.
ESSENTIAL = ("text", "id")


def check_columns(
    found: pa.Schema, *, location: str, renamed: Mapping[str, str], optional: Sequence[str]
) -> None:
    """Refuse a file whose columns cannot be put into the schema.

    Args:
        found: The file's schema.
        location: The file, for the message.
        renamed: FineWeb's column name -> the file's name for it.
        optional: FineWeb columns that may be missing and are then null.

    Raises:
        InputError: a column is missing, stands twice, or has another type.
    """
    for name in found.names:
        if len(found.get_all_field_indices(name)) > 1:
            raise InputError(
                "a column stands twice", file=location, field=name, remedy="rename one of the two"
            )
    wrong: dict[str, tuple[pa.DataType, pa.DataType]] = {}
    for field in FINEWEB:
        name = renamed.get(field.name, field.name)
        if name not in found.names:
            if field.name in optional:
                continue
            raise missing_column(
                field.name, name, found.names, location, optional=_nulls(found, renamed, optional)
            )
        kind = found.field(name).type
        if not _widens(kind, field.type):
            wrong[name] = kind, field.type
    if wrong:
        raise _other_types(wrong, location)


def _other_types(wrong: Mapping[str, tuple[pa.DataType, pa.DataType]], location: str) -> InputError:
    """The refusal of every column whose type is not the one needed; of each, both types."""
    (first, (kind, needed)), *others = wrong.items()
    also = "".join(f"; so has {name}: {theirs} where {ours} is needed" for name, (theirs, ours) in others)
    remedy = f"write the column as {needed}" if not others else "write each as the type that is needed"
    return InputError(
        f"a column has type {kind} where {needed} is needed{also}", file=location, field=first, remedy=remedy
    )


def missing_column(
    name: str,
    theirs: str,
    found: Iterable[str],
    location: str,
    row: int | None = None,
    optional: Sequence[str] = (),
) -> InputError:
    """The refusal of a file without a column that a document needs.

    Args:
        name: FineWeb's name of the column.
        theirs: What the file was said to call it.
        found: The file's columns.
        location: The file.
        row: The row that lacks it, where rows have keys of their own.
        optional: The `optional_columns` that would let every column that is missing be null, told for pasting.
    """
    if theirs != name:
        remedy = f"correct `source.options.columns.{name}`, which names it"
    else:
        remedy = f"add it, or map another column to it with `columns: {{{name}: ...}}`"
    if optional:
        remedy += f"; `optional_columns: [{', '.join(optional)}]` fills with null every column that may be missing and is"
    names = list(found)
    problem = f"no column {theirs!r}{suggestion(theirs, names)}; there are: {', '.join(names) or 'none'}"
    return InputError(f"a column is missing: {problem}", file=location, row=row, field=theirs, remedy=remedy)


def _nulls(found: pa.Schema, renamed: Mapping[str, str], optional: Sequence[str]) -> list[str]:
    """FineWeb columns that are optional already, and those that are missing and could be."""
    return [
        name
        for name in FINEWEB.names
        if name in optional or (renamed.get(name, name) not in found.names and name not in ESSENTIAL)
    ]


def extra_fields(found: pa.Schema, *, renamed: Mapping[str, str]) -> list[pa.Field]:
    """The columns that are not FineWeb's, in the file's order; another file may lack them, so each may be null."""
    taken = {renamed.get(name, name) for name in FINEWEB.names}
    return [field.remove_metadata().with_nullable(True) for field in found if field.name not in taken]


def conform(
    batch: pa.RecordBatch, *, renamed: Mapping[str, str], extras: Sequence[pa.Field]
) -> pa.RecordBatch:
    """The batch in FineWeb's schema, then ``extras``; a column that is not there is null."""
    fields = [*FINEWEB, *extras]
    arrays = []
    for field in fields:
        name = renamed.get(field.name, field.name) if field.name in FINEWEB.names else field.name
        if name in batch.schema.names and not pa.types.is_null(batch.schema.field(name).type):
            column = batch.column(name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def whole_numbers(
    batch: pa.RecordBatch, *, renamed: Mapping[str, str]
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """FineWeb's columns of whole numbers from floats, as pandas writes them beside nulls: 17.0 is 17, NaN is null.

    Returns:
        The batch, with null for whatever else there is; and of each such row, by its place, what is wrong.
    """
    wrong: dict[int, str] = {}
    for field in FINEWEB:
        name = renamed.get(field.name, field.name)
        place = batch.schema.get_field_index(name)
        if field.type != pa.int64() or place < 0 or not _is_float(batch.column(place).type):
            continue
        values_N = batch.column(place).cast(pa.float64()).to_numpy(zero_copy_only=False)
        known_N = ~np.isnan(values_N)
        whole_N = known_N & (np.abs(values_N) < WHOLE) & (values_N == np.rint(values_N))
        for row in np.flatnonzero(known_N & ~whole_N).tolist():
            wrong.setdefault(row, f"field {name}, value {values_N[row]}: {field.type} is needed")
        numbers = pa.array(np.where(whole_N, values_N, 0.0).astype(np.int64), mask=~whole_N)
        batch = batch.set_column(place, pa.field(name, field.type), numbers)
    return batch, wrong


def merge_extras(named: Sequence[tuple[str, Sequence[pa.Field]]]) -> list[pa.Field]:
    """Union of the shards' extra columns, in order of first appearance; one of type null may have any type elsewhere.

    Args:
        named: (location, extra columns) of every shard.

    Raises:
        InputError: two shards give one column two types.
    """
    merged: dict[str, tuple[str, pa.Field]] = {}
    for location, fields in named:
        for field in fields:
            first, known = merged.setdefault(field.name, (location, field))
            if pa.types.is_null(known.type):
                merged[field.name] = (location, field)
            elif known.type != field.type and not pa.types.is_null(field.type):
                raise InputError(
                    f"an extra column has type {field.type} here and {known.type} in {first}",
                    file=location,
                    field=field.name,
                    remedy="write it with one type, or drop it from the files",
                )
    return [field for _, field in merged.values()]


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if found == wanted or types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _widens(found.value_type, wanted)
    if wanted == pa.string():
        return bool(types.is_large_string(found) or types.is_string_view(found))
    if wanted == pa.float64():
        return bool(types.is_floating(found))
    small = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())
    return wanted == pa.int64() and (found in small or _is_float(found))


def _is_float(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_float(kind.value_type)
    return bool(pa.types.is_floating(kind))

"""Fingerprints and content digests: what an artefact should be, and what it is.

Knows no stage, no file layout and no storage; it hashes plain values and Arrow arrays.

- ``fingerprint`` hashes a stage's version, its result-affecting configuration and the content digests of its
  inputs. Equal fingerprints promise equal results, so nothing is recomputed.
- ``TableDigest`` hashes rows. It does not depend on how the rows were cut into batches, on Parquet encodings
  or on compression; it depends on column names, types, order and every value's bits.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from datamask_pipeline.arrays import are_null, string_bytes, values_of


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces.

    Raises:
        ValueError: for a float that is not finite, which JSON cannot spell.
        TypeError: for a value JSON does not know.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def sha256_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(
    stage: str, version: str, config: Mapping[str, Any], input_digests: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """What the artefact of a stage should be.

    Args:
        stage: Name of the stage.
        version: The stage's version; raised when its code changes its results.
        config: The configuration that affects the result, as JSON values.
        input_digests: Content digest of every input, by the input's name.

    Returns:
        The SHA-256 in hexadecimal, and the structure that was hashed, for the manifest.
    """
    basis = {
        "stage": stage,
        "version": version,
        "config": dict(config),
        "inputs": dict(sorted(input_digests.items())),
    }
    return sha256_text(canonical_json(basis)), basis


def combined_digest(named_digests: Iterable[tuple[str, str]]) -> str:
    """Content digest of an artefact out of the digests of its parts, in the order given."""
    return sha256_text(canonical_json([list(pair) for pair in named_digests]))


class TableDigest:
    """SHA-256 over canonical rows, fed one batch at a time.

    Args:
        schema: The schema of every batch to come.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema.remove_metadata()
        self._columns = [_ColumnDigest() for _ in schema]
        self.num_rows = 0

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take in the next rows.

        Raises:
            ValueError: the batch has another schema.
        """
        if batch.schema.remove_metadata() != self._schema:
            raise ValueError(f"batch of schema {batch.schema} fed to a digest of schema {self._schema}")
        for name, digest in zip(self._schema.names, self._columns, strict=True):
            column = batch.column(name)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                digest.update(chunk)
        self.num_rows += batch.num_rows

    def hexdigest(self, names: Collection[str] | None = None) -> str:
        """The digest of the rows taken in so far, or of some of their columns."""
        named = [
            (field, column)
            for field, column in zip(self._schema, self._columns, strict=True)
            if names is None or field.name in names
        ]
        return combined_digest(
            (f"{field.name}:{_type_name(field.type)}", column.hexdigest()) for field, column in named
        )


def _type_name(kind: pa.DataType) -> str:
    """A type's name, whatever the entries of its lists are called: Parquet calls them otherwise than Arrow does."""
    if pa.types.is_list(kind):
        return f"list<item: {_type_name(kind.value_type)}>"
    if pa.types.is_large_list(kind):
        return f"large_list<item: {_type_name(kind.value_type)}>"
    if pa.types.is_fixed_size_list(kind):
        return f"fixed_size_list<item: {_type_name(kind.value_type)}>[{kind.list_size}]"
    return str(kind)


class _ColumnDigest:
    """Separate running hashes for validity, lengths, values and children, so that batch borders vanish."""

    def __init__(self) -> None:
        self._streams: dict[str, Any] = {}

    def update(self, array: pa.Array, path: str = "") -> None:
        array = _plainly_laid_out(array)
        kind = array.type
        self._stream(path + "?").update(_validity(array))
        if pa.types.is_dictionary(kind):
            self.update(array.dictionary_decode(), path + "d")
        elif pa.types.is_struct(kind):
            for index, child in enumerate(array.flatten()):
                self.update(child, f"{path}.{index}")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._stream(path + "#").update(_filled(array.value_lengths().cast(pa.int64())))
            self.update(array.flatten(), path + "*")
        elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
            self._stream(path + "#").update(_filled(array.sizes.cast(pa.int64())) * _validity(array))
            self.update(array.flatten(), path + "*")
        elif pa.types.is_fixed_size_list(kind):
            self.update(array.flatten(), path + "*")
        elif _is_bytes_like(kind):
            self._feed_bytes(path, array)
        elif pa.types.is_float16(kind):
            self._stream(path).update(_filled(array.view(pa.uint16())))
        elif pa.types.is_boolean(kind):
            self._stream(path).update(_filled(array.cast(pa.uint8())))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
            self._stream(path).update(_filled(array))
        elif not pa.types.is_null(kind):
            self._feed_bytes(path, array.cast(pa.string()))

    def hexdigest(self) -> str:
        return combined_digest((path, stream.hexdigest()) for path, stream in sorted(self._streams.items()))

    def _feed_bytes(self, path: str, array: pa.Array) -> None:
        edges, data = string_bytes(array)
        sizes = np.diff(edges) * _validity(array)
        if sizes.sum() < len(data):
            _, data = string_bytes(array.drop_null())
        self._stream(path + "#").update(sizes)
        if array.null_count < len(array):
            self._stream(path).update(data)

    def _stream(self, path: str) -> Any:
        if path not in self._streams:
            self._streams[path] = hashlib.sha256()
        return self._streams[path]


def _plainly_laid_out(array: pa.Array) -> pa.Array:
    """The same values as an array that ``_ColumnDigest`` reads: no extension, map or fixed width."""
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plainly_laid_out(array.storage)
    if types.is_map(kind):
        # Arrow's own cast crashes on some maps.
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        laid_out = pa.list_(entries.type)
        return pa.Array.from_buffers(
            laid_out, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
        )
    if types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


def _is_bytes_like(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _validity(array: pa.Array) -> np.ndarray[Any, Any]:
    """0 where there is null, else 1."""
    return (~are_null(array)).view(np.uint8)


def _filled(array: pa.Array) -> np.ndarray[Any, Any]:
    """The values' bits with a zero where there is null: what lies under a null must not reach the digest."""
    bits = values_of(array, np.dtype(f"u{array.type.bit_width // 8}"))
    return bits * _validity(array) if array.null_count else bits


def plain(value: Any) -> Any:
    """Numpy scalars, tuples and mappings as JSON values; floats that are not finite as ``None``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""One array beside a part, in a file that `numpy.load` maps: written in blocks, read without a copy.

Knows the record's files; knows no meaning of the numbers. Such a file is content: its bits stand in the artefact's
content digest, and a part whose array is lost or cut is not whole.
"""

import hashlib
import io
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline import lineage
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.refusals import storage_errors
from datamask_pipeline.storage.store import Store

_READ_BYTES = 2**20
REMEDY = "run its stage again, which writes a missing file anew; delete a damaged one before"


def write_blocks(
    stream: IO[bytes], blocks: Iterable[NDArray[Any]], dtype: str, shape: tuple[int, ...]
) -> dict[str, Any]:
    """Write an array in C order as its rows come, so that it is never in memory as a whole.

    Args:
        stream: The file, empty.
        blocks: Consecutive rows; a block of another type or width is refused.
        dtype: Type of the numbers, little-endian.
        shape: Shape of the whole array; the blocks' rows must add up to the first number.

    Returns:
        What stands in the part's record: type, shape, and the digest of type, shape and bits.

    Raises:
        IntegrityError: the blocks do not make up the array.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    hashed, rows = hashlib.sha256(), 0
    for block in blocks:
        if block.dtype != kind or block.shape[1:] != shape[1:]:
            raise IntegrityError(
                f"an array of {dtype} and shape {shape} got a block of {block.dtype} and shape {block.shape}"
            )
        data = np.ascontiguousarray(block).data.cast("B") if block.size else b""
        hashed.update(data)
        stream.write(data)
        rows += len(block)
    if rows != shape[0]:
        raise IntegrityError(f"an array of {shape[0]} rows was given {rows}")
    return {"dtype": dtype, "shape": list(shape), "digest": _digest(dtype, shape, hashed.hexdigest())}


def npy_bytes(values: NDArray[Any]) -> bytes:
    """A small array as a `.npy` file that is no content of the artefact: little-endian, in C order."""
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))))
    return stream.getvalue()


def array_files(store: Store, ref: Ref) -> dict[str, Path]:
    """Where the arrays of an artefact's parts can be mapped on this machine, by part in canonical order.

    Those of a remote record are copied once into the cache, and each copy is verified by its digest.

    Raises:
        IntegrityError: a part has no array, or its file is lost, cut or damaged.
    """
    return {part["name"]: _local(store, ref, part) for part in store.manifest(ref)["parts"]}


def open_array(store: Store, ref: Ref, name: str) -> NDArray[Any]:
    """The array of one part, mapped read-only.

    Raises:
        IntegrityError: as ``array_files``.
    """
    for part in store.manifest(ref)["parts"]:
        if part["name"] == name:
            return mapped(_local(store, ref, part))
    raise IntegrityError(f"{ref.stage} of {ref.key} has no part {name!r}; run that stage again")


def mapped(path: Path) -> NDArray[Any]:
    """A file's array, mapped read-only.

    Raises:
        IntegrityError: it is lost, cut or no such file.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise IntegrityError(f"cannot map {path}: {error}; {REMEDY}") from error
    return array


def array_digest(stream: IO[bytes]) -> str:
    """The digest of type, shape and bits of a file's array.

    Raises:
        ValueError: it holds no such array.
    """
    np.lib.format.read_magic(stream)
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    hashed = hashlib.sha256()
    while data := stream.read(_READ_BYTES):
        hashed.update(data)
    return _digest(str(dtype), shape, hashed.hexdigest())


def forget_copies(store: Store, manifest: Mapping[str, Any]) -> None:
    """Remove what this machine's cache holds of the arrays of an artefact of a remote record, half-written copies too."""
    if store.is_local:
        return
    for part in manifest["parts"]:
        if "array" in part:
            target = store.cached(f"{part['array']['digest']}.npy")
            for path in (target, *target.parent.glob(f"{target.stem}.*.tmp")):
                path.unlink(missing_ok=True)


def _local(store: Store, ref: Ref, part: Mapping[str, Any]) -> Path:
    record = part.get("array")
    path = store.file_path(ref, f"{part['name']}.npy")
    if record is None:
        raise IntegrityError(
            f"part {part['name']} of {ref.location} has no array beside it, as an earlier version wrote it; "
            f"run stage {ref.stage!r} again"
        )
    local = Path(path) if store.is_local else store.cached(f"{record['digest']}.npy")
    if not store.is_local and not local.exists():
        _download(store, path, record, local)
    try:
        size = local.stat().st_size
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is lost; {REMEDY}") from error
    if size != record["bytes"]:
        raise IntegrityError(f"{local} has {size} bytes where {record['bytes']} were written; {REMEDY}")
    return local


def _download(store: Store, path: str, record: Mapping[str, Any], target: Path) -> None:
    """A verified copy; under its own name only once it is whole."""
    private = target.with_name(f"{target.stem}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
    with storage_errors(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                store.fs.get_file(path, str(private))
            except FileNotFoundError as error:
                raise IntegrityError(f"{path} is lost; {REMEDY}") from error
            array = mapped(private)
            hashed = hashlib.sha256(array.data.cast("B") if array.size else b"")
            if _digest(str(array.dtype), array.shape, hashed.hexdigest()) != record["digest"]:
                raise IntegrityError(f"{path} holds other numbers than were written; {REMEDY}")
            private.replace(target)
        finally:
            private.unlink(missing_ok=True)


def _digest(dtype: str, shape: Iterable[int], bits: str) -> str:
    return lineage.sha256_text(lineage.canonical_json([dtype, list(shape), bits]))

"""Publishes a subset: builds the data set's folder under a private name, and makes it visible by one step.

Knows the record's layout and the folder's; no learner.
"""

import dataclasses
import errno
import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline.disk import sync
from datamask_pipeline.errors import InputError, IntegrityError, StorageError
from datamask_pipeline.publish.card import card, title
from datamask_pipeline.publish.columns import columns_of, described
from datamask_pipeline.publish.config import IDS, PublishConfig
from datamask_pipeline.publish.croissant import croissant
from datamask_pipeline.publish.facts import Facts, facts_of, source_licences, subset_of
from datamask_pipeline.publish.licences import check_released_under, spelt
from datamask_pipeline.publish.manifest import (
    CARD,
    CROISSANT,
    NAME,
    manifest_bytes,
    manifest_of,
    root_said,
    stated,
)
from datamask_pipeline.publish.rows import left_out, shuffled, source_fields, subset_rows
from datamask_pipeline.publish.shards import Written, write_shards
from datamask_pipeline.storage import Ref, Store, storage_errors
from datamask_pipeline.storage.hashed import sha256_at
from datamask_pipeline.storage.leases import Leases, is_alive, machine_label
from datamask_pipeline.storage.reaching import file_system_of, is_local, reaching
from datamask_pipeline.storage.ref import pretty_json, read_json
from datamask_pipeline.storage.whole import check_tables

#: Beside the data sets of an object store: who writes which of them.
LEASES: Final = ".datamask-leases"
#: Ends the name of what says, among leases, which files an upload puts at a place.
_UPLOADING: Final = ".uploading"


@dataclasses.dataclass(frozen=True)
class Published:
    """A data set that was published.

    Attributes:
        place: Where it lies.
        root: Its root digest.
        documents: Its rows.
        shards: Its Parquet files.
    """

    place: str
    root: str
    documents: int
    shards: int


def publish(store: Store, release: str, arm: str | None, to: str, config: PublishConfig) -> Published:
    """Publish the subset of a release's arm as a folder.

    A folder on this machine appears whole or not at all. In an object store the manifest comes last: a reader who
    waits for `manifest.json` sees a whole data set.

    Args:
        store: The record.
        release: The release.
        arm: The arm; ``None`` where the release has one subset.
        to: A directory or fsspec URL that does not exist yet; the same data set again changes nothing. Where it has the
            record's scheme, it is opened with the record's storage options.
        config: What to publish, and how.

    Raises:
        UnknownNameError: no such release, arm or column.
        ConfigurationError: the licence is forbidden by that of a constituent.
        InputError: a licence is not known, or a column has a type that a data set cannot have.
        IntegrityError: the subset is not that of its mask, or a file of it or of the documents behind it, where columns of
            theirs are read, was altered.
        StorageError: the disk is full, or something else stands there already, be it this data set with a file that was
            altered since, or it lies in the record, or its storage does not answer.
    """
    subset = subset_of(store, release, arm)
    fs, path = file_system_of(to, store.options_for(to), setting="to")
    path = path.rstrip("/")
    on_this_machine = is_local(fs)
    if on_this_machine:
        path = os.path.realpath(path)  # a link is not renamed over: what it points to is made
    _refuse_in_record(store, path, to, on_this_machine=on_this_machine)
    with reaching(fs, to):
        _refuse_foreign(fs, path, to)
    with _private_folder(Path(path) if on_this_machine else None) as folder:
        manifest = build(store, subset, folder, config)
        with reaching(fs, to):
            is_ours = _rename(folder, path) if on_this_machine else _upload(folder, fs, path, to)
            there = _root_there(fs, path)
        if there != manifest["root"]:
            raise StorageError(
                f"another data set stands at {to}, with root digest {there}; name another place"
            )
        if not is_ours:
            with reaching(fs, to):
                _refuse_altered(fs, path, manifest["files"], to)
    shards = [name for name in manifest["files"] if name.startswith("data/")]
    return Published(to.rstrip("/"), manifest["root"], manifest["data_set"]["documents"], len(shards))


def build(
    store: Store,
    subset: Ref,
    folder: Path,
    config: PublishConfig,
    *,
    measured_among: Collection[str] | None = None,
) -> dict[str, Any]:
    """Write the whole data set into an empty folder; returns its manifest.

    Args:
        store: The record.
        subset: The subset.
        folder: The folder.
        config: What to publish, and how.
        measured_among: As `facts_of`.

    Raises: as `publish`.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.work.") as scratch:
        check_tables(store, subset)
        facts = facts_of(store, subset, Path(scratch), measured_among=measured_among)
        if config.carried or config.licence_column is not None:
            check_tables(store, *facts.documents.values())
        licences = _licences(store, facts, config, Path(scratch))
        written, columns = _write_rows(store, facts, config, folder, Path(scratch))
    num_documents = sum(written.rows.values())
    _check_covered(facts, num_documents)
    shown = columns_of(columns, facts)
    files = {name: stated(folder / name) | {"rows": rows} for name, rows in written.rows.items()}
    about = f"{num_documents} documents that arm {facts.arm} selected from release {facts.release}."
    text = card(
        facts,
        config,
        shown,
        left_out=left_out(store, facts.documents, columns.names),
        num_documents=num_documents,
        num_bytes=written.num_bytes,
        file_bytes=sum(file["bytes"] for file in files.values()),
        licences=licences,
    )
    described_by = croissant(
        name=title(facts),
        about=about,
        licence=config.licence,
        files=files,
        columns=shown,
        derived_from=sorted({source.url for source in facts.sources}),
    )
    data_set = {
        "name": title(facts),
        "release": facts.release,
        "arm": facts.arm,
        "subset": facts.subset.location,
        "documents": num_documents,
        "columns": columns.names,
        "settings": config.stated(),
        "licences": licences,
    }
    with storage_errors(str(folder)):
        (folder / CARD).write_text(text, encoding="utf-8")
        (folder / CROISSANT).write_text(pretty_json(described_by), encoding="utf-8")
        files |= {name: stated(folder / name) for name in (CARD, CROISSANT)}
        manifest = manifest_of(files, facts.behind, data_set)
        (folder / NAME).write_bytes(manifest_bytes(manifest))
    return manifest


def _check_covered(facts: Facts, num_documents: int) -> None:
    """Refuse a subset that holds others than its mask selects among the candidates.

    Raises:
        IntegrityError: the numbers of documents differ.
    """
    among = sum(selected for _, _, selected, *_ in facts.by_crawl)
    kept = facts.selection["counts"]["kept"]
    if not num_documents == among == kept:
        raise IntegrityError(
            f"the subset holds {num_documents} documents, its mask selects {kept}, {among} of them among the candidates; "
            f"`datamask audit prove {facts.release}/{facts.arm}` names the file, and a run makes a damaged one anew"
        )


def _write_rows(
    store: Store, facts: Facts, config: PublishConfig, folder: Path, scratch: Path
) -> tuple[Written, pa.Schema]:
    carried = source_fields(store, facts.documents, config.carried)
    rows = subset_rows(store, facts.subset, facts.documents, carried, scratch)
    (first, *_) = store.part_names(facts.subset)
    with store.part_file(facts.subset, first) as part:
        own = part.schema_arrow.remove_metadata()
    columns = pa.schema([described(field) for field in [*own, *carried]])
    if config.ids_only:
        columns = pa.schema([columns.field(name) for name in IDS])
        rows = (batch.select(IDS) for batch in rows)
    if config.seed is not None:
        num_bytes = _num_bytes(store, facts.subset)
        rows = shuffled(rows, config.seed, scratch, num_rows=facts.subset.rows, num_bytes=num_bytes)
    written = write_shards(
        rows, columns, folder, max_documents=config.max_documents, max_bytes=config.max_bytes
    )
    return written, columns


def _licences(store: Store, facts: Facts, config: PublishConfig, scratch: Path) -> dict[str, int | None]:
    """Licences of what is published, with the number of documents where a column says so.

    Raises:
        InputError: a document has no licence, or one that is not known, or the column holds none.
        ConfigurationError: the data set's own is forbidden by one of them.
    """
    counts: Counter[str | None] = Counter()
    if config.licence_column is None:
        found: dict[str, int | None] = dict.fromkeys(source_licences(facts, config.source_licence))
    else:
        column = source_fields(store, facts.documents, [config.licence_column], "licence_column")
        if pa.types.is_nested(kind := column.field(0).type):
            raise InputError(
                f"licence_column: holds {kind}, and each document has one licence",
                field=config.licence_column,
                remedy="name a column of strings",
            )
        for batch in subset_rows(store, facts.subset, facts.documents, column, scratch):
            for item in batch.column(config.licence_column).value_counts().to_pylist():
                counts[item["values"]] += item["counts"]
        if missing := counts[None]:
            raise InputError(
                f"{missing} documents of the subset have no licence",
                field=config.licence_column,
                remedy="leave such documents out when they are ingested",
            )
        found = {}
        for name, number in counts.items():
            found[spelt(str(name))] = (found.get(spelt(str(name))) or 0) + number
        if config.source_licence is not None:
            found.setdefault(config.source_licence, None)
    check_released_under(config.licence, found)
    return dict(sorted(found.items()))


def _num_bytes(store: Store, subset: Ref) -> int:
    """About how many bytes the subset's rows take."""
    total = 0
    for name in store.part_names(subset):
        with store.part_file(subset, name) as part:
            groups = (part.metadata.row_group(number) for number in range(part.num_row_groups))
            total += sum(group.total_byte_size for group in groups)
    return total


def _refuse_in_record(store: Store, path: str, to: str, *, on_this_machine: bool) -> None:
    """Refuse a place inside the record, where only what its manifests name may lie.

    Raises:
        StorageError: it is one.
    """
    if on_this_machine != store.is_local:
        return
    place, root = (os.path.realpath(each) if on_this_machine else each for each in (path, store.root))
    if place == root or place.startswith(f"{root.rstrip('/')}/"):
        raise StorageError(f"{to} lies in the record at {store.root_url}; name a folder outside it")


def _refuse_foreign(fs: Any, path: str, to: str) -> None:
    """Refuse a place where something else stands.

    Raises:
        StorageError: it holds files, and no manifest of a data set.
    """
    if not fs.exists(path) or _root_there(fs, path) is not None:
        return
    if fs.isfile(path) or {*fs.find(path)} - {f"{path}/{name}" for name in _half_uploaded(fs, path)}:
        raise StorageError(
            f"{to} exists and is no data set of this program; name a folder that does not exist"
        )


def _root_there(fs: Any, path: str) -> str | None:
    if not fs.exists(f"{path}/{NAME}"):
        return None
    return root_said(fs.cat_file(f"{path}/{NAME}"), f"{path}/{NAME}")


def _refuse_altered(fs: Any, path: str, files: Mapping[str, Mapping[str, Any]], to: str) -> None:
    """Refuse a data set that stood there already, and is no longer what its manifest says.

    Raises:
        StorageError: a file of it is missing or was altered.
    """
    for name, file in files.items():
        there = f"{path}/{name}"
        if not fs.exists(there) or fs.size(there) != file["bytes"] or sha256_at(fs, there) != file["sha256"]:
            raise StorageError(
                f"this data set stands at {to} already, and its {name} was altered or removed since; remove that folder "
                "and call again, or name another place"
            )


@contextmanager
def _private_folder(target: Path | None) -> Iterator[Path]:
    """A folder beside the target, or a temporary one; removed at the end, unless it became the target.

    Those that killed writers of this machine left for the same target are removed first.
    """
    parent = Path(tempfile.gettempdir()) if target is None else target.parent
    mine = f".{'data_set' if target is None else target.name}.{machine_label()}."
    folder = parent / f"{mine}{os.getpid()}.{uuid.uuid4().hex}"
    with storage_errors(str(folder)):
        for left in parent.iterdir() if parent.is_dir() else ():
            pid = left.name.removeprefix(mine).partition(".")[0]
            if left.name.startswith(mine) and pid.isdigit() and not is_alive(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _rename(folder: Path, path: str) -> bool:
    """Make a folder of this machine visible by one rename, unless another writer was first; says whether it did."""
    sync(folder)
    try:
        os.rename(folder, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _upload(folder: Path, fs: Any, path: str, to: str) -> bool:
    """File by file, the manifest last, unless another writer was first: one at a time is at a place. As `_rename`.

    Raises:
        StorageError: something else stands there by now, or another writer took this one for dead.
    """
    beside, name = _beside(path)
    marker = f"{beside}/{name}{_UPLOADING}"
    with Leases(fs, beside, is_local=False).hold(name) as lease:
        assert lease is not None  # it waits
        _refuse_foreign(fs, path, to)
        is_first = _root_there(fs, path) is None
        if is_first:
            for left in _half_uploaded(fs, path):
                if fs.exists(f"{path}/{left}"):
                    fs.rm_file(f"{path}/{left}")
            files = sorted(each for each in folder.rglob("*") if each.is_file() and each.name != NAME)
            names = [each.relative_to(folder).as_posix() for each in files]
            fs.pipe_file(marker, pretty_json({"files": names}).encode())
            for each, there in zip(files, names, strict=True):
                fs.put_file(str(each), f"{path}/{there}")
            lease.check()
            fs.put_file(str(folder / NAME), f"{path}/{NAME}")
        if fs.exists(marker):
            fs.rm_file(marker)
    return is_first


def _half_uploaded(fs: Any, path: str) -> list[str]:
    """The files that an upload which was cut off was to put there; none where there was no such upload."""
    beside, name = _beside(path)
    marker = f"{beside}/{name}{_UPLOADING}"
    if not fs.exists(marker):
        return []
    said = read_json(fs.cat_file(marker), marker, {"files": list}, remedy="remove it, and name another place")
    return [str(each) for each in said["files"]]


def _beside(path: str) -> tuple[str, str]:
    """The folder of leases beside a place of an object store, and the place's name."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/{LEASES}" if parent else LEASES, name

"""What the file system refuses, and what was damaged by hand: one clear line, and what can be made again is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from closed_folders import refuse_listings

from datamask_pipeline.errors import ConfigurationError, IntegrityError, StorageError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, leases
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.leases import machine_label
from datamask_pipeline.storage.ref import manifest_digest

ROWS = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})


def begin(store: Store, key: str = "crawl-1") -> ArtefactBuilder:
    return store.begin("ingest", key, version="1", config={"x": 1}, inputs={"files": "abc"})


def made(store: Store, model: Path) -> Ref:
    """An artefact of one part with its array, and one directory."""
    (model / "sub").mkdir(parents=True, exist_ok=True)
    (model / "sub" / "weights").write_bytes(b"1")
    (model / "config").write_bytes(b"22")
    builder = begin(store)
    array = builder.write_array("00000", [np.eye(3, dtype=np.float16)], dtype="float16", shape=(3, 3))
    parts = [builder.write_part("00000", [ROWS], ROWS.schema, array=array)]
    return builder.commit(parts, trees=[builder.write_tree("model", model)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


@pytest.fixture
def ref(store: Store, tmp_path: Path) -> Ref:
    return made(store, tmp_path / "model")


@pytest.mark.parametrize(
    "write",
    [lambda store: store.publish_bytes("note.json", b"{}"), lambda store: store.scratch("ingest/x")],
    ids=["staged", "scratch"],
)
def test_a_store_below_a_file_is_one_clear_line(write: Callable[[Store], object], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file.*check `store`"):
        write(Store(tmp_path / "file" / "record"))


@pytest.mark.parametrize("ask", [lambda store, _: store.keys("ingest"), lambda store, ref: store.find(*ref)])
def test_a_folder_that_cannot_be_listed_is_no_empty_one(
    ask: Callable[[Store, tuple[str, str, str]], object],
    store: Store,
    ref: Ref,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = (ref.stage, ref.key, ref.fingerprint)
    lost = tmp_path / "record/ingest/lost+found"
    lost.mkdir()
    refuse_listings(monkeypatch, lost)
    assert ask(store, asked), "a disk's own folder, closed to all but root, holds nothing of the record"
    refuse_listings(monkeypatch, Path(store.root) / ref.location)
    with pytest.raises(StorageError, match="cannot be listed: Permission denied; make it readable"):
        ask(store, asked)


def test_a_directory_among_the_staged_files_is_left_alone(store: Store, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    staging = tmp_path / "record" / ".staging"
    (staging / f"{machine_label()}.{gone.pid}.not-ours").mkdir(parents=True)
    (staging / f"{machine_label()}.{gone.pid}.left.parquet").write_bytes(b"1")
    assert store.sweep() == 1
    assert os.listdir(staging) == [f"{machine_label()}.{gone.pid}.not-ours"]


def test_a_private_file_of_another_machine_that_has_the_same_name_is_left_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers are often all called alike; one process's number says nothing in another."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    staging = tmp_path / "record" / ".staging"
    staging.mkdir(parents=True)
    here = leases.this_machine()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leases, "this_machine", lambda: f"{here} of another container")
        (staging / f"{machine_label()}.{gone.pid}.left.parquet").write_bytes(b"1")
    assert store.sweep() == 0
    assert len(os.listdir(staging)) == 1


@pytest.mark.parametrize("content", ["", '{"stage": "inge', "[]", '{"stage": "ingest"}', "\xff"])
def test_a_damaged_pointer_names_the_file_and_the_remedy(
    content: str, store: Store, ref: Ref, tmp_path: Path
) -> None:
    pointer = tmp_path / "record" / "ingest" / "crawl-1" / "current.json"
    pointer.write_text(content, encoding="latin-1")
    with pytest.raises(IntegrityError, match=r"crawl-1/current\.json .*delete it and run the stage again"):
        store.current("ingest", "crawl-1")
    pointer.unlink()
    assert begin(store).finished() == ref == store.current("ingest", "crawl-1")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\xff"])
def test_a_damaged_manifest_is_named_and_its_artefact_made_again(
    content: str, store: Store, ref: Ref, tmp_path: Path
) -> None:
    (tmp_path / "record" / ref.location / "manifest.json").write_text(content, encoding="latin-1")
    with pytest.raises(IntegrityError, match=r"manifest\.json .*run the stage again"):
        store.manifest(ref)
    assert begin(store).finished() is None
    assert made(store, tmp_path / "model") == ref == begin(store).finished()


@pytest.mark.parametrize("lost", ["00000.parquet", "00000.npy", "model/config", "model/sub/weights"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_an_artefact_that_lost_a_file_is_made_again(
    lost: str, is_cut: bool, store: Store, ref: Ref, tmp_path: Path
) -> None:
    path = tmp_path / "record" / ref.location / lost
    whole = path.read_bytes()
    if is_cut:
        path.write_bytes(whole[:-1])
    else:
        path.unlink()
    assert begin(store).finished() is None
    assert made(store, tmp_path / "model") == ref == begin(store).finished()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [None, b"no Parquet"])
def test_a_part_that_cannot_be_read_is_not_blamed_on_the_one_being_written(
    content: bytes | None, store: Store, ref: Ref, tmp_path: Path
) -> None:
    path = tmp_path / "record" / ref.location / "00000.parquet"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    builder = begin(store, "crawl-2")
    with pytest.raises(IntegrityError, match=r"cannot read .*crawl-1/.*00000\.parquet.*run its stage again"):
        builder.write_part("00000", store.iter_batches(ref), ROWS.schema)


def test_a_part_deleted_from_a_chain_is_written_again(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(record)}))
    (crawl, *_) = pipeline.crawls()
    before = {stage: pipeline.store.current(stage, crawl) for stage in ("ingest", "rejected", "embed")}
    documents = before["ingest"]
    assert documents is not None
    (first, *_) = sorted((record / documents.location).glob("*.parquet"))
    whole = first.read_bytes()
    first.unlink()
    assert pipeline.run("ingest", crawl) == (before["ingest"], before["rejected"])
    assert first.read_bytes() == whole
    assert pipeline.run("embed", crawl) == (before["embed"],)


@pytest.mark.parametrize("key", ["", ".", "..", "../evil", "a//b", "/a", "a/..", "a\0b", "a\ud800b"])
def test_a_key_that_would_leave_its_stage_is_refused(key: str, store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a directory"):
        begin(store, key)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("foo://x", r"store 'foo://x'.*Protocol not known.*s3://"),
        ("gs://bucket/x", r"store 'gs://bucket/x'.*gcsfs.*install that package"),
        ("{tmp}/a::b", r"store '.*a::b'.*chain"),
    ],
)
def test_a_store_that_no_file_system_knows_is_named(
    root: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ConfigurationError, match=words):
        Store(root.format(tmp=tmp_path))


def test_every_manifest_is_checked(store: Store, ref: Ref, tmp_path: Path) -> None:
    assert [manifest["location"] for manifest in store.all_manifests("ingest")] == [ref.location]
    path = tmp_path / "record" / ref.location / "manifest.json"
    path.write_text(json.dumps({"location": ref.location}))
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        list(store.all_manifests("ingest"))


def test_a_manifest_holds_the_digest_of_every_file_and_of_itself(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config").write_bytes(b"22")
    builder = begin(store)
    parts = [builder.write_part("00000", [ROWS], ROWS.schema)]
    builder.write_file("plot.png", b"a plot")
    ref = builder.commit(parts, trees=[builder.write_tree("model", tmp_path / "model")])
    manifest = store.manifest(ref)
    folder = Path(store.root) / ref.location
    stated = {"00000.parquet": manifest["parts"][0]["sha256"], "plot.png": manifest["files"][0]["sha256"]}
    stated["model/config"] = manifest["trees"][0]["files"]["config"]
    assert stated == {name: sha256_file(folder / name) for name in stated}
    assert manifest["manifest_digest"] == manifest_digest(manifest)
    assert manifest_digest(manifest | {"rows": 4}) != manifest["manifest_digest"]


def test_a_plot_that_is_lost_makes_the_artefact_unfinished(store: Store) -> None:
    builder = begin(store)
    parts = [builder.write_part("00000", [ROWS], ROWS.schema)]
    builder.write_file("plot.png", b"a plot")
    ref = builder.commit(parts)
    assert begin(store).finished() == ref
    (Path(store.root) / ref.location / "plot.png").unlink()
    assert begin(store).finished() is None

"""What a run ends while a purge begins goes with that purge, in a folder and in an object store."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compliance.test_later_purges import CRAWL, holding, withdrawn_rows
from s3_server import KEYS, s3_server

from datamask_pipeline.compliance import purge as purging
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, npy, open_array, require


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, Any]]:
    import s3fs

    with s3_server() as url:
        s3fs.S3FileSystem(endpoint_url=url, **KEYS).call_s3("create_bucket", Bucket="purged")
        yield {"endpoint_url": url, **KEYS}


@pytest.fixture(params=["folder", pytest.param("object store", marks=pytest.mark.slow)])
def record(request: pytest.FixtureRequest, copied: Pipeline, tmp_path: Path, monkeypatch: Any) -> Pipeline:
    """A record with withdrawn documents."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "folder":
        return copied
    options = request.getfixturevalue("bucket")
    store = Store(f"s3://purged/{tmp_path.name}", options)
    store.fs.put(copied.store.root, store.root, recursive=True)
    return Pipeline(copied.config.model_copy(update={"store": store.root_url, "storage_options": options}))


def copy_of(store: Store, folder: Path) -> Store:
    """All that a record holds, private files too, in a folder."""
    store.fs.get(f"{store.root}/", str(folder), recursive=True)
    return Store(folder)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["before the tombstone", "after it"])
def test_a_crawl_that_is_ingested_anew_while_a_purge_begins_leaves_nothing(
    record: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The run knows nothing of the purge: it began before, and ends by settings that make other versions."""
    store = record.store
    texts = {row["text"] for row in withdrawn_rows(store)}
    ingest = record.config.ingest.model_copy(update={"min_chars": 2})
    other = Pipeline(record.config.model_copy(update={"ingest": ingest}))
    begin, made = purging._begin, []

    def ingested(*arguments: Any) -> Any:
        if moment == "before the tombstone":
            made.append(other.run("ingest", CRAWL)[0])
        begun = begin(*arguments)
        if moment == "after it":
            made.append(other.run("ingest", CRAWL)[0])
        return begun

    monkeypatch.setattr(purging, "_begin", ingested)
    assert purge(store, "x") is not None
    assert not holding(copy_of(store, tmp_path / "copy"), texts)
    current = require(store, "ingest", CRAWL)
    assert store.manifest(current)["basis"]["config"]["min_chars"] == 2
    assert "erased" in store.manifest(current)["basis"]["inputs"]
    assert (current == made[0]) == (moment == "after it")
    assert purge(store, "y") is None


def test_what_the_cache_has_of_withdrawn_documents_goes_too(record: Pipeline, tmp_path: Path) -> None:
    """Vectors of an object store are mapped from copies on this machine."""
    store = record.store

    def num_vectors() -> int:
        ref = require(store, "embed", CRAWL)
        return sum(len(open_array(store, ref, name)) for name in store.part_names(ref))

    before = num_vectors()
    copies = [*(tmp_path / "cache").rglob("*.npy")]
    assert bool(copies) != store.is_local
    for copy in copies:
        copy.with_name(f"{copy.stem}.1.half.tmp").write_bytes(b"a half of them")
    assert purge(store, "x") is not None
    assert not [path for copy in copies for path in copy.parent.glob(f"{copy.stem}.*")]
    assert num_vectors() < before


def test_a_selection_whose_vectors_are_purged_meanwhile_says_so(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = {**copied.config.arms, "again": copied.config.arms["datamask"]}
    later = Pipeline(copied.config.model_copy(update={"arms": arms}))
    local, other = npy._local, threading.Thread(target=purge, args=(copied.store, "x"))

    def purged(*arguments: Any) -> Any:
        found = local(*arguments)
        if other.ident is None:
            other.start()  # it waits for this selection in the end
            while found.exists():
                time.sleep(0.01)
        return found

    monkeypatch.setattr(npy, "_local", purged)
    with pytest.raises(
        IntegrityError, match=r"were purged by .*x.*`datamask run` makes it from what is left"
    ):
        later.run("select", "first", "again")
    other.join()
    assert later._purged_since(0, "embed", CRAWL)
    assert later._purged_since(1, "embed", CRAWL) is None
    assert later._purged_since(0, "embed", "a crawl without a purge") is None, (
        "what fails there has another cause"
    )
    for _, _, call in later.steps("first", "select"):
        call()

"""The real hub client against a local server that speaks the protocol, in good and bad weather."""

import errno
import hashlib
import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import COMMIT, HubServer

from datamask_pipeline.errors import ConfigurationError, InputError, StorageError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.hub import HubFile, HubRepository
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources import Source

REPOSITORY = "HuggingFaceFW/fineweb"


def parquet(start: int, schema: pa.Schema = FINEWEB, num_rows: int = 20) -> bytes:
    rows = [
        {"id": f"<urn:uuid:{start + n}>", "text": f"Document {start + n}. " * 50} for n in range(num_rows)
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()


FILES = {
    "data/CC-MAIN-2024-10/000_00000.parquet": parquet(0),
    "data/CC-MAIN-2024-10/000_00001.parquet": parquet(100),
    "data/CC-MAIN-2024-10/001_00000.parquet": parquet(200),
    "data/CC-MAIN-2023-06/000_00000.parquet": parquet(300),
    "sample/10BT/000_00000.parquet": parquet(400),
    "data/CC-MAIN-2024-10/README.md": b"about",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    hub = HubServer(REPOSITORY, dict(FILES))
    # Waits are asked for as ever, and noted, but not slept through.
    monkeypatch.setattr(time, "sleep", hub.waits.append)
    yield hub
    hub.close()


def make(server: HubServer, tmp_path: Path, **options: object) -> Source:
    base = {
        "revision": COMMIT,
        "endpoint": server.endpoint,
        "cache_dir": str(tmp_path / "cache"),
    }
    return SOURCES.make("fineweb_hub", base | options)


def ids(source: Source, crawl: str) -> list[str]:
    return [
        name
        for shard in source.shards(crawl)
        for batch in source.read(crawl, shard, batch_rows=8)
        for name in batch.documents.column("id").to_pylist()
    ]


def once(server: HubServer, fault: str, kind: str, times: int = 1) -> None:
    """Let the first requests of a kind fail."""
    left = [times]

    def decide(method: str, path: str) -> str | None:
        if f"/{kind}/" in path and left[0] > 0:
            left[0] -= 1
            return fault
        return None

    server.faults = decide


def test_dumps_and_samples_are_crawls(server: HubServer, tmp_path: Path) -> None:
    source = make(server, tmp_path)
    assert source.crawls() == ["CC-MAIN-2023-06", "CC-MAIN-2024-10"]
    shards = source.shards("CC-MAIN-2024-10")
    assert [shard.name for shard in shards] == ["000_00000", "000_00001", "001_00000"]
    assert all(len(shard.digest) == 64 for shard in shards)
    assert make(server, tmp_path, folder="sample").crawls() == ["10BT"]
    few = make(server, tmp_path, crawls=["CC-MAIN-2024-10"], files="000_*", max_files=1)
    assert few.crawls() == ["CC-MAIN-2024-10"]
    assert [shard.name for shard in few.shards("CC-MAIN-2024-10")] == ["000_00000"]


def test_a_folder_may_end_in_a_slash_and_has_a_name(server: HubServer, tmp_path: Path) -> None:
    server.files["data/README.md"] = b""
    for folder in ("data/", "/data"):
        source = make(server, tmp_path, folder=folder)
        assert source.crawls() == ["CC-MAIN-2023-06", "CC-MAIN-2024-10"]
        assert len(source.shards("CC-MAIN-2024-10")) == 3
    with pytest.raises(ValueError, match="name the folder whose subfolders are the crawls"):
        make(server, tmp_path, folder="/")


def test_files_of_one_name_in_different_folders_are_different_shards(
    server: HubServer, tmp_path: Path
) -> None:
    for split, start in (("train", 0), ("test", 100)):
        server.files[f"data/deu_Latn/{split}/000_00000.parquet"] = parquet(start)
    source = make(server, tmp_path)
    assert [shard.name for shard in source.shards("deu_Latn")] == ["test__000_00000", "train__000_00000"]
    assert ids(source, "deu_Latn") == [f"<urn:uuid:{n}>" for n in (*range(100, 120), *range(20))]
    server.files["data/deu_Latn/test__000_00000.parquet"] = parquet(200)
    with pytest.raises(InputError, match="same shard 'test__000_00000'"):
        make(server, tmp_path).shards("deu_Latn")


def test_whole_files_are_fetched_once_and_listed_once(server: HubServer, tmp_path: Path) -> None:
    source = make(server, tmp_path)
    found = ids(source, "CC-MAIN-2024-10")
    assert found == [f"<urn:uuid:{start + n}>" for start in (0, 100, 200) for n in range(20)]
    assert server.requests["GET", "tree"] == 1
    assert server.requests["GET", "storage"] == 3
    assert server.ranges == []
    assert ids(make(server, tmp_path), "CC-MAIN-2024-10") == found
    assert server.requests["GET", "storage"] == 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("500", "tree"),
        ("500", "resolve"),
        ("drop", "tree"),
        ("drop", "storage"),
        ("429", "tree"),
        ("429", "resolve"),
    ],
)
def test_passing_trouble_is_waited_out(server: HubServer, tmp_path: Path, fault: str, kind: str) -> None:
    once(server, fault, kind)
    assert len(ids(make(server, tmp_path, crawls=["CC-MAIN-2023-06"]), "CC-MAIN-2023-06")) == 20


def test_a_rate_limit_on_a_file_is_waited_out(server: HubServer, tmp_path: Path) -> None:
    once(server, "429", "storage")
    assert len(ids(make(server, tmp_path), "CC-MAIN-2023-06")) == 20
    assert max(server.waits) >= 1.0


def test_a_truncated_download_goes_on_where_it_stopped(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1)
    once(server, "truncate", "storage")
    assert len(ids(make(server, tmp_path), "CC-MAIN-2023-06")) == 20
    half = len(FILES["data/CC-MAIN-2023-06/000_00000.parquet"]) // 2
    assert server.ranges == [f"bytes={half}-"]


def test_bytes_that_are_not_the_listed_ones_are_fetched_again(
    server: HubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once(server, "corrupt", "storage")
    with caplog.at_level(logging.WARNING):
        assert len(ids(make(server, tmp_path), "CC-MAIN-2023-06")) == 20
    assert "SHA-256" in caplog.text
    once(server, "corrupt", "storage", times=9)
    fresh = make(server, tmp_path / "fresh")
    with pytest.raises(StorageError, match="another file than it lists"):
        ids(fresh, "CC-MAIN-2023-06")


def test_a_small_file_of_other_bytes_is_fetched_again_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub states no SHA-256 of what git holds itself."""
    whole, other = tmp_path / "whole", tmp_path / "other"
    whole.write_bytes(b"label: 1\n")
    other.write_bytes(b"label: 0\n")
    come = [other, whole, other, other]
    monkeypatch.setattr(HubRepository, "_fetch", lambda self, path, force=False: come.pop(0))
    file = HubFile("a.parquet", 9, "", hashlib.sha1(b"blob 9\0label: 1\n").hexdigest())
    repository = HubRepository(REPOSITORY, COMMIT)
    assert repository.download(file) == whole
    with pytest.raises(StorageError, match=r"not that of git's blob .*another file than it lists"):
        repository.download(file)


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (
            "500",
            "tree",
            r"cannot list HuggingFaceFW/fineweb/data/CC-MAIN-2023-06: .*500.*; run again, which fetches only",
        ),
        (
            "500",
            "resolve",
            r"cannot download .*/data/CC-MAIN-2023-06/000_00000\.parquet: .*500.*; run again, which fetches only",
        ),
        (
            "500",
            "storage",
            r"cannot download .*/data/CC-MAIN-2023-06/000_00000\.parquet: .*500.*; run again, which fetches only",
        ),
        (
            "drop",
            "resolve",
            r"cannot download .*000_00000\.parquet: RemoteProtocolError.*; run again, which fetches only",
        ),
        (
            "429",
            "tree",
            r"cannot list .*allows no more requests for now .*429.*; run again later, or set HF_TOKEN",
        ),
        ("gated", "tree", r"cannot list .*gives access to whom asks .*403.*; ask on the repository's page"),
        ("gated", "resolve", r"cannot download .*gives access to whom asks .*; ask on the repository's page"),
        ("login", "tree", r"cannot list .*what answers is not the hub.*; look at its address"),
        ("429", "resolve", r"cannot download .*allows no more requests for now .*429.*; run again later"),
        ("429", "storage", r"cannot download .*allows no more requests for now .*429.*; run again later"),
    ],
)
def test_lasting_trouble_ends_with_the_reason_and_leaves_nothing_corrupt(
    server: HubServer, tmp_path: Path, fault: str, kind: str, told: str
) -> None:
    once(server, fault, kind, times=1000)
    with pytest.raises(StorageError, match=told):
        ids(make(server, tmp_path), "CC-MAIN-2023-06")
    server.faults = lambda method, path: None
    assert len(ids(make(server, tmp_path), "CC-MAIN-2023-06")) == 20


def test_a_signature_in_the_address_of_a_file_is_not_told(server: HubServer, tmp_path: Path) -> None:
    server._storage, where = f"{server._storage}/signed?X-Amz-Signature=secret&path=", server._storage
    server.faults = lambda method, path: "500" if path == "/signed" else None
    with pytest.raises(StorageError) as failure:
        ids(make(server, tmp_path), "CC-MAIN-2023-06")
    assert "secret" not in str(failure.value)
    assert f"500 Internal Server Error' for url '{where}/signed';" in str(failure.value)


def test_the_next_run_fetches_only_the_files_that_are_not_whole(server: HubServer, tmp_path: Path) -> None:
    server.faults = lambda method, path: (
        "500" if path == "/storage/data/CC-MAIN-2024-10/001_00000.parquet" else None
    )
    with pytest.raises(StorageError, match="run again, which fetches only"):
        ids(make(server, tmp_path), "CC-MAIN-2024-10")
    server.faults = lambda method, path: None
    server.requests.clear()
    assert len(ids(make(server, tmp_path), "CC-MAIN-2024-10")) == 60
    assert server.requests["GET", "storage"] == 1


def test_offline_a_file_in_the_cache_is_read_and_another_is_told(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    repository = HubRepository(
        REPOSITORY, COMMIT, kind="dataset", endpoint=server.endpoint, cache_dir=str(tmp_path)
    )
    here, there = "data/CC-MAIN-2023-06/000_00000.parquet", "sample/10BT/000_00000.parquet"
    repository.download(here)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert repository.download(here).read_bytes() == FILES[here]
    for refused in (lambda: repository.download(there), repository.list_files):
        with pytest.raises(ConfigurationError, match="HF_HUB_OFFLINE is set; unset it"):
            refused()


def test_a_full_disk_is_told_and_not_retried(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.file_download as transfer

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = make(server, tmp_path)
    shard = source.shards("CC-MAIN-2023-06")[0]
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "http_get", full)
        with pytest.raises(StorageError, match="no room left on the disk"):
            list(source.read("CC-MAIN-2023-06", shard, batch_rows=8))
    assert len(ids(source, "CC-MAIN-2023-06")) == 20


def test_what_the_hub_does_not_have_is_refused_at_once(server: HubServer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such repository, commit or file"):
        make(server, tmp_path, dataset="someone/else").crawls()
    with pytest.raises(InputError, match="no such repository, commit or file"):
        make(server, tmp_path, revision="f" * 40).shards("CC-MAIN-2024-10")
    with pytest.raises(InputError, match="no file matches"):
        make(server, tmp_path, files="9*").shards("CC-MAIN-2024-10")
    with pytest.raises(InputError, match="not among those configured"):
        make(server, tmp_path, crawls=["CC-MAIN-2024-10"]).shards("CC-MAIN-2023-06")
    assert server.requests["GET", "tree"] == 3


def test_a_moving_revision_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is no commit hash"):
        SOURCES.make("fineweb_hub", {"revision": "main"})
    with pytest.raises(ConfigurationError, match="revision"):
        SOURCES.make("fineweb_hub")


def test_an_address_with_a_password_is_refused_and_not_told() -> None:
    with pytest.raises(ConfigurationError, match="holds a password") as refusal:
        SOURCES.make("fineweb_hub", {"revision": COMMIT, "endpoint": "https://someone:secret@mirror.example"})
    assert "secret" not in str(refusal.value)


def test_a_first_file_without_rows_says_nothing_of_the_columns(server: HubServer, tmp_path: Path) -> None:
    server.files["data/C/0.parquet"] = parquet(0, num_rows=0)
    scored = FINEWEB.append(pa.field("score", pa.int8()))
    server.files["data/C/1.parquet"] = parquet(0, scored)
    source = make(server, tmp_path)
    assert [field.name for field in source.extra_fields("C")] == ["score"]
    assert len(ids(source, "C")) == 20


def test_a_file_of_another_layout_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.files["data/CC-MAIN-2024-10/000_00001.parquet"] = parquet(
        0, FINEWEB.append(pa.field("score", pa.int8()))
    )
    with pytest.raises(InputError, match=r"first file has none.*score"):
        ids(make(server, tmp_path), "CC-MAIN-2024-10")

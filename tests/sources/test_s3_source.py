"""The files on object storage: a local server that speaks S3's protocol, and what it refuses."""

import errno
import gzip
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import KEYS, s3_server

from datamask_pipeline.errors import InputError, StorageError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources import Source
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import Store


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(endpoint: str) -> Any:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True, **KEYS)
    if fs.exists("crawls"):
        fs.rm("crawls", recursive=True)
    fs.call_s3("create_bucket", Bucket="crawls")
    return fs


def parquet(ids: list[str]) -> bytes:
    rows = [{"id": name, "text": f"The text of {name}."} for name in ids]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=FINEWEB), sink)
    return sink.getvalue()


def source_at(endpoint: str, root: str = "s3://crawls", **options: Any) -> Source:
    return SOURCES.make(
        "local", {"root": root, "storage_options": {"endpoint_url": endpoint, **(KEYS | options)}}
    )


def ids(source: Source, crawl: str) -> list[str]:
    return [
        name
        for shard in source.shards(crawl)
        for batch in source.read(crawl, shard, batch_rows=2)
        for name in batch.documents.column("id").to_pylist()
    ]


def test_a_bucket_is_listed_and_read(endpoint: str, bucket: Any, tmp_path: Any) -> None:
    bucket.pipe("crawls/a/0.parquet", parquet(["1", "2", "3"]))
    bucket.pipe("crawls/a/1.jsonl", b'{"id": "4", "text": "four"}\n{\n')
    bucket.pipe("crawls/b/0.parquet", parquet(["5"]))
    source = source_at(endpoint)
    assert source.crawls() == ["a", "b"]
    assert [shard.name for shard in source.shards("a")] == ["0", "1"]
    assert ids(source, "a") == ["1", "2", "3", "4"]
    documents, rejected = ingest.run(
        ingest.IngestConfig(), store=Store(tmp_path), crawl="a", source=source_at(endpoint)
    )
    assert (documents.rows, rejected.rows) == (4, 1)


def test_other_bytes_have_another_digest_and_are_seen_by_the_next_source(endpoint: str, bucket: Any) -> None:
    bucket.pipe("crawls/a/0.parquet", parquet(["1"]))
    before = source_at(endpoint).shards("a")[0].digest
    assert source_at(endpoint).shards("a")[0].digest == before
    bucket.pipe("crawls/a/0.parquet", parquet(["2"]))
    after = source_at(endpoint)
    assert after.shards("a")[0].digest != before
    assert ids(after, "a") == ["2"]


def test_an_object_that_changes_after_it_was_listed_is_refused(endpoint: str, bucket: Any) -> None:
    bucket.pipe("crawls/a/0.parquet", parquet(["1"]))
    source = source_at(endpoint)
    (shard,) = source.shards("a")
    bucket.pipe("crawls/a/0.parquet", parquet(["2"]))
    with pytest.raises(InputError, match=r"crawls/a/0\.parquet.*run again") as caught:
        list(source.read("a", shard, batch_rows=2))
    assert "changed since it was listed" in str(caught.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "jsonl.gz"])
def test_a_storage_that_fails_while_a_file_is_read_is_told_and_the_file_is_not_called_damaged(
    endpoint: str, bucket: Any, suffix: str
) -> None:
    draw = random.Random(0)
    rows = [{"id": str(number), "text": draw.randbytes(4_000).hex()} for number in range(200)]
    if suffix == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=FINEWEB), sink, row_group_size=10)
        raw = sink.getvalue()
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        raw = gzip.compress(lines) if suffix.endswith("gz") else lines
    bucket.pipe(f"crawls/a/0.{suffix}", raw)
    source = source_at(endpoint, default_block_size=1 << 16)
    (shard,) = source.shards("a")
    batches = source.read("a", shard, batch_rows=10)
    next(batches)
    bucket.rm(f"crawls/a/0.{suffix}")
    with pytest.raises(StorageError, match=rf"crawls/a/0\.{suffix} was read: FileNotFoundError.*run again"):
        list(batches)


def test_a_missing_bucket_is_named(endpoint: str, bucket: Any) -> None:
    with pytest.raises(InputError, match=r"nowhere.*correct `source\.options\.root`"):
        source_at(endpoint, "s3://nowhere/x").crawls()


def test_missing_credentials_are_named(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    source = source_at(endpoint, key=None, secret=None)
    with pytest.raises(StorageError, match="credentials and `storage_options`") as caught:
        source.crawls()
    assert "NoCredentialsError" in str(caught.value)


def test_a_server_that_does_not_answer_is_named() -> None:
    options = {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1}}
    with pytest.raises(StorageError, match=r"s3://crawls cannot be reached.*storage_options"):
        source_at("http://127.0.0.1:9", **options).crawls()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OSError(errno.EBUSY, "reduce your request rate"), StorageError),
        (PermissionError("Forbidden"), InputError),
    ],
)
def test_what_another_try_may_mend_is_told_from_what_it_cannot(
    endpoint: str, bucket: Any, monkeypatch: pytest.MonkeyPatch, answer: OSError, expected: type[Exception]
) -> None:
    """Dagster tries a step again whose storage failed, and no step whose input was refused."""
    import s3fs

    bucket.pipe("crawls/a/0.parquet", parquet(["1"]))
    refusing: list[OSError] = []

    def refuses(method: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            if refusing:
                raise refusing[0]
            return await method(*args, **options)

        return call

    for name in ("_info", "_find"):
        monkeypatch.setattr(s3fs.S3FileSystem, name, refuses(getattr(s3fs.S3FileSystem, name)))
    looked, listed = (source_at(endpoint, skip_instance_cache=True) for _ in range(2))
    assert looked.crawls() == ["a"]
    refusing.append(answer)
    for call in (listed.crawls, lambda: looked.states("a"), lambda: looked.shards("a")):
        with pytest.raises(expected, match="credentials and `storage_options`"):
            call()

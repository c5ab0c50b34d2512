"""Common Crawl's WET files: every conversion record is a row, damaged ones are told, damaged files refused."""

import gzip
from pathlib import Path

import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import Store

INFO = b"WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Record-ID: <urn:uuid:info>\r\nContent-Length: 4\r\n\r\ninfo\r\n\r\n"


def record(name: str, payload: bytes, length: int | None = None) -> bytes:
    headers = [
        "WARC/1.0",
        "WARC-Type: conversion",
        f"WARC-Target-URI: https://example.org/{name}",
        "WARC-Date: 2024-02-20T21:17:34Z",
        f"WARC-Record-ID: <urn:uuid:{name}>",
        "WARC-Identified-Content-Language: eng,fra",
        "Content-Type: text/plain",
        f"Content-Length: {len(payload) if length is None else length}",
    ]
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + payload + b"\r\n\r\n"


def write(root: Path, records: list[bytes], name: str = "CC-MAIN-1.warc.wet.gz") -> Path:
    path = root / "CC-MAIN-2024-10" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(gzip.compress(item) for item in records))
    return path


def test_records_become_documents_in_order(tmp_path: Path) -> None:
    write(tmp_path, [INFO, record("1", "Grüße\n".encode()), record("2", b"two"), record("3", b"three")])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    (shard,) = source.shards("CC-MAIN-2024-10")
    assert shard.name == "CC-MAIN-1"
    batches = list(source.read("CC-MAIN-2024-10", shard, batch_rows=2))
    assert [batch.rows.to_pylist() for batch in batches] == [[0, 1], [2]]
    assert batches[0].documents.to_pylist()[0] == {
        "text": "Grüße\n",
        "id": "<urn:uuid:1>",
        "dump": "CC-MAIN-2024-10",
        "url": "https://example.org/1",
        "date": "2024-02-20T21:17:34Z",
        "file_path": "CC-MAIN-1.warc.wet.gz",
        "language": "eng",
        "language_score": None,
        "token_count": None,
    }


def test_a_bad_record_is_rejected_and_its_neighbours_stand(tmp_path: Path) -> None:
    nameless = record("4", b"nameless").replace(b"WARC-Record-ID: <urn:uuid:4>\r\n", b"")
    records = [record("1", b"one"), record("2", b"\xff\xfe"), record("3", b"cut", 99), nameless]
    write(tmp_path, [*records, record("5", b"nul \0"), b"no record", record("6", b"six")])
    store = Store(tmp_path / "record")
    source = SOURCES.make("local", {"root": str(tmp_path / "CC-MAIN-2024-10")})
    documents, rejected = ingest.run(
        ingest.IngestConfig(), store=store, crawl="CC-MAIN-2024-10", source=source
    )
    assert store.read_table(documents, ["row"]).column(0).to_pylist() == [0, 6]
    found = [(row["row"], row["id"], row["reason"]) for row in store.read_table(rejected).to_pylist()]
    assert found == [
        (1, "<urn:uuid:2>", "undecodable_text"),
        (2, "<urn:uuid:3>", "malformed_record"),
        (3, None, "null_id"),
        (4, "<urn:uuid:5>", "nul_byte"),
        (5, None, "malformed_record"),
    ]


@pytest.mark.parametrize("kind", ["cut", "cut header", "garbage", "no WARC", "only info"])
def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, [INFO, record("1", b"one " * 99), record("2", b"two " * 99)])
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif kind == "cut header":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "garbage":
        data = bytearray(path.read_bytes())
        data[160:190] = b"\xff" * 30
        path.write_bytes(bytes(data))
    elif kind == "no WARC":
        path.write_bytes(gzip.compress(b"hello"))
    else:
        write(tmp_path, [INFO])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    (shard,) = source.shards("CC-MAIN-2024-10")
    with pytest.raises(InputError) as caught:
        list(source.read("CC-MAIN-2024-10", shard, batch_rows=10))
    assert str(path) in str(caught.value)
    assert caught.value.remedy

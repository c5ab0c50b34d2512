"""Generated malformed input ends in quarantine or in a clear error, and no row is lost or shifted."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources.content import content_hash
from datamask_pipeline.sources.filters import REASONS
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import Store

FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

ANY_TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "",
            "  \n\t",
            "\0",
            "a\0b",
            "שלום עולם 👩🏽‍🚀",
            "\u202eevil\u202c",
            "line\u2028separator",
            "x" * 70_000,
            "e\u0301",
            "\ufeffbom",
        ]
    ),
)
SURROGATES = st.text(st.characters(categories=["Cs", "L", "N"]), min_size=1, max_size=8)
IDS = st.one_of(st.sampled_from(["a", "b", "c", "", "é"]), st.text(max_size=5), st.none())

WORDS = st.one_of(
    ANY_TEXT,
    SURROGATES,
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.just([1]),
    st.just({"k": None}),
)
RECORDS = st.dictionaries(st.sampled_from([*FINEWEB.names, "extra"]), WORDS, max_size=6)


Kind = tuple[pa.DataType, "st.SearchStrategy[Any]"]
LEAVES: list[Kind] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), ANY_TEXT),
    (pa.large_string(), ANY_TEXT),
    (pa.binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.null(), st.none()),
]


#: Arrow cannot write these inside others.
VIEWS: list[Kind] = [
    (pa.string_view(), ANY_TEXT),
    (pa.binary_view(), st.binary(max_size=3)),
    (pa.list_view(pa.int64()), st.lists(st.integers(-9, 9), max_size=3)),
]


def nested(inner: "st.SearchStrategy[Kind]") -> "st.SearchStrategy[Kind]":
    """Lists, structs and maps of a kind."""

    def around(kind: Kind) -> list[Kind]:
        of, values = kind[0], st.one_of(st.none(), kind[1])
        entry = st.dictionaries(st.text(max_size=2), values, max_size=2).map(
            lambda found: list(found.items())
        )
        some = st.lists(values, max_size=3)
        return [
            (pa.list_(of), some),
            (pa.large_list(of), some),
            (pa.list_(of, 2), st.lists(values, min_size=2, max_size=2)),
            (pa.struct([("a", of), ("b", pa.int64())]), st.fixed_dictionaries({"a": values, "b": st.none()})),
            (pa.map_(pa.string(), of), entry),
        ]

    return inner.flatmap(lambda kind: st.sampled_from(around(kind)))


KINDS = st.one_of(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=3), st.sampled_from(VIEWS))


def by_place(entry: dict[str, Any]) -> Any:
    return entry["shard"], entry["row"]


def by_id(entry: dict[str, Any]) -> Any:
    return entry["id"]


def check(
    root: Path,
    total: int | None,
    texts: dict[Any, str],
    *,
    key: Callable[[dict[str, Any]], Any] = by_place,
    more: bool = False,
) -> str:
    """Ingest what lies under ``root`` and hold the result against what was written.

    Args:
        root: Folder with the crawl.
        total: Rows written, if the files can be read at all.
        texts: Text written, where it is a string.
        key: What tells a kept row's text among them.
        more: Whether what follows a record's stated end may count as rows of its own.

    Returns:
        ``ingested``, or the error's message.
    """
    store = Store(root / "record")
    try:
        source = SOURCES.make("local", {"root": str(root / "in"), "optional_columns": FINEWEB.names[2:]})
        config = ingest.IngestConfig(max_text_bytes=60_000, batch_rows=3)
        documents, rejected = ingest.run(config, store=store, crawl="crawl", source=source)
    except DataMaskError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert len(refusal) > 20
        assert store.keys("ingest") == []
        return refusal
    kept = store.read_table(documents, ["shard", "row", "id", "text", "content_hash"]).to_pylist()
    dropped = store.read_table(rejected).to_pylist()
    places = [(entry["shard"], entry["row"]) for entry in [*kept, *dropped]]
    assert len(set(places)) == len(places)
    assert total is None or len(places) == total or (more and len(places) > total)
    assert all(entry["reason"] in REASONS and entry["detail"] for entry in dropped)
    assert len({entry["id"] for entry in kept}) == len(kept)
    for entry in kept:
        written = texts[key(entry)]
        assert entry["text"] == written
        assert entry["content_hash"] == content_hash(written)
    counts = store.manifest(documents)["counts"]
    assert counts["rows_in"] == counts["kept"] + len(dropped)
    return "ingested"


def place(folder: str, name: str, data: bytes) -> Path:
    path = Path(folder) / "in" / "crawl" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Path(folder)


@FUZZ
@given(st.data())
def test_json_lines_of_anything(data: st.DataObject) -> None:
    junk = st.sampled_from([b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b'{"text": NaN}', b"{}", b"\x00"])
    lines = data.draw(
        st.lists(st.one_of(RECORDS.map(lambda record: json.dumps(record).encode()), junk), max_size=8)
    )
    first = data.draw(st.booleans())
    if first:
        lines.insert(0, json.dumps({"id": "first", "text": "a text"}).encode())
    suffix, pack = data.draw(
        st.sampled_from([("", bytes), (".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)])
    )
    texts: dict[tuple[str, int], Any] = {}
    for row, line in enumerate(lines):
        try:
            texts["0", row] = json.loads(line).get("text")
        except (ValueError, AttributeError):
            continue
    with tempfile.TemporaryDirectory() as folder:
        root = place(folder, f"0.jsonl{suffix}", pack(b"\n".join(lines)))
        outcome = check(root, len(lines), texts)
    if first:
        assert outcome == "ingested"


@pytest.mark.slow
@FUZZ
@given(
    shards=st.lists(
        st.lists(st.tuples(IDS, st.one_of(ANY_TEXT, st.none())), max_size=6), min_size=1, max_size=3
    ),
    group=st.integers(1, 4),
)
def test_parquet_of_any_values(shards: list[list[tuple[str | None, str | None]]], group: int) -> None:
    texts = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in" / "crawl").mkdir(parents=True)
        for number, rows in enumerate(shards):
            table = pa.Table.from_pylist([{"id": name, "text": text} for name, text in rows], schema=FINEWEB)
            pq.write_table(table, root / "in" / "crawl" / f"{number}.parquet", row_group_size=group)
            texts |= {(str(number), row): text for row, (_, text) in enumerate(rows)}
        outcome = check(root, len(texts), texts)
    assert ("shards are empty" in outcome) if not texts else (outcome == "ingested")


@pytest.mark.slow
@FUZZ
@given(st.data())
def test_parquet_with_an_extra_column_of_any_type(data: st.DataObject) -> None:
    kind, values = data.draw(KINDS)
    extra = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=6))
    ids = data.draw(st.lists(st.sampled_from("abc"), min_size=len(extra), max_size=len(extra)))
    table = pa.table({"id": ids, "text": ["a text"] * len(ids), "extra": pa.array(extra, kind)})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in" / "crawl").mkdir(parents=True)
        pq.write_table(table, root / "in" / "crawl" / "0.parquet", row_group_size=2)
        assert check(root, len(ids), {("0", row): "a text" for row in range(len(ids))}) == "ingested"
        store = Store(root / "record")
        ref = store.current("ingest", "crawl")
        assert ref is not None
        kept = store.read_table(ref, ["row", "extra"])
    assert kept.schema.field("extra").type == kind
    first = sorted({name: ids.index(name) for name in ids}.values())
    assert kept.column("row").to_pylist() == first
    assert kept.column("extra").to_pylist() == [table.column("extra")[row].as_py() for row in first]


@FUZZ
@given(
    cut=st.integers(0, 1500),
    flips=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 255)), max_size=6),
    raw=st.binary(max_size=20),
)
def test_parquet_of_broken_bytes(cut: int, flips: list[tuple[int, int]], raw: bytes) -> None:
    rows = [{"id": f"i{n}", "text": f"text {n} " * 9} for n in range(30)]
    texts: dict[tuple[str, int], Any] = {("0", n): row["text"] for n, row in enumerate(rows)}
    sink = pa.BufferOutputStream()
    # Checksums let the reader notice damage that would otherwise decode to other values.
    pq.write_table(
        pa.Table.from_pylist(rows, schema=FINEWEB), sink, row_group_size=7, write_page_checksum=True
    )
    data = bytearray(sink.getvalue().to_pybytes())
    for position, change in flips:
        data[position % len(data)] ^= change
    damaged = bytes(data[: len(data) - cut]) + raw
    with tempfile.TemporaryDirectory() as folder:
        root = place(folder, "0.parquet", damaged)
        outcome = check(root, None, texts)
    untouched = not flips and cut == 0 and not raw
    assert outcome == "ingested" or not untouched


def warc(kind: str, name: str, payload: bytes, length: str) -> bytes:
    headers = [
        "WARC/1.0",
        f"WARC-Type: {kind}",
        f"WARC-Record-ID: <urn:uuid:{name}>",
        f"Content-Length: {length}",
    ]
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + payload + b"\r\n\r\n"


PAYLOADS = st.one_of(
    ANY_TEXT.map(lambda text: text.encode()),
    st.binary(max_size=12),
    st.sampled_from([b"a\r\n\r\nb", b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\n", b"\xc3", b"\x1f\x8b\x08"]),
)
#: What is done to a record: nothing, a false length, a header left out, its end cut off, or something else there.
HARM = st.one_of(
    st.none(),
    st.sampled_from(["0", "1", "7", "999999", "-1", "x", ""]),
    st.sampled_from([b"WARC-Type", b"WARC-Record-ID", b"Content-Length", b"WARC/1.0"]),
    st.integers(1, 90),
    st.just(...),
)


@pytest.mark.slow
@FUZZ
@given(
    records=st.lists(st.tuples(PAYLOADS, HARM), max_size=6),
    with_info=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=2),
    cut=st.one_of(st.just(0), st.integers(0, 300)),
    tail=st.one_of(st.just(b""), st.binary(max_size=9)),
)
def test_wet_of_anything(
    records: list[tuple[bytes, Any]],
    with_info: bool,
    flips: list[tuple[int, int]],
    cut: int,
    tail: bytes,
) -> None:
    members = [warc("warcinfo", "info", b"info", "4")] if with_info else []
    texts: dict[str, Any] = {}
    for row, (payload, harm) in enumerate(records):
        name, length = f"record {row}", str(len(payload))
        raw = warc("conversion", name, payload, harm if isinstance(harm, str) else length)
        if isinstance(harm, bytes):
            raw = b"\r\n".join(line for line in raw.split(b"\r\n") if not line.startswith(harm))
        elif isinstance(harm, int):
            raw = raw[:-harm]
            if harm <= len(b"\r\n\r\n"):
                texts[f"<urn:uuid:{name}>"] = payload.decode("utf-8", "replace")
        elif harm is ...:
            raw = payload
        else:
            # Where its length says a record ends, it ends; what follows is white space, or a row of its own.
            whole = payload + b"\r\n\r\n"
            claimed = int(harm or length) if (harm or length).isdecimal() else -1
            if 0 <= claimed <= len(whole):
                texts[f"<urn:uuid:{name}>"] = whole[:claimed].decode("utf-8", "replace")
        members.append(raw)
    packed = b"".join(gzip.compress(member, mtime=0) for member in members)
    damaged = bytearray(packed)
    for position, change in flips if packed else []:
        damaged[position % len(packed)] ^= change
    data = bytes(damaged[: max(0, len(damaged) - cut)]) + tail
    with tempfile.TemporaryDirectory() as folder:
        root = place(folder, "0.warc.wet.gz", data)
        # A member without a byte is no record.
        total = sum(bool(member) for member in members) - with_info if data == packed else None
        cut_short = any(isinstance(harm, str) for _, harm in records)
        outcome = check(root, total, texts, key=by_id, more=cut_short)
    if total and with_info:
        assert outcome == "ingested"


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from([*FINEWEB.names, "other"]),
        st.sampled_from(
            ["int64", "string", "double", "bool", "large_string", "null", "binary", "list", "dictionary"]
        ),
        max_size=6,
    )
)
def test_parquet_of_any_columns(kinds: dict[str, str]) -> None:
    columns = {
        "int64": pa.array([1]),
        "string": pa.array(["s"]),
        "double": pa.array([0.5]),
        "bool": pa.array([True]),
        "large_string": pa.array(["s"], pa.large_string()),
        "null": pa.nulls(1),
        "binary": pa.array([b"\xff"]),
        "list": pa.array([["a"]]),
        "dictionary": pa.array(["s"]).dictionary_encode(),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in" / "crawl").mkdir(parents=True)
        table = pa.table({name: columns[kind] for name, kind in kinds.items()})
        pq.write_table(table, root / "in" / "crawl" / "0.parquet")
        outcome = check(root, 1, {("0", 0): "s"})
    assert outcome == "ingested" or "column" in outcome or "shards are empty" in outcome


def test_a_document_of_fifty_megabytes_is_quarantined(tmp_path: Path) -> None:
    huge = "word " * 10_000_000
    place(
        str(tmp_path),
        "0.jsonl",
        json.dumps({"id": "1", "text": huge}).encode() + b'\n{"id": "2", "text": "x"}',
    )
    source = SOURCES.make("local", {"root": str(tmp_path / "in")})
    store = Store(tmp_path / "record")
    documents, rejected = ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)
    assert store.read_table(documents, ["id"]).column(0).to_pylist() == ["2"]
    (entry,) = store.read_table(rejected).to_pylist()
    assert (entry["reason"], entry["detail"]) == ("too_large", "field text, 50000000 bytes")
    whole = ingest.IngestConfig(max_text_bytes=60_000_000)
    assert ingest.run(whole, store=store, crawl="crawl", source=source)[0].rows == 2


def test_a_string_that_is_not_utf8_is_quarantined(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"\xff\xfe", b"also fine"], pa.binary())
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    (tmp_path / "in" / "crawl").mkdir(parents=True)
    pq.write_table(pa.table({"id": ["1", "2", "3"], "text": text}), tmp_path / "in" / "crawl" / "0.parquet")
    options = {"root": str(tmp_path / "in"), "optional_columns": FINEWEB.names[2:]}
    store = Store(tmp_path / "record")
    documents, rejected = ingest.run(
        ingest.IngestConfig(), store=store, crawl="crawl", source=SOURCES.make("local", options)
    )
    assert store.read_table(documents, ["row"]).column(0).to_pylist() == [0, 2]
    assert [entry["reason"] for entry in store.read_table(rejected).to_pylist()] == ["undecodable_text"]

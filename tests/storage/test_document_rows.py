"""A document's rows are found by the index as by a scan, and altered bytes are told, never returned."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from datamask_pipeline import domains
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage import Ref, Store, row_index
from datamask_pipeline.storage.document_rows import CheckedTables
from datamask_pipeline.storage.pieces import PIECES_FILE
from datamask_pipeline.storage.ref import manifest_digest, pretty_json
from datamask_pipeline.storage.row_index import ID, INDEX_FILES

INDEX_FILE = INDEX_FILES[ID]
COLUMNS = pa.schema([("id", pa.string()), ("number", pa.int64()), ("text", pa.string())])
IDS = [f"<urn:uuid:{n}>" for n in range(400)] + ["", "ä\n\x1b[31m", "x" * 3_000]


def write(store: Store, seed: int = 0) -> tuple[Ref, list[list[str | None]]]:
    """Three parts, one without rows; ids stand several times, in several parts, and some are null."""
    draw = random.Random(seed)
    parts: list[list[str | None]] = [[draw.choice([*IDS, None]) for _ in range(n)] for n in (700, 0, 1_300)]
    builder = store.begin("ingest", "crawl", version="1", config={"seed": seed}, inputs={})
    records = []
    for number, ids in enumerate(parts):
        table = pa.table([ids, range(len(ids)), ["t"] * len(ids)], schema=COLUMNS)
        batches = table.to_batches(max_chunksize=256)
        records.append(builder.write_part(f"{number:05d}", batches, COLUMNS))
    return builder.commit(records), parts


def expected(parts: list[list[str | None]], wanted: str) -> list[tuple[str, int]]:
    return [
        (f"{number:05d}.parquet", row)
        for number, ids in enumerate(parts)
        for row, found in enumerate(ids)
        if found == wanted
    ]


@pytest.mark.parametrize("bucket_rows", [row_index._BUCKET_ROWS, 100])
def test_every_row_of_every_document_is_found(
    tmp_path: Path, bucket_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_index, "_BUCKET_ROWS", bucket_rows)
    store = Store(tmp_path)
    ref, parts = write(store)
    tables = CheckedTables(store)
    for wanted in [*IDS, "nobody"]:
        rows = list(tables.rows(ref.location, wanted))
        places = [(row["record"]["part"], row["record"]["row"]) for row in rows]
        assert places == expected(parts, wanted), wanted
        assert all(row["number"] == row["record"]["row"] and row["id"] == wanted for row in rows)
    assert tables.scanned == []


@pytest.mark.slow
def test_hashes_that_stand_far_from_where_they_should_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if somebody had chosen ids of neighbouring hashes; two ids in three share one."""
    monkeypatch.setattr(row_index, "_hash", lambda name: len(name) // 3)
    store = Store(tmp_path)
    ref, parts = write(store)
    tables = CheckedTables(store)
    for wanted in IDS[::7]:
        places = [(row["record"]["part"], row["record"]["row"]) for row in tables.rows(ref.location, wanted)]
        assert places == expected(parts, wanted)


def test_the_index_is_no_content_and_the_manifest_covers_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ref, _ = write(store)
    manifest = store.manifest(ref)
    assert {file["name"] for file in manifest["files"]} == {INDEX_FILE, PIECES_FILE}
    (tmp_path / ref.location / INDEX_FILE).unlink()
    assert store.find(ref.stage, ref.key, ref.fingerprint) is None  # not whole: the next run makes it again
    again, _ = write(store)
    assert again == ref


def test_an_artefact_of_an_earlier_version_is_scanned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ref, parts = write(store)
    without_index(tmp_path / ref.location)
    tables = CheckedTables(store)
    for wanted in IDS[::20]:
        places = [(row["record"]["part"], row["record"]["row"]) for row in tables.rows(ref.location, wanted)]
        assert places == expected(parts, wanted)
    assert tables.scanned == [ref.location]


def without_index(artefact: Path) -> None:
    """The artefact as an earlier version wrote it."""
    path = artefact / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = []
    manifest["manifest_digest"] = manifest_digest(manifest)
    path.write_text(pretty_json(manifest))
    for name in (*INDEX_FILES.values(), PIECES_FILE):
        (artefact / name).unlink(missing_ok=True)


@pytest.mark.parametrize("indexed", [True, False])
def test_no_altered_byte_is_read(tmp_path: Path, indexed: bool) -> None:
    store = Store(tmp_path)
    ref, parts = write(store)
    folder = tmp_path / ref.location
    if not indexed:
        without_index(folder)
    wanted = next(name for name in parts[2] if name)
    names = [INDEX_FILE, PIECES_FILE, "00002.parquet"] if indexed else ["00002.parquet"]
    draw = random.Random(1)
    for name in [*names, "manifest.json"]:
        whole = (folder / name).read_bytes()
        for _ in range(8):
            place = draw.randrange(len(whole))
            changed = bytearray(whole)
            changed[place] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(changed)
            with pytest.raises(IntegrityError, match=name):
                list(CheckedTables(store).rows(ref.location, wanted))
        for cut in (whole[:-1], whole + b"x", b""):
            (folder / name).write_bytes(cut)
            with pytest.raises(IntegrityError, match=name):
                list(CheckedTables(store).rows(ref.location, wanted))
        (folder / name).unlink()
        with pytest.raises(IntegrityError, match=name):
            list(CheckedTables(store).rows(ref.location, wanted))
        (folder / name).write_bytes(whole)
    assert list(CheckedTables(store).rows(ref.location, wanted))


@pytest.mark.parametrize("indexed", [True, False])
def test_rows_are_found_by_what_stands_for_them(tmp_path: Path, indexed: bool) -> None:
    store = Store(tmp_path)
    draw = random.Random(3)
    columns = pa.schema([("id", pa.string()), ("representative_id", pa.string())])
    rows = [{"id": f"d{n}", "representative_id": f"d{draw.randrange(n + 1)}"} for n in range(500)]
    builder = store.begin("pool", "first", version="1", config={}, inputs={})
    ref = builder.commit(
        [builder.write_part("00000", [pa.RecordBatch.from_pylist(rows, schema=columns)], columns)]
    )
    if not indexed:
        without_index(tmp_path / ref.location)
    tables = CheckedTables(store)
    for wanted in ("d0", "d1", "d17", "d499", "nobody"):
        found = [row["id"] for row in tables.rows(ref.location, wanted, ["id"], by="representative_id")]
        expected_ids = [row["id"] for row in rows if row["representative_id"] == wanted != row["id"]]
        assert found == expected_ids


HOSTS = ["a.example", "www.a.example", "x.www.a.example", "ba.example", "b.example.", "B.Example", "10.0.0.1",
         "bücher.example", "user@a.example", "xn--bcher-kva.example", "[2001:db8::1]", "one", "a.example:8080"]  # fmt: skip


@pytest.mark.parametrize("bucket_rows", [row_index._BUCKET_ROWS, 50])
def test_texts_and_domains_are_counted_by_their_indexes(
    tmp_path: Path, bucket_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_index, "_BUCKET_ROWS", bucket_rows)
    draw, store = random.Random(5), Store(tmp_path)
    columns = pa.schema([(name, pa.string()) for name in ("id", "content_hash", "url")])
    urls = [f"https://{host}/{number}" for number, host in enumerate(HOSTS)]
    rows = [
        {"id": f"h{draw.randrange(40)}", "content_hash": f"h{draw.randrange(40)}",
         "url": draw.choice([*urls, "no url", "", None])}
        for _ in range(700)
    ]  # fmt: skip
    builder = store.begin("materialise", "first/all", version="1", config={}, inputs={})
    parts = [
        builder.write_part(str(number), [pa.RecordBatch.from_pylist(part, schema=columns)], columns)
        for number, part in enumerate((rows[:300], rows[300:]))
    ]
    ref = builder.commit(parts, indexes=("content_hash", "url"))
    tables = CheckedTables(store)
    for content in ("h0", "h7", "h39", "nothing"):
        count = sum(row["content_hash"] == content for row in rows)
        assert tables.num_documents(ref.location, content, "content_hash") == count
    hosts = [found[0] for row in rows if row["url"] and (found := domains.split_url(row["url"]))]
    wanted = {part for host in HOSTS for part in (host, host.partition(".")[2], domains.canonical_host(host))}
    for domain in [*(wanted - {""}), "example", "nothing.example", "ample"]:
        count = sum(host == domain or host.endswith("." + domain) for host in hosts)
        assert tables.num_documents(ref.location, domain, "url") == count, domain
    assert tables.num_documents(ref.location, "xn--bcher-kva.example", "url")
    without_index(tmp_path / ref.location)
    assert CheckedTables(store).num_documents(ref.location, "example", "url") is None

"""Ingestion loses no row, explains every rejected one, and ends the same after any kill."""

import dataclasses
import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline import duck
from datamask_pipeline.compliance.retention import Leftover, forget, leftovers
from datamask_pipeline.errors import InputError, IntegrityError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import DOCUMENTS, FINEWEB, REJECTED
from datamask_pipeline.sources import Reject, Shard, Source, SourceBatch
from datamask_pipeline.sources.content import content_hash
from datamask_pipeline.stages import ingest
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.storage import Ref, Store, row_index


def row(name: str, text: str | None = "Some text.", **changes: object) -> dict[str, object]:
    return {"text": text, "id": name, "dump": "D", "language": "en", "language_score": 0.9, **changes}


def crawl(root: Path, shards: dict[str, list[dict[str, object]]], schema: pa.Schema = FINEWEB) -> Source:
    for name, rows in shards.items():
        path = root / "crawl" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return SOURCES.make("local", {"root": str(root)})


def ingested(store: Store, source: Source, **settings: object) -> tuple[Ref, Ref]:
    return ingest.run(ingest.IngestConfig(**settings), store=store, crawl="crawl", source=source)


def reasons(store: Store, rejected: Ref) -> list[tuple[object, ...]]:
    rows = store.read_table(rejected).to_pylist()
    return [(entry["shard"], entry["row"], entry["id"], entry["reason"]) for entry in rows]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


def test_documents_keep_their_columns_and_gain_their_origin(tmp_path: Path, store: Store) -> None:
    schema = FINEWEB.append(pa.field("score", pa.float64()))
    source = crawl(tmp_path, {"a": [row("1", "Un  café\n", score=1.0)], "b": [row("2", score=None)]}, schema)
    documents, rejected = ingested(store, source)
    table = store.read_table(documents)
    assert table.schema.names == [*DOCUMENTS.names, "score"]
    first = table.to_pylist()[0]
    assert first["text"] == "Un  café\n"
    assert first["content_hash"] == content_hash("Un café")
    assert (first["crawl"], first["shard"], first["row"]) == ("crawl", "a", 0)
    assert store.read_table(rejected).schema == REJECTED
    assert store.part_names(documents) == store.part_names(rejected) == ["a", "b"]


def test_shards_that_a_sweep_takes_before_the_last_step_are_written_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `datamask sweep --days 0 --remove` beside a run does, where it comes between two shards."""
    source = crawl(tmp_path, {"a": [row("1")], "b": [row("2"), row("3", None)]})
    undisturbed = ingested(Store(tmp_path / "undisturbed"), source)
    work = ingest.begin(ingest.IngestConfig(), store=store, crawl="crawl", source=source)
    write, taken = work.write_missing, list[Leftover]()

    def swept_after(start: float) -> bool:
        done = write(start)
        taken.extend(forget(store, [] if taken else leftovers(store, days=0)))
        return done

    monkeypatch.setattr(work, "write_missing", swept_after)
    made = work.complete()
    assert taken
    assert [ref.content_digest for ref in made] == [ref.content_digest for ref in undisturbed]


def test_every_rejected_row_has_its_place_and_reason(tmp_path: Path, store: Store) -> None:
    rows = [
        row("1"),
        row("2", None),
        row("3", "  "),
        row("1", "another text"),
        row("4", language="de"),
        row("5", "x" * 50),
        row("6", "nul \0"),
    ]
    rows.append(row("7") | {"id": None})
    rows.append(row("8") | {"token_count": -5})
    rows.append(row("9") | {"token_count": 2**62})
    documents, rejected = ingested(
        store, crawl(tmp_path, {"a": rows, "b": [row("2"), row("1")]}), languages=("en",), max_chars=40
    )
    assert reasons(store, rejected) == [
        ("a", 1, "2", "null_text"),
        ("a", 2, "3", "empty_text"),
        ("a", 3, "1", "duplicate_id"),
        ("a", 4, "4", "language"),
        ("a", 5, "5", "too_long"),
        ("a", 6, "6", "nul_byte"),
        ("a", 7, None, "null_id"),
        ("a", 8, "8", "negative_tokens"),
        ("a", 9, "9", "too_many_tokens"),
        ("b", 1, "1", "duplicate_id"),
    ]
    kept = store.read_table(documents, ["shard", "row", "id"]).to_pylist()
    assert [tuple(entry.values()) for entry in kept] == [("a", 0, "1"), ("b", 0, "2")]
    counts = store.manifest(documents)["counts"]
    assert (counts["rows_in"], counts["kept"], counts["dropped_duplicate_id"]) == (12, 2, 2)
    details = store.read_table(rejected, ["detail"]).column(0).to_pylist()
    assert details[2] == details[9] == "first in shard a, row 0"
    assert details[3] == "field language, value 'de'"


def test_ids_of_one_hash_are_told_apart(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    distinct = crawl(tmp_path / "distinct", {"a": [row("1"), row("2")], "b": [row("3")]})
    repeating = crawl(tmp_path / "repeating", {"a": [row("1"), row("2")], "b": [row("2")]})
    counted = [ingested(store, source) for source in (distinct, repeating)]
    monkeypatch.setattr(row_index, "_hash", lambda name: 7)
    other = Store(tmp_path / "other")
    assert [ingested(other, source) for source in (distinct, repeating)] == counted
    assert [rejected.rows for _, rejected in counted] == [0, 1]


def test_filters_are_off_unless_set(tmp_path: Path, store: Store) -> None:
    rows = [row("1", "x", language="de", language_score=None), row("2", "y" * 100_000, language=None)]
    documents, rejected = ingested(store, crawl(tmp_path, {"a": rows}))
    assert (documents.rows, rejected.rows) == (2, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"languages": ("en",)},
        {"min_language_score": 0.5},
        {"min_chars": 5},
        {"max_chars": 3},
        {"max_text_bytes": 9},
    ],
)
def test_every_filter_is_part_of_the_fingerprint(
    tmp_path: Path, store: Store, change: dict[str, object]
) -> None:
    source = crawl(tmp_path, {"a": [row("1"), row("2", "abc", language="de", language_score=0.1)]})
    plain, _ = ingested(store, source)
    changed, _ = ingested(store, source, **change)
    assert changed.fingerprint != plain.fingerprint
    assert changed.content_digest != plain.content_digest
    assert ingested(store, source, batch_rows=1)[0] == plain


def test_a_second_run_computes_nothing(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path, {"a": [row("1")]})
    first = ingested(store, source)
    written = store.manifest(first[0])["written_at"]
    assert ingested(store, SOURCES.make("local", {"root": str(tmp_path)})) == first
    assert store.manifest(first[0])["written_at"] == written


def test_nothing_is_visible_when_one_file_is_bad(tmp_path: Path, store: Store) -> None:
    crawl(tmp_path, {"a": [row("1")], "b": [row("2")]})
    bad = tmp_path / "crawl" / "b.parquet"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-20])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    with pytest.raises(InputError, match=r"b\.parquet"):
        ingested(store, source)
    assert store.current("ingest", "crawl") is None
    assert store.keys("rejected") == []
    bad.write_bytes(whole)
    assert ingested(store, SOURCES.make("local", {"root": str(tmp_path)}))[0].rows == 2


def test_a_column_of_ingestions_own_is_refused(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path, {"a": [row("1")]}, FINEWEB.append(pa.field("content_hash", pa.string())))
    with pytest.raises(InputError, match="content_hash"):
        ingested(store, source)


@pytest.mark.parametrize(
    "name", ["artefact_order", "artefact_row", "part_order", "part_row", "file_row_number", "Part_Row"]
)
def test_a_column_by_which_queries_number_rows_is_refused(name: str, tmp_path: Path, store: Store) -> None:
    """DuckDB takes names in any case for one; a question for such a column would read the other."""
    schema = FINEWEB.append(pa.field(name, pa.int64()))
    source = crawl(tmp_path, {"a": [row("1", **{name: 7})]}, schema)
    with pytest.raises(InputError, match=rf"name that the record uses itself .*{name}.*rename or drop"):
        ingested(store, source)


def test_bad_lines_and_bad_rows_are_told_together(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "crawl" / "a.jsonl"
    path.parent.mkdir()
    lines = [
        json.dumps(row("1")),
        "{",
        json.dumps(row("2", "")),
        json.dumps(row("3", 7)),
        json.dumps(row("4")),
    ]
    path.write_text("\n".join(lines))
    documents, rejected = ingested(store, SOURCES.make("local", {"root": str(tmp_path)}), batch_rows=2)
    assert [entry[1:] for entry in reasons(store, rejected)] == [
        (1, None, "malformed_json"),
        (2, "2", "empty_text"),
        (3, "3", "wrong_type"),
    ]
    assert store.read_table(documents, ["row"]).column(0).to_pylist() == [0, 4]


def test_a_source_that_loses_a_row_is_found_out(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path, {"a": [row("1"), row("2"), row("3")]})
    read = source.read

    def lossy(*args: object, **kwargs: object) -> object:
        for batch in read(*args, **kwargs):  # type: ignore[arg-type]
            yield SourceBatch(batch.rows.take(pa.array([0, 2])), batch.documents.take(pa.array([0, 2])))

    source.read = lossy  # type: ignore[method-assign, assignment]
    with pytest.raises(IntegrityError, match="rows 0 to 1 were expected"):
        ingested(store, source)


def _with_column(batch: SourceBatch, name: str, values: pa.Array) -> SourceBatch:
    documents = batch.documents
    place = documents.schema.get_field_index(name)
    if place < 0:
        return dataclasses.replace(batch, documents=documents.append_column(name, values))
    return dataclasses.replace(batch, documents=documents.set_column(place, name, values))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda b: dataclasses.replace(b, documents=b.documents.drop_columns(["url"])),
            "'url' must be there once",
        ),
        (lambda b: _with_column(b, "more", b.documents["url"]), "'more' is neither FineWeb's nor among"),
        (
            lambda b: _with_column(b, "id", pa.array([1, 2])),
            "'id' must be of type string, and is of type int64",
        ),
        (
            lambda b: _with_column(b, "text", b.documents["text"].cast(pa.string_view())),
            "'text' must be of type string, and is of type string_view",
        ),
        (lambda b: dataclasses.replace(b, documents=pa.Table.from_batches([b.documents])), "and are a Table"),
        (lambda b: dataclasses.replace(b, rows=pa.array([None, 1])), "rows must be an int64 array"),
        (lambda b: dataclasses.replace(b, rows=b.rows.cast(pa.int32())), "rows must be an int64 array"),
        (lambda b: dataclasses.replace(b, documents=b.documents[:1]), "for each of 1 documents"),
        (
            lambda b: dataclasses.replace(b, rejects=(Reject(2, 7, "odd", ""),)),
            "row 2 is rejected with an id",
        ),
        (
            lambda b: dataclasses.replace(b, rejects=(Reject(2, "7", "odd\nline", ""),)),
            "a reason is one word",
        ),
    ],
)
def test_a_batch_that_is_not_as_sources_give_them_is_told_in_one_line(
    spoil: Callable[[SourceBatch], SourceBatch], told: str, tmp_path: Path, store: Store
) -> None:
    """Sources of other packages are written by whoever reads the documentation of `SourceBatch`."""
    source = crawl(tmp_path, {"a": [row("1"), row("2")]})
    read = source.read
    source.read = lambda *args, **kwargs: map(spoil, read(*args, **kwargs))  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match=told) as refused:
        ingested(store, source)
    assert str(refused.value).startswith(f"source 'local', {tmp_path}")


def test_a_crawl_that_never_stays_as_it_is_ends(tmp_path: Path, store: Store) -> None:
    """As of a source whose digests hold the time, or of files to which somebody writes without end."""
    source = crawl(tmp_path, {"a": [row("1")]})
    shards, asked = source.shards, itertools.count()

    def restless(crawl: str) -> list[Shard]:
        return [dataclasses.replace(shard, digest=f"{next(asked)}") for shard in shards(crawl)]

    source.shards = restless  # type: ignore[method-assign]

    def begin() -> ShardWork[tuple[Ref, Ref]]:
        assert next(asked) < 100, "read again and again"
        return ingest.begin(ingest.IngestConfig(), store=store, crawl="crawl", source=source)

    with pytest.raises(InputError, match=r"ingest of 'crawl'.*run again when nobody writes to it"):
        begin().complete(again=begin)


def test_a_shard_named_as_a_folder_is_told(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path, {"a": [row("1")]})
    shards = [dataclasses.replace(shard, name=f"en/{shard.name}") for shard in source.shards("crawl")]
    source.shards = lambda crawl: shards  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match="a shard named 'en/a'"):
        ingested(store, source)


@pytest.mark.parametrize(
    ("extras", "told"),
    [
        (["lang"], "has 'lang', which is no pyarrow.Field"),
        ([pa.field("lang", pa.string())] * 2, "has column 'lang' twice"),
    ],
)
def test_extra_fields_that_are_none_or_stand_twice_are_told(
    extras: list[pa.Field], told: str, tmp_path: Path, store: Store
) -> None:
    source = crawl(tmp_path, {"a": [row("1")]})
    source.extra_fields = lambda crawl: extras  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match=f"crawl 'crawl'.*`extra_fields` {told}"):
        ingested(store, source)


def test_a_category_of_a_rejected_row_alone_is_not_in_the_record(tmp_path: Path, store: Store) -> None:
    values = pa.array([b"Ann", b"Mallory", b"Trent \xff", b"Bob", b"Eve", b"Ann"]).dictionary_encode()
    names = pa.StringArray.from_buffers(len(values.dictionary), *values.dictionary.buffers()[1:])
    people = pa.DictionaryArray.from_arrays(values.indices, names)
    rows = [row("1"), row("2", None), row("3"), row("4"), row("1", "Another."), row("6")]
    table = pa.Table.from_pylist(rows, schema=FINEWEB).append_column("people", people)
    (tmp_path / "crawl").mkdir()
    pq.write_table(table, tmp_path / "crawl" / "0.parquet")
    documents, rejected = ingested(store, SOURCES.make("local", {"root": str(tmp_path)}))
    assert [reason for *_, reason in reasons(store, rejected)] == [
        "null_text",
        "undecodable_text",
        "duplicate_id",
    ]
    assert store.read_table(documents, ["id"]).column(0).to_pylist() == ["1", "4", "6"]
    path = tmp_path / "record" / documents.location / "0.parquet"
    people_held, sink = pq.read_table(path, columns=["people"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, people_held.schema) as stream:
        stream.write_table(people_held)
    raw = sink.getvalue().to_pybytes()
    held = [name for name in (b"Ann", b"Bob", b"Mallory", b"Trent", b"Eve") if name in raw]
    assert held == [b"Ann", b"Bob"]


def test_names_that_look_like_patterns_are_names(tmp_path: Path, store: Store) -> None:
    shards = {
        "a[1]": [row("x"), row("x", "copy")],
        "a1": [row("y"), row("z")],
        "a*": [row("v")],
        "a?": [row("w")],
    }
    documents, rejected = ingested(store, crawl(tmp_path, shards))
    assert sorted(store.read_table(documents, ["id"]).column(0).to_pylist()) == ["v", "w", "x", "y", "z"]
    assert reasons(store, rejected) == [("a[1]", 1, "x", "duplicate_id")]
    with duck.connect(store, tmp_path) as connection:
        found = connection.sql(
            f"SELECT id FROM {duck.parts_sql(store, [documents], 'id')} ORDER BY id"
        ).fetchall()
    assert [name for (name,) in found] == ["v", "w", "x", "y", "z"]


def test_two_shards_of_one_name_are_refused(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path, {"a": [row("1")], "b": [row("2")]})
    shards = [dataclasses.replace(shard, name="same") for shard in source.shards("crawl")]
    source.shards = lambda name: shards  # type: ignore[method-assign, assignment]
    with pytest.raises(IntegrityError, match="2 shards named 'same'"):
        ingested(store, source)


SHARDS = {
    "a": [row("1"), row("2"), row("2", "copy"), row("3", "")],
    "b": [row("1", "again"), row("4"), row("5")],
    "c": [row("6"), row("4", "again")],
}


class Killed(BaseException):
    """Stands for a kill between two writes."""


@pytest.mark.slow
def test_a_stop_before_any_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = crawl(tmp_path / "in", SHARDS)
    undisturbed = Store(tmp_path / "undisturbed")
    expected = ingested(undisturbed, source)
    publish = Store._publish
    stopped = True
    fatal = 0
    while stopped:
        fatal += 1
        calls = 0

        def deadly(self: Store, private: Path, target: str) -> None:
            nonlocal calls
            calls += 1
            if calls == fatal:  # noqa: B023 - used within this turn of the loop
                raise Killed
            publish(self, private, target)

        store = Store(tmp_path / f"stopped-{fatal}")
        monkeypatch.setattr(Store, "_publish", deadly)
        try:
            ingested(store, source)
            stopped = False
        except Killed:
            assert store.current("ingest", "crawl") is None
        monkeypatch.setattr(Store, "_publish", publish)
        assert ingested(store, source) == expected
        assert store.manifest(expected[0])["counts"] == undisturbed.manifest(expected[0])["counts"]
    # Parts and their records: three of documents, three of rejects, one rewritten; two manifests and pointers.
    assert fatal > 16


KILLED = """
import os, signal, sys
from datamask_pipeline.families import SOURCES
from datamask_pipeline.stages import ingest
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.storage import Store

calls = 0
publish = Store._publish
def deadly(*arguments):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return publish(*arguments)
Store._publish = deadly
ingest.run(ingest.IngestConfig(), store=Store(sys.argv[2]), crawl="crawl",
           source=SOURCES.make("local", {"root": sys.argv[1]}))
"""


@pytest.mark.slow
def test_a_real_kill_leaves_what_the_next_run_needs(tmp_path: Path, store: Store) -> None:
    source = crawl(tmp_path / "in", SHARDS)
    expected = ingested(Store(tmp_path / "undisturbed"), source)
    done = forked.run(KILLED, str(tmp_path / "in"), store.root)
    assert done.returncode == -signal.SIGKILL
    assert store.current("ingest", "crawl") is None
    assert ingested(store, source) == expected


@pytest.mark.parametrize("kind", ["no columns", "other columns", "no lines", "blank lines"])
def test_a_shard_without_rows_is_passed_over_and_told(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    source = crawl(tmp_path, {"b": [row("1"), row("2")]})
    parquet, lines = tmp_path / "crawl" / "a.parquet", tmp_path / "crawl" / "a.jsonl"
    if kind.endswith("columns"):
        fields = [] if kind == "no columns" else [pa.field("text", pa.int64()), pa.field("date", pa.date32())]
        pq.write_table(pa.schema(fields).empty_table(), parquet)
    else:
        lines.write_text("" if kind == "no lines" else "\n\n")
    documents, rejected = ingested(store, source)
    manifest = store.manifest(documents)
    assert manifest["metadata"]["empty_shards"] == ["a"]
    assert manifest["counts"] == {"rows_in": 2, "kept": 2}
    assert rejected.rows == 0
    assert store.read_table(documents).column("id").to_pylist() == ["1", "2"]
    assert "1 of 2 shards hold no row, e.g." in caplog.text


def test_documents_without_a_token_count_are_told_of(tmp_path: Path, store: Store) -> None:
    """Before they are embedded for a budget in tokens that refuses them."""
    rows = [row(str(count), token_count=count) for count in (None, 0, 5)]
    source = crawl(tmp_path, {"a": [*rows, row("5", token_count=None)], "b": [row("6", token_count=6)]})
    documents, _ = ingested(store, source)
    manifest = store.manifest(documents)
    (line,) = ingest.told(manifest)
    assert line.startswith("2 of 4 documents have no token count above 0")
    plain, _ = ingested(
        Store(tmp_path / "other"), crawl(tmp_path / "plain", {"b": [row("6", token_count=6)]})
    )
    assert not [*ingest.told(Store(tmp_path / "other").manifest(plain))]


def test_a_crawl_without_any_row_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(InputError, match=r"all 2 shards are empty: no file holds a row .*a\.parquet"):
        ingested(store, crawl(tmp_path, {"a": [], "b": []}))

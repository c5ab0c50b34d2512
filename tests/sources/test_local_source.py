"""Files on disk: every format gives the same documents, and a bad file is refused by name."""

import gzip
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from closed_folders import refuse_listings

from datamask_pipeline.errors import ConfigurationError, InputError, UnknownNameError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.sources import Shard, Source, SourceBatch


def row(number: int, **changes: object) -> dict[str, object]:
    return {
        "text": f"Text number {number} in plain words.",
        "id": f"<urn:uuid:{number}>",
        "dump": "CC-MAIN-2024-10",
        "url": f"https://example.org/{number}",
        "date": "2024-03-01T00:00:00Z",
        "file_path": "s3://somewhere",
        "language": "en",
        "language_score": 0.9,
        "token_count": number + 5,
    } | changes


def write_parquet(path: Path, rows: list[dict[str, object]], schema: pa.Schema = FINEWEB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=4)
    return path


def write_lines(path: Path, lines: list[str | bytes]) -> Path:
    data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read_all(source: Source, crawl: str, batch_rows: int = 3) -> list[SourceBatch]:
    return [
        batch for shard in source.shards(crawl) for batch in source.read(crawl, shard, batch_rows=batch_rows)
    ]


def documents(source: Source, crawl: str) -> list[dict[str, object]]:
    return [entry for batch in read_all(source, crawl) for entry in batch.documents.to_pylist()]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_every_format_gives_the_rows_that_were_written(tmp_path: Path, suffix: str) -> None:
    rows = [row(number) for number in range(10)]
    path = tmp_path / "crawl-a" / f"000_00000{suffix}"
    if suffix == ".parquet":
        write_parquet(path, rows)
    else:
        write_lines(path, [json.dumps(entry) for entry in rows])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    assert source.crawls() == ["crawl-a"]
    assert [shard.name for shard in source.shards("crawl-a")] == ["000_00000"]
    batches = read_all(source, "crawl-a")
    assert [entry for batch in batches for entry in batch.documents.select(FINEWEB.names).to_pylist()] == rows
    assert [number for batch in batches for number in batch.rows.to_pylist()] == list(range(10))
    assert all(batch.documents.num_rows <= 3 for batch in batches)


def test_folders_are_crawls_and_a_named_crawl_takes_everything(tmp_path: Path) -> None:
    write_parquet(tmp_path / "b" / "1.parquet", [row(1)])
    write_parquet(tmp_path / "a" / "deep" / "2.parquet", [row(2)])
    write_parquet(tmp_path / "a" / "1.parquet", [row(3)])
    folders = SOURCES.make("local", {"root": str(tmp_path)})
    assert folders.crawls() == ["a", "b"]
    assert [shard.name for shard in folders.shards("a")] == ["1", "deep__2"]
    named = SOURCES.make("local", {"root": str(tmp_path), "crawl": "mine"})
    assert [shard.name for shard in named.shards("mine")] == ["a__1", "a__deep__2", "b__1"]
    pattern = SOURCES.make("local", {"root": str(tmp_path / "*" / "1.parquet"), "crawl": "mine"})
    with pytest.raises(InputError, match="same shard '1'"):
        pattern.shards("mine")
    one = SOURCES.make("local", {"root": str(tmp_path / "b" / "1.parquet")})
    assert one.crawls() == ["b"]


def test_a_file_beside_the_folders_of_crawls_is_no_crawl_and_is_told(tmp_path: Path, caplog) -> None:
    root = tmp_path / "crawls"
    write_parquet(root / "stray.parquet", [row(1)])
    assert SOURCES.make("local", {"root": str(root)}).crawls() == ["crawls"], "a root that is one crawl"
    assert not caplog.text
    write_parquet(root / "a" / "1.parquet", [row(2)])
    source = SOURCES.make("local", {"root": str(root)})
    assert source.crawls() == ["a"]
    assert "1 files beside the folders of crawls belong to none and are left out, e.g. " in caplog.text
    assert f"{root}/stray.parquet; move it into the folder of its crawl" in caplog.text
    assert source.about_missing("crawls").startswith(f"{root}/stray.parquet lies beside the folders")
    assert SOURCES.make("local", {"root": str(root)}).crawls() == ["a"]
    assert caplog.text.count("beside the folders") == 1, "once in a process"
    assert SOURCES.make("local", {"root": str(root), "crawl": "all"}).crawls() == ["all"]


def test_files_that_would_be_one_shard_are_told_of_their_crawl_and_stop_no_other(tmp_path: Path) -> None:
    """A sensor looks at the states of all crawls at each tick."""
    write_parquet(tmp_path / "bad" / "1.parquet", [row(1)])
    write_lines(tmp_path / "bad" / "1.jsonl", [json.dumps(row(2))])
    write_parquet(tmp_path / "good" / "1.parquet", [row(3)])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    assert source.crawls() == ["bad", "good"]
    assert [shard.name for shard in source.shards("good")] == ["1"]
    assert [name for name, _ in source.states("bad")] == ["1", "1"]
    with pytest.raises(InputError, match=r"same shard '1'.*rename one of them"):
        source.shards("bad")
    states = source.states("bad")
    (tmp_path / "bad" / "1.jsonl").rename(tmp_path / "bad" / "2.jsonl")
    mended = SOURCES.make("local", {"root": str(tmp_path)})
    assert mended.states("bad") != states
    assert [shard.name for shard in mended.shards("bad")] == ["1", "2"]


def test_a_missing_date_is_null_and_extra_columns_stay(tmp_path: Path) -> None:
    schema = pa.schema([field for field in FINEWEB if field.name != "date"])
    schema = schema.append(pa.field("score", pa.float64()))
    write_parquet(tmp_path / "c" / "0.parquet", [row(0, score=2.5)], schema)
    write_parquet(tmp_path / "c" / "1.parquet", [row(1)])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    assert source.extra_fields("c") == [pa.field("score", pa.float64())]
    found = documents(source, "c")
    assert [entry["date"] for entry in found] == [None, "2024-03-01T00:00:00Z"]
    assert [entry["score"] for entry in found] == [2.5, None]


def test_an_extra_column_without_nulls_in_one_file_is_null_in_another(tmp_path: Path) -> None:
    for name, field in (("0", pa.field("score", pa.float64(), nullable=False)), ("1", None)):
        schema = FINEWEB.append(field) if field else FINEWEB
        write_parquet(tmp_path / "c" / f"{name}.parquet", [row(0, score=2.5)], schema)
    write_parquet(
        tmp_path / "c" / "2.parquet", [row(2, score=1.5)], FINEWEB.append(pa.field("score", pa.float64()))
    )
    found = documents(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    assert [entry["score"] for entry in found] == [2.5, None, 1.5]


def test_a_file_that_changes_after_it_was_listed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c" / "0.parquet"
    write_parquet(path, [row(0)])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    source.shards("c")
    write_parquet(path, [row(1), row(2)])
    with pytest.raises(InputError, match="changed since it was listed"):
        documents(source, "c")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, suffix: str) -> None:
    """What had been read then stood in the record under the digest of what had been there before."""
    path, rows = tmp_path / "c" / f"0.{suffix}", [row(number) for number in range(300)]
    if suffix == "parquet":
        write_parquet(path, rows)
    else:
        path.parent.mkdir()
        path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    source = SOURCES.make("local", {"root": str(tmp_path)})
    (shard,) = source.shards("c")
    found = source.read("c", shard, batch_rows=100)
    next(found)
    with path.open("ab") as stream:
        stream.write(b'{"id": "late", "text": "a document that came late"}\n')
    with pytest.raises(InputError, match="changed since it was listed"):
        list(found)


def test_links_are_followed_once_and_hidden_files_left_out(tmp_path: Path, caplog) -> None:
    write_parquet(tmp_path / "elsewhere" / "1.PARQUET", [row(1)])
    write_parquet(tmp_path / "in" / "a" / "0.parquet", [row(0)])
    write_parquet(tmp_path / "in" / "a" / ".checkpoints" / "0.parquet", [row(5)])
    (tmp_path / "in" / "a" / "notes.txt").write_text("")
    (tmp_path / "in" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "a" / "again").symlink_to(tmp_path / "in")
    source = SOURCES.make("local", {"root": str(tmp_path / "in")})
    assert source.crawls() == ["a", "b"]
    assert [entry["id"] for entry in documents(source, "b")] == [row(1)["id"]]
    assert [shard.name for shard in source.shards("a")] == ["0"]
    assert "1 files of other kinds are left out" in caplog.text
    assert "not a crawl" not in caplog.text


def test_a_folder_of_other_kinds_alone_is_told_to_be_no_crawl(tmp_path: Path, caplog) -> None:
    write_parquet(tmp_path / "a" / "0.parquet", [row(0)])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "notes.txt").write_text("")
    assert SOURCES.make("local", {"root": str(tmp_path)}).crawls() == ["a"]
    assert f"e.g. {tmp_path}/a/notes.txt; not a crawl, as nothing else is in it: b" in caplog.text


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in [1]" / "c" / "0.parquet", [row(0)])
    source = SOURCES.make("local", {"root": str(tmp_path / "in [1]")})
    assert source.crawls() == ["c"]


def test_names_that_no_file_system_would_take_are_cut(tmp_path: Path) -> None:
    names = ("d" * 100, "e" * 100)
    for last in ("1", "2"):
        write_parquet(tmp_path / "c" / names[0] / names[1] / f"{last}.parquet", [row(int(last))])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    found = [shard.name for shard in source.shards("c")]
    assert len(set(found)) == 2
    assert all(len(name) == 160 for name in found)
    assert len(documents(source, "c")) == 2


def test_any_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row(0)], schema=FINEWEB)
    for _ in range(2):
        table = table.append_column("score", pa.array([1.0]))
    (tmp_path / "c").mkdir()
    pq.write_table(table, tmp_path / "c" / "0.parquet")
    with pytest.raises(InputError, match=r"stands twice.*score"):
        documents(SOURCES.make("local", {"root": str(tmp_path)}), "c")


def test_a_dictionary_inside_a_list_is_told_by_its_column(tmp_path: Path) -> None:
    """Arrow reads it where a batch lies in one row group, and not across two."""
    edges = pa.array(range(5), pa.int32())
    tags = pa.ListArray.from_arrays(edges, pa.array(["a", "b", "a", "b"]).dictionary_encode())
    table = pa.Table.from_pylist([row(number) for number in range(4)], schema=FINEWEB)
    path = tmp_path / "a.parquet"
    pq.write_table(table.append_column("tags", tags), path, row_group_size=2)
    source = SOURCES.make("local", {"root": str(tmp_path), "crawl": "c"})
    with pytest.raises(InputError, match=r"field tags\); write lists and structs without dictionaries"):
        read_all(source, "c")


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int8()), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("files", ["ab", "ba"])
def test_a_column_that_is_null_throughout_one_file_has_the_type_of_the_others(
    tmp_path: Path, kind: pa.DataType, files: str
) -> None:
    (tmp_path / "c").mkdir()
    values = pa.array([["x"], [[1]]][pa.types.is_list(kind)]).cast(kind)
    for name, number, column in zip(files, range(2), (pa.nulls(1), values), strict=True):
        table = pa.Table.from_pylist([row(number)], schema=FINEWEB).append_column("more", column)
        pq.write_table(table, tmp_path / "c" / f"{name}.parquet")
    found = documents(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    assert {str(entry["id"]): entry["more"] for entry in found} == {
        row(0)["id"]: None,
        row(1)["id"]: values[0].as_py(),
    }


def test_two_types_of_one_extra_column_are_refused(tmp_path: Path) -> None:
    for name, kind in (("0", pa.float64()), ("1", pa.string())):
        write_parquet(tmp_path / "c" / f"{name}.parquet", [row(0)], FINEWEB.append(pa.field("score", kind)))
    with pytest.raises(InputError, match="score"):
        SOURCES.make("local", {"root": str(tmp_path)}).extra_fields("c")


def test_columns_are_mapped_widened_and_filled_as_configured(tmp_path: Path) -> None:
    table = pa.table(
        {
            "content": pa.array(["one text"]).dictionary_encode(),
            "key": pa.array(["k"], pa.large_string()),
            "language_score": pa.array([0.5], pa.float32()),
            "token_count": pa.array([7], pa.int16()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    options = {
        "root": str(tmp_path),
        "crawl": "c",
        "columns": {"text": "content", "id": "key"},
        "optional_columns": ["date", "dump", "url", "file_path", "language"],
    }
    (entry,) = documents(SOURCES.make("local", options), "c")
    assert entry["text"] == "one text"
    assert (entry["id"], entry["language_score"], entry["token_count"]) == ("k", 0.5, 7)
    assert entry["url"] is None
    assert "content" not in entry


@pytest.mark.parametrize("kind", ["double", "float", "dictionary"])
def test_whole_numbers_may_be_written_as_floats_in_parquet_as_pandas_does_beside_nulls(
    tmp_path: Path, kind: str
) -> None:
    counts = [17.0, None, float("nan"), 1.5, float("inf"), 2.0**53, 0.0]
    table = pa.Table.from_pylist([row(number) for number in range(7)], schema=FINEWEB)
    place = FINEWEB.get_field_index("token_count")
    column = pa.array(counts).dictionary_encode() if kind == "dictionary" else pa.array(counts).cast(kind)
    table = table.set_column(place, "token_count", column)
    (tmp_path / "c").mkdir()
    pq.write_table(table, tmp_path / "c" / "0.parquet")
    batches = read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c", batch_rows=4)
    found = [
        (place, count)
        for batch in batches
        for place, count in zip(
            batch.rows.to_pylist(), batch.documents.column("token_count").to_pylist(), strict=True
        )
    ]
    assert found == [(0, 17), (1, None), (2, None), (6, 0)]
    rejects = [reject for batch in batches for reject in batch.rejects]
    assert [(reject.row, reject.id, reject.reason) for reject in rejects] == [
        (number, row(number)["id"], "wrong_type") for number in (3, 4, 5)
    ]
    assert rejects[0].detail == "field token_count, value 1.5: int64 is needed"


@pytest.mark.parametrize("column", ["text", "id", "language", "kind"])
@pytest.mark.parametrize("rows_per_group", [1, 4, 100])
def test_a_dictionary_column_with_nulls_gives_its_values(
    tmp_path: Path, column: str, rows_per_group: int
) -> None:
    values = ["x", None, "y", "x", None, None, "z", "y", None]
    table = pa.Table.from_pylist([row(number) for number in range(9)], schema=FINEWEB)
    encoded = pa.array(values).dictionary_encode()
    if column in FINEWEB.names:
        table = table.drop_columns([column])
    table = table.append_column(column, encoded)
    (tmp_path / "a").mkdir()
    pq.write_table(table, tmp_path / "a" / "1.parquet", row_group_size=rows_per_group)
    source = SOURCES.make("local", {"root": str(tmp_path)})
    assert [entry[column] for entry in documents(source, "a")] == values


def test_json_keys_beyond_the_schema_are_kept_as_they_came(tmp_path: Path) -> None:
    lines = [json.dumps(row(0, score=1.5, meta={"a": [1, None]})), json.dumps(row(1))]
    write_lines(tmp_path / "c" / "0.jsonl", lines)
    source = SOURCES.make("local", {"root": str(tmp_path), "extra_columns": {"score": "double"}})
    first, second = documents(source, "c")
    assert (first["score"], json.loads(str(first["extra_json"]))) == (1.5, {"meta": {"a": [1, None]}})
    assert (second["score"], second["extra_json"]) == (None, None)


def test_a_number_that_json_does_not_know_is_null_among_undeclared_keys(tmp_path: Path) -> None:
    lines = ['{"id": "1", "text": "a", "x": {"y": [NaN, -Infinity, "NaN", 1.5]}, "score": NaN}']
    write_lines(tmp_path / "c" / "0.jsonl", lines)
    source = SOURCES.make("local", {"root": str(tmp_path), "extra_columns": {"score": "double"}})
    (found,) = documents(source, "c")
    assert found["extra_json"] == '{"x": {"y": [null, null, "NaN", 1.5]}}'
    assert math.isnan(float(str(found["score"])))


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf" + json.dumps(row(0)).encode()
    write_lines(tmp_path / "c" / "0.jsonl", [marked, marked])
    (batch,) = read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    assert batch.rows.to_pylist() == [0]
    assert [(reject.row, reject.reason) for reject in batch.rejects] == [(1, "malformed_json")]


@pytest.mark.parametrize(
    ("line", "reason", "told"),
    [
        ("not json", "malformed_json", "JSONDecodeError"),
        ("[1, 2]", "malformed_json", "list"),
        (b'{"text": "\xff", "id": "x"}', "malformed_json", "not UTF-8"),
        ('{"text": "t", "id": "x", "text": "u"}', "malformed_json", "key 'text' stands twice"),
        ('{"text": "t", "id": "x", "m": {"k": 1, "k": 1}}', "malformed_json", "key 'k' stands twice"),
        ('{"text": 5, "id": "x"}', "wrong_type", "field text, a number: string is needed"),
        (
            '{"text": ["Jane Roe"], "id": "x"}',
            "wrong_type",
            "field text, a list of length 1: string is needed",
        ),
        ('{"text": "t", "id": "x", "url": {"Jane": 1}}', "wrong_type", "field url, an object of length 1: "),
        (
            '{"text": "t", "id": "x", "token_count": "Jane Roe"}',
            "wrong_type",
            "token_count, a string of length 8: ",
        ),
        (
            '{"text": "t", "id": "x", "m": {"Jane Roe": 1, "Jane Roe": 2}}',
            "malformed_json",
            "key of 8 characters ",
        ),
        (
            r'{"text": "Jane \ud800", "id": "x"}',
            "undecodable_text",
            "field text, a string of length 6: it holds a lone",
        ),
        ('{"text": "t", "id": "x", "token_count": 1.5}', "wrong_type", "field token_count"),
        ('{"text": "t", "id": "x", "token_count": 9007199254740992.0}', "wrong_type", "field token_count"),
        ('{"text": "t", "id": "x", "token_count": true}', "wrong_type", "field token_count"),
        ('{"text": "t", "id": "x", "language_score": "0.9"}', "wrong_type", "field language_score"),
        (r'{"text": "\ud800", "id": "x"}', "undecodable_text", "field text"),
    ],
)
def test_a_bad_line_is_rejected_and_its_neighbours_stand(
    tmp_path: Path, line: str | bytes, reason: str, told: str
) -> None:
    write_lines(tmp_path / "c" / "0.jsonl", [json.dumps(row(0)), line, json.dumps(row(2))])
    (batch,) = read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    assert batch.rows.to_pylist() == [0, 2]
    assert batch.documents.column("id").to_pylist() == ["<urn:uuid:0>", "<urn:uuid:2>"]
    (reject,) = batch.rejects
    assert (reject.row, reject.reason) == (1, reason)
    assert told in reject.detail
    assert "Jane" not in reject.detail


def test_a_number_is_no_truth_value(tmp_path: Path) -> None:
    lines = [
        f'{{"text": "t", "id": "{place}", "flag": {flag}}}' for place, flag in enumerate(["true", 1, 0.0])
    ]
    write_lines(tmp_path / "c" / "0.jsonl", lines)
    source = SOURCES.make("local", {"root": str(tmp_path), "extra_columns": {"flag": "bool"}})
    (batch,) = read_all(source, "c")
    assert batch.documents.column("flag").to_pylist() == [True]
    assert [(reject.row, reject.reason) for reject in batch.rejects] == [(1, "wrong_type"), (2, "wrong_type")]


def test_a_whole_number_may_be_written_with_a_point(tmp_path: Path) -> None:
    """As pandas writes a column of whole numbers and nulls."""
    numbers = ["17.0", "-0.0", "9007199254740991.0", "3e2", "null", "12"]
    lines = [f'{{"text": "t", "id": "{place}", "token_count": {n}}}' for place, n in enumerate(numbers)]
    write_lines(tmp_path / "c" / "0.jsonl", lines)
    batches = read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    found = [count for batch in batches for count in batch.documents.column("token_count").to_pylist()]
    assert found == [17, 0, 2**53 - 1, 300, None, 12]
    assert not any(batch.rejects for batch in batches)


def broken(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "c" / "000_00007.parquet"
    path.parent.mkdir()
    if kind == "truncated":
        write_parquet(path, [row(number) for number in range(50)])
        path.write_bytes(path.read_bytes()[:-30])
    elif kind == "damaged page":
        write_parquet(path, [row(number) for number in range(50)])
        data = bytearray(path.read_bytes())
        data[40:400] = b"\xff" * 360
        path.write_bytes(bytes(data))
    elif kind == "missing column":
        write_parquet(path, [row(0)], pa.schema([f for f in FINEWEB if f.name != "text"]))
    elif kind == "wrong type":
        write_parquet(path, [{"text": 5}], pa.schema([pa.field("text", pa.int64()), *list(FINEWEB)[1:]]))
    elif kind == "text for parquet":
        path.write_text("hello")
    else:
        lines = b"".join(json.dumps(row(number)).encode() + b"\n" for number in range(50))
        suffix = {"cut gzip": ".jsonl.gz", "cut zstd": ".jsonl.zst"}.get(kind, ".jsonl")
        path = path.with_name("000_00007" + suffix)
        if kind == "cut gzip":
            path.write_bytes(gzip.compress(lines)[:-20])
        elif kind == "cut zstd":
            path.write_bytes(zstandard.ZstdCompressor().compress(lines)[:-5])
        elif kind.startswith("no byte"):
            path = path.with_name(path.name + kind.removeprefix("no byte "))
            path.write_bytes(b"")
        elif kind == "missing key":
            path.write_text('{"content": "x", "id": "1"}\n')
    return path


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("truncated", "not a whole Parquet file"),
        ("damaged page", "a page cannot be decoded"),
        ("missing column", "a column is missing"),
        ("wrong type", "a column has type int64 where string is needed"),
        ("text for parquet", "not a whole Parquet file"),
        ("cut gzip", "compressed stream is broken"),
        ("cut zstd", "compressed stream is broken"),
        ("no byte .gz", "the file has no byte"),
        ("no byte .zst", "the file has no byte"),
        ("missing key", "a column is missing"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, kind: str, told: str) -> None:
    path = broken(tmp_path, kind)
    source = SOURCES.make("local", {"root": str(tmp_path)})
    with pytest.raises(InputError, match=told) as caught:
        read_all(source, "c")
    assert str(path) in str(caught.value)
    assert caught.value.remedy


def test_a_compressed_file_of_no_line_holds_no_row(tmp_path: Path) -> None:
    path = tmp_path / "c" / "0.jsonl.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b""))
    assert read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c") == []


def test_every_column_of_another_type_is_told_at_once(tmp_path: Path) -> None:
    other = {"id": pa.int64(), "date": pa.timestamp("us")}
    schema = pa.schema([pa.field(field.name, other.get(field.name, field.type)) for field in FINEWEB])
    write_parquet(tmp_path / "c" / "0.parquet", [row(0, id=1, date=None)], schema)
    with pytest.raises(InputError) as caught:
        read_all(SOURCES.make("local", {"root": str(tmp_path)}), "c")
    message = str(caught.value)
    assert "type int64 where string is needed; so has date: timestamp[us] where string is needed" in message
    assert "field id" in message


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file to read \(folder "):
        SOURCES.make("local", {"root": str(tmp_path)}).crawls()
    with pytest.raises(InputError, match="no such file or directory"):
        SOURCES.make("local", {"root": str(tmp_path / "nowhere")}).crawls()
    write_parquet(tmp_path / "c" / "0.parquet", [row(0)])
    with pytest.raises(InputError, match="no such crawl; there are: c"):
        SOURCES.make("local", {"root": str(tmp_path)}).shards("d")


@pytest.mark.parametrize("closed", ["b", "b/deeper"])
def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for crawl in ("a", "b", "b/deeper", ".snapshot", "lost+found"):
        write_parquet(tmp_path / crawl / "0.parquet", [row(0)])
    refuse_listings(monkeypatch, *(tmp_path / folder for folder in (closed, ".snapshot", "lost+found")))
    source = SOURCES.make("local", {"root": str(tmp_path)})
    assert source.crawls() == ["a", "b"], (
        "a release of every crawl has it, or its documents would be lost unseen"
    )
    assert [shard.name for shard in source.shards("a")] == ["0"]
    for ask in (source.shards, source.states, source.check):
        with pytest.raises(InputError, match="folder cannot be listed: Permission denied") as caught:
            ask("b")
        assert caught.value.folder == str(tmp_path / closed)
        assert caught.value.remedy


def test_a_root_that_cannot_be_listed_is_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "a" / "0.parquet", [row(0)])
    refuse_listings(monkeypatch, tmp_path)
    with pytest.raises(InputError, match="the storage refuses: PermissionError: "):
        SOURCES.make("local", {"root": str(tmp_path)}).crawls()


def test_a_link_to_what_is_not_there_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_parquet(tmp_path / "c" / "0.parquet", [row(0)])
    (tmp_path / "mounted").symlink_to(tmp_path / "elsewhere")
    assert SOURCES.make("local", {"root": str(tmp_path)}).crawls() == ["c"]
    (told,) = caplog.messages
    assert told.startswith(f"{tmp_path / 'mounted'} is a link to what is not there, and is left out: ")


def test_names_and_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="installed"):
        SOURCES.make("nowhere")
    with pytest.raises(ConfigurationError, match="rooot"):
        SOURCES.make("local", {"rooot": "x"})
    with pytest.raises(ConfigurationError, match="not columns of FineWeb"):
        SOURCES.make("local", {"root": "x", "columns": {"content": "text"}})
    with pytest.raises(ConfigurationError, match="not among string"):
        SOURCES.make("local", {"root": "x", "extra_columns": {"a": "float"}})


def test_equal_bytes_have_equal_digests_whatever_their_path(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a" / "0.parquet", [row(0)])
    write_parquet(tmp_path / "b" / "9.parquet", [row(0)])
    write_parquet(tmp_path / "c" / "0.parquet", [row(1)])
    source = SOURCES.make("local", {"root": str(tmp_path)})
    a, b, c = (source.shards(crawl)[0].digest for crawl in "abc")
    assert a == b != c


@pytest.mark.parametrize("optional", [None, ["language"]])
def test_all_missing_columns_are_told_with_the_line_that_makes_them_null(
    tmp_path: Path, optional: list[str] | None
) -> None:
    write_parquet(
        tmp_path / "c" / "0.parquet", [row(0)], pa.schema([FINEWEB.field(n) for n in ("text", "id")])
    )
    options = {} if optional is None else {"optional_columns": optional}
    with pytest.raises(InputError) as caught:
        read_all(SOURCES.make("local", {"root": str(tmp_path), **options}), "c")
    found = re.search(r"optional_columns: \[(.*?)\]", str(caught.value))
    assert found is not None, caught.value
    pasted = {"root": str(tmp_path), "optional_columns": found[1].split(", ")}
    (batch,) = read_all(SOURCES.make("local", pasted), "c")
    assert batch.documents.column("token_count").null_count == batch.documents.num_rows == 1


class ShortenedConfig(Settings):
    at_most: int = 100
    threads: int = execution_field(1, description="How many.")


class ShortenedSource(Source):
    """A member as another package may write it: it says nothing of its settings."""

    name = "shortened"
    Config = ShortenedConfig

    def crawls(self) -> list[str]:
        return []

    def shards(self, crawl: str) -> list[Shard]:
        return []

    def extra_fields(self, crawl: str) -> list[pa.Field]:
        return []

    def read(self, crawl: str, shard: Shard, *, batch_rows: int) -> Iterator[SourceBatch]:
        yield from ()


def test_rows_of_another_packages_source_are_by_its_settings() -> None:
    source = ShortenedSource(ShortenedConfig(at_most=5, threads=2))
    assert source.result_config() == {"at_most": 5}

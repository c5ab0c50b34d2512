"""What of JSON Lines is the file's fault, and what a row's."""

import gzip
import json
from itertools import chain

import pyarrow as pa
import pytest
import zstandard

from datamask_pipeline.errors import InputError
from datamask_pipeline.sources.base import SourceBatch
from datamask_pipeline.sources.formats.jsonl import HEAD_LINES, read_jsonl

LINES = [json.dumps({"id": f"d{row}", "text": f"text {row}"}).encode() for row in range(300)]


def read(lines: list[bytes], **renamed: str) -> list[SourceBatch]:
    return list(read_jsonl(lines, "a.jsonl", renamed=renamed, declared=[], extras=[], batch_rows=7))


@pytest.mark.parametrize("place", [0, 1, 50, 299])
def test_whichever_line_lacks_its_id_it_is_a_row_like_the_others(place: int) -> None:
    lines = [*LINES]
    lines[place] = b'{"text": "without"}'
    ids = list(chain(*(batch.documents["id"].to_pylist() for batch in read(lines))))
    assert ids == [None if row == place else f"d{row}" for row in range(300)]


def test_a_file_that_calls_its_ids_otherwise_is_refused_before_any_row() -> None:
    lines = [line.replace(b'"id"', b'"uid"') for line in LINES]
    with pytest.raises(InputError, match=r"no column 'id'.*there are: uid, text"):
        read(lines)
    assert len(read(lines, id="uid")) == 43
    # What is only beyond the first lines is no sign of a key's name.
    with pytest.raises(InputError, match="no column 'id'"):
        read([*lines[:HEAD_LINES], *LINES])


def test_one_key_fills_every_column_that_is_taken_from_it() -> None:
    lines = [b'{"address": "https://a.example/1", "text": "A text."}']
    declared = [pa.field("address", pa.string())]
    (batch,) = read_jsonl(
        lines,
        "a.jsonl",
        renamed={"id": "address", "url": "address"},
        declared=declared,
        extras=declared,
        batch_rows=7,
    )
    (row,) = batch.documents.select(["id", "url", "address"]).to_pylist()
    assert set(row.values()) == {"https://a.example/1"}
    # FineWeb's own name of a column that another one is taken from, too.
    (batch,) = read([b'{"url": "https://a.example/1", "text": "A text."}'], id="url")
    assert batch.documents.select(["id", "url"]).to_pylist() == [
        {"id": "https://a.example/1", "url": "https://a.example/1"}
    ]


@pytest.mark.parametrize(
    ("compressed", "kind", "ending"),
    [
        (gzip.compress(b"\n".join(LINES)), "gzip", r"\.jsonl\.gz"),
        (zstandard.compress(b"\n".join(LINES)), "Zstandard", r"\.jsonl\.zst"),
    ],
)
def test_compressed_bytes_under_a_plain_name_are_the_files_fault(
    compressed: bytes, kind: str, ending: str
) -> None:
    with pytest.raises(InputError, match=rf"compressed by {kind}.*a\.jsonl.*ends in {ending}"):
        read(compressed.split(b"\n"))

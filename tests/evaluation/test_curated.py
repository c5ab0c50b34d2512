"""Curated documents are read from every format, each text once, and what cannot be read is told with its place."""

import csv
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.curated import (
    check_curated,
    digest_of_curated,
    read_curated,
    read_documents,
    write_documents,
)

LONG = "a word " * 40_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of documents, one in each format, in folders of their own."""
    to = tmp_path / "curated"
    (to / "b").mkdir(parents=True)
    lines = [json.dumps({"text": "One."}), "{broken", json.dumps({"text": "  "}), json.dumps({"other": 1})]
    lines += [
        json.dumps({"text": "One.", "url": "elsewhere"}),
        '{"text": "\\ud800"}',
        json.dumps({"text": "Two."}),
    ]
    (to / "a.jsonl").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.table({"n": [1, 2, 3], "text": ["Three.", None, "Two."]}), to / "b" / "a.parquet")
    with (to / "b" / "c.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["text", "n"], [LONG, 1], ["four, with a comma", 2], ["short"]])
    (to / "README.md").write_text("not a file of documents")
    return to


def test_every_row_is_a_document_or_has_a_reason(folder: Path, tmp_path: Path) -> None:
    found = read_curated(str(folder), "text")
    assert [text for _, text in found.documents] == ["One.", "Two.", "Three.", LONG, "four, with a comma"]
    for name, text in found.documents:
        assert name == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert [(file.file, file.rows) for file in found.files] == [
        ("a.jsonl", 7),
        ("b/a.parquet", 3),
        ("b/c.csv", 3),
    ]
    assert [(row.file, row.row, row.reason.split(":")[0]) for row in found.rejected] == [
        ("a.jsonl", 1, "no JSON"),
        ("a.jsonl", 2, "no text"),
        ("a.jsonl", 3, "no text"),
        ("a.jsonl", 4, "repeats an earlier row"),
        ("a.jsonl", 5, "no Unicode"),
        ("b/a.parquet", 1, "no text"),
        ("b/a.parquet", 2, "repeats an earlier row"),
        ("b/c.csv", 2, "1 cells where 2 are expected"),
    ]
    assert (found.num_read, found.num_documents, found.source) == (13, 5, "curated")
    assert found.num_read == found.num_documents + len(found.rejected)
    write_documents(found, tmp_path / "written.parquet")
    assert tuple(read_documents(tmp_path / "written.parquet")) == found.documents


def test_a_glob_takes_what_it_names_and_a_file_itself(folder: Path) -> None:
    assert read_curated(f"{folder}/**/*.parquet", "text").num_documents == 2
    assert read_curated(str(folder / "a.jsonl"), "text").num_documents == 2
    assert [file.file for file in read_curated(f"{folder}/b/*", "text").files] == ["a.parquet", "c.csv"]


def test_equal_texts_have_an_equal_digest_and_places_do_not_matter(folder: Path, tmp_path: Path) -> None:
    before, files = read_curated(str(folder), "text").digest, digest_of_curated(str(folder))
    folder.rename(tmp_path / "elsewhere")
    moved = str(tmp_path / "elsewhere")
    assert digest_of_curated(moved) == files
    (tmp_path / "elsewhere" / "a.jsonl").rename(tmp_path / "elsewhere" / "z.jsonl")
    assert digest_of_curated(moved) != files
    assert read_curated(moved, "text").digest == before
    (tmp_path / "elsewhere" / "z.jsonl").write_text('{"text": "One."}\n{"text": "Five."}\n')
    assert read_curated(moved, "text").digest != before


@pytest.mark.parametrize("refuse", [digest_of_curated, lambda given: read_curated(given, "text")])
def test_a_file_whose_name_is_no_text_is_told(folder: Path, refuse: Callable[[str], object]) -> None:
    (folder / "a.jsonl").rename(os.fsdecode(os.fsencode(folder) + b"/\xff.jsonl"))
    with pytest.raises(InputError, match=r"name of a file is not UTF-8 \(file \\udcff\.jsonl\); rename it"):
        refuse(str(folder))


@pytest.mark.parametrize("refuse", [check_curated, read_curated])
def test_what_is_not_there_is_refused_with_its_place_and_a_remedy(folder: Path, refuse: object) -> None:
    assert callable(refuse)
    for given in (f"{folder}/nothing.jsonl", f"{folder}/*.gz", f"{folder}/README.md"):
        with pytest.raises(InputError, match=r"evaluate\.curated.*give a file, a folder or a glob"):
            refuse(given, "text")
    with pytest.raises(
        InputError, match=r"there are: other, text, url \(file .*a\.jsonl, field body"
    ) as error:
        refuse(str(folder), "body")
    assert "evaluate.curated_column" in str(error.value)
    with pytest.raises(InputError, match=r"there are: n, text"):
        refuse(str(folder / "b" / "c.csv"), "body")
    (folder / "cut.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(InputError, match=r"cut\.parquet"):
        refuse(str(folder / "cut.parquet"), "text")


def test_files_without_a_document_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(InputError, match="no row is a document: the files are empty"):
        read_curated(str(tmp_path / "a.jsonl"), "text")
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(InputError, match="no row is a document: no text"):
        read_curated(str(tmp_path / "a.jsonl"), "text")


def test_another_section_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pool\.decontaminate\.curated"):
        check_curated(str(tmp_path / "none"), "text", "pool.decontaminate")

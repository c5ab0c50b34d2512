from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.reading import read_rows


def test_lines_that_are_no_object_have_a_reason(jsonl: Any, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{" question_type": "x", "q": 1}, "{broken", "[1]", {"q": 2}])
    (first, broken, listed, last) = [row for _, row in read_rows(path)]
    assert first == {"question_type": "x", "q": 1}
    assert broken.startswith("no JSON:")
    assert listed == "no JSON object"
    assert last == {"q": 2}
    assert [number for number, _ in read_rows(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"q": ' + "9" * 5_000 + "}"])
def test_a_line_that_python_will_not_read_has_a_reason(line: str, tmp_path: Path) -> None:
    """Brackets in brackets, and a number of thousands of digits."""
    (tmp_path / "a.jsonl").write_text(line + '\n{"q": 2}\n')
    (broken, last) = [row for _, row in read_rows(tmp_path / "a.jsonl")]
    assert str(broken).startswith("no JSON:")
    assert last == {"q": 2}
    (tmp_path / "a.json").write_text(f"[{line}]")
    with pytest.raises(InputError, match=r"the file cannot be read: .*a\.json"):
        list(read_rows(tmp_path / "a.json"))


def test_of_a_key_that_stands_twice_no_value_is_taken(tmp_path: Path) -> None:
    lines = ['{"q": 1, "label": 0, "label": 1}', '{"q": {"a": 1, "a": 2}}', '{"q": 1, " q": 2}', '{"q": 2}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    rows = [row for _, row in read_rows(tmp_path / "a.jsonl")]
    assert [str(row).partition("key ")[2] for row in rows[:2]] == ["'label' stands twice", "'a' stands twice"]
    assert rows[2:] == ["a key stands twice, but for blanks around it", {"q": 2}]
    (tmp_path / "a.json").write_text(f"[{lines[0]}]")
    (tmp_path / "a.csv").write_text("q,label, label,,\n1,2,3,4,5\n")
    with pytest.raises(InputError, match=r"key 'label' stands twice .*a\.json"):
        list(read_rows(tmp_path / "a.json"))
    with pytest.raises(InputError, match=r"a column stands twice .*a\.csv, field label"):
        list(read_rows(tmp_path / "a.csv"))


def test_a_file_that_holds_no_list_is_told_to_and_not_to_be_broken(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"q": 1}')
    with pytest.raises(InputError, match=r"^a \.json file must hold one list of objects"):
        list(read_rows(tmp_path / "a.json"))


@pytest.mark.parametrize("header", ["", "question,A,B,C,D,answer\n"])
def test_csv_with_and_without_header(header: str, tmp_path: Path) -> None:
    path = tmp_path / "high_school_biology_test.csv"
    path.write_text(header + '"What, ""then""?",1,2,"3\n4",5,B\nshort,row\n', encoding="utf-8")
    (row, short) = [row for _, row in read_rows(path, hendrycks=True)]
    assert row == {
        "subject": "high_school_biology",
        "question": 'What, "then"?',
        **{"A": "1", "B": "2", "C": "3\n4", "D": "5", "answer": "B"},
    }
    assert short == "2 cells where 6 are expected"


def test_the_first_line_of_another_csv_is_its_header(tmp_path: Path) -> None:
    path = tmp_path / "validation.csv"
    path.write_text("goal,sol1,sol2,label\nTo open it,push,pull,1\nshort,row\n", encoding="utf-8")
    assert [row for _, row in read_rows(path)] == [
        {"goal": "To open it", "sol1": "push", "sol2": "pull", "label": "1"},
        "2 cells where 4 are expected",
    ]


def test_parquet_rows_keep_their_types(tmp_path: Path) -> None:
    rows = [{"choices": {"text": ["a"], "label": ["1"]}, "n": 1}, {"choices": None, "n": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [row for _, row in read_rows(tmp_path / "a.parquet")] == rows


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", '{"q": 1}\n'), ("a.json", '[{"q": 1}]'), ("a.csv", "q\n1\n"), ("b.csv", '"q"\n"1"\n')],
)
def test_a_mark_of_the_byte_order_is_none_of_the_first_row(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert [(number, str(row["q"])) for number, row in read_rows(tmp_path / name)] == [(0, "1")]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.parquet", b"PAR1 cut off"), ("a.jsonl", b"\xff\xfe"), ("a.json", b'{"q": 1}'), ("b.json", b"[{")],
)
def test_a_file_that_cannot_be_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        list(read_rows(tmp_path / name))

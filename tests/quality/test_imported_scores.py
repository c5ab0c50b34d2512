"""Scores computed elsewhere: taken by id, null with a reason where there is none, refused where they do not fit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.families import SCORERS
from datamask_pipeline.quality import ScoreBatch
from datamask_pipeline.quality.imported import NOT_LISTED, ImportedScorer

NULL = "column score is null or not finite"


def write(path: Path, ids: object, scores: object, names: tuple[str, str] = ("id", "score")) -> Path:
    pq.write_table(pa.table(dict(zip(names, (ids, scores), strict=True))), path, row_group_size=2)
    return path


def scored(path: Path, ids: list[str], **options: object) -> tuple[list[float], dict[int, str]]:
    found = SCORERS.make("imported", {"file": str(path), **options}).score(ScoreBatch(pa.table({"id": ids})))
    return found.values_N.tolist(), dict(found.missing)


def test_scores_are_taken_by_id_in_the_documents_order(tmp_path: Path) -> None:
    path = write(tmp_path / "s.parquet", ["a", "b", "c", "d"], [1.5, 2.5, None, float("inf")])
    values, missing = scored(path, ["d", "b", "x", "a", "c", "b"])
    assert (values[1], values[3], values[5]) == (2.5, 1.5, 2.5)
    assert missing == {0: NULL, 2: NOT_LISTED, 4: NULL}


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)), st.lists(st.text()))
def test_any_id_finds_its_own_score(
    tmp_path_factory: pytest.TempPathFactory, scores: dict, ids: list
) -> None:
    scores["one"] = 0.0
    path = write(tmp_path_factory.mktemp("s") / "s.parquet", list(scores), list(scores.values()))
    asked = [*ids, *reversed(scores)]
    values, missing = scored(path, asked)
    assert [None if row in missing else values[row] for row in range(len(asked))] == list(
        map(scores.get, asked)
    )


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32()])
def test_any_kind_of_number_will_do(tmp_path: Path, kind: pa.DataType) -> None:
    ids = pa.array(["a", "b"]).dictionary_encode()
    path = write(tmp_path / "s.parquet", ids, pa.array([3, None]).cast(kind))
    assert scored(path, ["a", "b"])[0][0] == 3.0
    assert scored(path, ["a", "b"])[1] == {1: NULL}


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"d{number}"], [float(number)])
    assert scored(tmp_path, ["d2", "d0", "d1"]) == ([2.0, 0.0, 1.0], {})


def test_a_folder_that_is_called_like_a_file_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "scores.parquet"
    folder.mkdir()
    write(folder / "part-0.parquet", ["a"], [1.0])
    assert scored(tmp_path, ["a"]) == scored(folder, ["a"]) == ([1.0], {})


@pytest.mark.parametrize("name", ["id", "score"])
def test_a_column_that_stands_twice_is_refused(tmp_path: Path, name: str) -> None:
    table = pa.table({"id": ["a"], "score": [1.0]})
    pq.write_table(table.append_column(name, table.column(name)), tmp_path / "s.parquet")
    with pytest.raises(InputError, match=rf"a column stands twice.*s\.parquet, field {name}"):
        scored(tmp_path / "s.parquet", ["a"])


def test_scores_where_lower_is_better_are_turned_around_with_their_scale(tmp_path: Path) -> None:
    path = write(tmp_path / "s.parquet", ["a"], [4.0])
    options = {"higher_is_better": False, "scale_min": 0.0, "scale_max": 5.0}
    assert scored(path, ["a"], **options)[0] == [-4.0]
    assert SCORERS.make("imported", {"file": str(path), **options}).scale == (-5.0, 0.0)


def test_a_score_outside_of_the_scale_that_is_stated_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.parquet", ["a", "b", "c"], [4.0, -0.25, 9.0])
    assert scored(path, ["a"], scale_min=0.0, scale_max=5.0) == ([4.0], {})
    with pytest.raises(InputError, match=r"document 'b'.* 0 to no limit \(file .*s\.parquet, .*value -0\.25"):
        scored(path, ["x", "a", "b"], scale_min=0.0)


def test_its_identity_is_the_content_not_the_path(tmp_path: Path) -> None:
    def identity(path: Path, **options: object) -> dict:
        return SCORERS.make("imported", {"file": str(path), **options}).identity()

    names = ("id", "score", "other")
    table = pa.table(dict(zip(names, (["a", "b"], [1.0, 2.0], [3.0, 4.0]), strict=True)))
    for name in ("s.parquet", "moved.parquet"):
        pq.write_table(table, tmp_path / name)
    plain = identity(tmp_path / "s.parquet")
    assert identity(tmp_path / "moved.parquet") == plain
    assert plain["revision"] == f"sha256:{plain['digest']}"
    for change in (
        {"score_column": "other"},
        {"higher_is_better": False},
        {"scale_max": 1.0},
        {"model": "m"},
    ):
        assert identity(tmp_path / "s.parquet", **change) != plain
    named = identity(tmp_path / "s.parquet", revision="r1")
    assert (named["revision"], named["digest"]) == ("r1", plain["digest"])
    write(tmp_path / "s.parquet", ["a", "b"], [1.0, 2.5])
    assert identity(tmp_path / "s.parquet") != plain


def test_the_file_is_read_once_and_only_when_a_score_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datamask_pipeline.quality.imported import ImportedNumbers

    whole, reads = ImportedNumbers._fill, []

    def counting(self: ImportedNumbers, connection: object) -> object:
        reads.append(self)
        return whole(self, connection)

    monkeypatch.setattr(ImportedNumbers, "_fill", counting)
    scorer = SCORERS.make("imported", {"file": str(write(tmp_path / "s.parquet", ["a"], [1.0]))})
    assert isinstance(scorer, ImportedScorer)
    assert not reads
    for _ in range(3):
        scorer.score(ScoreBatch(pa.table({"id": ["a"]})))
    assert len(reads) == 1


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.parquet", ["a", "b"], [1.0, 2.0])
    with pytest.raises(ConfigurationError, match=r"imported\.file: is missing"):
        SCORERS.make("imported")
    with pytest.raises(InputError, match=r"no Parquet file of scores .*correct `file` of scorer imported"):
        scored(tmp_path / "none.parquet", ["a"])
    with pytest.raises(InputError, match=r"there are: id, score.*field quality"):
        scored(path, ["a"], score_column="quality")
    with pytest.raises(InputError, match=r"there are: id, score.*field key"):
        scored(path, ["a"], id_column="key")
    with pytest.raises(InputError, match="numbers are needed"):
        scored(path, ["a"], score_column="id")
    with pytest.raises(InputError, match="strings are needed"):
        scored(write(tmp_path / "n.parquet", [1, 2], [1.0, 2.0]), ["1"])
    with pytest.raises(InputError, match="have no rows"):
        scored(write(tmp_path / "e.parquet", pa.array([], pa.string()), pa.array([], pa.float64())), ["a"])
    with pytest.raises(InputError, match=r"an id is null .*row 2"):
        scored(write(tmp_path / "0.parquet", ["a", "b", None], [1.0, 2.0, 3.0]), ["a"])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a whole Parquet file"):
        scored(tmp_path / "broken.parquet", ["a"])


def test_an_id_that_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    raw = [b"a", b"b", b"c", "d\u00e9".encode("latin-1")]
    for kind in (pa.string(), pa.large_string()):
        ids = pa.array(raw, pa.large_binary() if kind == pa.large_string() else pa.binary()).view(kind)
        path = write(tmp_path / "s.parquet", ids, [1.0, 2.0, 3.0, 4.0])
        with pytest.raises(
            InputError, match=r"an id is not valid UTF-8 \(file .*s\.parquet, row 3, field id, value b'd"
        ):
            scored(path, ["a"])
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([3, 0, 1, 2]), pa.array(raw, pa.binary()).view(pa.string())
    )
    with pytest.raises(InputError, match=r"not valid UTF-8 \(file .*s\.parquet, field id"):
        scored(write(tmp_path / "s.parquet", encoded, [1.0, 2.0, 3.0, 4.0]), ["a"])


def test_columns_may_have_any_other_name(tmp_path: Path) -> None:
    """Names that queries use themselves."""
    names = ("file_row_number", "row")
    path = write(tmp_path / "s.parquet", ["a", "b"], [1.0, 2.0], names)
    assert scored(path, ["b"], id_column="file_row_number", score_column="row") == ([2.0], {})


def test_a_repeated_id_is_named_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "one.parquet", ["a", "b", "c", "b"], [1.0, 2.0, 3.0, 2.0])
    with pytest.raises(InputError, match=r"stands twice \(file .*one.parquet, row 3, field id, value 'b'\)"):
        scored(path, ["a"])
    folder = tmp_path / "two"
    folder.mkdir()
    write(folder / "0.parquet", ["a", "b", "c"], [1.0, 2.0, 3.0])
    write(folder / "1.parquet", ["d", "e", "f", "a"], [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(InputError, match=r"1\.parquet, row 3, field id, value 'a'"):
        scored(folder, ["b"])

"""A subset made with planted faults, in the columns of published ones: each fault is found, and counts are exact."""

import errno
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources.hub_server import COMMIT, HubServer
from typer.testing import CliRunner

from datamask_pipeline.audit import external
from datamask_pipeline.audit.external import ExternalOptions, audit_external
from datamask_pipeline.audit.external_lines import report_lines
from datamask_pipeline.audit.external_out import check_out
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError, StorageError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.sources.subset_rows import Batch, find_files, write_rows
from datamask_pipeline.storage import Ref, Store, require

RELEASE, ARM = "first", "datamask"
FINEWEB = "text id dump url date file_path language language_score token_count".split()
ALTERED, ELSEWHERE, RENAMED, REPEATED, HASTY = 4, 3, 5, 2, 6


@pytest.fixture(scope="module")
def documents(tiny_run: Pipeline) -> list[dict[str, Any]]:
    """Documents of both crawls, one of each content."""
    rows = [
        row
        for crawl in tiny_run.store.keys("ingest")
        for row in tiny_run.store.read_table(require(tiny_run.store, "ingest", crawl)).to_pylist()
    ]
    return list({row["content_hash"]: row for row in reversed(rows)}.values())[::-1]


@pytest.fixture(scope="module")
def planted(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sixty rows: some altered, renamed, from elsewhere, repeated, or with white space of their own."""
    rows = [{name: row[name] for name in FINEWEB} for row in documents[:58]]
    for row in rows[:ALTERED]:
        row["text"] += " One more sentence."
    for row in rows[ALTERED : ALTERED + RENAMED]:
        row["id"] = f"their-own-{row['id']}"
    for number, row in enumerate(rows[10 : 10 + ELSEWHERE]):
        row |= {"id": f"nobody-{number}\x1b[31m", "text": f"A text that no crawl has, number {number}."}
    for row in rows[20 : 20 + HASTY]:
        row["text"] = row["text"].replace(" ", "\n")
    return [*rows, *rows[30 : 30 + REPEATED]]


def as_parquet(folder: Path, rows: list[dict[str, Any]], card: str = "") -> Path:
    """Two files and a card."""
    (folder / "data").mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        pq.write_table(pa.Table.from_pylist(part), folder / "data" / f"train-{number:05d}.parquet")
    (folder / "README.md").write_text(card)
    return folder


def audit(tiny_run: Pipeline, target: Path | str, against: str = RELEASE, **options: Any) -> dict[str, Any]:
    report = audit_external(tiny_run.store, str(target), against, ExternalOptions(**options), lambda *_: None)
    found = report["found_by_id"] + report["found_by_content"]
    assert report["rows"] == found + report["not_found"] + report["unreadable"]
    if "pool" in report:
        assert report["pool"]["rows"] + sum(report["pool"]["rows_not_eligible"].values()) == found
    assert report["not_found"] == sum(report["why_not_found"].values())
    assert json.loads(json.dumps(report)) == report
    return report


EXPECTED = {
    "rows": 60,
    "found_by_id": 60 - RENAMED - ELSEWHERE,
    "found_by_content": RENAMED,
    "not_found": ELSEWHERE,
    "unreadable": 0,
    "why_not_found": {"in no document": ELSEWHERE},
    "altered": ALTERED,
    "found_by_id_without_text": 0,
}


def counts(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in EXPECTED}


def test_every_planted_fault_is_found_in_the_columns_of_fineweb_edu(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = [row | {"score": 2.7, "int_score": 3} for row in planted]
    card = f"---\nlicense: apache-2.0\n---\nTaken at {COMMIT}."
    folder = as_parquet(tmp_path / "edu", rows, card)
    report = audit(tiny_run, folder, source_licence="odc-by")
    assert counts(report) == EXPECTED
    assert report["files"] == 2
    within = report["within"]
    assert (within["ids"], within["repeated_ids"]) == (60, REPEATED)
    assert (within["texts"], within["exact_copies"]) == (60, REPEATED)
    assert within["near_duplicates"]["texts"] == 58
    assert report["licence"] == {
        "card": ["apache-2.0"],
        "rows": {},
        "source": "odc-by",
        "findings": ["what is under odc-by may not be released under apache-2.0"],
    }
    assert report["revision"] == {"of_subset": None, "of_source": [COMMIT], "findings": []}
    examples = report["examples"]
    assert [place["row"] for place in examples["altered"]] == list(range(ALTERED))
    assert {place["id"] for place in examples["not_found"]} == {
        f"nobody-{n}\x1b[31m" for n in range(ELSEWHERE)
    }
    assert [(place["file"], place["row"]) for place in examples["repeated_ids"]] == [
        ("data/train-00001.parquet", 28),
        ("data/train-00001.parquet", 29),
    ]
    assert examples["exact_copies"] == examples["repeated_ids"]


def test_near_duplicates_are_sought_up_to_so_many_texts_unless_asked_for(
    tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"word{number}" for number in range(300)]
    texts = [" ".join(words), " ".join(["header", *words]), " ".join(words), " ".join(reversed(words))]
    folder = as_parquet(tmp_path / "near", [{"text": text} for text in texts])
    report = audit(tiny_run, folder)
    assert report["within"]["exact_copies"] == 1
    assert report["within"]["near_duplicates"] == {"texts": 3, "near_duplicates": 1, "jaccard": 0.75}
    assert report["revision"]["findings"] == ["the card names no revision of what it was taken from"]
    monkeypatch.setattr(external, "MINHASH_TEXTS", 2)
    assert "near_duplicates" not in audit(tiny_run, folder)["within"]
    assert audit(tiny_run, folder, minhash=True)["within"]["near_duplicates"]["near_duplicates"] == 1


def test_scores_pool_and_objective_are_those_of_the_record(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    report = audit(tiny_run, as_parquet(tmp_path / "set", planted), arm=ARM)
    store = tiny_run.store
    pool = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    scores = {
        (crawl, row["id"]): row["score"]
        for crawl in store.keys("score")
        for row in store.read_table(require(store, "score", crawl)).to_pylist()
    }
    contents = {row["content_hash"]: row for row in reversed(pool)}
    by_id = {row["id"]: row for row in pool}
    found = [by_id.get(row["id"].removeprefix("their-own-")) for row in planted if "nobody" not in row["id"]]
    distinct = {(row["crawl"], row["id"]) for row in found}
    (scorer,) = report["scores"]
    assert scorer["documents"] == len(distinct) == 58 - ELSEWHERE
    assert scorer["mean"] == pytest.approx(sum(scores[key] for key in distinct) / len(distinct))
    assert scorer["mean_of_all"] == pytest.approx(sum(scores.values()) / len(scores))
    eligible = {row["position"] for row in pool if row["eligible"]}
    standing = {contents[row["content_hash"]]["position"] for row in found} & eligible
    assert report["pool"]["eligible_documents"] == len(standing)
    objective = report["objective"]
    masks = objective["masks"]
    assert objective["documents"] == len(standing)
    assert objective["learnt"]
    assert objective["bound"] >= masks["ours"]["value"] > masks["external"]["value"]
    assert masks["ours"]["value"] > masks["quality_topk"]["value"]
    assert objective["random_mean"] == pytest.approx(0, abs=1e-7)
    assert masks["random"]["value"] != 0, "it is that of the very mask whose copies are counted"
    assert abs(masks["random"]["value"]) < masks["ours"]["value"] / 2
    for mask in masks.values():
        assert mask["gap"] == pytest.approx((objective["bound"] - mask["value"]) / objective["bound"])
    assert masks["quality_topk"]["quality_rank"] == max(mask["quality_rank"] for mask in masks.values())


def test_our_own_subset_reaches_what_the_record_certifies(tiny_run: Pipeline) -> None:
    """Nothing is learnt: the subset has as many documents as the arm."""
    store = tiny_run.store
    subset = require(store, "materialise", f"{RELEASE}/{ARM}")
    report = audit(tiny_run, f"{store.root}/{subset.location}", arm=ARM)
    assert counts(report) == dict.fromkeys(EXPECTED, 0) | {
        "rows": subset.rows,
        "found_by_id": subset.rows,
        "why_not_found": {},
    }
    chosen = store.manifest(require(store, "select", f"{RELEASE}/{ARM}"))["metadata"]
    objective = report["objective"]
    assert not objective["learnt"]
    assert objective["bound"] == chosen["blocks"][0]["certificate"]["bound"]
    assert objective["masks"]["external"] == objective["masks"]["ours"]
    assert objective["masks"]["ours"]["value"] == pytest.approx(chosen["objective"], abs=1e-6)
    assert objective["masks"]["ours"]["gap"] == pytest.approx(
        chosen["blocks"][0]["certificate"]["gap"], abs=1e-6
    )
    measured = store.manifest(require(store, "redundancy", f"{RELEASE}/{ARM}"))["metadata"]
    for name in ("near_copies", "quality_rank", "coverage"):
        assert objective["masks"]["ours"][name] == measured[name]


def test_a_bound_of_masks_that_hold_an_earlier_release_is_not_one_of_all(
    tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subset has as many documents as the arm, whose certificate is of what it adds to what it holds."""
    store, plain = tiny_run.store, Store.manifest

    def going_on(self: Store, ref: Ref) -> dict[str, Any]:
        manifest = plain(self, ref)
        given = {"given": {"release": "zeroth", "held": 5}} if ref.stage == "select" else {}
        return {**manifest, "metadata": {**manifest["metadata"], **given}}

    monkeypatch.setattr(Store, "manifest", going_on)
    subset = require(store, "materialise", f"{RELEASE}/{ARM}")
    objective = audit(tiny_run, f"{store.root}/{subset.location}", arm=ARM)["objective"]
    assert objective["learnt"]


def test_columns_of_ultra_fineweb_have_no_ids(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = [{"content": row["text"], "score": 0.9, "source": "fineweb"} for row in planted]
    report = audit(tiny_run, as_parquet(tmp_path / "ultra", rows))
    assert counts(report) == EXPECTED | {
        "found_by_id": 0,
        "found_by_content": 60 - ALTERED - ELSEWHERE,
        "not_found": ALTERED + ELSEWHERE,
        "why_not_found": {"in no document": ALTERED + ELSEWHERE},
        "altered": 0,
    }
    assert report["within"]["ids"] == report["within"]["repeated_ids"] == 0
    assert report["within"]["exact_copies"] == REPEATED
    assert report["licence"]["findings"] == ["no licence is stated"]


def test_licences_of_rows_are_held_against_the_card(tiny_run: Pipeline, tmp_path: Path) -> None:
    licences = ["cc-by-nc-4.0", "ODbL", "odbl-1.0", "banana", "banana", "MIT", "cc0-1.0"]
    rows = [{"text": f"text {number}", "license": licence} for number, licence in enumerate(licences)]
    forbid = "which may not be released under apache-2.0, as the card says"
    folder = as_parquet(tmp_path / "set", rows, "---\nlicense: apache-2.0\n---\n")
    report = audit(tiny_run, folder)
    assert sorted(report["licence"]["findings"]) == [
        f"1 rows are under cc-by-nc-4.0, {forbid}",
        f"2 rows are under odbl, {forbid}",
        "2 rows state the licence 'banana', which is not known here",
    ]
    assert any("the licence of the source it was not checked" in line for line in report_lines(report))
    other = audit(tiny_run, as_parquet(tmp_path / "other", rows, "---\nlicense: other\n---\n"))
    assert other["licence"]["findings"] == ["2 rows state the licence 'banana', which is not known here"]
    told = audit(tiny_run, as_parquet(tmp_path / "mine", rows[5:], "---\nlicense: my-own\n---\n"))
    assert told["licence"]["findings"] == ["the card's licence 'my-own' is not known here"]


def test_json_lines_in_the_columns_of_fineweb_with_broken_lines_and_licences(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    lines = [
        json.dumps(row | ({"license": "cc0-1.0"} if place % 2 else {})) for place, row in enumerate(planted)
    ]
    lines += [
        "{broken",
        '{"id": 7.5, "text": "x"}',
        '{"url": "https://neither.example"}',
        '"no object"',
        '{"id": "new", "text": 5}',
    ]
    with gzip.open(tmp_path / "mask.jsonl.gz", "wt") as stream:
        stream.write("\n".join(lines) + "\n")
    report = audit(tiny_run, tmp_path / "mask.jsonl.gz")
    assert counts(report) == EXPECTED | {
        "rows": 65,
        "not_found": ELSEWHERE + 1,
        "unreadable": 4,
        "why_not_found": {"in no document": ELSEWHERE, "neither id nor text": 1},
    }
    assert [place["row"] for place in report["examples"]["unreadable"]] == [60, 61, 63, 64]
    assert report["licence"]["rows"] == {"cc0-1.0": 30}
    assert report["licence"]["findings"] == ["31 rows state no licence, where others do"]


def test_half_of_a_pair_of_code_units_makes_a_row_unreadable(tiny_run: Pipeline, tmp_path: Path) -> None:
    """It is JSON, and no text: as an id, a text or a licence."""
    half = "\\ud800"
    rows = [
        f'{{"id": "{half}"}}',
        f'{{"text": "{half}"}}',
        f'{{"id": "a", "license": "{half}"}}',
        '{"id": "b"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    report = audit(tiny_run, tmp_path / "a.jsonl")
    assert (report["rows"], report["unreadable"]) == (4, 3)


def test_a_mark_of_the_byte_order_costs_no_row(tiny_run: Pipeline, tmp_path: Path) -> None:
    """One that begins the file is none of its first row; one that begins another line is no JSON."""
    lines = ['\ufeff{"id": "a"}', '{"id": "b"}', '\ufeff{"id": "c"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = audit(tiny_run, tmp_path / "a.jsonl")
    assert (report["rows"], report["unreadable"]) == (3, 1)
    assert [place["row"] for place in report["examples"]["unreadable"]] == [2]


@pytest.mark.parametrize("name", ["a.csv", "a"])
def test_a_file_of_another_kind_is_not_taken_for_json_lines(
    tiny_run: Pipeline, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("id,text\na,b\n")
    for target in (tmp_path / name, tmp_path):
        with pytest.raises(InputError, match=r"no file (to read|of a kind).*must end in \.parquet, "):
            audit(tiny_run, target)


@pytest.mark.parametrize("stated", ["updated: 2024-02-30", "license: mit\nlicense: odc-by"])
def test_a_card_whose_yaml_says_nothing_is_told_and_the_rows_are_read(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path, stated: str
) -> None:
    folder = as_parquet(tmp_path / "set", planted, f"---\n{stated}\n---\n")
    assert "unreadable" in find_files(str(folder), None).card
    assert counts(audit(tiny_run, folder)) == EXPECTED


def test_without_a_text_rows_are_found_by_id_alone(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = [{"warc": row["id"], "url": row["url"]} for row in planted]
    folder = as_parquet(tmp_path / "ids", rows)
    report = audit(tiny_run, folder, columns={"id": "warc"})
    assert counts(report) == EXPECTED | {
        "found_by_content": 0,
        "not_found": RENAMED + ELSEWHERE,
        "why_not_found": {"in no document": RENAMED + ELSEWHERE},
        "altered": 0,
        "found_by_id_without_text": 60 - RENAMED - ELSEWHERE,
    }
    with pytest.raises(
        InputError, match=r"none of 60 rows has an id or a text .*--id-column or --text-column"
    ):
        audit(tiny_run, folder)
    with pytest.raises(InputError, match=r"no column 'wrac'.*did you mean 'warc'"):
        audit(tiny_run, folder, columns={"id": "wrac"})


def test_against_a_crawl_and_against_a_folder(
    tiny_run: Pipeline, tiny_config_file: Path, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = as_parquet(tmp_path / "set", planted)
    of_folder = audit(tiny_run, folder, str(tiny_config_file.parent / "crawls"))
    assert counts(of_folder) == EXPECTED
    assert "scores" not in of_folder
    assert "pool" not in of_folder
    crawl = planted[-1]["dump"]
    of_crawl = audit(tiny_run, folder, crawl)
    inside = [row for row in planted if row["dump"] == crawl]
    nobody = sum("nobody" in row["id"] for row in inside)
    assert of_crawl["crawls"] == {crawl: of_crawl["rows"] - of_crawl["not_found"]}
    assert of_crawl["rows"] - of_crawl["not_found"] >= len(inside) - nobody
    assert [scorer["scorer"] for scorer in of_crawl["scores"]] == ["rules"]
    with pytest.raises(ConfigurationError, match="--arm compares within a release"):
        audit(tiny_run, folder, crawl, arm=ARM)
    with pytest.raises(UnknownNameError, match="did you mean 'first'"):
        audit(tiny_run, folder, "frist")
    with pytest.raises(UnknownNameError, match=r"--arm.*did you mean 'datamask'"):
        audit(tiny_run, tmp_path / "absent", arm="datamsk")


def test_the_command_prints_the_report_and_nothing_steers_the_terminal(
    tiny_run: Pipeline, tiny_config_file: Path, planted: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = as_parquet(tmp_path / "set", planted, "---\nlicense: [odc-by]\n---\n")
    command = ["audit", "external", str(folder), "--against", RELEASE, "-c", str(tiny_config_file)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.exception
    assert "\x1b" not in shown.output
    assert "found by id                        52" in shown.output
    assert "licence: odc-by" in shown.output
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert counts(told) == EXPECTED


def test_a_file_of_all_rows_is_refused_before_anything_is_read_where_none_can_be(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"rows\.jsonl.*check `--out` and who may write there"):
        check_out(tmp_path / "nowhere" / "rows.jsonl")
    check_out(tmp_path / "rows.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_what_was_found_of_every_row_is_written(
    tiny_run: Pipeline, planted: list[dict[str, Any]], tmp_path: Path, suffix: str
) -> None:
    out, others = tmp_path / f"rows{suffix}", tmp_path / f".rows{suffix}.part"
    others.write_text("half of another process's")
    folder = as_parquet(tmp_path / "set", planted)
    report = audit(tiny_run, folder, out=out)
    rows = (
        pq.read_table(out).to_pylist()
        if suffix == ".parquet"
        else [json.loads(line) for line in out.read_text().splitlines()]
    )
    assert [(row["file"], row["row"]) for row in rows] == [
        (f"data/train-{number:05d}.parquet", row) for number in range(2) for row in range(30)
    ]
    assert [row["id"] for row in rows] == [row["id"] for row in planted]
    for name, value in (("found_by_id", "id"), ("found_by_content", "content"), ("not_found", None)):
        assert sum(row["found_by"] == value for row in rows) == report[name] > 0
    assert [row["id"] for row in rows if row["why_not_found"]] == [
        row["id"] for row in planted if "nobody" in row["id"]
    ]
    assert sum(row["altered"] for row in rows) == ALTERED
    assert [number for number, row in enumerate(rows) if row["exact_copy"] and row["repeated_id"]] == [58, 59]
    renamed = rows[ALTERED]
    assert renamed["id"] == f"their-own-{renamed['document_id']}"
    assert list(tmp_path.glob(".rows*")) == [others]
    assert others.read_text() == "half of another process's"
    with pytest.raises(ConfigurationError, match=r"must end in .parquet or .jsonl"):
        audit(tiny_run, folder, out=tmp_path / "rows.csv")
    with pytest.raises(StorageError, match=r"rows\.jsonl"):
        audit(tiny_run, folder, out=tmp_path / "nowhere" / "rows.jsonl")


def test_a_row_of_which_a_value_is_no_text_is_unreadable_and_not_found(
    tiny_run: Pipeline, documents: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Its id is one of ours, and the text could not be compared."""
    texts = pa.array([b"\xff\xfe", documents[1]["text"].encode()], pa.binary())
    # A column of text whose bytes are none: as broken writers leave it.
    text = pa.Array.from_buffers(pa.string(), 2, texts.buffers())
    pq.write_table(
        pa.table({"id": [row["id"] for row in documents[:2]], "text": text}), tmp_path / "a.parquet"
    )
    report = audit(tiny_run, tmp_path / "a.parquet")
    assert (report["found_by_id"], report["not_found"], report["unreadable"]) == (1, 0, 1)
    assert report["examples"]["unreadable"] == [{"file": "a.parquet", "row": 0, "id": None}]


def test_a_column_of_numbers_is_no_text(tiny_run: Pipeline, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "text": [5, 6]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="type int64 where text is needed"):
        audit(tiny_run, tmp_path / "a.parquet")


def test_copies_are_counted_once_in_the_pool(tiny_run: Pipeline, tmp_path: Path) -> None:
    """A row that is a copy of a document that could be selected stands for that, and is not one that could not be."""
    store = tiny_run.store
    pool = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    whole = [{"id": row["id"]} for row in pool]
    report = audit(tiny_run, as_parquet(tmp_path / "set", whole))
    eligible = [row for row in pool if row["eligible"]]
    assert report["pool"]["eligible_documents"] == len(eligible)
    assert "duplicate_content" not in report["pool"]["rows_not_eligible"]
    assert {row["exclusion"] for row in pool} > {"duplicate_content"}


def test_what_cannot_be_read_is_refused(tiny_run: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no file to read"):
        audit(tiny_run, tmp_path / "empty")
    with pytest.raises(InputError, match="no such file or folder"):
        audit(tiny_run, tmp_path / "not" / "there")
    with pytest.raises(InputError, match="pinned commit"):
        audit(tiny_run, "somebody/subset")
    whole = as_parquet(tmp_path / "cut", [{"id": str(n), "text": "x" * 500} for n in range(99)])
    part = whole / "data" / "train-00000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        audit(tiny_run, whole)
    with gzip.open(tmp_path / "cut.jsonl.gz", "wt") as stream:
        stream.write('{"id": "a", "text": "b"}\n' * 500)
    (tmp_path / "cut.jsonl.gz").write_bytes((tmp_path / "cut.jsonl.gz").read_bytes()[:-12])
    with pytest.raises(InputError, match="compressed stream is broken"):
        audit(tiny_run, tmp_path / "cut.jsonl.gz")
    pq.write_table(pa.table({"id": ["a"], "text": [["a", "list"]]}), tmp_path / "lists.parquet")
    with pytest.raises(InputError, match=r"has type list.*where text is needed"):
        audit(tiny_run, tmp_path / "lists.parquet")


def test_where_there_is_no_room_it_says_so(tmp_path: Path) -> None:
    def full() -> Iterator[Batch]:
        yield Batch(file=0, first=0, ids=["a"], texts=[b"text"], licences=[None], readable=[True])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="free disk space"):
        write_rows(full(), tmp_path / "rows.parquet", lambda _: None)


@pytest.fixture
def hub(
    planted: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = as_parquet(tmp_path / "made", planted, "---\nlicense: mit\n---\n")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    server = HubServer("somebody/subset", files)
    yield server
    server.close()


def test_a_data_set_of_the_hub_is_read_at_its_commit(tiny_run: Pipeline, hub: HubServer) -> None:
    report = audit(tiny_run, "somebody/subset", revision=COMMIT, endpoint=hub.endpoint)
    assert counts(report) == EXPECTED
    assert report["licence"]["card"] == ["mit"]
    assert report["revision"]["of_subset"] == COMMIT

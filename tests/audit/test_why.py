"""Every document of every arm has a story, and the story is what the record holds."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Ref, Store, require

RELEASE = "first"


def test_every_selected_document_resolves_to_its_rows(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    for arm in tiny_run.config.arms:
        key = f"{RELEASE}/{arm}"
        subset = store.read_table(require(store, "materialise", key)).to_pylist()
        rows = store.read_table(require(store, "select", key)).to_pylist()
        selected = {row["id"]: row for row in rows if row["selected"]}
        assert {row["id"] for row in subset} == set(selected)
        for document in subset[::5]:
            story = document_story(store, document["id"])
            (verdict,) = [item for item in story["releases"][0]["arms"] if item["arm"] == arm]
            assert verdict["selected"]
            for column in ("logit", "probability", "quality", "quality_marginal", "threshold", "reason"):
                assert verdict["selection"][column] == selected[document["id"]][column]
            place = verdict["subset"]
            with store.open_parquet(f"{store.root}/{place['artefact']}/{place['part']}") as part:
                assert part.read(["id"]).column(0)[place["row"]].as_py() == document["id"]
            (model,) = verdict["models"]
            assert model["run"] == f"{arm}.dense.seed0"
            assert len({result["task"] for result in model["results"]}) == 12
            (copy,) = story["copies"]
            assert {score["scorer"]: score["score"] for score in copy["scores"]} == {
                "rules": document["score_rules"]
            }


def test_a_document_left_out_says_why(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    for exclusion in ("duplicate_content", "validation"):
        row = next(row for row in candidates if row["exclusion"] == exclusion)
        story = document_story(store, row["id"])
        assert story["releases"][0]["candidate"]["exclusion"] == exclusion
        assert all(arm["selection"] is None and not arm["selected"] for arm in story["releases"][0]["arms"])
        assert f"not eligible: {exclusion}" in "\n".join(story_lines(story))


def test_a_rejected_row_has_a_story(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    rejected = [
        row
        for crawl in store.keys("rejected")
        for row in store.read_table(require(store, "rejected", crawl)).to_pylist()
    ]
    assert rejected
    story = document_story(store, rejected[0]["id"])
    assert story["copies"] == []
    assert rejected[0]["reason"] in "\n".join(story_lines(story))


def test_the_story_is_json(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    row = store.read_table(require(store, "pool", RELEASE)).to_pylist()[0]
    story = document_story(store, row["id"], with_text=True)
    assert json.loads(json.dumps(story, allow_nan=False)) == story
    assert story["copies"][0]["text"]


def test_an_unknown_id_is_an_error(tiny_run: Pipeline) -> None:
    with pytest.raises(UnknownDocumentError, match="no document 'nobody'"):
        document_story(tiny_run.store, "nobody")


def test_a_model_of_other_documents_is_not_claimed(
    tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tiny_run.store
    real = store.manifest

    def manifest(ref: Ref) -> dict[str, Any]:
        found = real(ref)
        if ref.stage == "materialise":
            found["metadata"]["documents_digest"] = "of other documents"
        return found

    monkeypatch.setattr(store, "manifest", manifest)
    subset = store.read_table(require(store, "materialise", f"{RELEASE}/datamask")).to_pylist()
    story = document_story(store, subset[0]["id"])
    assert all(arm["models"] == [] for arm in story["releases"][0]["arms"])


def lines_of(store: Store, document_id: str) -> list[str]:
    return [line.strip() for line in story_lines(document_story(store, document_id))]


@pytest.fixture
def copied(tiny_run: Pipeline, tmp_path: Path) -> Pipeline:
    """The tiny record, to be changed, under another lambda."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.9}
    return Pipeline(load_config(str(Path(tiny_run.store.root).parent / "tiny.yaml"), settings))


def test_a_document_without_a_score_says_so(copied: Pipeline) -> None:
    store = copied.store
    row = store.read_table(require(store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    (path, *_) = store.part_paths(require(store, "score", row["crawl"]))
    rows = [
        score | ({"score": None, "reason": "too long"} if score["id"] == row["id"] else {})
        for score in pq.read_table(path).to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    for stage, names in (("gather", ["first"]), ("select", ["first", "datamask"])):
        location = store.manifest(require(store, stage, "/".join(names)))["location"]
        shutil.rmtree(f"{store.root}/{location}")
        copied.run(stage, *names)
    lines = lines_of(store, row["id"])
    assert "no score by rules: too long" in lines
    assert "was not among the eligible documents" not in lines


def test_a_copy_tells_of_its_representative_in_each_arm(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    told = set()
    for row in (row for row in candidates if row["exclusion"] == "duplicate_content"):
        lines = lines_of(store, row["id"])
        for arm in tiny_run.config.arms:
            rows = store.read_table(require(store, "select", f"{RELEASE}/{arm}")).to_pylist()
            selected = {(item["crawl"], item["id"]) for item in rows if item["selected"]}
            of = row["representative_crawl"], row["representative_id"]
            place = "IN" if of in selected else "out"
            told.add(place)
            assert f"its representative {of[1]} of {of[0]} is {place}" in lines
    assert told == {"IN", "out"}


def test_a_mask_without_its_subset_says_so(copied: Pipeline) -> None:
    row = copied.store.read_table(require(copied.store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    older = "the subset in the record is older than this mask: run stage materialise"
    assert older not in lines_of(copied.store, row["id"])
    copied.run("select", "first", "datamask")
    assert lines_of(copied.store, row["id"]).count(older) == 1
    copied.run("materialise", "first", "datamask")
    assert older not in lines_of(copied.store, row["id"])


def test_the_story_says_how_the_score_became_the_quality(tiny_run: Pipeline) -> None:
    row = tiny_run.store.read_table(require(tiny_run.store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    (line, *_) = (line for line in lines_of(tiny_run.store, row["id"]) if line.startswith("quality is"))
    assert line.startswith(
        "quality is the rank among the release's eligible documents, 0 lowest to 1 highest, of rules "
    )
    assert line.endswith("(weight 1)")


def test_settings_that_are_not_the_records_are_told(tiny_run: Pipeline) -> None:
    file, store = Path(tiny_run.store.root).parent / "tiny.yaml", tiny_run.store
    row = store.read_table(require(store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    for command in (["report"], ["report", "--json"], ["audit", "why", row["id"]]):
        for given, told in ((["-s", "select.lamb=0.25"], True), ([], False)):
            result = CliRunner().invoke(app, [*command, "-c", str(file), *given])
            assert result.exit_code == 0, result.exception
            assert ("select.lamb: record 0.5, configuration 0.25" in result.stderr) == told, command
            assert ("not as configured" in result.stderr) == told

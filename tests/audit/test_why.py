"""Every document of every arm has a story, and the story is what the record holds."""

import json
from typing import Any

import pytest

from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref, require

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

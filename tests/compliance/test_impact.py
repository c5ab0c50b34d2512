"""What rests on a thing is what was made from it, superseded versions too, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.impact import impact
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.ref import ref_of

CRAWL = "tiny-2024-10"


def artefacts(found: dict[str, Any], name: str, *states: str) -> set[str]:
    return {each["artefact"] for each in found[name] if not states or each["state"] in states}


def subset_rows(store: Store, location: str) -> list[dict[str, Any]]:
    return store.read_table(ref_of(store.manifest_at(location))).to_pylist()


def test_everything_rests_on_a_crawl_and_superseded_versions_are_told_apart(
    withdrawn: Pipeline, tiny_run: Pipeline
) -> None:
    found, store = impact(withdrawn.store, CRAWL), withdrawn.store
    assert found["kind"] == "crawl"
    for name, stage in (("selections", "select"), ("subsets", "materialise")):
        keys = store.keys(stage)
        assert artefacts(found, name, "current") == {require(store, stage, key).location for key in keys}
        assert artefacts(found, name, "superseded") == {
            require(tiny_run.store, stage, key).location for key in keys
        }
    assert {each["state"] for name in ("models", "results", "reports") for each in found[name]} == {"stale"}
    model = store.manifest(require(store, "pretrain", found["models"][0]["key"]))
    assert found["models"][0]["bits_per_byte"] == model["metadata"]["bits_per_byte"]
    assert found["results"][0]["headline"]
    assert all("documents_held" not in each for each in found["subsets"])


def test_a_withdrawn_document_was_held_before_and_by_its_models(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    for manifest in store.all_manifests("materialise"):
        rows = subset_rows(store, manifest["location"])
        gone = [row["id"] for row in rows if "//site1.example/" in row["url"]]
        if gone:
            found = impact(store, gone[0])
            break
    assert found["kind"] == "document"
    assert manifest["location"] in artefacts(found, "subsets")
    assert {each["documents_held"] for each in found["subsets"]} == {1}
    assert artefacts(found, "subsets", "current") == set()
    arms = {each["key"] for each in found["subsets"]}
    assert {each["key"] for each in found["selections"]} == arms
    assert {each["key"].partition(".")[0] for each in found["models"]} == arms
    assert len(found["results"]) == len(found["models"]) == len(arms)
    assert len(found["reports"]) == 1


def test_a_copy_is_found_by_the_text_that_stands_for_it(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    candidates = store.read_table(require(store, "pool", "first")).to_pylist()
    copies = [row for row in candidates if row["exclusion"] == "duplicate_content"]
    assert copies
    for copy in copies:
        found = impact(store, copy["id"])
        held = {each["artefact"] for each in found["subsets"]}
        for manifest in store.all_manifests("materialise"):
            ids = {row["id"] for row in subset_rows(store, manifest["location"])}
            assert (manifest["location"] in held) == (copy["representative_id"] in ids)
            assert copy["id"] not in ids


def test_a_domain_counts_its_documents_and_those_of_its_subdomains(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    found = impact(store, "site2.example")
    assert found["kind"] == "domain"
    for each in found["subsets"]:
        rows = subset_rows(store, each["artefact"])
        assert each["documents_held"] == sum("//site2.example/" in row["url"] for row in rows)
    above = impact(store, "example", "domain")
    assert {each["artefact"]: each["documents_held"] for each in above["subsets"]} == {
        each["artefact"]: each["documents"] for each in above["subsets"]
    }


def test_a_selection_rests_on_a_scorer_only_by_its_weight(copied: Pipeline) -> None:
    store = copied.store
    ref = require(store, "select", "first/datamask")
    before = impact(store, "rules")
    assert before["kind"] == "scorer"
    assert ref.location in artefacts(before, "selections")
    subset = require(store, "materialise", "first/datamask").location
    assert subset in artefacts(before, "subsets")
    path = Path(store.root) / ref.location / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["basis"]["config"]["scorers"] = {"rules": 0.0, "other": 1.0}
    path.write_text(json.dumps(manifest))
    after = impact(store, "rules")
    assert artefacts(before, "selections") - artefacts(after, "selections") == {ref.location}
    assert artefacts(before, "subsets") - artefacts(after, "subsets") == {subset}


def test_a_revision_is_one_of_a_scorer_or_of_the_embedding(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    scored = store.manifest(require(store, "score", CRAWL))["metadata"]["scorers"]["rules"]["revision"]
    embedded = store.manifest(require(store, "embed", CRAWL))["metadata"]["revision"]
    for revision in (scored, embedded, embedded[:16]):
        found = impact(store, revision)
        assert found["kind"] == "revision"
        assert len(found["selections"]) == 4
    with pytest.raises(UnknownNameError):
        impact(store, embedded[:3])


def test_what_the_record_does_not_know_is_refused(withdrawn: Pipeline, tmp_path: Path) -> None:
    for target, kind in (
        ("nobody", None),
        ("nobody", "document"),
        ("nothing.org", None),
        ("nobody", "crawl"),
    ):
        with pytest.raises(UnknownNameError):
            impact(withdrawn.store, target, kind)
    with pytest.raises(ConfigurationError, match="holds no crawl"):
        impact(Store(tmp_path), "nobody")


def test_the_command_prints_it(withdrawn: Pipeline) -> None:
    arguments = ["audit", "impact", "site1.example", "-s", f"store={withdrawn.store.root}"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "domain site1.example" in told.output
    assert "of them held" in told.output
    whole = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(whole.stdout) == impact(withdrawn.store, "site1.example")
    assert CliRunner().invoke(app, [*arguments, "--kind", "site"]).exit_code == 1

"""What rests on a thing is what was made from it, superseded versions too, and nothing else."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from restated import restate
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance import impact as impact_module
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.compliance.impact import impact
from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.pieces import PIECES_FILE
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.row_index import INDEX_FILES

CRAWL = "tiny-2024-10"


def artefacts(found: dict[str, Any], name: str, *states: str) -> set[str]:
    return {each["artefact"] for each in found[name] if not states or each["state"] in states}


def subset_rows(store: Store, location: str) -> list[dict[str, Any]]:
    return store.read_table(ref_of(store.manifest_at(location))).to_pylist()


def test_each_version_is_looked_at_once_however_many_rest_on_it(
    withdrawn: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, looked_at = Graph(withdrawn.store), Counter[str]()
    inputs = Graph.inputs
    monkeypatch.setattr(Graph, "inputs", lambda self, each: looked_at.update([each]) or inputs(self, each))
    monkeypatch.setattr(Store, "current", None)  # what pointers name was read when it was opened
    states = {graph.state(location) for location in graph.manifests for _ in range(2)}
    assert states == {"current", "stale", "superseded"}
    assert {*looked_at.values()} == {1}


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


def test_a_mask_of_which_no_subset_was_made_holds_what_it_chose(copied: Pipeline) -> None:
    store = copied.store
    arms = {"datamask": {**copied.config.arms["datamask"], "lamb": 0.9}}
    other = Pipeline(copied.config.model_copy(update={"arms": copied.config.arms | arms}))
    for _, _, call in other.steps("first", until="select"):
        call()
    ref = require(store, "select", "first/datamask")
    mask = store.read_table(ref).to_pylist()
    urls = {}
    for crawl in ("tiny-2024-10", "tiny-2024-18"):
        rows = store.read_table(require(store, "ingest", crawl)).to_pylist()
        urls |= {(crawl, row["id"]): row["url"] for row in rows}
    for side in (True, False):
        row = next(row for row in mask if row["selected"] is side)
        found = impact(store, row["id"])
        assert (ref.location in artefacts(found, "selections", "current")) is side
    told = {each["artefact"]: each for each in impact(store, "site2.example")["selections"]}
    number = sum("//site2.example/" in urls[row["crawl"], row["id"]] for row in mask if row["selected"])
    assert number > 0
    assert told[ref.location]["documents_held"] == number
    for (
        each
    ) in told.values():  # those of which a subset was made say how many documents it holds, and not they
        assert ("documents_held" in each) is (each["artefact"] == ref.location)


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
    restate(path, manifest)
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


def without_indexes(pipeline: Pipeline, *names: str) -> None:
    """The record as an earlier version wrote it: no such indexes, and no digests of pieces."""
    for path in Path(pipeline.store.root).rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        gone = [file for file in manifest["files"] if file["name"] in (*names, PIECES_FILE)]
        manifest["files"] = [file for file in manifest["files"] if file not in gone]
        restate(path, manifest)
        for file in gone:
            (path.parent / file["name"]).unlink()


@pytest.mark.slow
def test_indexes_answer_as_a_scan_does(copied: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copied.store
    ids = store.read_table(require(store, "ingest", CRAWL), ["id"])["id"].to_pylist()[:12]
    targets = [
        *((name, "document") for name in ids),
        ("site1.example", "domain"),
        ("example", "domain"),
        ("ample", "domain"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(impact_module, "_scan", None)  # nothing is scanned
        indexed = [impact(store, name, kind) for name, kind in targets]  # type: ignore[arg-type]
    assert any(found["subsets"] for found in indexed[:12])
    without_indexes(copied, *INDEX_FILES.values())
    assert [impact(store, name, kind) for name, kind in targets] == indexed  # type: ignore[arg-type]


def test_a_domain_spelt_otherwise_is_found_without_indexes(copied: Pipeline) -> None:
    """In its own script and by its other spellings, an address of IPv6 too, in subsets of earlier versions."""
    store = copied.store
    ref = require(store, "materialise", "first/datamask")
    path = Path(store.part_paths(ref)[0])
    table = pq.read_table(path)
    urls = [
        "https://www.b\u00fccher.example/1",
        "https://b\uff55cher.example/",
        "http://[2001:DB8:0:0::1]:8080/",
        *table["url"].to_pylist()[3:],
    ]
    pq.write_table(table.set_column(table.schema.get_field_index("url"), "url", [urls]), path)
    manifest_path = path.parent / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    del manifest["parts"][0]["sha256"]
    manifest_path.write_text(json.dumps(manifest))
    without_indexes(copied, *INDEX_FILES.values())
    for name in ("b\u00fccher.example", "xn--bcher-kva.example"):
        (found,) = impact(store, name, "domain")["subsets"]
        assert (found["artefact"], found["documents_held"]) == (ref.location, 1)
    for name in ("bucher.example", "[2001:db8::1]"):
        (found,) = impact(store, name, "domain")["subsets"]
        assert found["documents_held"] == 1


def test_altered_indexes_are_refused(copied: Pipeline) -> None:
    store = copied.store
    ref = require(store, "materialise", "first/datamask")
    path = Path(store.root) / ref.location / INDEX_FILES["url"]
    data = bytearray(path.read_bytes())
    data[8] ^= 1  # a count
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="documents_by_domain"):
        impact(store, "site1.example", "domain")

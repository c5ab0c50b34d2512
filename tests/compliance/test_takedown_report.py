"""The export says what was asked, found and done; its figures are those of the record, counted in another way."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from datamask_pipeline import duck
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.takedown import _lines, _of_near_copies
from datamask_pipeline.compliance.takedown import _near_copies_left, takedown_report
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Ref, require


def documents(pipeline: Pipeline) -> list[dict[str, str]]:
    store = pipeline.store
    return [
        row
        for crawl in store.keys("ingest")
        for row in store.read_table(require(store, "ingest", crawl)).to_pylist()
    ]


def test_each_entry_is_told_with_what_it_names_and_what_goes_with_it(withdrawn: Pipeline) -> None:
    report = takedown_report(withdrawn.store, "first")
    rows = documents(withdrawn)
    of_domain = {row["id"] for row in rows if "//site1.example/" in row["url"]}
    contents = {row["content_hash"] for row in rows if row["id"] in of_domain}
    by_entry = {entry["asked"]: entry for entry in report["entries"]}
    assert by_entry["domain:site1.example"]["named"] == len(of_domain) > 3
    assert by_entry["domain:site1.example"]["withdrawn"] == sum(
        row["content_hash"] in contents for row in rows
    )
    assert {example["id"] for example in by_entry["domain:site1.example"]["examples"]} < of_domain
    assert by_entry["<urn:uuid:tiny-2024-10-00002>"]["named"] == 1
    nobody = by_entry["nobody"]
    assert (nobody["named"], nobody["withdrawn"], nobody["done"]) == (
        0,
        0,
        "nothing: it names no document of the release",
    )
    pool = withdrawn.store.manifest(require(withdrawn.store, "pool", "first"))
    assert report["totals"] == {
        "entries": 3,
        "entries_that_name_nothing": 1,
        "robots_hosts": 0,
        "documents_named": len(of_domain) + 1,
        "documents_withdrawn": pool["counts"]["dropped_takedown"],
        "documents_purged": 0,
    }
    subset = withdrawn.store.read_table(
        require(withdrawn.store, "materialise", "first/datamask"), ["id", "url"]
    )
    assert not of_domain & {*subset.column("id").to_pylist()}


def test_the_cost_is_the_difference_of_two_selections(withdrawn: Pipeline, tiny_run: Pipeline) -> None:
    report = takedown_report(withdrawn.store, "first")
    costs = {arm["arm"]: arm for arm in report["cost"]}
    assert {name: arm["is_drawn"] for name, arm in costs.items()} == {"datamask": False, "random": True}
    assert len([line for line in _lines(report) if "was drawn anew" in line]) == 1
    for arm in ("datamask", "random"):
        key, cost = f"first/{arm}", costs[arm]
        old, new = (
            pipeline.store.manifest(require(pipeline.store, "select", key))
            for pipeline in (tiny_run, withdrawn)
        )
        assert cost["applied"]
        assert cost["before"]["selection"] == old["location"] != new["location"] == cost["after"]["selection"]
        assert cost["difference"]["documents"] == new["counts"]["kept"] - old["counts"]["kept"] < 0
        assert cost["before"]["budget"] == "ratio 0.3"
        assert cost["before"]["objective"] == cost["before"]["objective_on_the_scale_before"]
        qualities = withdrawn.store.read_table(
            require(withdrawn.store, "select", key), ["selected", "quality"]
        )
        chosen = [row["quality"] for row in qualities.to_pylist() if row["selected"]]
        assert cost["after"]["mean_quality"] == pytest.approx(sum(chosen) / len(chosen), abs=1e-9)
        tokens = withdrawn.store.read_table(require(withdrawn.store, "materialise", key), ["token_count"])
        assert cost["after"]["tokens"] == sum(tokens.column("token_count").to_pylist())
    same, block = costs["datamask"]["after"], new["metadata"]["blocks"][0]
    assert same["objective_on_the_scale_before"] != same["objective"] is not None
    assert block["normalisation"] != old["metadata"]["blocks"][0]["normalisation"]


def test_each_arm_s_budget_is_told_in_its_own_unit_and_what_it_is_of(withdrawn: Pipeline) -> None:
    report = takedown_report(withdrawn.store, "first")
    arm = report["cost"][0]
    ratio = {"selection": "select/x", "budget": "ratio 0.1", "candidates": 2000, "new_candidates": 700}
    for before, after, line in (
        (
            arm["before"] | ratio,
            arm["after"] | ratio | {"new_candidates": 650},
            "budget: ratio 0.1 of 700 new candidates before, of 650 after; num_documents would refill the same number",
        ),
        (
            arm["before"] | ratio,
            arm["after"] | ratio | {"budget": "num_tokens 150"},
            "budget: num_tokens 150 of what is added, before and after",
        ),
        (
            arm["before"],
            arm["after"] | {"budget": "num_tokens 150"},
            "budget: num_tokens 150, before and after",
        ),
    ):
        told = [*_lines(report | {"cost": [arm | {"before": before, "after": after}]})]
        assert f"    {line}" in told


@pytest.mark.slow
def test_the_cost_of_a_release_that_goes_on_is_of_what_it_adds(
    withdrawn: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Another file of its crawl and other settings are told, as what those changed is in the figures too."""
    root = shutil.copytree(withdrawn.config.source.options["root"], tmp_path / "crawls")
    first, second = sorted(withdrawn.crawls())
    settings = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(root),
        "releases": {"first": {"crawls": [first]}, "second": {"given": "first", "crawls": [second]}},
        "arms": {"random": {"policy": "random"}, "tokens": {"policy": "random", "num_tokens": 400}},
    }

    def made(takedown: list[str], **changed: object) -> Pipeline:
        changed |= {"pool.takedown": takedown}
        pipeline = Pipeline(load_config(str(tiny_config_file), settings | changed))
        for release in ("first", "second"):
            for _, _, call in pipeline.steps(release, "select"):
                call()
        return pipeline

    made([])
    shard = next((root / second).iterdir())
    lines = shard.read_text().splitlines()
    shard.write_text("\n".join([*lines, lines[0].replace(json.loads(lines[0])["id"], "later")]) + "\n")
    report = takedown_report(made(["domain:site1.example"]).store, "second")
    assert [arm["settings_changed"] for arm in report["cost"]] == [[], []]
    assert not [line for line in _lines(report) if "other settings differ" in line]
    store = made(["domain:site1.example"], **{"copies.threshold": 0.98, "pool.near_duplicates": {}}).store
    report = takedown_report(store, "second")
    costs = {arm["arm"]: arm for arm in report["cost"]}
    assert [arm["settings_changed"] for arm in costs.values()] == 2 * [
        ["copies.threshold", "pool.near_duplicates"]
    ]
    assert len([line for line in _lines(report) if "(copies.threshold, pool.near_duplicates)" in line]) == 2
    assert [arm["crawls_changed"] for arm in costs.values()] == [[second], [second]]
    mask = store.manifest(require(store, "select", "second/random"))
    index = store.read_table(require(store, "gather", "second"), ["crawl"]).column("crawl").to_pylist()
    for when in ("before", "after"):
        cost = costs["random"][when]
        kept = cost["documents"] - mask["metadata"]["given"]["held"] if when == "after" else None
        assert kept in (None, round(cost["new_candidates"] * 0.3))
        assert costs["tokens"][when]["budget"] == "num_tokens 400"
    assert costs["random"]["after"]["new_candidates"] == index.count(second)
    told = CliRunner().invoke(app, ["audit", "takedown", "second", "-s", f"store={store.root}"]).output
    assert f"read from other files between the two ({second}): the differences" in told
    old, new = (costs["random"][when]["new_candidates"] for when in ("before", "after"))
    assert f"budget: ratio 0.3 of {old} new candidates before, of {new} after; num_documents" in told
    assert "budget: num_tokens 400 of what is added, before and after" in told


def test_near_copies_that_stay_are_in_the_release_and_nobody_is_taken_for_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five that were near `gone` one is contaminated by now and one no document of the release any more."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE documents AS FROM (VALUES
            ('a', 'gone', 'takedown', 'h1'), ('a', 'copy', 'takedown', 'h1'), ('a', 'always', 'takedown', 'h2'),
            ('a', 'stays', NULL, 'h3'), ('b', 'too', NULL, 'h4'), ('b', 'held', 'validation', 'h5'),
            ('b', 'hit', 'contaminated', 'h6'), ('b', 'alone', NULL, 'h7')
        ) AS t (crawl, id, exclusion, content_hash);
        CREATE TABLE copies AS FROM (VALUES
            ('a', 'gone', NULL, NULL), ('a', 'stays', 'a', 'gone'), ('b', 'too', 'a', 'gone'), ('b', 'held', 'a', 'gone'),
            ('b', 'hit', 'a', 'gone'), ('b', 'left', 'a', 'gone'), ('b', 'alone', NULL, NULL)
        ) AS t (crawl, id, near_copy_of_crawl, near_copy_of)
    """)
    monkeypatch.setattr(duck, "parts_sql", lambda *_: "(SELECT *, 0 AS artefact_order FROM copies)")
    manifest = dict.fromkeys(Ref.__slots__, "first")
    store: Any = SimpleNamespace(all_manifests=lambda stage: [manifest] if stage == "copies" else [])
    assert _near_copies_left(connection, store, "second") is None
    near = _near_copies_left(connection, store, "first")
    assert near == {
        "documents": 3,
        "held_out": 1,
        "texts_withdrawn": 2,
        "texts_compared": 1,
        "examples": [
            {"crawl": "a", "id": "stays"},
            {"crawl": "b", "id": "held"},
            {"crawl": "b", "id": "too"},
        ],
    }
    told = _of_near_copies(near)
    assert told.startswith(" (1 of them held out for validation), as far as is known: 1 of 2 withdrawn texts")
    assert _of_near_copies({"documents": 3, "examples": []}) == ""


def test_an_arm_that_was_not_selected_again_is_not_said_to_be_without_them(
    tiny_run: Pipeline, withdrawn: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(withdrawn.config.model_copy(update={"store": str(tmp_path / "record")}))
    with pytest.raises(ConfigurationError, match="nothing was withdrawn from release 'first'"):
        takedown_report(pipeline.store, "first")
    for _, _, call in pipeline.steps("first", "pool"):
        call()
    assert [arm["applied"] for arm in takedown_report(pipeline.store, "first")["cost"]] == [False, False]


def test_a_story_names_the_entry_that_withdrew_the_document(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    rows = documents(withdrawn)
    of_domain = {row["content_hash"] for row in rows if "//site1.example/" in row["url"]}
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    gone = [row for row in pool if row["exclusion"] == "takedown"]
    assert any(row["representative_id"] != row["id"] for row in gone), (
        "a copy, which goes by another's URL, is among them"
    )
    for row in gone:
        (release,) = document_story(store, row["id"])["releases"]
        entries = (
            ["<urn:uuid:tiny-2024-10-00002>"]
            if row["content_hash"] not in of_domain
            else ["domain:site1.example"]
        )
        assert [by["entry"] for by in release["left_out_by"]] == entries
    of_it = next(row["id"] for row in gone if row["content_hash"] in of_domain)
    told = CliRunner().invoke(app, ["audit", "why", of_it, "-s", f"store={store.root}"])
    assert "    not eligible: takedown\n      by domain:site1.example\n" in told.output


def test_a_host_that_withdraws_nothing_is_not_credited(withdrawn: Pipeline) -> None:
    report = takedown_report(withdrawn.store, "first")
    snapshot = {"date": "2026-11-01", "user_agents": ["CCBot"]}
    asking = report | {"robots": snapshot, "totals": report["totals"] | {"robots_hosts": 7}}
    told = "\n".join(_lines(asking))
    number = report["totals"]["documents_withdrawn"]
    assert "robots snapshot of 2026-11-01 for CCBot: 0 of its 7 hosts withdraw" in told
    assert f"in all {number} documents by 2 of 3 entries and 0 robots.txt; 1 entries name nothing" in told


def test_the_command_prints_it_and_makes_ids_inert(withdrawn: Pipeline) -> None:
    arguments = ["audit", "takedown", "first", "-s", f"store={withdrawn.store.root}"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "nobody: names 0, withdrawn with copies 0; nothing" in told.output
    assert "num_documents would refill the same number" in told.output
    assert "crawls were added" not in told.output
    whole = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(whole.stdout) == takedown_report(withdrawn.store, "first")
    missing = CliRunner().invoke(app, ["audit", "takedown", "third", *arguments[3:]])
    assert missing.exit_code == 1

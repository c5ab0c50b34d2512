"""After a purge nothing of the record names what is gone, and the figures of what was withdrawn and trained on are kept."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compliance.conftest import TAKEDOWN, run_all_but_models
from starlette.testclient import TestClient
from typer.testing import CliRunner

from datamask_pipeline.audit.diff import compare_selections
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.selections import paired
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.impact import impact
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.compliance.takedown import takedown_report
from datamask_pipeline.compliance.training_content import training_content
from datamask_pipeline.errors import IntegrityError, UnknownNameError
from datamask_pipeline.look.browser import browser
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.stages import pool
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.ref import ref_of

CRAWLS = ("tiny-2024-10", "tiny-2024-18")


def withdrawn_rows(store: Store) -> list[dict[str, Any]]:
    """Documents that the current pool withdraws."""
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    gone = {(row["crawl"], row["id"]) for row in pool if row["exclusion"] == "takedown"}
    rows = [row for crawl in CRAWLS for row in store.read_table(require(store, "ingest", crawl)).to_pylist()]
    return [row for row in rows if (row["crawl"], row["id"]) in gone]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(key)
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def mentions(store: Store, words: list[str], standing: list[str]) -> dict[str, str]:
    """Files that hold one of these words anywhere: in the bytes, or in any column of a table, lists and structures too."""
    pattern = (
        f"(?:{'|'.join(map(re.escape, words))})(?![0-9])"  # another document's address may go on with a digit
    )
    anywhere, in_bytes = re.compile(pattern), re.compile(pattern.encode())
    found = {}
    for path in sorted(Path(store.root).rglob("*")):
        name = path.relative_to(store.root).as_posix()
        if not path.is_file() or any(name.startswith(f"{location}/") for location in standing):
            continue
        if hit := in_bytes.search(path.read_bytes()):
            found[name] = hit[0].decode(errors="replace")
        if path.suffix == ".parquet":
            text = "\n".join(strings(store.open_parquet(str(path)).read().to_pylist()))
            if hit := anywhere.search(text):
                found[name] = hit[0]
    return found


@pytest.fixture(scope="module")
def before(withdrawn: Pipeline) -> dict[str, Any]:
    """What the record said before anything was purged."""
    store = withdrawn.store
    return {
        "rows": withdrawn_rows(store),
        "report": takedown_report(store, "first"),
        "content": training_content(store, "first", "datamask"),
        "old": min(
            (each for each in store.all_manifests("materialise") if each["key"] == "first/datamask"),
            key=lambda each: each["written_at_ns"],
        ),
    }


def asking_by_everything(pipeline: Pipeline, rows: list[dict[str, Any]]) -> Pipeline:
    """The same withdrawal, asked for in every way that names a document."""
    entries = [
        f"id:{rows[0]['id']}",
        f"content:{rows[1]['content_hash']}",
        f"url:{rows[2]['url']}",
        *TAKEDOWN,
    ]
    pool = pipeline.config.pool.model_copy(update={"takedown": tuple(entries)})
    return Pipeline(pipeline.config.model_copy(update={"pool": pool}))


@pytest.fixture(scope="module")
def purged(
    tiny_run: Pipeline, withdrawn: Pipeline, before: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """Withdrawn, purged, run again and purged again; treat it as read-only."""
    root = tmp_path_factory.mktemp("purged") / "record"
    shutil.copytree(tiny_run.store.root, root)
    pipeline = Pipeline(withdrawn.config.model_copy(update={"store": str(root)}))
    pipeline = asking_by_everything(pipeline, before["rows"])
    run_all_but_models(pipeline)
    assert purge(pipeline.store, "letter 17") is not None
    run_all_but_models(pipeline)
    assert purge(pipeline.store, "letter 17, the rest") is not None
    return pipeline


def test_nothing_names_what_is_gone(purged: Pipeline, before: dict[str, Any]) -> None:
    store = purged.store
    words = [row[name] for row in before["rows"] for name in ("id", "url", "text", "content_hash")]
    standing = json.loads(Path(store.root, "purged", "000001.json").read_text())["standing"]
    assert mentions(store, sorted(set(words)), standing) == {}
    asked = store.read_table(require(store, "takedown", "first")).to_pylist()
    assert {row["kind"] for row in asked} == {
        "domain",
        "hidden",
        "hidden_url",
        "name",
    }  # the name is of nobody
    manifest = store.manifest(require(store, "pool", "first"))
    assert manifest["metadata"]["takedown_unmatched"] == ["nobody"]
    assert manifest["metadata"]["takedown_purged"] == ["domain:site1.example"]
    (line,) = pool.told(manifest)
    assert line.startswith("warning: 1 of "), "what named a purged document is nothing to warn of"
    assert "'nobody'" in line
    assert list(prove_record(store, "first", "datamask", files_only=False)) == []


@pytest.mark.parametrize("files_only", [True, False])
def test_a_proof_names_a_tombstone_that_was_edited(purged: Pipeline, files_only: bool) -> None:
    path = Path(purged.store.root, "purged", "000001.json")
    kept = path.read_text()
    path.write_text(kept.replace("letter 17", "letter 71"))
    try:
        findings = [*prove_record(purged.store, "first", "datamask", files_only=files_only)]
    finally:
        path.write_text(kept)
    assert findings[-1].file == "purged"
    assert len(findings) == (1 if files_only else 2)  # the pool is made again with it
    assert all(f"{path} says something else than was written" in each.problem for each in findings)


def test_what_was_withdrawn_is_still_counted(purged: Pipeline, before: dict[str, Any]) -> None:
    store, rows = purged.store, before["rows"]
    report = takedown_report(store, "first")
    assert report["totals"]["documents_withdrawn"] == 0
    assert report["totals"]["entries_that_name_nothing"] == 1, (
        "`nobody` alone; the others named what is purged"
    )
    assert (
        report["totals"]["documents_purged"] == len(rows) == before["report"]["totals"]["documents_withdrawn"]
    )
    (only,) = report["purged"]
    assert (only["number"], only["request"], only["documents"]) == (1, "letter 17", len(rows))
    assert only["not_in_pool"] == len(rows)
    assert only["bytes"] == sum(len(row["text"].encode()) for row in rows)
    sizes: dict[str, list[int]] = {}
    for row in rows:
        of = sizes.setdefault(row["url"].split("/")[2], [0, 0])
        of[0] += 1
        of[1] += len(row["text"].encode())
    assert only["domains"] == sizes
    done = {entry["asked"]: entry["done"] for entry in report["entries"]}
    assert "purged by request 1 (letter 17)" in done["domain:site1.example"]
    assert done["nobody"] == "nothing: it names no document of the release"
    assert {"purged by request 1 (letter 17)" in told for name, told in done.items() if "hidden" in name} == {
        True
    }
    then = {entry["asked"]: entry["withdrawn"] for entry in only["report"]["entries"]}
    assert then["domain:site1.example"] == next(
        entry["withdrawn"]
        for entry in before["report"]["entries"]
        if entry["asked"] == "domain:site1.example"
    )


def test_the_cost_is_still_told(purged: Pipeline, before: dict[str, Any]) -> None:
    cost, was = (
        next(arm for arm in of["cost"] if arm["arm"] == "datamask")
        for of in (takedown_report(purged.store, "first"), before["report"])
    )
    assert cost["before"] == was["before"]
    assert cost["difference"]["documents"] == was["difference"]["documents"]
    assert cost["difference"]["mean_quality"] == pytest.approx(was["difference"]["mean_quality"], abs=0.05)


def test_what_was_trained_on_is_still_summarised(
    purged: Pipeline, withdrawn: Pipeline, before: dict[str, Any]
) -> None:
    digits = before["old"]["fingerprint"][:12]
    was = training_content(withdrawn.store, "first", "datamask", version=digits)
    now = training_content(purged.store, "first", "datamask", version=digits)
    assert was["purged"] is None
    assert now["purged"]["request"] == "letter 17"
    for name in ("subset", "modalities", "collected", "sources", "languages", "domains"):
        assert now[name] == was[name]
    current = training_content(purged.store, "first", "datamask")
    assert current["reservations"]["documents_withdrawn"] == len(before["rows"])
    assert before["content"]["reservations"]["documents_withdrawn"] == len(before["rows"])
    (model,) = current["models"]
    assert (model["subset"], model["subset_purged"]["number"]) == (before["old"]["location"], 1)
    told = CliRunner().invoke(
        app, ["audit", "training-content", "first", "--arm", "datamask", "-s", f"store={purged.store.root}"]
    )
    assert told.exit_code == 0, told.output
    assert f"{len(before['rows'])} documents were purged by request 1 (`letter 17`)" in told.stdout
    assert f"`--version {before['old']['location'].rpartition('/')[2]}` summarises it" in told.stdout
    assert "| `site1.example` |" in told.stdout


def test_what_is_gone_is_said_to_be_purged(purged: Pipeline, before: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=r"was purged by request 1 \(letter 17\) of 20"):
        purged.store.manifest_at(before["old"]["location"])
    mask = before["old"]["inputs"]["selection"]
    ((old, new),), _ = paired(purged.store, f"first/datamask@{mask['fingerprint'][:9]}", "first/datamask")
    with pytest.raises(IntegrityError, match=r"select/.* was purged by request 1"):
        compare_selections(purged.store, old, new)


def test_between_a_purge_and_the_next_run_the_same_is_told(copied: Pipeline, before: dict[str, Any]) -> None:
    store = copied.store
    purge(store, "x")
    report = takedown_report(store, "first")
    assert report["totals"] == before["report"]["totals"]
    assert report["cost"] == before["report"]["cost"]
    assert [each["not_in_pool"] for each in report["purged"]] == [0]
    assert all(not entry["examples"] for entry in report["entries"])
    content = training_content(store, "first", "datamask")
    same = {"reservations", "models"}
    assert {name: of for name, of in content.items() if name not in same} == {
        name: of for name, of in before["content"].items() if name not in same
    }
    assert content["reservations"]["documents_withdrawn"] == len(before["rows"])


@pytest.mark.slow
def test_requests_that_were_taken_back_after_a_purge_leave_no_names(
    copied: Pipeline, tiny_run: Pipeline, before: dict[str, Any]
) -> None:
    """Nor does a later request of what is gone already write its name into the record."""
    store = copied.store
    purge(store, "x")
    asked = store.read_table(require(store, "takedown", "first")).to_pylist()
    gone = {row["id"] for row in before["rows"]}
    assert not {row["value"] for row in asked} & gone
    plain = Pipeline(tiny_run.config.model_copy(update={"store": store.root}))
    run_all_but_models(plain)
    report = takedown_report(store, "first")
    assert (report["entries"], report["cost"], len(report["purged"])) == ([], [], 1)
    assert report["purged"][0]["report"]["cost"] == before["report"]["cost"]
    again = asking_by_everything(copied, before["rows"])
    again.run("takedown", "first")
    pool = again.run("pool", "first")[0]
    assert store.manifest(pool)["counts"]["dropped_takedown"] == 0
    asked = store.read_table(require(store, "takedown", "first")).to_pylist()
    assert not {f"{row['host']}{row['value']}" for row in asked} & gone
    named = {before["rows"][0]["id"], TAKEDOWN[1]}
    assert sum(row["kind"].startswith("hidden") for row in asked) == len(named) + 2


def test_what_rested_on_a_purged_document_is_still_told(purged: Pipeline, withdrawn: Pipeline) -> None:
    store = purged.store
    was = impact(withdrawn.store, "site1.example")
    now = impact(store, "site1.example")
    assert (now["kind"], [each["number"] for each in now["purged"]]) == ("domain", [1])
    for name in ("selections", "subsets", "models"):
        assert {each["artefact"] for each in was[name]} <= {each["artefact"] for each in now[name]}
    held = {each["artefact"]: each.get("documents_held") for each in now["subsets"]}
    subset = next(each["artefact"] for each in was["subsets"] if each["documents_held"])
    rows = withdrawn.store.read_table(ref_of(withdrawn.store.manifest_at(subset))).to_pylist()
    name = next(row["id"] for row in rows if "//site1.example/" in row["url"])
    assert held[subset] == sum("//site1.example/" in row["url"] for row in rows)
    found = impact(store, name)
    assert (found["kind"], found["purged"][0]["request"]) == ("document", "letter 17")
    assert {each["artefact"]: each["state"] for each in found["subsets"]}[subset] == "purged"
    assert {each["state"] for each in found["models"]} == {"stale"}
    with pytest.raises(UnknownNameError):
        impact(store, "nobody at all")
    told = CliRunner().invoke(app, ["audit", "impact", name, "-s", f"store={store.root}"])
    assert told.exit_code == 0, told.output
    assert "purged by request 1 (letter 17)" in told.stdout
    assert "domain:site1.example" in told.stdout
    below = CliRunner().invoke(app, ["audit", "impact", "blog.site1.example", "-s", f"store={store.root}"])
    assert below.exit_code == 0, below.output
    assert re.search(
        r"purged by request 1 \(letter 17\) of 20\S+, under domain:site1.example: \d+ documents, [0-9,]+ bytes "
        "of site1.example with all its sub-domains",
        below.stdout,
    )
    pages = TestClient(browser(store, ["testserver"]))
    assert "purged by request 1 (letter 17)" in pages.get("/find", params={"id": name}).text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("settings", [[], ["--stale"]])
def test_what_a_purge_took_the_ground_of_is_not_published_and_the_remedy_is_said_once(
    copied: Pipeline, tmp_path: Path, settings: list[str]
) -> None:
    """It was called stale, once for each input, and could have been published so as little."""
    purge(copied.store, "letter 17")
    command = ["release", "first", "--arm", "datamask", "--license", "odc-by", "--source-license", "odc-by"]
    command += ["--to", str(tmp_path / "set"), "-s", f"store={copied.store.root}", *settings]
    told = str(CliRunner().invoke(app, command).exception)
    assert re.fullmatch(
        r"subset first/datamask was made from \S+, which was purged by request 1 \(letter 17\) of \S+; make it anew from "
        r"what is left \(`datamask run --until materialise`\)",
        told,
    )

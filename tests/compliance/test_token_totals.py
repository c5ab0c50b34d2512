"""One document without a token count makes no total unknown, and none leaves it out without a word."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from tiny_chain import write_tiny_config
from typer.testing import CliRunner

from datamask_pipeline.audit.funnel import funnel
from datamask_pipeline.audit.views import views
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.content import tokens_of
from datamask_pipeline.compliance.impact import impact
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.compliance.takedown import takedown_report
from datamask_pipeline.compliance.training_content import _band, training_content
from datamask_pipeline.look.page import page
from datamask_pipeline.look.selected import selected
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.storage import Store, require
from datamask_pipeline.token_totals import in_words

CRAWL, ARM = "tiny-2024-18", "first/datamask"


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """One crawl, of which every fifth document has no token count, before and after a withdrawal; treat it as read-only."""
    folder = tmp_path_factory.mktemp("tokens")
    path = write_tiny_config(folder)
    for shard in sorted((folder / "crawls").rglob("*.jsonl")):
        rows = [json.loads(line) for line in shard.read_text().splitlines()]
        for row in rows[::5]:
            del row["token_count"]
        rows += [rows[0]] * 3 + [rows[1]]  # ids that stand several times
        shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load(path.read_text())
    values["releases"] = {"first": {"crawls": [CRAWL]}}
    values["pool"] = {"validation_share": 0.1}
    del values["arms"]["random"]
    path.write_text(yaml.safe_dump(values))
    for takedown in ([], ["domain:site1.example"]):
        pipeline = Pipeline(load_config(str(path), {"pool.takedown": takedown}))
        for _, _, call in pipeline.steps("first", "materialise"):
            call()
    return pipeline


def totals(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Tokens of those that state them, and the number of others."""
    stated = [row["token_count"] for row in rows if row["token_count"] is not None]
    return sum(stated), len(rows) - len(stated)


def rows_of(store: Store, stage: str, key: str) -> list[dict[str, Any]]:
    return store.read_table(require(store, stage, key)).to_pylist()


@pytest.fixture(scope="module")
def chosen(without: Pipeline) -> tuple[int, int]:
    tokens, number = totals(rows_of(without.store, "materialise", ARM))
    assert tokens
    assert number
    return tokens, number


def told(command: list[str], store: Store) -> str:
    found = CliRunner().invoke(app, [*command, "-s", f"store={store.root}"])
    assert found.exit_code == 0, found.output
    return " ".join(found.stdout.split())


def test_the_funnel(without: Pipeline, chosen: tuple[int, int]) -> None:
    store = without.store
    (arm,) = funnel(store, "first")["arms"]
    pool = rows_of(store, "pool", "first")
    of_pool = next(level for level in arm["levels"] if level["stage"] == "pool")
    assert (of_pool["tokens_in"], of_pool["without_tokens_in"]) == totals(pool)
    for drop in of_pool["dropped"]:
        rows = [row for row in pool if row["exclusion"] == drop["rule"]]
        assert (drop["tokens"], drop["without_tokens"]) == totals(rows)
    for level in arm["levels"][-2:]:
        assert (level["tokens"], level["without_tokens"]) == chosen
    (again,) = (drop for drop in arm["levels"][0]["dropped"] if drop["rule"] == "duplicate_id")
    assert again["documents"] == 8
    assert (len(again["examples"]), len(set(again["examples"]))) == (3, 3), "each once"
    shown = told(["audit", "funnel", "first"], store)
    assert shown.count(in_words(*chosen)) == 3  # kept by select, reached materialise, kept by it
    asked = duckdb.connect()
    asked.execute(views(store))
    found = asked.execute("SELECT tokens, without_tokens FROM funnel WHERE rule IS NULL").fetchall()
    assert found == [chosen]
    sql = "SELECT rule, tokens, without_tokens, examples FROM funnel WHERE left_at = 'ingest' ORDER BY rule"
    (duplicates, empty) = asked.execute(sql).fetchall()
    assert duplicates == ("duplicate_id", None, None, again["examples"])
    assert empty[:3] == ("empty_text", None, None)


def test_takedown_and_impact(without: Pipeline, chosen: tuple[int, int]) -> None:
    store = without.store
    (cost,) = takedown_report(store, "first")["cost"]
    before = next(
        each
        for each in store.all_manifests("materialise")
        if each["fingerprint"] != require(store, "materialise", ARM).fingerprint
    )
    assert (cost["after"]["tokens"], cost["after"]["documents_without_tokens"]) == chosen
    old = tokens_of(store, before)
    assert (cost["before"]["tokens"], cost["before"]["documents_without_tokens"]) == old
    assert cost["difference"]["tokens"] == chosen[0] - old[0]
    assert f"documents without tokens: {old[1]} -> {chosen[1]}" in told(["audit", "takedown", "first"], store)
    subsets = impact(store, CRAWL)["subsets"]
    assert {(each["tokens"], each["without_tokens"]) for each in subsets} == {old, chosen}
    assert f"without tokens {chosen[1]}" in told(["audit", "impact", CRAWL], store)


def test_the_summary_of_training_content(without: Pipeline, chosen: tuple[int, int]) -> None:
    text = training_content(without.store, "first", "datamask")["modalities"]["text"]
    assert (text["tokens"], text["without_tokens"]) == chosen
    assert text["size_band"] == "less than 1 billion tokens"
    assert f"{in_words(*chosen)}, as the source counts them" in told(
        ["audit", "training-content", "first"], without.store
    )
    assert _band(10**9 - 5, 4) == "less than 1 billion tokens"
    assert _band(10**9 - 5, 5) is None, "it may be the next band"


def test_page_and_card(without: Pipeline, chosen: tuple[int, int], tmp_path: Path) -> None:
    store = without.store
    eligible = totals([row for row in rows_of(store, "pool", "first") if row["eligible"]])
    assert f"{in_words(*chosen)}, of {in_words(*eligible)}" in page(selected(store, "first", "datamask"))
    publish(
        store, "first", None, str(tmp_path / "set"), PublishConfig(licence="odc-by", source_licence="odc-by")
    )
    card = (tmp_path / "set" / "README.md").read_text()
    assert f"{chosen[0]} and {chosen[1]} of unknown length" in card
    assert f"Documents without a token count: {chosen[1]}." in card


def test_what_a_tombstone_keeps(without: Pipeline, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(without.store.root, tmp_path / "record")
    store = Store(tmp_path / "record")
    before = {each["location"]: tokens_of(store, each) for each in store.all_manifests("materialise")}
    gone = [row for row in rows_of(store, "pool", "first") if row["exclusion"] == "takedown"]
    tombstone = purge(store, "x")
    assert tombstone is not None
    kept = tombstone.totals[CRAWL]
    assert (kept["tokens"], kept["without_tokens"]) == totals(gone)
    (location,) = (each for each in tombstone.removed if each.startswith("materialise/"))
    assert tokens_of(store, tombstone.removed[location]) == before[location]

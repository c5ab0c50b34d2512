"""The funnel balances at every level, with near-copies and without, and its figures are those of plain loops."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from old_record import unpack
from restated import restate
from typer.testing import CliRunner

from datamask_pipeline.audit.funnel import funnel, funnel_lines
from datamask_pipeline.audit.selections import paired
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.look.selected import selected
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.facts import subset_of
from datamask_pipeline.storage import Store, require

RELEASE = "first"


@pytest.fixture(scope="module")
def with_near_copies(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """The tiny chain's record, selected again with near-copies collapsed."""
    root = tmp_path_factory.mktemp("near") / "record"
    shutil.copytree(tiny_run.store.root, root)
    settings = {"store": str(root), "copies.threshold": 0.9}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    for _, _, call in pipeline.steps(RELEASE, "materialise"):
        call()
    return pipeline


def check_balance(found: dict[str, Any]) -> None:
    assert found["arms"]
    for arm in found["arms"]:
        kept = {"documents": 0, "tokens": 0}
        for level in arm["levels"]:
            assert level["documents_in"] == level["documents"] + sum(d["documents"] for d in level["dropped"])
            assert all(0 < len(d["examples"]) <= min(3, d["documents"]) for d in level["dropped"])
            if level["stage"] == "ingest":
                kept = {name: kept[name] + level[name] for name in kept}
                continue
            assert level["tokens_in"] == level["tokens"] + sum(d["tokens"] for d in level["dropped"])
            assert (level["documents_in"], level["tokens_in"]) == (kept["documents"], kept["tokens"])
            kept = {name: level[name] for name in kept}


def rows(store: Store, stage: str, key: str) -> list[dict[str, Any]]:
    return store.read_table(require(store, stage, key)).to_pylist()


def dropped(level: dict[str, Any]) -> dict[str, tuple[int, int | None]]:
    return {drop["rule"]: (drop["documents"], drop["tokens"]) for drop in level["dropped"]}


def by_rule(found: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    pairs = list(found)
    number = Counter(rule for rule, _ in pairs)
    tokens: Counter[str] = Counter()
    for rule, count in pairs:
        tokens[rule] += count
    return {rule: (number[rule], tokens[rule]) for rule in number}


def test_without_near_copies(tiny_run: Pipeline) -> None:
    store, found = tiny_run.store, funnel(tiny_run.store, RELEASE)
    check_balance(found)
    assert [arm["arm"] for arm in found["arms"]] == ["datamask", "random"]
    pool = rows(store, "pool", RELEASE)
    tokens = {(row["crawl"], row["id"]): row["token_count"] for row in pool}
    for arm in found["arms"]:
        *crawls, of_pool, of_mask, subset = arm["levels"]
        assert [level["key"] for level in crawls] == tiny_run.release_crawls(RELEASE)
        for level in crawls:
            assert dropped(level) == {"empty_text": (1, None)}
        excluded = ((row["exclusion"], row["token_count"]) for row in pool if not row["eligible"])
        assert dropped(of_pool) == by_rule(excluded)
        mask = rows(store, "select", f"{RELEASE}/{arm['arm']}")
        out = [row for row in mask if not row["selected"]]
        assert dropped(of_mask) == by_rule((row["reason"], tokens[row["crawl"], row["id"]]) for row in out)
        (first, *_) = of_mask["dropped"]
        assert first["examples"] == [row["id"] for row in out if row["reason"] == first["rule"]][:3]
        texts = rows(store, "materialise", f"{RELEASE}/{arm['arm']}")
        assert (subset["documents"], subset["tokens"]) == (
            len(texts),
            sum(row["token_count"] for row in texts),
        )
        assert not arm["subset_is_older"]


def test_with_near_copies(with_near_copies: Pipeline) -> None:
    store, found = with_near_copies.store, funnel(with_near_copies.store, RELEASE)
    check_balance(found)
    near = [row for row in rows(store, "copies", RELEASE) if row["near_copy_of"] is not None]
    assert near
    for arm in found["arms"]:
        (level,) = (level for level in arm["levels"] if level["stage"] == "copies")
        assert {rule: number for rule, (number, _) in dropped(level).items()} == {"near_copy": len(near)}
        assert level["dropped"][0]["examples"] == [row["id"] for row in near][:3]


def test_a_record_of_version_0_1(tmp_path: Path) -> None:
    unpack(tmp_path)
    found = funnel(Store(tmp_path / "record"), RELEASE)
    check_balance(found)
    assert [level["documents"] for level in found["arms"][0]["levels"]] == [28, 16, 21, 6, 6]


def test_a_mask_without_its_subset_is_told(with_near_copies: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(with_near_copies.store.root, tmp_path / "record")
    shutil.rmtree(tmp_path / "record" / "materialise" / RELEASE / "random")
    found = funnel(Store(tmp_path / "record"), RELEASE)
    check_balance(found)
    assert {arm["arm"]: arm["subset_is_older"] for arm in found["arms"]} == {
        "datamask": False,
        "random": True,
    }


def test_a_subset_of_an_earlier_mask_is_not_taken_for_its_own(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.9}
    later = Pipeline(load_config(str(tiny_config_file), settings))
    later.run("select", RELEASE, "datamask")
    found = funnel(later.store, RELEASE)
    check_balance(found)
    assert {arm["arm"]: arm["subset_is_older"] for arm in found["arms"]} == {
        "datamask": True,
        "random": False,
    }


def test_a_subset_that_another_replaced_is_older_though_it_was_of_this_mask(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    place = {"store": str(tmp_path / "record")}
    other = Pipeline(load_config(str(tiny_config_file), place | {"select.lamb": 0.9}))
    other.run("select", RELEASE, "datamask")
    other.run("materialise", RELEASE, "datamask")
    again = Pipeline(load_config(str(tiny_config_file), place))
    again.run("select", RELEASE, "datamask")
    found = {arm["arm"]: arm for arm in funnel(again.store, RELEASE)["arms"]}
    assert found["datamask"]["subset_is_older"]
    assert "materialise" not in {level["stage"] for level in found["datamask"]["levels"]}


def test_counters_that_are_not_those_of_the_table_are_refused(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    store = Store(tmp_path / "record")
    path = tmp_path / "record" / require(store, "pool", RELEASE).location / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["counts"]["dropped_validation"] -= 1
    manifest["counts"]["dropped_takedown"] += 1
    restate(path, manifest)
    with pytest.raises(IntegrityError, match="manifest of pool of first counts"):
        funnel(store, RELEASE)


def test_the_command_prints_it(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    command = ["audit", "funnel", RELEASE, "-c", str(tiny_config_file)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.exception
    assert shown.output.count("pool        first") == 1
    assert shown.output.count("= kept") == 2 + 1 + 2 * 2
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told == funnel(tiny_run.store, RELEASE)
    with pytest.raises(UnknownNameError, match="did you mean 'first'"):
        CliRunner().invoke(
            app, ["audit", "funnel", "frist", "-c", str(tiny_config_file)], catch_exceptions=False
        )


def test_an_id_of_no_characters_is_seen(tiny_run: Pipeline) -> None:
    found = funnel(tiny_run.store, RELEASE)
    drop = next(drop for level in found["arms"][0]["levels"] for drop in level["dropped"])
    drop["examples"] = ["", "b"]
    assert any(line.endswith("  e.g. '', b") for line in funnel_lines(found))


def test_a_release_that_has_no_mask_yet_is_not_called_unknown(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    releases = {"first": {}, "later": {"crawls": ["tiny-2024-10"]}}
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "releases": releases}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    for _, _, call in pipeline.steps("later", "pool"):
        call()
    store = pipeline.store
    makes = r"yet; `datamask run --release later --until {}` makes it"
    with pytest.raises(ConfigurationError, match="release 'later' has no mask " + makes.format("select")):
        funnel(store, "later")
    with pytest.raises(ConfigurationError, match="release 'later' has no mask "):
        paired(store, "first", "later")
    with pytest.raises(ConfigurationError, match="release 'later' has no mask "):
        selected(store, "later")
    with pytest.raises(
        ConfigurationError, match="release 'later' has no subset " + makes.format("materialise")
    ):
        subset_of(store, "later", None)
    with pytest.raises(UnknownNameError, match="unknown release 'latr'"):
        funnel(store, "latr")

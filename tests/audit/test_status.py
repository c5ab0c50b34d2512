"""What is stale is told, with the reason and how long it took before; what is current is not called stale."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from old_record import unpack
from typer.testing import CliRunner

from datamask_pipeline.audit.stale import superseded
from datamask_pipeline.audit.status import status_lines
from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store, require


def told(config: Path, store: Path | str, *options: str) -> tuple[int, Any]:
    command = ["audit", "status", "-c", str(config), "-s", f"store={store}", *options]
    as_json = CliRunner().invoke(app, [*command, "--json"])
    assert isinstance(as_json.exception, SystemExit | None), as_json.exception
    lines = CliRunner().invoke(app, command)
    assert lines.exit_code == as_json.exit_code
    found = json.loads(as_json.stdout)
    assert lines.stdout.count("superseded: ") == len(found["superseded"])
    assert ("all is current" in lines.stdout) == found["is_current"] == (lines.exit_code == 0)
    return lines.exit_code, found


def test_a_finished_record_is_current(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    assert told(tiny_config_file, tiny_run.store.root) == (
        0,
        {
            "is_current": True,
            "refused": [],
            "steps": [],
            "num_steps": 0,
            "seconds": 0,
            "set_back": [],
            "superseded": [],
        },
    )


def test_no_column_runs_into_the_next() -> None:
    key = "a-release-of-a-long-name/an-arm-of-a-long-name.dense.seed0"
    steps = [
        {"stage": stage, "key": key, "why": ["new"], "seconds": 1e9, "counted_in": None}
        for stage in ("decontaminate", "a_stage_of_a_long_name")
    ]
    found = {
        "is_current": False,
        "refused": [],
        "steps": steps,
        "seconds": 0.0,
        "num_steps": 2,
        "set_back": [],
        "superseded": [],
    }
    first, second, _ = status_lines(found)
    assert first.split() == ["decontaminate", key, "277777.8", "h", "new"]
    assert second.split()[0] == "a_stage_of_a_long_name"


def test_another_setting_makes_steps_stale_for_as_long_as_they_took(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    code, found = told(tiny_config_file, tiny_run.store.root, "-s", "arms.datamask.lamb=0.75")
    assert code == 3
    run = "first/datamask.dense.seed0"
    assert [(step["stage"], step["key"]) for step in found["steps"]] == [
        ("select", "first/datamask"),
        ("materialise", "first/datamask"),
        ("redundancy", "first/datamask"),
        ("ngram", "first/datamask"),
        ("pretrain", run),
        ("evaluate", run),
        ("compare", "first"),
    ]
    assert found["steps"][0]["why"] == ["setting lamb 0.5 -> 0.75"]
    for step in found["steps"]:
        manifest = tiny_run.store.manifest(require(tiny_run.store, step["stage"], step["key"]))
        assert step["seconds"] == manifest["wall_seconds"]
    assert found["seconds"] == pytest.approx(sum(step["seconds"] for step in found["steps"]))
    assert found["superseded"] == []


def test_who_stops_at_a_stage_is_told_of_what_it_needs(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Neither the steps after it count, nor what was made of its earlier version."""
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    change, until = ("-s", "arms.datamask.lamb=0.75"), ("--until", "materialise")
    code, found = told(tiny_config_file, record, *change, *until)
    assert (code, [step["stage"] for step in found["steps"]]) == (3, ["select", "materialise"])
    place = ["-c", str(tiny_config_file), "-s", f"store={record}"]
    assert CliRunner().invoke(app, ["run", *place, *change, *until]).exit_code == 0
    assert told(tiny_config_file, record, *change, *until)[0] == 0
    assert told(tiny_config_file, record, *change)[1]["superseded"] != []
    wrong = CliRunner().invoke(app, ["audit", "status", *place, "--until", "nowhere"])
    assert "nowhere" in str(wrong.exception)


def test_what_was_made_before_and_is_not_current_is_told(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """A run would compute nothing; what the record counts as current is not what is configured all the same."""
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    place = ["-c", str(tiny_config_file), "-s", f"store={record}", "--until", "materialise"]
    before = Store(record).current("select", "first/datamask")
    assert CliRunner().invoke(app, ["run", *place, "-s", "arms.datamask.lamb=0.75"]).exit_code == 0
    code, found = told(tiny_config_file, record, "--until", "materialise")
    assert (code, found["steps"]) == (3, [])
    again = {each["artefact"]: each for each in found["set_back"]}
    assert {*again} == {"select", "learning_curve", "materialise"}
    assert before is not None
    assert again["select"]["location"] == before.location
    assert again["select"]["why"] == ["setting lamb 0.75 -> 0.5"]
    dry = CliRunner().invoke(app, ["run", *place, "--dry-run"]).stdout.splitlines()
    assert dry[-1] == "3 artefacts were made before and would be current again"
    assert [line.split()[:2] for line in dry[-4:-1]] == [[name, "first/datamask"] for name in sorted(again)]
    assert CliRunner().invoke(app, ["run", *place]).exit_code == 0
    assert Store(record).current("select", "first/datamask") == before
    assert told(tiny_config_file, record, "--until", "materialise")[0] == 0


def test_a_step_of_several_releases_is_counted_once(tiny_config_file: Path, tmp_path: Path) -> None:
    """As the run that makes them computes it once."""
    releases = "releases={first: {crawls: [tiny-2024-10]}, second: {given: first, crawls: [tiny-2024-18]}}"
    Store(tmp_path / "record").publish_bytes("nothing/yet", b"")
    place = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "-s", releases]
    until = ["--until", "pool"]
    _, found = told(tiny_config_file, tmp_path / "record", "-s", releases, *until)
    again = [
        (step["stage"], step["key"], step["counted_in"]) for step in found["steps"] if step["counted_in"]
    ]
    assert again[0] == ("ingest", "tiny-2024-10", "first")
    assert {key for _, key, _ in again} == {"tiny-2024-10"}
    assert found["num_steps"] == len(found["steps"]) - len(again)
    lines = CliRunner().invoke(app, ["audit", "status", *place, *until]).stdout.splitlines()
    assert lines[-1].startswith(f"{found['num_steps']} steps to compute, 0 s ")
    assert f" and {found['num_steps']} of unknown length" in lines[-1]
    assert sum(line.endswith("  counted above, for first") for line in lines) == len(again)
    dry = CliRunner().invoke(app, ["run", *place, *until, "--dry-run"]).stdout.splitlines()
    of_first, of_second = (int(line.split()[1]) for line in dry if "steps to compute" in line)
    assert (of_first + of_second, dry[-1].endswith(f", {len(again)} more counted above")) == (
        found["num_steps"],
        True,
    )
    ran = CliRunner().invoke(app, ["run", *place, *until])
    assert ran.exit_code == 0, ran.output
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))
    made = [
        key
        for stage in pipeline.config.stages("pool")
        for key in pipeline.store.keys(stage.makes[0].artefact)
    ]
    assert len(made) == found["num_steps"]


def test_what_was_never_made_takes_what_others_of_its_stage_took(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    _, found = told(tiny_config_file, tiny_run.store.root, "-s", "arms.top={policy: quality_topk}")
    seconds = {step["stage"]: step["seconds"] for step in found["steps"] if "top" in step["key"]}
    others = [
        tiny_run.store.manifest(require(tiny_run.store, "pretrain", key))["wall_seconds"]
        for key in tiny_run.store.keys("pretrain")
    ]
    assert min(others) <= seconds["pretrain"] <= max(others)
    Store(tmp_path / "begun").publish_bytes("nothing/yet", b"")
    code, found = told(tiny_config_file, tmp_path / "begun")
    assert code == 3
    assert {step["seconds"] for step in found["steps"]} == {None}


def test_models_and_results_of_a_superseded_subset_are_told(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    later = Pipeline(
        load_config(str(tiny_config_file), {"store": str(tmp_path / "record"), "select.lamb": 0.9})
    )
    for stage in ("select", "materialise"):
        later.run(stage, "first", "datamask")
    code, found = told(tiny_config_file, tmp_path / "record", "-s", "select.lamb=0.9")
    assert code == 3
    run = "first/datamask.dense.seed0"
    assert [(each["asset"], each["key"]) for each in found["superseded"]] == [
        ("subset_redundancy", "first/datamask"),
        ("ngram_answers", "first/datamask"),
        ("pretrained_model", run),
        ("benchmark_results", run),
        ("benchmark_answers", run),
        ("comparison_report", "first"),
    ]
    model, results = found["superseded"][2:4]
    now = require(later.store, "materialise", "first/datamask")
    (why,) = model["why"]
    assert why.startswith("materialise of first/datamask was made again since")
    assert why.endswith(f"(fingerprint {now.short})")
    assert results["why"] == [why], "the cause is told, not what stands between"
    assert ("select", "first/datamask") not in {(step["stage"], step["key"]) for step in found["steps"]}
    # What stands on something superseded is so whatever is configured, as `release` and `report` have it.
    assert told(tiny_config_file, tmp_path / "record")[1]["superseded"] == found["superseded"]


def test_a_record_of_version_0_1_is_at_one_with_itself(tmp_path: Path) -> None:
    """Its comparison was hashed from other identities than this version's."""
    unpack(tmp_path)
    assert list(superseded(Store(tmp_path / "record"))) == []


def test_a_damaged_manifest_is_stale(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    store = Store(tmp_path / "record")
    path = tmp_path / "record" / require(store, "evaluate", "first/random.dense.seed0").location
    (path / "manifest.json").write_text("{")
    found = list(superseded(store))
    assert [(each["asset"], each["location"] is None) for each in found] == [
        ("benchmark_results", True),
        ("comparison_report", False),
    ]


def test_a_release_that_lacks_a_crawl_is_told_and_the_others_are_looked_at(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """One that was frozen with it, and one that names it and was never made; only these are refused by a run."""
    root = shutil.copytree(tiny_run.config.source.options["root"], tmp_path / "crawls")
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    shutil.copytree(root / "tiny-2024-10", root / "gone")
    releases = "releases={first: {crawls: [tiny-2024-10, tiny-2024-18]}, second: {crawls: [gone]}, "
    releases += "third: {crawls: [gone]}, fourth: {given: third}}"
    options = ["-s", f"source.options.root={root}", "-s", releases]
    place = ["-c", str(tiny_config_file), "-s", f"store={record}", *options]
    done = CliRunner().invoke(app, ["run", "--release", "second", "--until", "ingest", *place])
    assert done.exit_code == 0, done.output
    shutil.rmtree(root / "gone")
    code, found = told(tiny_config_file, record, *options)
    assert code == 3
    assert found["steps"] == []
    assert [each["release"] for each in found["refused"]] == ["second", "third", "fourth"]
    assert "no such crawl any more, though a release has it: second" in found["refused"][0]["why"]
    assert found["refused"][0]["why"].endswith(
        "`datamask retire second`, with the configuration of this command"
    )
    assert found["refused"][1]["why"].startswith(
        "releases.third.crawls: unknown crawl of release 'third' 'gone'"
    )
    assert found["refused"][2]["why"] == found["refused"][1]["why"], "it goes on from that one"
    lines = CliRunner().invoke(app, ["audit", "status", *place]).stdout
    assert "release third would fail by `datamask run`: releases.third.crawls: unknown crawl" in lines
    assert CliRunner().invoke(app, ["run", "--release", "first", *place]).exit_code == 0
    refused = CliRunner().invoke(app, ["run", "--release", "second", *place])
    assert str(refused.exception) == found["refused"][0]["why"]

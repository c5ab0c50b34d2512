"""The lines below the closing table: the hint asks the right record, and a warning stands where it is true."""

import csv
import io
import json
import shlex
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from restated import restate, rewrite
from rich.console import Console
from tiny_chain import TASKS
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.summary import print_summary, release_summary
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import require


def summary(pipeline: Pipeline, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_summary(pipeline, "first", console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_hint_works_as_it_stands(
    tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = (line for line in summary(tiny_run).splitlines() if line.startswith("why a document"))
    _, *arguments = shlex.split(line.split(":  ", 1)[1])
    monkeypatch.chdir(tmp_path)
    for name in ("DATAMASK_CONFIG", "DATAMASK_STORE"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    assert result.output.startswith(f"document {arguments[2]}")


def test_a_report_says_how_to_go_on_as_it_was_called(tiny_run: Pipeline, tmp_path: Path) -> None:
    path = tiny_file(tiny_run)
    options = ["-c", str(path), "-s", f"store={tiny_run.store.root}"]
    command = ["report", *options, "-s", "storage_options={auto_mkdir: true}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    assert "make dev" not in result.output
    assert ".venv/bin/datamask" not in result.output.replace(sys.argv[0], "")
    (line,) = (line for line in result.output.splitlines() if line.startswith("why a document"))
    arguments = shlex.split(line.split(":  ", 1)[1])
    assert arguments[1:3] == ["audit", "why"]
    assert arguments[4:] == [*options, "-s", "storage_options=..."]
    asked = CliRunner().invoke(app, arguments[1:-2])
    assert asked.exit_code == 0, asked.exception


def test_secrets_of_a_store_are_not_printed(tiny_run: Pipeline) -> None:
    config = tiny_run.config.model_copy(update={"storage_options": {"auto_mkdir": True}})
    shown = summary(Pipeline(config, store=tiny_run.store))
    assert "-c YOUR.yaml" in shown
    assert "auto_mkdir" not in shown


def test_models_near_chance_are_called_so_and_others_are_not(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    shutil.copy(tiny_file(tiny_run), tmp_path)
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    compared = require(copied.store, "compare", "first")
    table = copied.store.read_table(compared)
    for value, n, warned in ((0.99, 200, False), (1.0, 2, True), (None, 200, True)):
        values = table.column("chance") if value is None else pa.array([value] * len(table))
        columns = {"value": values, "n": pa.array([n] * len(table)), "stderr": pa.array([0.0] * len(table))}
        changed = table
        for name, column in columns.items():
            changed = changed.set_column(table.schema.get_field_index(name), name, column)
        rewrite(copied.store, compared, changed)
        assert ("clearly above chance" in summary(copied)) == warned
    assert f"On {len(TASKS)} of {len(TASKS)} tasks" in summary(copied)
    assert "piqa (n 200)" in summary(copied)
    (told,) = json.loads(reported(copied, "--json"))
    piqa = {"n": 200, "chance": 0.5, "shots": 0, "above_chance": False, "truncated": 0, "no_signal": None}
    prompts = 2 * tiny_questions(tiny_run, "piqa")
    arms = len(tiny_run.config.arms)
    assert told["tasks"]["piqa"] == piqa | {"prompts": prompts, "models": arms, "models_above": 0}
    race = told["tasks"]["race_high"]
    assert 0 < race["truncated"] <= race["prompts"]
    shown = summary(copied)
    (line,) = (
        line for line in shown.splitlines() if line.startswith("prompts, one for each choice, that lost")
    )
    assert f"race_high {race['truncated']} of {race['prompts']}" in line
    assert (
        f"0 of {len(TASKS) * arms} scores, each of one model on one task, are above chance by more than luck: "
        in shown
    )
    assert "* winogrande has no signal below 1 B parameters: models of 150 M" in shown
    assert "winogrande (n 200) *" in shown
    assert "right answers less those of random, with the 95 % interval over questions" in shown
    assert "piqa, bits per byte" in shown
    assert told["caveat"].startswith(f"On {len(TASKS)} of {len(TASKS)} tasks")
    for row in csv.DictReader(io.StringIO(reported(copied, "--csv"))):
        assert (row["piqa n"], row["piqa chance"], row["caveat"]) == ("200", "0.5", told["caveat"])
        assert row["piqa prompts"] == str(prompts)


def tiny_questions(pipeline: Pipeline, task: str) -> int:
    rows = pipeline.store.read_table(require(pipeline.store, "compare", "first")).to_pylist()
    return min(row["n"] for row in rows if row["task"] == task)


def test_another_selection_does_not_pass_for_the_compared_one(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.9}
    later = Pipeline(load_config(str(tiny_file(tiny_run)), settings))
    compared = require(later.store, "materialise", "first/datamask")
    assert "newer selection" not in summary(later)
    before = release_summary(later, "first")["redundancy"]
    for stage in ("select", "materialise", "redundancy"):
        later.run(stage, "first", "datamask")
    assert release_summary(later, "first")["redundancy"] == before
    assert require(later.store, "redundancy", "first/datamask") != require(
        tiny_run.store, "redundancy", "first/datamask"
    )
    assert require(later.store, "materialise", "first/datamask") != compared
    lines = summary(later).splitlines()
    assert f"subset of datamask:  {later.store.root}/{compared.location}/" in lines
    (line,) = (line for line in lines if line.startswith("why a document"))
    assert shlex.split(line.split(":  ", 1)[1])[3] in {
        row["id"] for row in later.store.read_table(compared).to_pylist()
    }
    (line,) = (line for line in lines if "newer selection" in line)
    assert line.startswith("datamask has a newer selection, not in this table (setting lamb 0.5 -> 0.9)")


def test_tokens_are_those_the_models_were_trained_on(tiny_run: Pipeline) -> None:
    (told,) = json.loads(reported(tiny_run, "--json"))
    for arm in told["arms"]:
        model = require(tiny_run.store, "pretrain", f"first/{arm['arm']}.dense.seed0")
        assert arm["tokens"] == tiny_run.store.manifest(model)["metadata"]["subset_tokens"]


@pytest.fixture
def many_arms(tiny_run: Pipeline, tmp_path: Path) -> Pipeline:
    """A copy of the record whose comparison tells of seven arms with long names."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    path = Path(copied.store.file_path(require(copied.store, "compare", "first"), "manifest.json"))
    manifest = json.loads(path.read_text())
    (first, *_) = manifest["metadata"]["arms"]
    manifest["metadata"]["arms"] = [
        first | {"arm": f"an_arm_with_a_long_name_{number}", "tokens": 123_456_789_000 + number, "gap": 4e-5}
        for number in range(7)
    ]
    for number in range(7):
        manifest["inputs"][f"subsets/an_arm_with_a_long_name_{number}"] = manifest["inputs"][
            "subsets/datamask"
        ]
    restate(path, manifest)
    return copied


@pytest.mark.parametrize("width", [30, 80, 200])
def test_no_number_is_cut_at_any_width(many_arms: Pipeline, width: int) -> None:
    shown = summary(many_arms, width)
    for number in range(7):
        assert shown.count(f"an_arm_with_a_long_name_{number}") >= 1
        assert shown.count(f"123,456,789,00{number}") == 1
    assert "…" not in shown
    for line in shown.splitlines():
        if "│" in line or "┃" in line:
            assert len(line) <= max(width, 60)


def test_a_small_gap_is_not_printed_as_zero(many_arms: Pipeline) -> None:
    (line,) = (line for line in summary(many_arms, 400).splitlines() if "certified gap" in line)
    assert line.count("4e-05") == 7
    assert "0.0000" not in line


def test_the_objective_is_named(tiny_run: Pipeline) -> None:
    shown = summary(tiny_run)
    assert "objective: 0.5 quality + 0.5 Pair_simi" in shown
    assert "0 is the mean of random masks" in shown


def test_objectives_of_two_functions_share_no_row(many_arms: Pipeline) -> None:
    path = Path(many_arms.store.file_path(require(many_arms.store, "compare", "first"), "manifest.json"))
    manifest = json.loads(path.read_text())
    for number, arm in enumerate(manifest["metadata"]["arms"]):
        arm |= {"objective_of": "DiSF" if number % 2 else "Vendi", "objective": 0.25 + number / 1000}
    restate(path, manifest)
    lines = summary(many_arms, 400).splitlines()
    for row, known in (("objective 1 ", 4), ("objective 2 ", 3)):
        (line,) = (line for line in lines if row in line)
        assert (line.count("0.25"), line.count(" - ")) == (known, 7 - known)
    assert any(line.startswith("objective 2: DiSF") for line in lines)


def test_differences_are_shown_with_their_intervals_or_without_one(tiny_run: Pipeline) -> None:
    metadata = tiny_run.store.manifest(require(tiny_run.store, "compare", "first"))["metadata"]
    shown = summary(tiny_run)
    assert "less that of random" in shown
    for row in metadata["differences"]:
        assert (row["half_width"] is None) == (row["no_interval"] is not None)
        line = next(
            line for line in shown.split("less that of random")[1].splitlines() if row["task"] in line
        )
        assert (row["no_interval"] or f"± {row['half_width']:.4f}") in line


def reported(pipeline: Pipeline, *options: str) -> str:
    given = ["report", "-s", f"store={pipeline.store.root}", *options]
    result = CliRunner().invoke(app, ["report", "-c", str(tiny_file(pipeline)), *given[1:]])
    assert result.exit_code == 0, result.exception
    return result.stdout


def tiny_file(pipeline: Pipeline) -> Path:
    return Path(pipeline.store.root).parent / "tiny.yaml"


def test_the_report_as_json_holds_every_figure_unrounded(tiny_run: Pipeline) -> None:
    (release,) = json.loads(reported(tiny_run, "--json"))
    metadata = tiny_run.store.manifest(require(tiny_run.store, "compare", "first"))["metadata"]
    told = {"release": "first", "crawls": ["tiny-2024-10", "tiny-2024-18"], **metadata}
    assert {name: release[name] for name in told} == told
    assert release.keys() - told.keys() == {
        *("tasks", "checkpoints", "caveat", "redundancy", "ngram", "subsets", "superseded", "stale"),
        *("not_held_against", "no_power"),
    }
    assert release["checkpoints"] == [1]
    for arm in metadata["arms"]:
        measured = tiny_run.store.read_table(require(tiny_run.store, "redundancy", f"first/{arm['arm']}"))
        assert [release["redundancy"][arm["arm"]]] == measured.to_pylist()
        counted = tiny_run.store.manifest(require(tiny_run.store, "ngram", f"first/{arm['arm']}"))["metadata"]
        told = release["ngram"][arm["arm"]]
        assert (told["tokens"], told["bits_per_byte"]) == (counted["tokens"], counted["bits_per_byte"])
        assert len(told["differences"]) == (0 if arm["arm"] == "random" else 1 + len(TASKS))
    # The tiny chain's networks have learnt next to nothing.
    (line,) = release["no_power"]
    arms = {arm["arm"] for arm in metadata["arms"]}
    assert {each.split()[2] for each in line.rpartition(" count: ")[2].split("), ")} == arms


def test_the_report_as_csv_has_a_row_for_each_arm(tiny_run: Pipeline) -> None:
    rows = list(csv.DictReader(io.StringIO(reported(tiny_run, "--csv"))))
    metadata = tiny_run.store.manifest(require(tiny_run.store, "compare", "first"))["metadata"]
    assert [row["arm"] for row in rows] == [arm["arm"] for arm in metadata["arms"]]
    for row, arm in zip(rows, metadata["arms"], strict=True):
        assert row["release"] == "first"
        assert float(row["objective"]) == arm["objective"]
        assert row["gap"] == ("" if arm["gap"] is None else repr(arm["gap"]))
        assert {task: float(row[task]) for task in arm["tasks"]} == arm["tasks"]
        (measured,) = tiny_run.store.read_table(
            require(tiny_run.store, "redundancy", f"first/{arm['arm']}")
        ).to_pylist()
        assert {name: float(row[f"subset {name}"]) for name in measured} == measured


def test_the_table_tells_what_needs_no_training(tiny_run: Pipeline, tmp_path: Path) -> None:
    arms = [arm["arm"] for arm in json.loads(reported(tiny_run, "--json"))[0]["arms"]]
    measured = [
        tiny_run.store.read_table(require(tiny_run.store, "redundancy", f"first/{arm}")).to_pylist()[0]
        for arm in arms
    ]
    lines = summary(tiny_run).splitlines()

    def cells(name: str) -> list[str]:
        (line,) = (line for line in lines if line.startswith(f"│ {name} "))
        return [cell.strip() for cell in line.strip("│").split("│")[1:]]

    assert cells("near-copies") == [
        f"{row['near_copies']} ({row['near_copies'] / row['documents']:.1%})" for row in measured
    ]
    assert cells("exact copies") == [str(row["exact_copies"]) for row in measured]
    assert cells("mean quality rank") == [f"{row['quality_rank']:.4f}" for row in measured]
    assert cells("coverage of the pool") == [f"{row['coverage']:.4f}" for row in measured]
    (told,) = (line for line in lines if line.startswith("coverage: mean of the largest cosine"))
    assert "Facility alone seeks coverage" in told


def test_a_record_without_these_figures_is_reported_without_them(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    shutil.copy(tiny_file(tiny_run), tmp_path)
    shutil.rmtree(tmp_path / "record" / "redundancy" / "first" / "random")
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    assert [*json.loads(reported(copied, "--json"))[0]["redundancy"]] == ["datamask"]
    (line,) = (line for line in summary(copied).splitlines() if line.startswith("│ mean quality rank"))
    assert line.count(" - ") == 1
    shutil.rmtree(tmp_path / "record" / "redundancy")
    assert "quality rank" not in summary(copied)
    assert "n-gram ruler" in summary(copied)
    shutil.rmtree(tmp_path / "record" / "ngram")
    assert "n-gram" not in summary(copied)
    assert json.loads(reported(copied, "--json"))[0]["redundancy"] == {}
    assert "subset coverage" not in reported(copied, "--csv")


def test_one_form_at_a_time(tiny_run: Pipeline) -> None:
    result = CliRunner().invoke(app, ["report", "-c", str(tiny_file(tiny_run)), "--json", "--csv"])
    assert "--json or --csv" in str(result.exception)

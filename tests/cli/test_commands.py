"""The commands, as a user calls them."""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_chain import TASKS, write_crawl
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, DataMaskError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.stages import takedown
from datamask_pipeline.storage import Store, require

runner = CliRunner()


def invoke(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_second_run_recomputes_nothing_and_says_so(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    output = invoke("run", "-c", str(tiny_config_file))
    assert "0 steps computed" in output
    assert "validation bits per byte" in output


@pytest.mark.slow
def test_another_lambda_recomputes_selection_and_what_follows(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = ("-s", f"store={record}", "-s", "select.lamb=0.9")
    arguments = ("run", "-c", str(tiny_config_file), *settings, "--until", "materialise")
    output = invoke(*arguments)
    assert "computed again: setting lamb 0.5 -> 0.9" in output
    lines = [line.split() for line in output.splitlines()]
    fresh = {line[0] for line in lines if len(line) > 4 and line[-2] == "s" and line[0] in STAGE_NAMES}
    reused = {line[0] for line in lines if "unchanged" in line and line[0] in STAGE_NAMES}
    assert "select" in fresh
    assert {"ingest", "embed", "score", "pool"} <= reused
    assert not {"ingest", "embed", "score", "pool"} & fresh
    back = invoke("run", "-c", str(tiny_config_file), "-s", f"store={record}", "--until", "materialise")
    again = {line.split()[0] for line in back.splitlines() if "  current again  " in line}
    assert again == {"select", "materialise"}
    assert "current again: setting lamb 0.9 -> 0.5" in back
    assert "warning" not in back
    assert "current again" not in invoke(*arguments[:3], "-s", f"store={record}", "--until", "materialise")


def test_a_run_tells_where_another_made_other_versions_current_meanwhile(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    command = ("run", "-c", str(tiny_config_file), "-s", f"store={record}", "--until", "select")
    (arm, *_) = tiny_run.config.arms
    before = require(tiny_run.store, "select", f"first/{arm}")
    invoke(*command, "-s", "select.lamb=0.9")
    other = require(Store(record), "select", f"first/{arm}")
    run_step = Pipeline.run

    def with_another(self: Pipeline, stage: str, *names: str, **named: Any) -> Any:
        made = run_step(self, stage, *names, **named)
        if made[0] == before:
            self.store.point_to(other)  # as another run does
        return made

    monkeypatch.setattr(Pipeline, "run", with_another)
    said = invoke(*command)
    assert f"warning: of select of first/{arm} a run with other settings made another version current" in said


def test_ingestion_alone_loads_neither_models_nor_a_database(tiny_config_file: Path, tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print([n for n in ('torch', 'duckdb') if n in sys.modules]))\n"
        "from datamask_pipeline.cli import main; main()"
    )
    arguments = ["run", "-c", str(tiny_config_file), "-s", f"store={tmp_path}", "--until", "ingest"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "command", ["why <urn:uuid:1>", "status", "takedown first", "impact example.com", "funnel first"]
)
def test_a_place_without_a_record_is_refused(command: str, tiny_config_file: Path, tmp_path: Path) -> None:
    place = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'elsewhere'}"]
    done = CliRunner().invoke(app, ["audit", *command.split(), *place])
    assert done.stdout == ""
    assert str(done.exception).startswith(f"there is no record at {tmp_path / 'elsewhere'}; ")


STAGE_NAMES = {"ingest", "embed", "score", "pool", "select", "materialise"}


def test_the_story_is_printed_as_json(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    row = tiny_run.store.read_table(require(tiny_run.store, "pool", "first")).to_pylist()[0]
    story = json.loads(invoke("audit", "why", row["id"], "-c", str(tiny_config_file), "--json"))
    assert story["id"] == row["id"]


def test_an_interrupt_while_modules_are_imported_is_one_line() -> None:
    blocking = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'datamask_pipeline.cli.audit':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from datamask_pipeline.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", blocking], capture_output=True, text=True, check=False)
    told = "interrupted: call again, and it goes on where it was\n"
    assert (done.returncode, done.stderr) == (130, told)


def test_an_interrupt_of_a_command_ends_with_the_same_line() -> None:
    interrupted = (
        "from datamask_pipeline.cli import main, status\n"
        "def interrupt(*_): raise KeyboardInterrupt\n"
        "status.build_pipeline = interrupt\n"
        "main()\n"
    )
    command = [sys.executable, "-c", interrupted, "audit", "status"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "interrupted: call again, and it goes on where it was"
    assert "Traceback" not in done.stderr


def test_a_machine_without_a_temporary_folder_is_told_in_one_line(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    without = (
        "import tempfile\n"
        "tempfile._candidate_tempdir_list = lambda: ['/nowhere']\n"
        "from datamask_pipeline.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", without, "audit", "funnel", "first", "-c", str(tiny_config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: No usable temporary directory found in ['/nowhere']; ")
    assert "TMPDIR" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", ["config show", "config check", "plan --documents 10", "run --dry-run"])
def test_output_that_finds_no_room_is_told_in_one_line(command: str, tiny_config_file: Path) -> None:
    arguments = [sys.executable, "-c", "from datamask_pipeline.cli import main; main()", *command.split()]
    if command != "config show":
        arguments += ["-c", str(tiny_config_file)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "error: No space left on device, where standard output or a temporary file is written: free room there, or name "
        "another place\n"
    )


def test_an_unknown_document_is_one_line_and_a_bad_exit_status(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    command = [sys.executable, "-c", "from datamask_pipeline.cli import main; main()"]
    arguments = ["audit", "why", "nobody", "-c", str(tiny_config_file)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no document 'nobody'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "error", "words"),
    [
        ("select.ratio=0", ConfigurationError, "ratio"),
        ("select.ratio=1.5", ConfigurationError, r"ratio.*1\.5"),
        ("select.lamb=2", ConfigurationError, "lamb"),
        ("nonsense=1", ConfigurationError, "nonsense"),
        ("embed.encodr=x", ConfigurationError, "encodr"),
        ("arms.random.policy=nobody", ConfigurationError, "selection policy 'nobody'.*datamask"),
        ("score.scorers=[nobody]", UnknownNameError, "quality scorer 'nobody'.*rules"),
        ("select.diversity=nobody", UnknownNameError, "diversity metric 'nobody'.*Pair_simi"),
        ("select.scorers={nobody: 1}", UnknownNameError, "'nobody'.*rules"),
        ("evaluate.tasks=[nobody]", UnknownNameError, "benchmark task 'nobody'.*piqa"),
        ("compare.baseline=nobody", UnknownNameError, "'nobody'.*random"),
        ("source.name=nobody", UnknownNameError, "document source 'nobody'.*installed"),
        ("source.options.root=/no/such/place", DataMaskError, "/no/such/place"),
        ("source.options.rot=/tmp", ConfigurationError, "rot"),
        ("nothing", ConfigurationError, "KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_work(
    setting: str, error: type[Exception], words: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    for command in (("run",), ("config", "check")):
        with pytest.raises(error, match=words):
            invoke(*command, "-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "-s", setting)
    assert not (tmp_path / "record").exists()


def test_an_unknown_stage_or_configuration_names_what_there_is(tiny_config_file: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'nowhere'.*materialise"):
        invoke("run", "-c", str(tiny_config_file), "--until", "nowhere")
    with pytest.raises(ConfigurationError, match=r"'nofile\.yaml'.*demo"):
        invoke("run", "-c", "nofile.yaml")


@pytest.mark.parametrize("command", [["run"], ["report"], ["select"], ["audit", "why"], ["config", "check"]])
def test_help_teaches(command: list[str]) -> None:
    assert len(invoke(*command, "--help").splitlines()) > 8


def test_packaged_configurations_are_listed_shown_and_sound() -> None:
    names = [line.split()[0] for line in invoke("config", "list").splitlines()]
    assert "demo" in names
    for name in names:
        assert invoke("config", "show", name).startswith("#")
        assert "arms:" in invoke("config", "check", "-c", name)


def test_a_run_says_what_was_left_out_and_why(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    lines = [line.strip() for line in invoke("run", "-c", str(tiny_config_file)).splitlines()]
    for stage, key, what in (
        ("ingest", "tiny-2024-10", "rejected"),
        ("pool", "first", "left out"),
        ("select", "first/datamask", "left out"),
    ):
        counts = tiny_run.store.manifest(require(tiny_run.store, stage, key))["counts"]
        (place,) = (n for n, line in enumerate(lines) if line.split()[:2] == [stage, key])
        told = lines[place + 1]
        assert told.startswith(f"{counts['rows_in'] - counts['kept']} {what}: ")
        for name, number in counts.items():
            if name.startswith("dropped_"):
                assert (f"{number} {name.removeprefix('dropped_')}" in told) == bool(number)
    assert not any(" 0 rows" in line for line in lines)
    for stage, unit in (("tokenizer", "400 entries"), ("questions", f"{3 * len(TASKS)} questions")):
        assert any(line.startswith(stage) and unit in line for line in lines), stage


@pytest.mark.slow
def test_a_release_that_fails_stops_those_that_go_on_from_it_and_no_other(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    root = tmp_path / "crawls"
    for crawl in ("tiny-2024-10", "tiny-2024-18"):
        shutil.copytree(tiny_config_file.parent / "crawls" / crawl, root / crawl)
    write_crawl(root, "blank", 3, seed=1)
    for shard in (root / "blank").iterdir():
        rows = [json.loads(line) | {"text": ""} for line in shard.read_text().splitlines()]
        shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    releases = {
        "bad": {"crawls": ["blank"]},
        "after": {"given": "bad", "crawls": ["tiny-2024-10"]},
        "good": {"crawls": ["tiny-2024-18"]},
    }
    settings = [
        f"store={tmp_path / 'record'}",
        f"source.options.root={root}",
        f"releases={json.dumps(releases)}",
    ]
    options = [word for setting in settings for word in ("-s", setting)]
    done = runner.invoke(app, ["run", "-c", str(tiny_config_file), "--until", "gather", *options])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("error: release bad: no document of release 'bad' is eligible")
    assert second == "error: release after: it goes on from bad, and what it needs of that was not made"
    assert Store(tmp_path / "record").keys("gather") == ["good"]
    alone = ["run", "-c", str(tiny_config_file), "--until", "gather", "--release", "bad", *options]
    assert str(runner.invoke(app, alone).exception).startswith("no document of release 'bad' is eligible")


def test_a_crawl_that_cannot_be_read_stops_its_own_releases_and_no_other(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    root = tmp_path / "crawls"
    shutil.copytree(tiny_config_file.parent / "crawls" / "tiny-2024-10", root / "tiny-2024-10")
    (root / "cut").mkdir()
    (root / "cut" / "000.parquet").write_bytes(b"PAR1 and no more")
    releases = {
        "bad": {"crawls": ["cut"]},
        "after": {"given": "bad", "crawls": ["tiny-2024-10"]},
        "good": {"crawls": ["tiny-2024-10"]},
    }
    settings = [f"store={tmp_path / 'record'}", f"source.options.root={root}"]
    command = ["run", "-c", str(tiny_config_file), "--until", "ingest"]
    command += [word for setting in settings for word in ("-s", setting)]
    done = runner.invoke(app, [*command, "-s", f"releases={json.dumps(releases)}"])
    assert done.exit_code == 1, done.exception
    assert [line.partition(": ")[2][:12] for line in done.stderr.splitlines()[-2:]] == [
        "release bad:",
        "release afte",
    ]
    assert "not a whole Parquet file" in done.stderr
    assert Store(tmp_path / "record").keys("ingest") == ["tiny-2024-10"]
    looked = runner.invoke(app, [*command, "--dry-run", "-s", f"releases={json.dumps(releases)}"])
    assert looked.exit_code == 1, looked.exception
    assert looked.stdout.splitlines() == ["good: 0 steps to compute"]
    assert looked.stderr.splitlines()[-2:] == done.stderr.splitlines()[-2:]
    status = ["audit", "status", *command[1:], "-s", f"releases={json.dumps(releases)}"]
    told = runner.invoke(app, status)
    assert told.exit_code == 3, told.exception
    assert [line.partition(":")[0] for line in told.stdout.splitlines()[:2]] == [
        "release bad would fail by `datamask run`",
        "release after would fail by `datamask run`",
    ]
    assert told.stdout.splitlines()[2].startswith("0 steps to compute")
    alone = runner.invoke(app, [*command, "-s", f"releases={json.dumps({'bad': releases['bad']})}"])
    assert str(alone.exception).startswith("not a whole Parquet file")


@pytest.mark.slow
def test_an_arm_that_fails_stops_what_is_made_of_it_and_no_other(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """Arms that stood after it in the configuration were not made."""
    arms = {
        "small": {"policy": "random"},
        "large": {"policy": "random", "num_documents": 5_000},
        "last": {"policy": "quality_topk"},
    }
    settings = [f"store={tmp_path / 'record'}", f"arms={json.dumps(arms)}", "compare.baseline=small"]
    command = ["run", "-c", str(tiny_config_file), "--until", "materialise"]
    command += [word for setting in settings for word in ("-s", setting)]
    done = runner.invoke(app, command)
    assert str(done.exception).startswith("arm 'large' of release 'first': the budget is 5000 documents")
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert any(line.startswith("select first/large failed: arm 'large'") for line in lines)
    assert "materialise first/large not made: it needs what failed" in lines
    store = Store(tmp_path / "record")
    assert sorted(store.keys("materialise")) == ["first/last", "first/small"]
    runner.invoke(app, [*command, "-s", "arms.large.num_documents=7"])
    assert sorted(store.keys("materialise")) == ["first/large", "first/last", "first/small"]


@pytest.mark.slow
def test_of_a_release_that_goes_on_only_the_arm_that_failed_is_not_made(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    arms = {"small": {"policy": "random"}, "large": {"policy": "random", "num_documents": 5_000}}
    releases = {"first": {"crawls": ["tiny-2024-10"]}, "then": {"given": "first", "crawls": ["tiny-2024-18"]}}
    settings = [
        f"store={tmp_path / 'record'}",
        f"arms={json.dumps(arms)}",
        f"releases={json.dumps(releases)}",
        "compare.baseline=small",
    ]
    command = ["run", "-c", str(tiny_config_file), "--until", "materialise"]
    command += [word for setting in settings for word in ("-s", setting)]
    done = runner.invoke(app, command)
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("error: release first: arm 'large' of release 'first': the budget is 5000")
    assert second == "error: release then: it goes on from first, and what it needs of that was not made"
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert "select then/large not made: it needs what failed" in lines
    store = Store(tmp_path / "record")
    assert sorted(store.keys("materialise")) == ["first/small", "then/small"]
    expected = runner.invoke(app, [*command, "--dry-run"])
    assert expected.exit_code == 0, expected.exception
    told = [" ".join(line.split()) for line in expected.stdout.splitlines()]
    assert "select then/large after select" in told
    assert "then: 2 steps to compute" in told


def test_nothing_goes_on_from_what_an_earlier_run_left_of_a_release_that_fails(
    tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = {"first": {"crawls": ["tiny-2024-10"]}, "then": {"given": "first", "crawls": ["tiny-2024-18"]}}
    settings = [
        f"store={tmp_path / 'record'}",
        f"releases={json.dumps(releases)}",
        "pool.takedown=[id:nobody]",
    ]
    command = ["run", "-c", str(tiny_config_file), "--until", "pool"]
    command += [word for setting in settings for word in ("-s", setting)]
    invoke(*command)
    store = Store(tmp_path / "record")
    before = store.current("pool", "then")
    sound = takedown.run

    @functools.wraps(sound)
    def failing(*given: Any, release: str, **named: Any) -> Any:
        if release == "first":
            raise ConfigurationError("no list")
        return sound(*given, release=release, **named)

    monkeypatch.setattr(takedown, "run", failing)
    done = runner.invoke(app, [*command, "-s", "pool.validation_share=0.4"])
    assert isinstance(done.exception, SystemExit), done.exception
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert lines[-2:] == [
        "error: release first: no list",
        "error: release then: it goes on from first, and what it needs of that was not made",
    ]
    assert "pool then not made: it needs what failed" in lines
    assert store.current("pool", "then") == before


def test_the_page_of_commands_is_what_their_help_says() -> None:
    root = Path(__file__).parents[2]
    made = subprocess.run(
        [sys.executable, root / ".ci/commands.py"], check=True, capture_output=True, text=True
    )
    assert made.stdout == (root / "docs/commands.md").read_text(), "make commands writes it anew"

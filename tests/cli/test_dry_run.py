"""`datamask run --dry-run` tells what the run after it computes, and leaves the record as it is."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.estimate import duration
from datamask_pipeline.storage import Store

STEPS = ("select", "materialise")


@pytest.fixture
def record(tiny_run: Pipeline, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    return tmp_path / "record"


def told(config: Path, record: Path, *options: str) -> list[str]:
    command = ["run", "-c", str(config), "-s", f"store={record}", "--until", "materialise", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    return [line for line in result.output.splitlines() if line]


def files(record: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in record.rglob("*") if path.is_file()}


def test_a_record_of_these_settings_needs_nothing(tiny_config_file: Path, record: Path) -> None:
    before = files(record)
    assert told(tiny_config_file, record, "--dry-run") == ["first: 0 steps to compute"]
    assert files(record) == before


def test_what_is_told_is_what_is_computed(tiny_config_file: Path, record: Path) -> None:
    before, store = files(record), Store(record)
    change = ("-s", "arms.datamask.lamb=0.75")
    *steps, rests_on, takes, last = told(tiny_config_file, record, *change, "--dry-run")
    assert files(record) == before
    assert [line.split() for line in steps] == [
        "select first/datamask setting lamb 0.5 -> 0.75".split(),
        "materialise first/datamask after select".split(),
    ]
    documents = sum(store.current("ingest", crawl).rows for crawl in ("tiny-2024-10", "tiny-2024-18"))
    assert rests_on == f"first: 2 crawls, 4 shards; documents: {documents}"
    seconds = [store.manifest(store.current(stage, "first/datamask"))["wall_seconds"] for stage in STEPS]
    assert f"about {duration(sum(seconds))} as this record was made" in takes
    assert last == "first: 2 steps to compute"
    assert "first: 2 steps computed" in told(tiny_config_file, record, *change)[-1]
    # Back again: what was current before is found, not computed, and points nowhere yet.
    after = files(record)
    none, *again, last = told(tiny_config_file, record, "--dry-run")
    assert none == "first: 0 steps to compute"
    assert [line.split()[0] for line in again] == ["learning_curve", "materialise", "select"]
    assert last == "3 artefacts were made before and would be current again"
    assert files(record) == after


def test_a_new_record_stays_empty_and_freezes_no_release(tiny_config_file: Path, tmp_path: Path) -> None:
    *steps, rests_on, unknown, last = told(tiny_config_file, tmp_path / "new", "--dry-run")
    assert rests_on.endswith("documents: unknown, as no crawl was read yet")
    assert unknown.startswith(
        "first: never measured in this record: ingest, embed, score, pool, gather, select"
    )
    assert steps[0].split() == "ingest tiny-2024-10 not there yet".split()
    assert last == f"first: {len(steps)} steps to compute"
    assert not (tmp_path / "new").exists()


def test_a_crawl_that_was_not_read_is_as_many_documents_a_shard_as_the_others(
    tiny_config_file: Path, tiny_run: Pipeline, record: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(tiny_run.config.source.options["root"], tmp_path / "crawls")
    shutil.copytree(root / "tiny-2024-10", root / "tiny-2024-22")
    options = ("-s", f"source.options.root={root}", "-s", "releases={second: {crawls: [tiny-2024-22]}}")
    *_, rests_on, takes, _ = told(tiny_config_file, record, *options, "--dry-run")
    rows = sum(tiny_run.store.current("ingest", crawl).rows for crawl in ("tiny-2024-10", "tiny-2024-18"))
    assert rests_on == f"second: 1 crawls, 2 shards; documents: {round(rows / 2)}"
    assert "never measured" not in takes


@pytest.mark.parametrize("command", ["run --dry-run", "audit status"])
def test_a_record_that_can_only_be_read_is_told_of_too(
    command: str, tiny_config_file: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["-c", str(tiny_config_file), "-s", f"store={record}"]
    before, written = files(record), CliRunner().invoke(app, [*command.split(), *place])
    with monkeypatch.context() as patched:  # a superuser may write wherever permissions forbid it
        patched.setattr(
            "datamask_pipeline.storage.store.unwritable", lambda folder: f"{folder!r} is read-only"
        )
        read_only = CliRunner().invoke(app, [*command.split(), *place])
        refused = CliRunner().invoke(app, ["run", *place])
    assert written.output
    assert (read_only.exit_code, read_only.output) == (written.exit_code, written.output)
    assert files(record) == before
    assert "cannot be written" in str(refused.exception)

"""`datamask run --dry-run` tells what the run after it computes, and leaves the record as it is."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import Pipeline


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
    before = files(record)
    change = ("-s", "arms.datamask.lamb=0.75")
    *steps, last = told(tiny_config_file, record, *change, "--dry-run")
    assert files(record) == before
    assert [line.split() for line in steps] == [
        "select first/datamask setting lamb 0.5 -> 0.75".split(),
        "materialise first/datamask after select".split(),
    ]
    assert last == "first: 2 steps to compute"
    assert "first: 2 steps computed" in told(tiny_config_file, record, *change)[-1]
    # Back again: what was current before is found, not computed, and points nowhere yet.
    after = files(record)
    assert told(tiny_config_file, record, "--dry-run") == ["first: 0 steps to compute"]
    assert files(record) == after


def test_a_new_record_stays_empty_and_freezes_no_release(tiny_config_file: Path, tmp_path: Path) -> None:
    *steps, last = told(tiny_config_file, tmp_path / "new", "--dry-run")
    assert steps[0].split() == "ingest tiny-2024-10 not there yet".split()
    assert last == f"first: {len(steps)} steps to compute"
    assert not (tmp_path / "new").exists()

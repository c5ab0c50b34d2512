"""The command itself: version, help, exit status, and an input that is never overwritten."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from datamask_pipeline import train_mask
from datamask_pipeline.cli.app import app

COMMANDS = (
    (),
    ("run",),
    ("report",),
    ("select",),
    ("probe",),
    ("audit",),
    ("audit", "why"),
    ("config",),
    ("config", "list"),
    ("config", "show"),
    ("config", "check"),
)


def datamask(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    program = "from datamask_pipeline.cli import main; main()"
    if cwd is None:
        return forked.run(program, *arguments)
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty documents with scores and vectors."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    columns = {"chunk_id": range(40), "quality_score": generator.random(40), "feature_arr": list(vectors)}
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)
    return path


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.split()) == (
        0,
        ["datamask-pipeline", version("datamask-pipeline")],
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_short_help_option(command: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*command, option]) for option in ("-h", "--help"))
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output


def test_a_misspelt_command_or_option_gets_the_nearest_name_and_status_2() -> None:
    for arguments, nearest in ((("slect",), "select"), (("run", "--untl", "pool"), "--until")):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert nearest in result.output


@pytest.mark.slow
def test_what_is_refused_is_one_line_and_status_1(rows: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "out.parquet")
    for arguments, words in (
        (("--policy", "datamsk"), "datamask"),
        (("-s", "num_step=3"), "num_steps"),
        (("--diversity", "Pair_sim"), "Pair_simi"),
        (("--quality-column", "quality"), "quality_score"),
    ):
        done = datamask("select", "-i", str(rows), "-o", output, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = [text for text in done.stderr.splitlines() if text.strip()]
        assert line.startswith("error: ")
        assert words in line


@pytest.mark.parametrize("kind", ["same", "relative", "symbolic link", "hard link"])
def test_the_input_is_not_overwritten(rows: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rows.parent)
    output = rows
    if kind == "relative":
        output = Path("in.parquet")
    elif kind != "same":
        output = rows.with_name("link.parquet")
        os.symlink(rows, output) if kind == "symbolic link" else os.link(rows, output)
    before = rows.read_bytes()
    result = CliRunner().invoke(app, ["select", "-i", str(rows), "-o", str(output)])
    assert "is the input itself" in str(result.exception)
    assert train_mask.main(["--input", str(rows), "--output", str(output), "--n_epochs", "1"]) == 1
    assert rows.read_bytes() == before


def test_an_output_of_before_is_replaced(rows: Path) -> None:
    output = rows.with_name("out.parquet")
    shutil.copy(rows, output)
    assert CliRunner().invoke(app, ["select", "-i", str(rows), "-o", str(output)]).exit_code == 0
    assert "selected" in pq.read_schema(output).names


def test_figures_are_printed_whole_on_a_narrow_terminal(rows: Path) -> None:
    output = rows.with_name("a-folder-of-a-long-name-" + "x" * 60 + ".parquet")
    result = CliRunner().invoke(app, ["select", "-i", str(rows), "-o", str(output)], env={"COLUMNS": "40"})
    assert f"selected 4 of 40 documents -> {output}" in result.stdout.splitlines()


def test_the_terminal_breaks_the_lines_of_help() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"], terminal_width=300, env={"COLUMNS": "300"}).stdout
    assert "the line below says why. A killed run goes on where it was." in shown
    assert "\n     datamask run -c my.yaml" in shown

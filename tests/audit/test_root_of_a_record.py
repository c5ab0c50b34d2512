"""A root digest of what stands in a record, kept elsewhere, tells a record that was written anew as a whole."""

import shutil
from pathlib import Path

from forger import Forger
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import Pipeline


def prove(record: Path, *arguments: str) -> tuple[int, list[str]]:
    command = ["audit", "prove", "first/random", "-s", f"store={record}", "--files-only", *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output.splitlines()


def test_a_root_digest_is_printed_and_asked_about(tiny_run: Pipeline, tmp_path: Path) -> None:
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    code, (root,) = prove(record, "--print-root")
    assert (code, len(root)) == (0, 64)
    assert prove(record, "--root", root.upper())[0] == 0
    Forger(record).change_manifest("score", lambda manifest: manifest.update(wall_seconds=0.5))
    code, lines = prove(record, "--root", root)
    _, (other,) = prove(record, "--print-root")
    assert code == 1
    assert f"contradiction: first/random: its root digest is {other}, and {root} was kept" in lines

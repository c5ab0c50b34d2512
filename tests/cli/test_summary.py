"""The lines below the closing table: the hint asks the right record, and a warning stands where it is true."""

import io
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.summary import print_summary
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import require


def summary(pipeline: Pipeline) -> str:
    console = Console(file=io.StringIO(), width=200)
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


def test_secrets_of_a_store_are_not_printed(tiny_run: Pipeline) -> None:
    config = tiny_run.config.model_copy(update={"storage_options": {"auto_mkdir": True}})
    shown = summary(Pipeline(config, store=tiny_run.store))
    assert "-c YOUR.yaml" in shown
    assert "auto_mkdir" not in shown


def test_models_near_chance_are_called_so_and_others_are_not(tiny_run: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    (path,) = copied.store.part_paths(require(copied.store, "compare", "first"))
    table = pq.read_table(path)
    for value, warned in ((0.99, False), (None, True)):
        values = table.column("chance") if value is None else pa.array([value] * len(table))
        errors = pa.array([0.001] * len(table))
        changed = table.set_column(table.schema.get_field_index("value"), "value", values)
        pq.write_table(changed.set_column(table.schema.get_field_index("stderr"), "stderr", errors), path)
        assert ("clearly above chance" in summary(copied)) == warned
    assert "On 12 of 12 tasks" in summary(copied)

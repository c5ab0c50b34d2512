"""`datamask probe` trains on a user's labels and prints how good the probe is; a run scores by that very probe."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_chain import write_crawl
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage import Store, require

TOPICS = ("The cat sleeps on the mat all day", "def f(x): return x + 1  # code")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows = [{"words": f"{TOPICS[n % 2]}, example {n}", "good": n % 2 == 0} for n in range(60)]
    rows.append({"words": "no label", "good": None})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "labels.parquet")
    write_crawl(tmp_path / "crawls", "tiny", 10, seed=1)
    values = {
        "store": str(tmp_path / "record"),
        "source": {"name": "local", "options": {"root": str(tmp_path / "crawls")}},
        "embed": {"dtype": "float32", "max_tokens": 16, "device": "cpu"},
    }
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_the_held_out_figure_is_printed_and_a_run_takes_that_probe(config: Path) -> None:
    labels = config.parent / "labels.parquet"
    columns = ["--text-column", "words", "--label-column", "good"]
    result = CliRunner().invoke(app, ["probe", str(labels), *columns, "-c", str(config)])
    assert result.exit_code == 0, result.output
    store = Store(config.parent / "record")
    trained = require(store, "probe", "labels")
    report = store.manifest(trained)["metadata"]
    line = next(line for line in result.output.splitlines() if line.startswith("held-out"))
    assert line.startswith(f"held-out AUC {report['held_out']['auc']:.4f} on {report['num_held_out']} of 60")
    assert report["held_out"]["auc"] > 0.95
    assert "1 rows had no text or label" in line

    probe = {"examples": str(labels), "text_column": "words", "label_column": "good"}
    options = [f"score.options.probe.{name}={value}" for name, value in probe.items()]
    settings = [part for option in options for part in ("-s", option)]
    command = ["run", "-c", str(config), "-s", "score.scorers=[probe]", *settings, "--until", "score"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert f"probe: {line}" in result.output
    scores = store.manifest(require(store, "score", "tiny"))
    assert scores["inputs"]["probe"]["fingerprint"] == trained.fingerprint
    assert len(list(store.all_manifests("probe"))) == 1


def test_imported_vectors_leave_nothing_to_embed_examples_by(config: Path) -> None:
    command = ["probe", "labels.parquet", "-c", str(config), "-s", "embed.imported_file=vectors.parquet"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ConfigurationError)

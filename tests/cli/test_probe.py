"""`datamask probe` trains on a user's labels and prints how good the probe is; a run scores by that very probe."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_chain import write_crawl
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.storage import Store, require

TOPICS = ("The cat sleeps on the mat all day", "def f(x): return x + 1  # code")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows = [{"words": f"{TOPICS[n % 2]}, example {n}", "good": n % 2 == 0} for n in range(60)]
    rows.append({"words": "no label", "good": None})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "labels.parquet")
    write_crawl(tmp_path / "crawls", "tiny", 10, seed=1)
    write_crawl(tmp_path / "crawls", "wee", 10, seed=2)
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
    assert result.output.count(f"probe: {line}") == 1, "two crawls, one probe"
    scores = store.manifest(require(store, "score", "tiny"))
    assert scores["inputs"]["probe"]["fingerprint"] == trained.fingerprint
    assert len(list(store.all_manifests("probe"))) == 1


@pytest.mark.parametrize(
    ("name", "rows", "told"),
    [
        (
            "l.parquet",
            [{"text": 1, "label": 1.0}],
            r"a text is no string .*l\.parquet, row 0, field text, value 1",
        ),
        ("l.jsonl", [{"text": "a", "label": 1}, {"text": ["a"], "label": 0}], "a text is no string .*row 1"),
        ("l.jsonl", [{"text": "\ud800", "label": 1}], "half a surrogate pair.*row 0"),
        ("l.jsonl", [{"text": "a", "label": 10**400}], "a label is no finite number .*row 0"),
        ("l.jsonl", [["a", 1]], r"no JSON object: .*this is a list .*l\.jsonl, row 0"),
        ("l.jsonl", [{"text": "a", "label": 1}, None], "no JSON object: .*this is a NoneType .*row 1"),
    ],
)
def test_examples_that_cannot_be_used_are_named(
    config: Path, name: str, rows: list[object], told: str
) -> None:
    labels = config.parent / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), labels)
    else:
        labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["probe", str(labels), "-c", str(config)])
    assert isinstance(result.exception, InputError), result.exception
    assert re.search(told, str(result.exception))


@pytest.mark.parametrize("labels", [[1] * 60, [0] + [1] * 59, [1] * 60 + [None]])
def test_labels_that_teach_nothing_are_refused_before_anything_is_embedded(
    config: Path, labels: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(*given: object) -> None:
        raise AssertionError("embedded before the labels were looked at")

    monkeypatch.setattr("datamask_pipeline.stages.probe._embed", embed)
    path = config.parent / "same.jsonl"
    rows = [{"text": f"{TOPICS[n % 2]} {n}", "label": label} for n, label in enumerate(labels)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["probe", str(path), "-c", str(config)])
    assert isinstance(result.exception, InputError), result.exception
    assert re.search("the same label|only one label", str(result.exception))


@pytest.mark.parametrize(
    "vectors",
    [
        [[0.1] * 768, [0.1] * 767],
        [[0.1] * 768, None],
        [[0.1] * 768, [float("inf")] * 768],
        [[0.1] * 768, [1e300] * 768],
        [[0.1] * 768, [[0.1] * 768]],
        [[0.1] * 768, "vector"],
        [[0.1] * 384] * 2,
    ],
)
def test_vectors_unlike_the_documents_are_refused(config: Path, vectors: list[object]) -> None:
    labels = config.parent / "vectors.jsonl"
    rows = [{"text": f"{TOPICS[n % 2]} {n}", "label": n % 2, "vector": vectors[n % 2]} for n in range(40)]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["probe", str(labels), "-c", str(config), "-s", "score.options.probe.vector_column=vector"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError), result.exception
    assert re.search("no list of 768 finite numbers.*field vector", str(result.exception))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("l2=-1", "l2: .*greater than 0"),
        ("l2=.inf", "l2: .*finite number"),
        ("l3=1", "l3: unknown setting; choose one of"),
    ],
)
def test_a_wrong_option_is_one_line(config: Path, option: str, told: str) -> None:
    result = CliRunner().invoke(
        app, ["probe", "labels.parquet", "-c", str(config), "-s", f"score.options.probe.{option}"]
    )
    assert isinstance(result.exception, ConfigurationError), result.exception
    assert re.fullmatch(f"score.options.probe.{told}.*", str(result.exception))


def test_imported_vectors_leave_nothing_to_embed_examples_by(config: Path) -> None:
    command = ["probe", "labels.parquet", "-c", str(config), "-s", "embed.imported_file=vectors.parquet"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ConfigurationError)


@pytest.mark.slow
def test_a_user_without_labels_is_scored_by_rules_and_told_of_no_probe(config: Path) -> None:
    result = CliRunner().invoke(app, ["run", "-c", str(config), "--until", "score"])
    assert result.exit_code == 0, result.output
    store = Store(config.parent / "record")
    scorers = store.manifest(require(store, "score", "tiny"))["metadata"]["scorers"]
    assert list(scorers) == ["rules"]
    assert "held-out" not in result.output
    assert store.keys("probe") == []


@pytest.mark.parametrize("command", [["probe"], ["run", "-s", "score.scorers=[probe]"]])
def test_a_probe_without_examples_is_refused_before_any_work(config: Path, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "-c", str(config)])
    assert isinstance(result.exception, ConfigurationError), result.exception
    assert re.search(
        "no examples are named; name a Parquet or JSON Lines file of them in", str(result.exception)
    )
    assert Store(config.parent / "record").keys("ingest") == []

"""Upstream's quick test on upstream's file format, and ``datamask select`` on the same file."""

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from selection.mask_record import record_of
from typer.testing import CliRunner

from datamask_pipeline.cli.select import select
from datamask_pipeline.errors import DataMaskError, InputError
from datamask_pipeline.mask_file import (
    ADDED,
    EXPLAINING,
    check_output,
    read_input,
    read_vectors,
    write_output,
)
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.result import SelectionResult
from datamask_pipeline.train_mask import main

QUICK = (
    "--device cpu --n_epochs 30 --algorithm {} --partial 0.1 --max_lr 10 --min_lr 1 --n_rollout 16 "
    "--select_ratio 0.3 --init quality --lamb 0.5"
)


@pytest.fixture
def source(clustered, tmp_path: Path) -> Path:
    rows, quality = clustered
    table = pa.table(
        {
            "chunk_id": [f"chunk-{row}" for row in range(400)],
            "text": [f"text {row}" for row in range(400)],
            "quality_score": quality,
            "feature_arr": pa.array(list(rows * 3), pa.list_(pa.float32())),
            "token_count": np.arange(400) + 10,
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=150)
    return tmp_path / "in.parquet"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("algorithm", ["DiSF", "Facility", "Pair_simi"])
def test_the_quick_test(algorithm: str, source: Path) -> None:
    target = source.with_name("out.parquet")
    status = main(["--input", str(source), "--output", str(target), *QUICK.format(algorithm).split()])
    assert status == 0
    before, after = pq.read_table(source), pq.read_table(target)
    assert after.select(before.column_names).equals(before)
    assert after.column_names == [*before.column_names, "selected", "logit", "probability"]
    selected = after.column("selected").to_numpy()
    logits = after.column("logit").to_numpy()
    assert selected.sum() == 120
    assert logits[selected].min() >= logits[~selected].max()
    record = record_of(target)
    assert record["config"]["num_epochs"] == 30
    assert record["config"]["policy"] == "policy_gradient"
    assert record["rows_normalised_to_unit"] == 400


def test_lamb_weighs_raw_values_where_it_is_asked_to(source: Path, capsys) -> None:
    """Upstream's scale: the printed objective is lamb x mean score + (1 - lamb) x the metric itself."""
    target = source.with_name("raw.parquet")
    options = ["--input", str(source), "--output", str(target), *QUICK.format("Pair_simi").split()]
    assert main([*options, "--lamb", "0.25", "--normalisation", "none"]) == 0
    table = pq.read_table(target).to_pandas()
    rows = np.stack(table["feature_arr"])[table["selected"].to_numpy()].astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    num = len(rows)
    similarity = (np.square(rows.sum(0)).sum() - num) / (num * (num - 1))
    value = 0.25 * table["quality_score"][table["selected"]].mean() - 0.75 * similarity
    assert float(re.search(r"objective (\S+) ", capsys.readouterr().out)[1]) == pytest.approx(value, abs=2e-6)
    assert record_of(target)["config"]["normalisation"] == "none"


def test_a_missing_device_names_cpu(source: Path, capsys) -> None:
    status = main(["--input", str(source), "--output", "x.parquet", "--device", "cuda:9"])
    assert status == 1
    assert "cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--n_epochs 0 --lamb 3", r"error: --n_epochs: .*given: 0\); --lamb: .*given: 3.0\)\n"),
        ("--select_ratio 2", r"error: --select_ratio: .*given: 2.0\)\n"),
        ("--n_rollout 1", r"error: --n_rollout: .*given: 1\)\n"),
        ("--ablate_rollout 1 --plot p.svg", r"error: --ablate_rollout: .*given: 1\)\n"),
        ("--select_ratio 0.001", r"error: .* select at least 2: raise `--select_ratio`, which is 0.001\n"),
    ],
)
def test_what_is_refused_is_told_by_the_option(options: str, told: str, source: Path, capsys) -> None:
    assert main(["--input", str(source), "--output", "out.parquet", *options.split()]) == 1
    assert re.fullmatch(told, capsys.readouterr().err)


def test_no_option_is_abbreviated(source: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--input", str(source), "--output", "out.parquet", "--n_ep", "3"])
    assert "--n_ep" in capsys.readouterr().err


def test_curves_and_the_ablation_of_rollouts_are_drawn(source: Path) -> None:
    picture = source.with_name("curves.png")
    arguments = ["--input", str(source), "--output", str(source.with_name("o.parquet"))]
    assert (
        main(
            [*arguments, *QUICK.format("Pair_simi").split(), "--plot", str(picture), "--ablate_rollout", "4"]
        )
        == 0
    )
    assert picture.stat().st_size > 5000


def run_select(*arguments: str):
    app = typer.Typer()
    app.command()(select)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.slow
def test_select_takes_the_best_learner_and_proves_it(source: Path) -> None:
    target = source.with_name("out.parquet")
    outcome = run_select("-i", str(source), "-o", str(target), "--diversity", "DiSF_uncentred")
    assert outcome.exit_code == 0, outcome.output
    assert "no mask that fills the budget exceeds" in outcome.output
    record = record_of(target)
    assert record["config"]["policy"] == "datamask"
    assert record["certificate"]["gap"] < 0.05
    assert pq.read_table(target).column("selected").to_numpy().sum() == 40


def test_select_with_scratch_and_settings_gives_the_same_mask(source: Path, tmp_path: Path) -> None:
    plain, mapped = tmp_path / "a.parquet", tmp_path / "b.parquet"
    common = ["-i", str(source), "-s", "chunk_rows=64", "-s", "num_kicks=1", "--num-documents", "25"]
    assert run_select(*common, "-o", str(plain)).exit_code == 0
    outcome = run_select(
        *common, "-o", str(mapped), "--scratch", str(tmp_path / "scratch"), "--plot", str(tmp_path / "c.svg")
    )
    assert outcome.exit_code == 0, outcome.output
    assert pq.read_table(plain).equals(pq.read_table(mapped))
    assert record_of(mapped)["config"]["chunk_rows"] == 64
    assert (tmp_path / "c.svg").exists()


def test_select_by_tokens_and_several_metrics(source: Path, tmp_path: Path) -> None:
    arguments = ["-i", str(source), "-o", str(tmp_path / "o.parquet"), "--num-tokens", "2000"]
    outcome = run_select(
        *arguments,
        "--token-column",
        "token_count",
        "--diversity",
        "Pair_simi=1",
        "--diversity",
        "LogDet=2",
        "-s",
        "num_kicks=0",
        "-s",
        "num_restarts=0",
    )
    assert outcome.exit_code == 0, outcome.output
    table = pq.read_table(tmp_path / "o.parquet")
    tokens = table.column("token_count").to_numpy()[table.column("selected").to_numpy()]
    assert 1800 < tokens.sum() <= 2000


def test_help_teaches() -> None:
    text = run_select("--help").output
    for word in ("Examples", "gap", "Pair_simi", "policy_gradient", "scratch"):
        assert word in text
    assert "num_rollouts" in run_select("--list-settings").output


def test_bad_files(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_input(tmp_path / "nothing.parquet")
    with pytest.raises(InputError, match=r"a folder, not a Parquet file.*DuckDB joins several"):
        read_input(tmp_path)
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InputError, match="not a Parquet file"):
        read_input(tmp_path / "text.parquet")
    with pytest.raises(InputError, match="no column 'score'"):
        read_input(source, quality_columns=["score"])
    table = pq.read_table(source)
    for name in ("quality_score", "feature_arr"):
        pq.write_table(table.append_column(name, table.column(name)), tmp_path / "twice.parquet")
        with pytest.raises(InputError, match=f"2 columns '{name}'"):
            read_input(tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="2 columns 'feature_arr'"):
        read_vectors(tmp_path / "twice.parquet")
    uneven = [[1.0, 2.0]] * 399 + [[1.0]]
    index = table.column_names.index("feature_arr")
    pq.write_table(table.set_column(index, "feature_arr", pa.array(uneven)), tmp_path / "uneven.parquet")
    with pytest.raises(InputError, match="row 399"):
        read_input(tmp_path / "uneven.parquet")
    empty = pa.array([[]] * 400, pa.list_(pa.float32()))
    pq.write_table(table.set_column(index, "feature_arr", empty), tmp_path / "empty.parquet")
    with pytest.raises(InputError, match=r"an embedding is empty \(file .*, row 0, field feature_arr\)"):
        read_input(tmp_path / "empty.parquet")
    missing = pa.array([None, *[0.5] * 399], pa.float64())
    pq.write_table(table.set_column(2, "quality_score", missing), tmp_path / "missing.parquet")
    with pytest.raises(InputError, match="row 0, field quality_score"):
        read_input(tmp_path / "missing.parquet")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lamb", "2"], "lamb"),
        (["-s", "num_steps=0"], "num_steps"),
        (["-s", "quotas={a: 1"], "not YAML"),
        (["-s", "nothing"], "KEY=VALUE"),
        (["-s", "colour=red"], "colour"),
        (["--diversity", "nobody"], "nobody"),
        (["--diversity", "DiSF=1", "--diversity", "DiSF=5"], "twice"),
        (["--policy", "nobody"], "nobody"),
        (["-s", "device=cuda:9"], "cpu"),
        (["--plot", "curve.xyz"], "suffix"),
        (["--plot", "no/such/curve.png"], "no folder"),
        (["--plot", "folder.png"], "it is a folder"),
        (["-o", "no/such/out.parquet"], "cannot write"),
    ],
)
def test_what_is_wrong_without_the_rows_is_told_before_they_are_read(
    arguments: list[str], said: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datamask_pipeline.mask_file.read_input", lambda *_, **__: pytest.fail("rows read"))
    monkeypatch.chdir(source.parent)
    Path("folder.png").mkdir()
    outcome = run_select("-i", str(source), "-o", str(source.with_name("out.parquet")), *arguments)
    assert isinstance(outcome.exception, DataMaskError)
    assert said in str(outcome.exception)


@pytest.mark.parametrize(("kind", "said"), [("link", "a link"), ("pipe", "a device or pipe")])
def test_the_output_takes_the_place_of_no_link_or_pipe(kind: str, said: str, source: Path) -> None:
    """As root, ``--output /dev/stdout`` left a Parquet file in its place."""
    target = source.with_name("out.parquet")
    target.symlink_to("elsewhere") if kind == "link" else os.mkfifo(target)
    outcome = run_select("-i", str(source), "-o", str(target), "--policy", "random")
    assert isinstance(outcome.exception, DataMaskError)
    assert f"it is {said}" in str(outcome.exception)
    assert target.is_symlink() or target.is_fifo()


def selected(source: Path) -> SelectionResult:
    given = read_input(source)
    return select_documents(given.embeddings, given.quality, ids=given.ids, policy="quality_topk", ratio=0.3)


def test_a_source_that_is_damaged_is_named_and_leaves_no_file(source: Path, tmp_path: Path) -> None:
    """Not the output, which was to be written, and in the column that only the output needs, too."""
    result = selected(source)
    whole = source.read_bytes()
    chunk = pq.read_metadata(source).row_group(1).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    source.write_bytes(whole[:start] + b"\xff" * 40 + whole[start + 40 :])
    with pytest.raises(InputError, match=r"its rows cannot be read: .*file .*in\.parquet.*a whole copy"):
        write_output(tmp_path / "out.parquet", source, result)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    with pytest.raises(InputError, match=r"its rows cannot be read"):
        read_input(source, id_column="text")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, pa.ArrowException])
def test_whatever_ends_the_writing_no_half_of_a_file_is_left(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    result = selected(source)

    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", interrupted)
    with pytest.raises(error):
        write_output(tmp_path / "out.parquet", source, result)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_column_to_be_added_must_not_be_there(source: Path) -> None:
    out = str(source.with_name("out.parquet"))
    assert run_select("-i", str(source), "-o", out, "--explain").exit_code == 0
    table = pq.read_table(out)
    assert table.column_names[-6:] == [*ADDED, *EXPLAINING]
    assert set(table.filter(table.column("selected")).column("reason").to_pylist()) == {"above threshold"}
    assert record_of(Path(out))["curve"]["step"][0] == 0
    with pytest.raises(InputError, match="field selected"):
        check_output(source.with_name("other.parquet"), Path(out))
    pq.write_table(table.drop_columns(list(ADDED)), source)
    check_output(source.with_name("other.parquet"), source)
    with pytest.raises(InputError, match="field quality_marginal"):
        check_output(source.with_name("other.parquet"), source, explain=True)

"""`datamask select` speaks of the user's file and columns, and tells what it did to the vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError

NUM_ROWS = 60
COLUMNS = ["--id-column", "doc", "--quality-column", "edu", "--embedding-column", "vec"]


def columns() -> dict[str, list[Any]]:
    draws = np.random.default_rng(0)
    vectors = draws.standard_normal((NUM_ROWS, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return {
        "doc": [f"d{n}" for n in range(NUM_ROWS)],
        "edu": draws.random(NUM_ROWS).tolist(),
        "vec": vectors.tolist(),
        "length": [100.0] * NUM_ROWS,
        "site": ["a", "b"] * (NUM_ROWS // 2),
    }


def selected(folder: Path, values: dict[str, list[Any]], *options: str) -> Any:
    pq.write_table(pa.table(values), folder / "in.parquet")
    paths = ["-i", str(folder / "in.parquet"), "-o", str(folder / "out.parquet")]
    return CliRunner().invoke(app, ["select", *paths, *COLUMNS, *options])


@pytest.mark.parametrize(
    ("column", "value", "options", "told"),
    [
        ("vec", [0.0] * 8, (), "zero vector"),
        ("vec", [float("nan")] * 8, (), "not finite"),
        ("doc", "d3", (), "an id stands in row 3 already"),
        ("vec", [1.0] * 7, (), "an embedding has 7 dimensions, not 8"),
        ("vec", None, (), "an embedding is missing"),
        ("doc", None, (), "an id is null"),
        ("edu", None, (), "a value is missing"),
        ("edu", float("nan"), (), "not finite"),
        ("length", 0.0, ("--token-column", "length", "--num-tokens", "2000"), "a token count is not above 0"),
        ("site", "c", ("--group-column", "site", "-s", "quotas={a: 0.5, b: 0.5}"), "has no quota"),
    ],
)
def test_a_bad_value_is_named_by_file_column_and_row(
    tmp_path: Path, column: str, value: Any, options: tuple[str, ...], told: str
) -> None:
    values = columns()
    values[column][7] = value
    result = selected(tmp_path, values, *options)
    assert isinstance(result.exception, InputError), result.exception
    assert told in str(result.exception)
    assert f"(file {tmp_path / 'in.parquet'}, row 7, field {column}" in str(result.exception)
    assert result.exception.remedy


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--id-column", "dock"), "no column 'dock' (did you mean 'doc'?); there are doc, edu, vec"),
        (("--id-column", "dock"), "name yours by `datamask select --id-column`"),
        (("--quality-column", "rules"), "name yours by `datamask select --quality-column`"),
        (("--embedding-column", "rules"), "name yours by `datamask select --embedding-column`"),
        (("--token-column", "tokens"), "name yours by `datamask select --token-column`"),
        (
            ("--group-column", "host", "-s", "quotas={'*': 1}"),
            "name yours by `datamask select --group-column`",
        ),
        (("--quality-column", "doc"), "cast them, or name a column of numbers"),
        (("--embedding-column", "edu"), "cast them, or name a column of such lists"),
    ],
)
def test_a_column_that_will_not_do_is_told_with_what_names_another(
    tmp_path: Path, options: tuple[str, ...], remedy: str
) -> None:
    result = selected(tmp_path, columns(), *options)
    assert isinstance(result.exception, InputError), result.exception
    assert remedy in str(result.exception)
    assert str(tmp_path / "in.parquet") in str(result.exception)


def test_numbers_are_not_read_from_text(tmp_path: Path) -> None:
    result = selected(tmp_path, columns() | {"edu": [str(value) for value in columns()["edu"]]})
    assert isinstance(result.exception, InputError), result.exception
    assert "not numbers: string" in str(result.exception)
    assert "cast them, or name a column of numbers" in str(result.exception)


def test_groups_without_quotas_are_refused(tmp_path: Path) -> None:
    result = selected(tmp_path, columns(), "--group-column", "doc")
    assert isinstance(result.exception, ConfigurationError), result.exception
    assert "--group-column doc says nothing without quotas: add them" in str(result.exception)


def test_a_file_without_rows_or_with_the_output_s_columns_is_refused_with_a_remedy(tmp_path: Path) -> None:
    empty = {name: [] for name in columns()}
    for values, remedy in ((empty, "name one that has documents"), (columns(), "drop or rename it")):
        result = selected(tmp_path, {**values, **({} if values is empty else {"logit": values["edu"]})})
        assert isinstance(result.exception, InputError), result.exception
        assert remedy in str(result.exception)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--num-tokens", "2000"), "name their column by --token-column"),
        (("-s", "quotas={a: 0.5, b: 0.5}"), "name their column by --group-column"),
    ],
)
def test_a_column_that_was_not_named_is_asked_for(
    tmp_path: Path, options: tuple[str, ...], remedy: str
) -> None:
    result = selected(tmp_path, columns(), *options)
    assert isinstance(result.exception, InputError), result.exception
    assert remedy in str(result.exception)
    assert "field" not in str(result.exception)


def test_how_many_tokens_were_selected_is_told(tmp_path: Path) -> None:
    result = selected(tmp_path, columns(), "--token-column", "length", "--num-tokens", "2000")
    assert "selected 20 of 60 documents, 2,000 tokens together -> " in result.stdout


@pytest.mark.parametrize("weight", ["", "x"])
def test_a_metric_s_weight_that_is_no_number_is_refused(tmp_path: Path, weight: str) -> None:
    result = selected(tmp_path, columns(), "--diversity", f"LogDet={weight}", "--diversity", "Facility=2")
    assert isinstance(result.exception, ConfigurationError), result.exception
    assert f"--diversity 'LogDet={weight}': the weight is not a number" in str(result.exception)


@pytest.mark.slow
def test_vectors_made_unit_are_told(tmp_path: Path) -> None:
    values = columns()
    told = "embeddings were not of unit norm and have been normalised"
    assert told not in selected(tmp_path, values).output
    values["vec"][:5] = [[3 * number for number in vector] for vector in values["vec"][:5]]
    assert f"5 of {NUM_ROWS} {told}" in selected(tmp_path, values).output


@pytest.mark.slow
def test_the_scale_and_its_zero_are_told(tmp_path: Path) -> None:
    help_text = " ".join(CliRunner().invoke(app, ["select", "--help"]).output.split())
    assert "1 an estimate of the best each reaches alone" in help_text
    assert "(random 0.000000)" in selected(tmp_path, columns()).output
    metadata = pq.read_schema(tmp_path / "out.parquet").metadata
    assert json.loads(metadata[b"datamask"])["objective"]["random"] == 0.0


def test_reasons_of_the_paper_s_learner_are_its_own(tmp_path: Path) -> None:
    learner = (
        "--policy",
        "policy_gradient",
        "-s",
        "num_epochs=20",
        "-s",
        "num_rollouts=8",
        "-s",
        "partial=0.5",
    )
    output = selected(tmp_path, columns(), *learner).output
    assert "logit at or above threshold" in output
    assert "exception" not in output


def test_whole_numbers_are_groups_and_a_misspelt_quota_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = columns() | {"site": [0, 1] * (NUM_ROWS // 2)}
    quotas = 'quotas={"0": 0, "11": 0, "*": 1}'
    result = selected(tmp_path, values, "--group-column", "site", "--num-documents", "9", "-s", quotas)
    assert result.exit_code == 0, result.output
    chosen = pq.read_table(tmp_path / "out.parquet", columns=["site", "selected"]).to_pydict()
    assert {site for site, taken in zip(*chosen.values(), strict=True) if taken} == {1}
    assert [message for message in caplog.messages if "'11'" in message and "did you mean '1'" in message]
    values["site"][7] = None
    refused = selected(tmp_path, values, "--group-column", "site", "-s", quotas)
    assert "group is null" in str(refused.exception)
    assert "row 7, field site" in str(refused.exception)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--lamb", "0.5", "-s", "lamb=0.9"), "lamb is given twice: 0.5 by --lamb and 0.9 by --set"),
        (("--num-documents", "9", "-s", "num_documents=8"), "9 by --num-documents and 8 by --set"),
        (
            ("--diversity", "Facility", "-s", "diversity=DiSF"),
            "'Facility' by --diversity and 'DiSF' by --set",
        ),
        (("-s", "lamb=0.1", "-s", "lamb=0.9"), "--set lamb is given twice: 0.1 and 0.9"),
    ],
)
def test_a_setting_that_is_given_twice_is_refused(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    result = selected(tmp_path, columns(), *options)
    assert isinstance(result.exception, ConfigurationError), result.output
    assert told in str(result.exception)


@pytest.mark.slow
def test_a_setting_that_is_given_once_or_twice_alike_is_taken(tmp_path: Path) -> None:
    for options in (("-s", "lamb=0.9"), ("--lamb", "0.9", "-s", "lamb=0.9", "-s", "lamb=0.9")):
        result = selected(tmp_path, columns(), *options)
        assert result.exit_code == 0, result.output
        record = json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[b"datamask"])
        assert record["config"]["lamb"] == 0.9


def test_one_column_may_serve_twice(tmp_path: Path) -> None:
    values = columns() | {"length": list(range(1, NUM_ROWS + 1))}
    for options in (
        ("--quality-column", "length", "--token-column", "length", "--num-tokens", "300"),
        ("--quality-column", "edu"),
        ("--group-column", "doc", "-s", "quotas={'*': 1}"),
    ):
        result = selected(tmp_path, values, *options, "--policy", "quality_topk")
        assert result.exit_code == 0, result.exception
    result = selected(tmp_path, values, "--quality-column", "vec")
    assert "not numbers: list<element: double>" in str(result.exception)


def test_lists_of_categories_in_several_row_groups_come_along(tmp_path: Path) -> None:
    kinds = pa.array(["a", "b"] * NUM_ROWS).dictionary_encode()
    tags = pa.ListArray.from_arrays(pa.array(range(0, 2 * NUM_ROWS + 1, 2), pa.int32()), kinds)
    table = pa.table(columns()).append_column("tags", tags)
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=NUM_ROWS // 4)
    paths = ["-i", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.parquet")]
    result = CliRunner().invoke(app, ["select", *paths, *COLUMNS, "--policy", "random"])
    assert result.exit_code == 0, result.exception
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column("tags").to_pylist() == [["a", "b"]] * NUM_ROWS
    assert written.column("doc").equals(table.column("doc"))


def test_a_name_of_another_format_is_refused_before_any_work(tmp_path: Path) -> None:
    output = str(tmp_path / "out.csv")
    result = CliRunner().invoke(app, ["select", "-i", str(tmp_path / "in.parquet"), "-o", output])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception) == (
        f"--output {output}: what is written is Parquet; give it a name that ends in .parquet"
    )


def test_the_list_of_settings_has_those_of_metrics_too_and_says_where_they_stand() -> None:
    result = CliRunner().invoke(app, ["select", "--list-settings"])
    listed: dict[str, list[str]] = {}
    of = ""
    for line in result.output.splitlines():
        if line.startswith("# "):
            of = line
        else:
            listed.setdefault(of, []).append(line.partition(":")[0])
    assert listed["# in diversity_options, under Facility"] == ["exact_rows", "num_landmarks", "seed"]
    assert listed["# in diversity_options, under Pair_graph"] == ["neighbours"]
    assert listed["# in diversity_options, under LogDet"] == ["scale"]

"""Views over what is current: the rows that the record's pointers lead to, and no superseded one."""

import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from old_record import unpack
from typer.testing import CliRunner

from datamask_pipeline.audit.funnel import funnel
from datamask_pipeline.audit.views import views
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.storage import Store, require

RELEASE = "first"


def opened(store: Store) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(views(store))
    return connection


def check_against(store: Store) -> None:
    """Each asset's view has the rows of its current artefacts, under their keys."""
    connection = opened(store)
    for output in (output for stage in FLOW for output in stage.makes if output.table):
        refs = [require(store, output.artefact, key) for key in store.keys(output.artefact)]
        if not refs:
            continue
        columns = ["crawl"] if output.table.key == "crawl" else output.table.key.split("/")
        found = connection.execute(
            f"SELECT {', '.join(columns)}, count(*) FROM {output.asset} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert found == sorted((*ref.key.split("/", 1), ref.rows) for ref in refs if ref.rows), output.asset
    told = connection.execute("SELECT stage, key, rows, fingerprint FROM artefacts ORDER BY ALL").fetchall()
    names = [output.artefact for stage in FLOW for output in stage.makes]
    refs = [require(store, name, key) for name in names for key in store.keys(name)]
    assert told == sorted((ref.stage, ref.key, ref.rows, ref.fingerprint) for ref in refs)


def test_views_have_the_rows_of_current_artefacts(tiny_run: Pipeline) -> None:
    check_against(tiny_run.store)


def test_a_superseded_selection_is_not_counted(tmp_path: Path) -> None:
    """The record of version 0.1 has two selections of `datamask`."""
    unpack(tmp_path)
    check_against(Store(tmp_path / "record"))


def test_the_funnel_is_that_of_the_command(tiny_run: Pipeline) -> None:
    rows = opened(tiny_run.store).execute(
        "SELECT arm, left_at, rule, documents, tokens, examples FROM funnel WHERE left_at IS NOT NULL"
    )
    expected = [
        (arm["arm"], level["stage"], drop["rule"], drop["documents"], drop["tokens"], drop["examples"])
        for arm in funnel(tiny_run.store, RELEASE)["arms"]
        for level in arm["levels"]
        for drop in level["dropped"]
        if level["stage"] != "ingest"
    ]
    told = rows.fetchall()
    assert sorted(row for row in told if row[1] != "ingest") == sorted(expected)
    rejected = {
        (arm["arm"], drop["rule"]): drop["examples"]  # of the last crawl; the first ones of all are told
        for arm in funnel(tiny_run.store, RELEASE)["arms"]
        for level in arm["levels"]
        for drop in level["dropped"]
        if level["stage"] == "ingest"
    }
    of_ingest = {(arm, rule): (number, tokens) for arm, at, rule, number, tokens, _ in told if at == "ingest"}
    kept = [require(tiny_run.store, "ingest", key) for key in tiny_run.store.keys("ingest")]
    read = [tiny_run.store.manifest(ref)["counts"] for ref in kept]
    reasons = Counter[str]()
    for counts in read:
        reasons.update({name[8:]: number for name, number in counts.items() if name.startswith("dropped_")})
    assert of_ingest == {
        (arm, rule): (number, None)
        for arm in tiny_run.config.arms
        for rule, number in reasons.items()
        if number
    }
    assert of_ingest.keys() == rejected.keys() != set()


def test_a_decision_is_told_of_every_document(tiny_run: Pipeline) -> None:
    connection = opened(tiny_run.store)
    mask = tiny_run.store.read_table(require(tiny_run.store, "select", f"{RELEASE}/datamask")).to_pylist()
    told = connection.execute(
        "SELECT crawl, id, left_at IS NULL, reason FROM decisions WHERE arm = 'datamask' AND selected IS NOT NULL"
    ).fetchall()
    assert sorted(told) == sorted((row["crawl"], row["id"], row["selected"], row["reason"]) for row in mask)
    ((documents,),) = connection.execute(
        "SELECT count(*) FROM decisions WHERE arm = 'random' AND left_at IS DISTINCT FROM 'ingest'"
    ).fetchall()
    assert documents == require(tiny_run.store, "pool", RELEASE).rows


def test_names_of_strangers_are_quoted(tiny_run: Pipeline, tmp_path: Path) -> None:
    root = tmp_path / "it's [a] record*"
    shutil.copytree(tiny_run.store.root, root)
    (number,) = opened(Store(root)).execute("SELECT count(*) FROM crawl_documents").fetchone() or (0,)
    assert number == sum(require(tiny_run.store, "ingest", key).rows for key in tiny_run.store.keys("ingest"))


def test_the_command_writes_what_duckdb_reads(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    command = ["audit", "sql", "-c", str(tiny_config_file)]
    done = CliRunner().invoke(app, [*command, "--file", str(tmp_path / "views.sql")])
    assert done.exit_code == 0, done.exception
    assert (tmp_path / "views.sql").read_text() == views(tiny_run.store)
    assert CliRunner().invoke(app, command).stdout == views(tiny_run.store)
    with pytest.raises(ConfigurationError, match="holds nothing yet"):
        views(Store(tmp_path / "empty"))

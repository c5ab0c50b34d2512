"""Texts, addresses, ids and names of columns from strangers are inert wherever they are shown."""

import base64
import json
import re
import shlex
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_chain import COLUMN, IMAGE, PAYLOADS, SCRIPT, Hostile
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from assets.metadata import table
from datamask_pipeline.audit.views import views
from datamask_pipeline.cli.app import app
from datamask_pipeline.look.page import page
from datamask_pipeline.look.selected import selected
from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.storage import require


def is_inert_on_a_terminal(text: str) -> bool:
    return all(sign.isprintable() or sign in "\n\u3000\u00a0" for sign in text)


def is_inert_as_html(text: str) -> bool:
    """No payload stands in it as it came, and no tag, attribute or address of one either."""
    no_tag = "<script" not in text and "<img src=x" not in text and "<b>" not in text
    no_address = not re.search(r'(?:href|src)="(?!data:|#|/|&#)', text)
    return no_tag and no_address and is_inert_on_a_terminal(text.replace("\t", ""))


def ask(hostile: Hostile, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "-c", str(hostile.config_file)])


@pytest.fixture(scope="module")
def hostile_ids(hostile: Hostile) -> list[str]:
    """An id of each payload that the arm chose or not, and one of a rejected row."""
    names = pa.concat_tables(
        [
            hostile.store.read_table(require(hostile.store, "ingest", key), ["id"])
            for key in hostile.store.keys("ingest")
        ]
    ).column(0)
    found = [next(name for name in names.to_pylist() if payload in name) for payload in PAYLOADS]
    rejected = hostile.store.read_table(require(hostile.store, "rejected", "tiny-2024-10")).to_pylist()
    return [*found, next(row["id"] for row in rejected if row["reason"] == "nul_byte")]


@pytest.mark.slow
def test_the_page(hostile: Hostile) -> None:
    for arm in ("random", "datamask"):
        text = page(selected(hostile.store, "first", arm))
        assert is_inert_as_html(text)
        assert "owned" in text, "hostile names are told"
        for drawn in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", text):
            picture = base64.b64decode(drawn).decode()
            assert not re.search('<script|<img|onerror="|javascript:"|<foreignObject', picture)
            assert is_inert_on_a_terminal(picture)


def test_the_browser(hostile: Hostile, hostile_ids: list[str], url_of_hostile: str, get: Any) -> None:
    paths = [
        "",
        "documents?stage=rejected",
        "documents?stage=crawl",
        "documents?of=first/datamask&text=owned",
    ]
    paths += [
        f"documents?of=first/datamask&view={view}" for view in ("kept", "dropped", "borderline", "copies")
    ]
    paths += [f"document?crawl=tiny-2024-10&row={row}&release=first&arm=datamask" for row in range(0, 14)]
    seen = ""
    for path in paths:
        status, text = get(url_of_hostile + path)
        assert status == 200, path
        assert is_inert_as_html(text), path
        seen += text
    assert "&lt;script&gt;" in seen
    assert "\\u001b]0;owned" in seen
    assert "\\u202e" in seen
    for name in (*hostile_ids, f'"><script>{IMAGE}'):
        for field in (
            "find?id=",
            "documents?of=first/datamask&text=",
            "documents?of=first/datamask&language=",
            "documents?stage=",
        ):
            status, text = get(url_of_hostile + field + urlencoded(name))
            assert is_inert_as_html(text), (field, name)


def test_the_card(hostile: Hostile, tmp_path: Path) -> None:
    wanted = PublishConfig(licence="odc-by", source_licence="odc-by", columns=(COLUMN,))
    publish(hostile.store, "first", "datamask", str(tmp_path / "mask"), wanted)
    card = (tmp_path / "mask" / "README.md").read_text()
    assert "owned" in card
    assert is_inert_on_a_terminal(card)
    assert_inert_markdown(card.split("---\n", 2)[2], rows_of_tables=True)


def test_dagsters_pages(hostile: Hostile) -> None:
    seen = ""
    for asset in {output.asset for stage in FLOW for output in stage.makes}:
        records = hostile.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
        for event in records:
            for name, value in event.asset_materialization.metadata.items():
                if isinstance(value, dg.MarkdownMetadataValue):
                    seen += value.value
                    assert_inert_markdown(value.value, images=r"data:image/png;base64,[A-Za-z0-9+/=]+")
                elif isinstance(value, dg.TableSchemaMetadataValue):
                    for column in value.schema.columns:  # names are text there, descriptions Markdown
                        assert_inert_markdown(column.description or "")
                elif isinstance(value, dg.UrlMetadataValue):
                    raise AssertionError(f"{asset}: {name} is a link")
    shown = table(
        [{"name": payload, "payload": payload} for payload in PAYLOADS], "name", **{"payload": COLUMN}
    )
    assert_inert_markdown(shown.value)
    assert seen


@pytest.mark.slow
def test_terminals(hostile: Hostile, hostile_ids: list[str], tmp_path: Path) -> None:
    assert all(map(is_inert_on_a_terminal, hostile.lines))
    told = [ask(hostile, "report"), ask(hostile, "report", "--json"), ask(hostile, "report", "--csv")]
    for name in hostile_ids:
        told += [
            ask(hostile, "audit", "why", name, *more) for more in ((), ("--text",), ("--json", "--text"))
        ]
        assert json.loads(told[-1].output)["id"] == name
    for result in told:
        assert result.exit_code == 0, result.output
        assert is_inert_on_a_terminal(result.output), result.output
    assert "\\u001b]0;owned" in told[-2].output


def test_further_questions_on_terminals(hostile: Hostile) -> None:
    asked = [["funnel", "first"], ["diff", "first/random", "first/datamask"], ["status"]]
    for words in asked:
        for more in ([], ["--json"]):
            result = ask(hostile, "audit", *words, *more)
            assert result.exit_code == 0, (words, result.exception)
            assert result.output
            assert is_inert_on_a_terminal(result.output), words


def test_what_is_refused_is_told_inertly(
    hostile: Hostile, hostile_ids: list[str], monkeypatch: Any, capsys: Any
) -> None:
    from datamask_pipeline.cli import main

    for name in hostile_ids:
        words = ["datamask", "audit", "why", f"{name}x", "-s", f"store={hostile.store.root}"]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit):
            main()
        error = capsys.readouterr().err
        assert error.startswith("error: no document")
        assert is_inert_on_a_terminal(error)


def test_the_learner_alone_explains_itself_inertly(tmp_path: Path) -> None:
    """Ids, groups and names of columns of a file of the user's."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(24, 8)).astype(np.float32)
    rows = {
        "chunk_id": [f"{number}{PAYLOADS[number % len(PAYLOADS)]}" for number in range(24)],
        "quality_score": rng.random(24),
        "feature_arr": list(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)),
        COLUMN: ["x"] * 24,
    }
    given, made = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table(rows), given)
    words = ["select", "-i", str(given), "-o", str(made), "--explain", "--ratio", "0.3"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert is_inert_on_a_terminal(result.output)
    assert pq.read_table(made).column("chunk_id").to_pylist() == rows["chunk_id"], "data stay as they came"
    assert set(pq.read_table(made).column("reason").to_pylist()) == {"above threshold", "below threshold"}


def test_the_command_that_is_suggested_runs_nothing_else(hostile: Hostile) -> None:
    (line,) = [line for line in ask(hostile, "report").output.splitlines() if "audit why" in line]
    words = shlex.split(line.partition(":  ")[2])
    assert words[-5:-3] == ["audit", "why"]
    assert words[-2:] == ["-c", str(hostile.config_file)]


def assert_inert_markdown(text: str, images: str = "(?!)", *, rows_of_tables: bool = False) -> None:
    """What Markdown makes of it holds no tag, link or image of a stranger's, and every row of a table its cells."""
    seen = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    flat = [token for each in seen for token in (each, *(each.children or []))]
    assert not [token for token in flat if token.type in ("html_block", "html_inline", "link_open")], text
    for token in flat:
        if token.type == "image":
            assert re.fullmatch(images, str(token.attrs["src"])), text
    cells, heads = 0, 0
    for token in seen:
        if token.type == "tr_open":
            cells = 0
        elif token.type == "thead_open":
            heads = 0
        elif token.type in ("th_open", "td_open"):
            cells += 1
            heads += token.type == "th_open"
        elif token.type == "tr_close":
            assert cells == heads, text
    assert rows_of_tables is False or heads


def urlencoded(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="", errors="surrogatepass")


def test_the_payloads_reach_the_record(hostile: Hostile) -> None:
    """Or all of the above shows nothing."""
    rows = hostile.store.read_table(require(hostile.store, "ingest", "tiny-2024-10")).to_pylist()
    for payload in PAYLOADS:
        assert any(payload in row["text"] and payload in row["id"] and payload in row["url"] for row in rows)
    assert COLUMN in rows[0]
    assert any(SCRIPT in row["id"] for row in rows)


def test_the_views_funnel_has_every_row_that_the_crawls_have(hostile: Hostile) -> None:
    """A row without an id is named by its place."""
    connection = duckdb.connect()
    connection.execute(views(hostile.store))
    refs = [require(hostile.store, "ingest", key) for key in hostile.store.keys("ingest")]
    rows_in = sum(hostile.store.manifest(ref)["counts"]["rows_in"] for ref in refs)
    told = connection.execute("SELECT arm, sum(documents) FROM funnel GROUP BY 1").fetchall()
    assert {number for _, number in told} == {rows_in}
    names = connection.execute(
        "SELECT DISTINCT unnest(examples) FROM funnel WHERE left_at = 'ingest'"
    ).fetchall()
    rejected = connection.execute("SELECT crawl, shard, row, id, reason FROM rejected_documents").fetchall()
    assert {name for (name,) in names} <= {
        name or f"{shard} row {row}" for _, shard, row, name, _ in rejected
    }
    decided = (
        "SELECT crawl, shard, row, id, reason FROM decisions WHERE arm = 'datamask' AND left_at = 'ingest'"
    )
    assert sorted(connection.execute(decided).fetchall(), key=str) == sorted(rejected, key=str)

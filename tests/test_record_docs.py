"""docs/record.md says what is so: its examples run on a record, and its columns are those of the schema.

Called as a script, it writes the columns into the document.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from old_record import unpack

from datamask_pipeline import schema
from datamask_pipeline.families import POLICIES
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.selection.reasons import BY_RULE, HELD, NEVER_JUDGED, PASSED_OVER, Decision
from datamask_pipeline.sources.filters import REASONS
from datamask_pipeline.storage import Store, require

DOCUMENT = Path(__file__).parents[1] / "docs" / "record.md"
COLUMNS = re.compile(r"(<!-- columns: [^\n]* -->\n).*?(<!-- end of columns -->)", re.DOTALL)


def columns_as_markdown() -> str:
    """A table for each kind of artefact with rows, for arrays beside them, for the manifest of a comparison; all reasons."""
    lines = []
    for artefact, table in schema.TABLES.items():
        lines += [f"### `{artefact}/<{table.key}>`", "", f"One row per {table.row}.", ""]
        lines += (
            [*_rows(table.columns), f"| ... | | Then {table.more}. |"] if table.more else _rows(table.columns)
        )
        lines.append("")
    lines += ["### `<column>.npy` beside the part of `select`", "", *_rows(schema.CERTIFICATE), ""]
    lines += ["### `cliques.parquet` beside the part of `select`", "", "One row per member of a clique.", ""]
    lines += [*_rows(schema.CLIQUES), ""]
    of_report = {
        "arms": schema.REPORT_ARMS,
        "differences": schema.REPORT_DIFFERENCES,
        "gold.differences": schema.REPORT_GOLD,
    }
    for name, columns in of_report.items():
        lines += [f"### `metadata.{name}` in the manifest of `compare`", "", *_rows(columns), ""]
    lines += ["### Reasons in `rejected`", "", "| reason | what it says |", "|---|---|"]
    lines += [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    lines += ["", "### Reasons in `select`", "", "| reason | in or out | of |", "|---|---|---|"]
    for decision, policies in _decisions().items():
        told = {
            "in": [decision.into, decision.in_all_the_same],
            "out": [decision.out, decision.out_all_the_same],
        }
        lines += [
            f"| {reason} | {side} | {policies} |" for side, both in told.items() for reason in both if reason
        ]
    lines += [f"| {reason} | out | every policy, before it judges |" for reason in NEVER_JUDGED]
    lines += [f"| {HELD} | in | releases that go on from another |"]
    lines += [f"| {PASSED_OVER} | out | releases that go on from another |", ""]
    return "\n".join(lines) + "\n"


def _decisions() -> dict[Decision, str]:
    """How policies decide, and which do so; the rule of those whose marginals a metric does not have at last."""
    found: dict[Decision, list[str]] = {}
    for name, policy in sorted(POLICIES.classes().items()):
        found.setdefault(policy.decision, []).append(f"`{name}`")
    found.setdefault(BY_RULE, []).append("any, where a metric has no marginals")
    return {decision: ", ".join(names) for decision, names in found.items()}


def _rows(columns: Any) -> list[str]:
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for field in columns:
        meaning = str(schema.description(field)).replace("|", chr(92) + "|")
        lines.append(f"| `{field.name}` | {field.type} | {meaning} |")
    return lines


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def answers() -> list[list[tuple[Any, ...]]]:
    """What the document's queries answer, one after the other, in the current directory."""
    connection = duckdb.connect()
    statements = [text for block in blocks("sql") for text in block.split(";") if text.strip()]
    found = [connection.execute(text).fetchall() for text in statements]
    return [rows for text, rows in zip(statements, found, strict=True) if "SET VARIABLE" not in text]


def test_the_columns_are_those_of_the_schema() -> None:
    match = COLUMNS.search(DOCUMENT.read_text(encoding="utf-8"))
    assert match is not None
    assert match.group(0) == f"{match.group(1)}{columns_as_markdown()}{match.group(2)}", (
        "run `python tests/test_record_docs.py`"
    )


def check_answers(store: Store) -> None:
    there, mask, texts, left_out, results, manifests = answers()
    stages = sorted({path.split("/")[-1] for path in store.fs.ls(store.root, detail=False)})
    assert [row[:2] for row in there] == [(stage, key) for stage in stages for key in store.keys(stage)]
    chosen = store.read_table(require(store, "select", "first/datamask")).to_pylist()
    assert sum(row[2] for row in mask if row[0]) == sum(row["selected"] for row in chosen)
    assert sum(row[2] for row in mask) == len(chosen)
    subset = store.read_table(require(store, "materialise", "first/datamask")).to_pylist()
    assert {(row[0], row[1], row[4]) for row in texts} == {(r["crawl"], r["id"], r["text"]) for r in subset}
    scores = {
        (crawl, row["id"], row["scorer"]): row["score"]
        for crawl in store.keys("score")
        for row in store.read_table(require(store, "score", crawl)).to_pylist()
    }
    assert len(left_out) == sum(not row["selected"] for row in chosen)
    assert all(scores[row[:3]] == row[3] for row in left_out)
    assert {row[0] for row in results} == {"random", "datamask"}
    assert len(manifests) == len(there)


def test_the_queries_answer_rightly(tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(tiny_run.store.root).parent)
    check_answers(tiny_run.store)
    for block in blocks("python"):
        exec(block, {})


def test_they_answer_for_a_release_whose_candidates_were_made_from_more_than_documents(
    tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = tiny_run.config.pool.model_copy(update={"takedown": ("a-document-that-is-not-there",)})
    changed = {"store": str(tmp_path / "record"), "pool": settings}
    pipeline = Pipeline(tiny_run.config.model_copy(update=changed))
    for stage in ("takedown", "pool"):
        pipeline.run(stage, "first")
    monkeypatch.chdir(tmp_path)
    check_answers(pipeline.store)


def test_the_queries_count_no_superseded_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of version 0.1 has two selections of `datamask`: a glob over both counts every document twice."""
    unpack(tmp_path)
    monkeypatch.chdir(tmp_path)
    store = Store("record")
    check_answers(store)
    rows = (
        duckdb.connect().execute("SELECT count(*) FROM 'record/select/first/datamask/*/*.parquet'").fetchone()
    )
    assert rows == (2 * require(store, "select", "first/datamask").rows,)


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(COLUMNS.sub(lambda m: f"{m[1]}{columns_as_markdown()}{m[2]}", text), encoding="utf-8")

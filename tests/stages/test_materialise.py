"""The subset is what the mask selects: each document found by its place, with its own scores beside its text."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_chain import write_tiny_config

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.schema import DOCUMENTS, SCORE_PREFIX
from datamask_pipeline.stages import materialise
from datamask_pipeline.storage import Ref, require

RELEASE, ARM = "first", "first/datamask"


def rows_of(pipeline: Pipeline, stage: str, *keys: str) -> list[dict[str, object]]:
    refs = [require(pipeline.store, stage, key) for key in keys]
    return [row for ref in refs for row in pipeline.store.read_table(ref).to_pylist()]


def test_every_row_is_the_selected_document_with_its_scores(tiny_run: Pipeline) -> None:
    crawls = tiny_run.release_crawls(RELEASE)
    documents = {(row["crawl"], row["id"]): row for row in rows_of(tiny_run, "ingest", *crawls)}
    scores = {row["id"]: row["score"] for row in rows_of(tiny_run, "score", *crawls)}
    candidates = {row["position"]: row for row in rows_of(tiny_run, "pool", RELEASE)}
    selected = [row for row in rows_of(tiny_run, "select", ARM) if row["selected"]]
    subset = rows_of(tiny_run, "materialise", ARM)
    assert len(subset) == len(selected) > 10
    for row, chosen in zip(subset, selected, strict=True):
        key = (chosen["crawl"], chosen["id"])
        assert {name: row[name] for name in DOCUMENTS.names} == {
            name: documents[key][name] for name in DOCUMENTS.names
        }
        assert row["score_rules"] == scores[chosen["id"]]
        assert (row["logit"], row["quality"]) == (chosen["logit"], chosen["quality"])
        candidate = candidates[chosen["position"]]
        assert (candidate["crawl"], candidate["id"]) == key
        assert row["num_copies"] == candidate["num_copies"]


def test_columns_of_scores_may_be_left_out_and_nothing_else_differs(
    tiny_run: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    with_scores = pipeline.store.read_table(require(pipeline.store, "materialise", ARM))
    (without,) = pipeline.run("materialise", *ARM.split("/"), overrides={"score_columns": False})
    scores = [name for name in with_scores.column_names if name.startswith(SCORE_PREFIX)]
    assert scores
    assert pipeline.store.read_table(without).equals(with_scores.drop_columns(scores))


@pytest.mark.parametrize("lost", [("manifest.json",), ("manifest.json", "00001.parquet")])
def test_a_subset_that_was_cut_off_counts_what_was_there(
    tiny_run: Pipeline, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    whole = require(pipeline.store, "materialise", ARM)
    told = pipeline.store.manifest(whole)
    assert told["metadata"]["tokens"] > 0
    for name in lost:
        (tmp_path / "record" / whole.location / name).unlink()
    steps = {stage: call for stage, key, call in pipeline.steps(RELEASE, "materialise") if key == ARM}
    steps["materialise"]()
    again = pipeline.store.manifest(require(pipeline.store, "materialise", ARM))
    assert (again["metadata"], again["counts"]) == (told["metadata"], told["counts"])


def test_documents_that_moved_since_are_refused(tiny_run: Pipeline, tmp_path: Path) -> None:
    """The mask names places; another document in one of them must not take the selected one's."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    store, crawls = pipeline.store, tiny_run.release_crawls(RELEASE)
    documents: dict[str, Ref] = {crawl: require(store, "ingest", crawl) for crawl in crawls}
    moved = store.begin("ingest", "moved", version="1", config={}, inputs={})
    tables = [pq.read_table(path) for path in store.part_paths(documents[crawls[0]])]
    parts = [
        moved.write_part(name, [table.take(pa.array(range(table.num_rows)[::-1]))], table.schema)
        for name, table in zip(store.part_names(documents[crawls[0]]), tables, strict=True)
    ]
    documents[crawls[0]] = moved.commit(parts)
    with pytest.raises(
        IntegrityError, match=r"subset of first/datamask has \d+ rows where its selection has"
    ):
        materialise.run(
            materialise.MaterialiseConfig(),
            store=store,
            release=RELEASE,
            arm="datamask",
            documents=documents,
            candidates=require(store, "pool", RELEASE),
            index=require(store, "gather", RELEASE),
            selection=require(store, "select", ARM),
        )


def test_lengths_that_are_not_stated_are_counted_beside_the_sum_of_the_others(tmp_path: Path) -> None:
    config = write_tiny_config(tmp_path)
    (path, *_) = sorted((tmp_path / "crawls").rglob("*.jsonl"))
    rows = [json.loads(line) | {"token_count": None} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = Pipeline(load_config(str(config), {"arms": {"random": {"policy": "random"}}}))
    for _, _, call in pipeline.steps(RELEASE, "materialise"):
        (ref, *_) = call()
    subset = pipeline.store.read_table(ref).to_pylist()
    missing = sum(row["token_count"] is None for row in subset)
    metadata = pipeline.store.manifest(ref)["metadata"]
    assert 0 < missing < len(subset)
    stated = sum(row["token_count"] or 0 for row in subset)
    assert (metadata["tokens"], metadata["without_token_count"]) == (stated, missing)

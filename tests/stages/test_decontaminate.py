"""Documents with so many words in a row of a question are left out before selection, and no others."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from datamask_pipeline import schema
from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.contamination import _lines
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.stages import decontaminate, pool
from datamask_pipeline.storage import Ref, Store, require

GOAL = "How do you keep a wooden cutting board from slipping while you chop hard root vegetables"
OTHER = "Which of these rivers flows through the largest number of countries before it reaches the sea"
WORDS = GOAL.lower().split()
TEXTS = {
    "whole": f"A page about kitchens. {GOAL.upper()}? Put a damp cloth under it.",
    "thirteen": "Somebody asked: " + " ".join(WORDS[:13]) + " or not.",
    "twelve": "Somebody asked: " + " ".join(WORDS[:12]) + " or not.",
    "scattered": " ".join(f"{word} indeed" for word in WORDS),
    "copy": f"A page about kitchens.   {GOAL.upper()}? Put a damp cloth under it.",
    "both": f"{GOAL} {OTHER}",
    "clean": "Nothing of the kind stands here, but quite a few words about wooden boards.",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two questions of one task, and a short one of another."""
    to = tmp_path / "benchmarks"
    to.mkdir()
    piqa = [
        {"goal": GOAL, "sol1": "Put a damp cloth.", "sol2": "Sing.", "label": 0},
        {"goal": OTHER, "sol1": "The Danube.", "sol2": "The Po.", "label": 0},
    ]
    (to / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in piqa))
    row = {
        "sentence": "The cup fits not in the bag as _ is large.",
        "option1": "cup",
        "option2": "bag",
        "answer": "1",
    }
    (to / "winogrande.jsonl").write_text(json.dumps(row) + "\n")
    return to


@pytest.fixture
def documents(store: Store) -> Ref:
    return ingested(store, TEXTS)


def ingested(store: Store, texts: dict[str, str]) -> Ref:
    builder = store.begin("ingest", "one", version="1", config={}, inputs={})
    rows = [
        {
            "id": name,
            "text": text,
            "token_count": 1,
            "crawl": "one",
            "shard": "0",
            "row": row,
            "content_hash": hashlib.sha256("".join(text.split()).encode()).hexdigest(),
        }
        for row, (name, text) in enumerate(texts.items())
    ]
    table = pa.Table.from_pylist(rows, schema=schema.DOCUMENTS)
    return builder.commit([builder.write_part("0", table.to_batches(), schema.DOCUMENTS)])


def pooled(
    store: Store, documents: Ref, folder: Path, **settings: Any
) -> tuple[dict[str, str | None], dict[str, Any]]:
    asked = {"questions": str(folder), "tasks": ["piqa", "winogrande"], **settings.pop("decontaminate", {})}
    config = pool.PoolConfig.model_validate({"validation_share": 0.0, "decontaminate": asked, **settings})
    decontaminate.check(config)
    texts = decontaminate.run(config, store=store, release="r")
    assert store.read_table(texts).schema == schema.QUESTION_TEXTS
    ref = pool.run(config, store=store, release="r", documents={"one": documents}, question_texts=texts)
    manifest = store.manifest(ref)
    rows = {row["id"]: row["exclusion"] for row in store.read_table(ref).to_pylist()}
    assert manifest["counts"]["dropped_contaminated"] == [*rows.values()].count("contaminated")
    return rows, manifest["metadata"]["decontaminate"]


def test_a_document_with_so_many_words_of_a_question_is_left_out(
    store: Store, documents: Ref, folder: Path
) -> None:
    rows, told = pooled(store, documents, folder)
    out = {name for name, exclusion in rows.items() if exclusion == "contaminated"}
    assert out == {"whole", "thirteen", "both"}
    assert rows["copy"] == "duplicate_content"
    (whole,), (both,), (clean,) = (
        document_story(store, name)["releases"] for name in ("whole", "both", "clean")
    )
    assert whole["left_out_by"] == [{"task": "piqa", "question": 0, "of": None}]
    assert both["left_out_by"] == [
        {"task": "piqa", "question": 0, "of": None},
        {"task": "piqa", "question": 1, "of": None},
    ]
    assert clean["left_out_by"] == []
    assert "      by question 1 of task piqa" in [*story_lines(document_story(store, "both"))]
    assert told["ngram"] == 13
    assert told["tasks"] == {
        "piqa": {"questions": 2, "too_short": 0, "questions_hit": 2, "documents_left_out": 3},
        "winogrande": {"questions": 1, "too_short": 1, "questions_hit": 0, "documents_left_out": 0},
    }
    taken_in = store.current("decontaminate", "r")
    assert taken_in is not None
    (line,) = decontaminate.told(store.manifest(taken_in))
    assert line.endswith("3 questions of 2 tasks")


def test_what_is_told_of_it_says_that_copies_are_counted_elsewhere(
    store: Store, documents: Ref, folder: Path
) -> None:
    rows, told = pooled(store, documents, folder)
    holding = [name for name, text in TEXTS.items() if " ".join(WORDS[:13]) in " ".join(text.lower().split())]
    left_out = [name for name in holding if rows[name] == "contaminated"]
    assert set(holding) - set(left_out) == {"copy"}
    found = {"release": "r", "documents_hit": 0, "documents": 3, "ngram": 13, "tasks": {}}
    line, *_ = _lines({**found, "left_out": {**told, "documents": len(left_out)}})
    assert line.startswith("left out by pool.decontaminate: 3 documents ")
    assert "copies and collapsed near-duplicates of them are counted as duplicates" in line


def test_a_group_is_left_out_by_the_words_of_one_and_that_one_is_named(store: Store, folder: Path) -> None:
    """What stands for the group has no words of the question itself, which nobody is to conclude."""
    documents = ingested(store, {name: TEXTS[name] for name in ("twelve", "thirteen", "clean")})
    near = {"shingle_words": 1, "threshold": 0.7}
    rows, _ = pooled(store, documents, folder, near_duplicates=near)
    assert rows == {"twelve": "contaminated", "thirteen": "near_duplicate", "clean": None}
    (twelve,) = document_story(store, "twelve")["releases"]
    of = {"crawl": "one", "id": "thirteen"}
    assert twelve["left_out_by"] == [{"task": "piqa", "question": 0, "of": of}]
    told = [*story_lines(document_story(store, "twelve"))]
    assert "      by question 0 of task piqa, whose words thirteen of one has, a near-duplicate of it" in told
    told = [*story_lines(document_story(store, "thirteen"))]
    assert "    twelve of one, which it is a near-duplicate of, is not eligible: contaminated" in told


def test_each_setting_counts(store: Store, documents: Ref, folder: Path) -> None:
    def out(**settings: Any) -> set[str]:
        rows, _ = pooled(store, documents, folder, **settings)
        return {name for name, exclusion in rows.items() if exclusion == "contaminated"}

    assert out(decontaminate={"ngram": 12}) == {"whole", "thirteen", "twelve", "both"}
    assert out(decontaminate={"ngram": 17}) == set()
    assert out(decontaminate={"tasks": ["winogrande"]}) == set()
    (folder / "other.jsonl").write_text(json.dumps({"goal": "x", "sol1": "y", "sol2": "z", "label": 0}))
    assert out(decontaminate={"question_files": {"piqa": "other.jsonl"}}) == set()


def test_curated_documents_are_held_against_beside_questions_and_alone(
    store: Store, documents: Ref, folder: Path
) -> None:
    curated = folder.parent / "curated.csv"
    curated.write_text(f"name,body\none,{' '.join(f'{word} indeed' for word in WORDS)}\ntwo,short\nthree,\n")
    given = {"curated": str(curated), "curated_column": "body"}
    rows, told = pooled(store, documents, folder, decontaminate=given)
    out = {name for name, exclusion in rows.items() if exclusion == "contaminated"}
    assert out == {"whole", "thirteen", "both", "scattered"}
    assert told["tasks"]["curated_documents"] == {
        "questions": 2, "too_short": 1, "questions_hit": 1, "documents_left_out": 1,
    }  # fmt: skip
    manifest = store.manifest(require(store, "decontaminate", "r"))
    assert manifest["metadata"]["curated"]["documents"] == 2
    assert manifest["metadata"]["curated"]["rejected"] == 1
    assert list(decontaminate.told(manifest)) == [
        "documents are held against 3 questions of 2 tasks and 2 curated documents"
    ]
    rows, told = pooled(store, documents, folder, decontaminate={**given, "questions": None, "tasks": []})
    assert {name for name, exclusion in rows.items() if exclusion == "contaminated"} == {"scattered"}
    assert [*told["tasks"]] == ["curated_documents"]
    before = require(store, "decontaminate", "r")
    assert list(decontaminate.told(store.manifest(before))) == [
        "documents are held against 2 curated documents"
    ]
    curated.write_text("name,body\none,others\n")
    pooled(store, documents, folder, decontaminate={**given, "questions": None, "tasks": []})
    assert require(store, "decontaminate", "r").content_digest != before.content_digest


def test_without_curated_documents_nothing_of_them_is_hashed(
    store: Store, documents: Ref, folder: Path
) -> None:
    pooled(store, documents, folder)
    manifest = store.manifest(require(store, "decontaminate", "r"))
    assert manifest["basis"]["config"] == {"tasks": ["piqa", "winogrande"], "question_files": {}}
    assert [*manifest["basis"]["inputs"]] == ["files"]
    assert manifest["metadata"].keys() == {"source", "tasks"}


def test_it_is_off_by_default_and_then_of_no_fingerprint(store: Store, documents: Ref, folder: Path) -> None:
    config = pool.PoolConfig(validation_share=0.0)
    assert decontaminate.is_off(config)
    ref = pool.run(config, store=store, release="r", documents={"one": documents})
    manifest = store.manifest(ref)
    assert "decontaminate" not in manifest["basis"]["config"]
    assert manifest["counts"]["dropped_contaminated"] == 0
    again, _ = pooled(store, documents, folder)
    assert store.current("pool", "r") != ref
    (folder / "piqa.jsonl").rename(folder.parent / "piqa.jsonl")
    folder.rename(folder.parent / "elsewhere")
    (folder.parent / "elsewhere" / "piqa.jsonl").write_bytes((folder.parent / "piqa.jsonl").read_bytes())
    first = store.current("decontaminate", "r")
    assert pooled(store, documents, folder.parent / "elsewhere")[0] == again
    assert store.current("decontaminate", "r") == first, "where the files lie does not matter"


def test_what_cannot_be_held_against_is_refused(store: Store, documents: Ref, folder: Path) -> None:
    with pytest.raises(ValueError, match="made of the pool's own held-out documents"):
        pool.PoolConfig.model_validate({"decontaminate": {"questions": "local"}})
    with pytest.raises(ValueError, match="give `questions` or `curated`"):
        pool.PoolConfig.model_validate({"decontaminate": {}})
    with pytest.raises(ValueError, match="tasks, question_files and hub are of `questions`"):
        pool.PoolConfig.model_validate({"decontaminate": {"curated": "a.csv", "tasks": ["piqa"]}})
    missing = pool.PoolConfig.model_validate({"decontaminate": {"questions": str(folder)}})
    with pytest.raises(InputError, match=r"^pool\.decontaminate: .*no question file for task"):
        decontaminate.check(missing)
    unknown = pool.PoolConfig.model_validate({"decontaminate": {"questions": str(folder), "tasks": ["pika"]}})
    with pytest.raises(ConfigurationError, match=r"pool\.decontaminate\.tasks.*pika.*piqa"):
        decontaminate.check(unknown)
    with pytest.raises(ConfigurationError, match="run stage 'decontaminate'"):
        pool.run(missing, store=store, release="r", documents={"one": documents})

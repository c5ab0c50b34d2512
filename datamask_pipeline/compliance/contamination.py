"""Finds documents of a release that hold pieces of what its models are asked: n-grams of words. Writes nothing.

Memory holds the n-grams of questions and curated documents and what was found of them, however many documents there are.
"""

import collections
import itertools
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from datamask_pipeline import schema, texts
from datamask_pipeline.evaluation.overlap import QuestionNgrams, fields
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.sources.content import content_hash
from datamask_pipeline.stages import questions as questions_stage
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.whole import check_tables

_EXAMPLES: Final = 3


def contamination(
    store: Store, release: str, *, ngram: int = 13
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Which documents that an arm may select share an n-gram with a question or a curated document, and with which.

    Curated documents are told of as questions of the task ``curated_documents``.

    Words and n-grams are those of `evaluation.overlap`.

    Args:
        store: The record.
        release: The release; its candidates and questions are compared.
        ngram: Words that have to be equal in a row, from 1.

    Returns:
        ``release``, ``ngram``, ``documents`` (compared), ``documents_hit``, and by task ``questions``, ``too_short``
        (without so many words in a field: not tested), ``questions_hit``, ``documents_hit``, ``file`` (of the questions, in
        the record) and ``examples`` (``document``; ``row`` of the question in that file, counted from 0; its
        ``question_id``; and the ``words``); ``left_out``: what `pool.decontaminate` left out before, as the pool's manifest
        says, with ``documents`` (null: it is off); and id and content hash of every document hit, in canonical order.

    Raises:
        ConfigurationError: the release has no candidates or no questions.
        IntegrityError: the table of either was altered; documents' texts are not hashed.
    """
    wanted, asked = require(store, "questions", release), require(store, "pool", release)
    check_tables(store, wanted, asked)
    with tempfile.TemporaryDirectory() as scratch:
        folder = store.local_copy(wanted, questions_stage.TREE, Path(scratch))
        told_of = store.manifest(wanted)["metadata"]
        files = {item["task"]: folder / item["file"] for item in told_of["sets"]}
        if "curated" in told_of:
            files[schema.CURATED] = folder / questions_stage.CURATED_FILE
        read = {task: pq.read_table(path).to_pylist() for task, path in files.items()}
    questions = QuestionNgrams(itertools.chain.from_iterable(itertools.starmap(fields, read.items())), ngram)
    names = {
        task: [row.get("document_id") if task == schema.CURATED else row.get("question_id") for row in rows]
        for task, rows in read.items()
    }
    about: dict[str, dict[str, Any]] = {
        task: {
            **of,
            "questions_hit": 0,
            "documents_hit": 0,
            "file": f"{wanted.location}/{questions_stage.TREE}/{files[task].name}",
            "examples": [],
        }
        for task, of in questions.tasks.items()
    }
    manifest = store.manifest(asked)
    inputs = dict(inputs_of(manifest))
    crawls = manifest["basis"]["config"]["crawls"]
    documents = {crawl: inputs[f"documents/{crawl}"] for crawl in crawls}
    hit_questions: dict[str, set[int]] = collections.defaultdict(set)
    hit: list[tuple[str, str]] = []
    compared = 0
    for name, text in texts.pool_documents(store, asked, documents, "eligible"):
        compared += 1
        if not (found := questions.found_in(text)):
            continue
        hit.append((name, content_hash(text)))
        tasks: dict[str, tuple[int, str]] = {}
        for gram, places in found.items():
            for task, row in places:
                hit_questions[task].add(row)
                tasks.setdefault(task, (row, gram))
        for task, (row, gram) in tasks.items():
            about[task]["documents_hit"] += 1
            if len(about[task]["examples"]) < _EXAMPLES:
                example = {"document": name, "row": row, "question_id": names[task][row], "words": gram}
                about[task]["examples"].append(example)
    for task, rows in hit_questions.items():
        about[task]["questions_hit"] = len(rows)
    before = manifest["metadata"].get("decontaminate")
    told = {
        "release": release,
        "ngram": ngram,
        "documents": compared,
        "documents_hit": len(hit),
        "tasks": about,
        "left_out": before and {**before, "documents": manifest["counts"]["dropped_contaminated"]},
    }
    return told, hit

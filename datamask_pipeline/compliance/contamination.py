"""Finds documents of a release that hold pieces of its evaluation questions: n-grams of words. Writes nothing.

Memory holds the questions' n-grams and what was found of them, however many documents there are.
"""

import collections
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from datamask_pipeline import texts
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.stages import questions as questions_stage
from datamask_pipeline.storage import Store, require

_WORD: Final = re.compile(r"\w+")
#: Fields of a question that are no text of it.
_NO_TEXT: Final = ("question_id", "document_id", "label", "answerKey")
_EXAMPLES: Final = 3

#: A task, and the question's row in its file.
Question = tuple[str, int]


def contamination(store: Store, release: str, *, ngram: int = 13) -> tuple[dict[str, Any], list[str]]:
    """Which documents that an arm may select share an n-gram with a question, and which questions.

    Words are runs of letters, digits and underscores in lower case; an n-gram lies within one field of a question (its text,
    one of its choices, ...).

    Args:
        store: The record.
        release: The release; its candidates and questions are compared.
        ngram: Words that have to be equal in a row, from 1.

    Returns:
        ``release``, ``ngram``, ``documents`` (compared), ``documents_hit``, and by task ``questions``, ``too_short``
        (without so many words in a field: not tested), ``questions_hit``, ``documents_hit`` and ``examples`` (document,
        question's row and the words); and the ids of all documents hit, in canonical order.

    Raises:
        ConfigurationError: the release has no candidates or no questions.
    """
    wanted, asked = require(store, "questions", release), require(store, "pool", release)
    with tempfile.TemporaryDirectory() as scratch:
        folder = store.local_copy(wanted, questions_stage.TREE, Path(scratch))
        sets = store.manifest(wanted)["metadata"]["sets"]
        files = {item["task"]: folder / item["file"] for item in sets}
        known, about = _question_ngrams(files, ngram)
    inputs = dict(inputs_of(store.manifest(asked)))
    crawls = store.manifest(asked)["basis"]["config"]["crawls"]
    documents = {crawl: inputs[f"documents/{crawl}"] for crawl in crawls}
    hit_questions: dict[str, set[int]] = collections.defaultdict(set)
    hit, compared = [], 0
    for name, text in texts.pool_documents(store, asked, documents, "c.eligible"):
        compared += 1
        found = {gram: known[gram] for gram in _ngrams(text, ngram) if gram in known}
        if not found:
            continue
        hit.append(name)
        tasks: dict[str, tuple[int, str]] = {}
        for gram, places in found.items():
            for task, row in places:
                hit_questions[task].add(row)
                tasks.setdefault(task, (row, gram))
        for task, (row, gram) in tasks.items():
            about[task]["documents_hit"] += 1
            if len(about[task]["examples"]) < _EXAMPLES:
                about[task]["examples"].append({"document": name, "question": row, "words": gram})
    for task, rows in hit_questions.items():
        about[task]["questions_hit"] = len(rows)
    told = {
        "release": release,
        "ngram": ngram,
        "documents": compared,
        "documents_hit": len(hit),
        "tasks": about,
    }
    return told, hit


def _question_ngrams(
    files: dict[str, Path], ngram: int
) -> tuple[dict[str, set[Question]], dict[str, dict[str, Any]]]:
    """Each n-gram with the questions it stands in; and of each task what was read."""
    known: dict[str, set[Question]] = collections.defaultdict(set)
    about: dict[str, dict[str, Any]] = {}
    for task, path in files.items():
        short = number = 0
        for row in pq.read_table(path).to_pylist():
            grams = {gram for text in _fields(row) for gram in _ngrams(text, ngram)}
            for gram in grams:
                known[gram].add((task, number))
            short += not grams
            number += 1
        about[task] = {
            "questions": number,
            "too_short": short,
            "questions_hit": 0,
            "documents_hit": 0,
            "examples": [],
        }
    return dict(known), about


def _fields(value: Any) -> Iterator[str]:
    """Every text of a question, in lists and structures too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NO_TEXT:
                yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)


def _ngrams(text: str, ngram: int) -> Iterator[str]:
    words = _WORD.findall(text.lower())
    for first in range(len(words) - ngram + 1):
        yield " ".join(words[first : first + ngram])

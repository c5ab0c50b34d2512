"""Which contents have words of evaluation questions, and how many documents that leaves out. Knows the pool's tables."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from datamask_pipeline.evaluation.overlap import QuestionNgrams

if TYPE_CHECKING:
    import duckdb


def find_hits(
    connection: "duckdb.DuckDBPyConnection",
    question_texts: pa.Table,
    contents: Iterable[tuple[str, str]],
    ngram: int,
) -> dict[str, dict[str, int]]:
    """Fill the table `hits` of contents and the questions that they have words of.

    Args:
        connection: A connection with that table.
        question_texts: Rows of `schema.QUESTION_TEXTS`.
        contents: Content hash and text of each distinct content.
        ngram: Words in a row that have to be equal.

    Returns:
        By task, ``questions`` and ``too_short``, as `QuestionNgrams.tasks`.
    """
    rows = question_texts.to_pylist()
    questions = QuestionNgrams((((row["task"], row["question"]), row["text"]) for row in rows), ngram)
    hits = sorted(
        {
            (content_hash, *question)
            for content_hash, text in contents
            for found in questions.found_in(text).values()
            for question in found
        }
    )
    if hits:
        columns = dict(zip(("content_hash", "task", "question"), zip(*hits, strict=True), strict=True))
        connection.register("found_hits", pa.table(columns))
        connection.execute("INSERT INTO hits SELECT content_hash, task, question FROM found_hits")
    return questions.tasks


def left_out(
    connection: "duckdb.DuckDBPyConnection", tasks: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Of each task its questions, those that documents left out have words of, and these documents.

    A document that has words of several tasks counts for each.
    """
    found = connection.execute("""
        WITH members AS (SELECT DISTINCT group_hash, content_hash FROM candidates)
        SELECT task, count(DISTINCT question), count(DISTINCT position)
        FROM hits JOIN members USING (content_hash)
        JOIN (SELECT position, group_hash FROM candidates WHERE exclusion = 'contaminated') USING (group_hash)
        GROUP BY task
    """).fetchall()
    numbers = {task: (questions, documents) for task, questions, documents in found}
    return {
        task: {
            **about,
            "questions_hit": numbers.get(task, (0, 0))[0],
            "documents_left_out": numbers.get(task, (0, 0))[1],
        }
        for task, about in sorted(tasks.items())
    }

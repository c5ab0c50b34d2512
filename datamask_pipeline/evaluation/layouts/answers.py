"""Free answers: Natural Questions and TriviaQA.

Knows no file and no model.
"""

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Row, text_of, texts_of


def nq_open(row: Row) -> Item:
    """NQ-open: `question`, `answer` a list of accepted texts (or one text)."""
    answer = row.get("answer")
    answers = [text_of(row, "answer")] if isinstance(answer, str) else texts_of(row, "answer")
    return Item({"question": text_of(row, "question"), "answer": answers}, 0)


def triviaqa(row: Row) -> Item:
    """TriviaQA: `question`, `answer{value, aliases}`; the value is always among the accepted texts."""
    answer = row.get("answer")
    if not isinstance(answer, dict):
        raise BadRow("field 'answer' is missing or has no 'value' and 'aliases'")
    value = text_of(answer, "value")
    aliases = texts_of(answer, "aliases") if answer.get("aliases") else []
    accepted = aliases if value in aliases else [value, *aliases]
    return Item({"question": text_of(row, "question"), "answer": {"value": value, "aliases": accepted}}, 0)

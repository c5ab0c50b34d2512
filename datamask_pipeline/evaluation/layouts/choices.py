"""Multiple choice: ARC, OpenBookQA, MMLU, HellaSwag, PIQA, SIQA, WinoGrande.

Knows no file and no model. Each function names its source's columns and gives those of the stock task.
"""

import re

from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Row, index_of, text_of, texts_of

_LETTERS = "ABCDEFGHIJ"
# What follows the last sentence end or WikiHow mark of a HellaSwag context, if it begins in lower case: `ctx_b`.
_OPEN_END = re.compile(r"^(?P<a>.*(?:[.!?;:\"')\]]))\s+(?P<b>[a-z][^.!?]*)$", re.DOTALL)


def arc(row: Row) -> Item:
    """ARC: `question`, `choices{text, label}`, `answerKey`."""
    return _labelled(row, "question")


def openbookqa(row: Row) -> Item:
    """OpenBookQA: `question_stem` as on the hub, or AI2's own `question{stem, choices[{text, label}]}`."""
    question = row.get("question")
    if "question_stem" not in row and isinstance(question, dict):
        options = question.get("choices") or []
        row = {
            **row,
            "question_stem": question.get("stem"),
            "choices": {key: [option.get(key) for option in options] for key in ("text", "label")},
        }
    return _labelled(row, "question_stem")


def _labelled(row: Row, question: str) -> Item:
    """`choices` with labels of any alphabet; the key must be one of them."""
    choices = row.get("choices")
    if not isinstance(choices, dict):
        raise BadRow("field 'choices' is missing or not a pair of lists 'text' and 'label'")
    texts, labels = texts_of(choices, "text", at_least=2), texts_of(choices, "label", at_least=2)
    if len(texts) != len(labels):
        raise BadRow(f"{len(texts)} choices have {len(labels)} labels")
    key = text_of(row, "answerKey").strip()
    if key not in labels:
        raise BadRow(f"field 'answerKey' is {key!r}, none of: {', '.join(labels)}")
    stock = {question: text_of(row, question), "choices": {"text": texts, "label": labels}, "answerKey": key}
    return Item(stock, len(texts))


def mmlu(row: Row) -> Item:
    """MMLU: `question, subject, choices, answer` as on the hub, or the columns `A..D` of Hendrycks's CSV."""
    options = texts_of(row, "choices", at_least=2) if "choices" in row else [text_of(row, x) for x in "ABCD"]
    letters = {letter: place for place, letter in enumerate(_LETTERS[: len(options)])}
    legal = letters | {str(place): place for place in range(len(options))}
    stock = {
        "question": text_of(row, "question"),
        "subject": text_of(row, "subject"),
        "choices": options,
        "answer": index_of(row, "answer", legal),
        "demonstrations": "",
    }
    return Item(stock, len(options))


def hellaswag(row: Row) -> Item:
    """HellaSwag: `activity_label, ctx_a, ctx_b, endings, label`, or `ctx` alone, cut where `ctx_b` begins.

    The stock task capitalises `ctx_b`, so the place of the cut shows in the prompt.
    """
    endings = texts_of(row, "endings", at_least=2)
    if "ctx_a" in row and "ctx_b" in row:
        start, rest = text_of(row, "ctx_a"), row["ctx_b"] or ""
    else:
        context = text_of(row, "ctx")
        match = _OPEN_END.match(context)
        start, rest = (match["a"], match["b"]) if match else (context, "")
    stock = {
        "activity_label": text_of(row, "activity_label"),
        "ctx_a": start,
        "ctx_b": rest,
        "endings": endings,
        "label": str(index_of(row, "label", {str(place): place for place in range(len(endings))})),
    }
    return Item(stock, len(endings))


def piqa(row: Row) -> Item:
    """PIQA: `goal, sol1, sol2, label` with label 0 or 1."""
    stock = {field: text_of(row, field) for field in ("goal", "sol1", "sol2")}
    return Item({**stock, "label": index_of(row, "label", {"0": 0, "1": 1})}, 2)


def social_iqa(row: Row) -> Item:
    """SIQA: `context, question, answerA..C` with `label` 1..3, or AI2's own `correct` A..C."""
    fields = ("context", "question", "answerA", "answerB", "answerC")
    stock = {field: text_of(row, field) for field in fields}
    if "label" in row:
        place = index_of(row, "label", {"1": 0, "2": 1, "3": 2})
    else:
        place = index_of(row, "correct", {"A": 0, "B": 1, "C": 2})
    return Item({**stock, "label": str(place + 1)}, 3)


def winogrande(row: Row) -> Item:
    """WinoGrande: `sentence` with one blank `_`, `option1`, `option2`, `answer` 1 or 2."""
    stock = {field: text_of(row, field) for field in ("sentence", "option1", "option2")}
    _, blank, after = stock["sentence"].partition("_")
    if not blank or not after.strip():
        raise BadRow("field 'sentence' has no blank '_' with text behind it")
    return Item({**stock, "answer": str(index_of(row, "answer", {"1": 1, "2": 2}))}, 2)

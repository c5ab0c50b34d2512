"""KQA Pro: ten choices a question, drawn where the source gives none.

Knows no file and no model.
"""

import hashlib
import random
import re

import pydantic

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, text_of, texts_of
from datamask_pipeline.settings import Settings

_FORMS = (
    ("yes or no", re.compile(r"(?i)(yes|no)")),
    ("date", re.compile(r"\d{4}-\d{2}-\d{2}")),
    ("number", re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( .*)?")),
)


class KqaProConfig(Settings):
    """How many choices a question has."""

    num_choices: int = pydantic.Field(10, ge=2, description="Choices of a question whose source gives none.")


class KqaPro(Layout):
    """KQA Pro: `question`, `choices`, `answer` as published, or `question`, `answers` without choices."""

    name = "kqapro"
    Config = KqaProConfig
    config: KqaProConfig

    def read(self, row: Row) -> Item:
        question = text_of(row, "question")
        answer = text_of(row, "answer") if "answer" in row else texts_of(row, "answers")[0]
        choices = texts_of(row, "choices", at_least=2) if "choices" in row else []
        if choices and choices.count(answer) != 1:
            raise BadRow(
                f"field 'choices' holds the answer {answer!r} {choices.count(answer)} times, not once"
            )
        accepted = row["answers"] if "answer" not in row else [answer]
        stock = {"question": question, "answer": answer, "choices": choices, "choices_drawn": not choices}
        return Item({**stock, "accepted": list(accepted)}, len(choices))

    def finish(self, items: list[Item], seed: int) -> list[Item]:
        """Give each item without choices answers of other questions; `choices_drawn` marks the row.

        Answers of the same form (yes or no, date, number, name) are taken first: a name among nine numbers
        would be no question. None of a question's accepted answers becomes a distractor. The draw depends on
        the seed, the question and the set of all answers, not on the order of the rows.

        Raises:
            InputError: The set has too few different answers.
        """
        pool = sorted({item.row["answer"] for item in items})
        return [
            _complete(item, pool, seed, self.config.num_choices)
            if item.row["choices_drawn"]
            else _plain(item)
            for item in items
        ]


def _complete(item: Item, pool: list[str], seed: int, num_choices: int) -> Item:
    question, answer = item.row["question"], item.row["answer"]
    others = [text for text in pool if text not in item.row["accepted"]]
    if len(others) < num_choices - 1:
        raise InputError(
            f"too few different answers to draw {num_choices - 1} wrong ones from",
            field="answer",
            value=len(pool),
            remedy="give more questions, or a source with choices",
        )
    digest = hashlib.sha256(f"kqapro:{seed}:{question}".encode()).digest()
    generator = random.Random(int.from_bytes(digest[:8], "big"))
    generator.shuffle(others)
    others.sort(key=lambda text: _form(text) != _form(answer))  # stable: the shuffle decides within a form
    choices = [answer, *others[: num_choices - 1]]
    generator.shuffle(choices)
    return _plain(Item({**item.row, "choices": choices}, len(choices), item.num_rows))


def _plain(item: Item) -> Item:
    row = {key: value for key, value in item.row.items() if key != "accepted"}
    return Item(row, item.num_choices, item.num_rows)


def _form(answer: str) -> str:
    return next((name for name, pattern in _FORMS if pattern.fullmatch(answer)), "name")


LAYOUT = KqaPro

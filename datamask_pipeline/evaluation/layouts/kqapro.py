"""KQA Pro: up to ten choices a question, drawn where the source gives none.

Knows no file and no model.
"""

import hashlib
import itertools
import random
import re
from collections.abc import Iterable
from dataclasses import replace

import pydantic

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Layout, Row, text_of, texts_of
from datamask_pipeline.settings import Settings

#: Forms of answers, from the finest on, each with the coarser one that takes it in where it has too few answers.
_FORMS = (
    ("yes or no", None, re.compile(r"(?i)(yes|no)")),
    ("date", "time", re.compile(r"\d{4}-\d{2}-\d{2}")),
    ("year", "time", re.compile(r"\d{4}")),
    ("whole number", "number", re.compile(r"[-+]?\d+")),
    ("number", "number", re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?")),
    ("number with unit", "number", re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)? (?P<unit>.*)")),
    ("words", "name", re.compile(r"[^A-Z0-9]*")),
    ("name", "name", re.compile(r".*", re.DOTALL)),
)


class KqaProConfig(Settings):
    """How many choices a question has."""

    num_choices: int = pydantic.Field(
        10,
        ge=2,
        description="Choices of a question whose source gives none, or as many as its form of answer has.",
    )


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

        Choices are of the right answer's form (yes or no, date, year, number, number of that unit, words, name) and about
        as long, so that nobody finds it without the question. All answers of a form stand in order of their length and are
        parted into blocks; a question's choices come from the block of its answer, in which any answer may be the right
        one. A form with too few answers shares its blocks with the next coarser one; yes or no are two choices. None of a
        question's accepted answers becomes a distractor. The draw depends on the seed, the question and the set of all
        answers, not on the order of the rows.

        Raises:
            InputError: The set has too few different answers.
        """
        block_of = _blocks({item.row["answer"] for item in items}, seed, self.config.num_choices)
        return [
            _complete(item, block_of[item.row["answer"]], seed, self.config.num_choices)
            if item.row["choices_drawn"]
            else _plain(item)
            for item in items
        ]


def _blocks(answers: Iterable[str], seed: int, num_choices: int) -> dict[str, list[str]]:
    """Of each answer, those that it may stand among: as many as there are choices at least, where there are so many."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for answer in sorted(answers):
        groups.setdefault(_form(answer), []).append(answer)
    for depth in (2, 1, 0):  # with its unit, its form, its family; what is left over is one group
        for key in [key for key in groups if len(key) > depth]:
            if len(groups[key]) < num_choices and key != ("", "yes or no"):
                groups.setdefault(key[:depth], []).extend(groups.pop(key))
    alone = [key for key, group in groups.items() if len(group) < 2]
    for key in alone[
        : len(groups) - 1
    ]:  # where it is the only one of its kind, it stands among the most there are
        single = groups.pop(key)
        max(groups.values(), key=len).extend(single)
    block_of: dict[str, list[str]] = {}
    for group in groups.values():
        group.sort(key=lambda text: (len(text), hashlib.sha256(f"{seed}:{text}".encode()).digest()))
        number = max(1, len(group) // num_choices)
        ends = [len(group) * block // number for block in range(number + 1)]
        for begin, end in itertools.pairwise(ends):
            block_of |= dict.fromkeys(group[begin:end], group[begin:end])
    return block_of


def _complete(item: Item, block: list[str], seed: int, num_choices: int) -> Item:
    question, answer = item.row["question"], item.row["answer"]
    others = sorted(text for text in block if text not in item.row["accepted"])
    if not others:
        raise InputError(
            f"no other answer of the form of {answer!r} to draw a wrong one from",
            field="answer",
            value=answer,
            remedy="give more questions, or a source with choices",
        )
    digest = hashlib.sha256(f"kqapro:{seed}:{question}".encode()).digest()
    generator = random.Random(int.from_bytes(digest[:8], "big"))
    choices = [answer, *generator.sample(others, min(len(others), num_choices - 1))]
    generator.shuffle(choices)
    return _plain(replace(item, row={**item.row, "choices": choices}, num_choices=len(choices)))


def _plain(item: Item) -> Item:
    return replace(item, row={key: value for key, value in item.row.items() if key != "accepted"})


def _form(answer: str) -> tuple[str, ...]:
    """Family, form and unit of an answer, as far as it has them."""
    for name, family, pattern in _FORMS:
        if match := pattern.fullmatch(answer):
            unit = match.groupdict().get("unit")
            return (family or "", name, unit) if unit else (family or "", name)
    return ("name", "name")


LAYOUT = KqaPro

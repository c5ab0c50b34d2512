"""What every layout shares: an item, a reason for refusing a row, and reading a field.

Knows no benchmark.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

from datamask_pipeline.settings import Settings

Row = dict[str, Any]


class BadRow(ValueError):
    """A row that cannot be asked; the message says why. It is counted, never raised to the caller."""


class LeftOut(BadRow):
    """A row that lm-eval itself does not ask, nor draw solved examples for."""


@dataclass(frozen=True)
class Item:
    """One thing to ask, in the stock columns of its task.

    `num_choices` is 0 for a free answer; `num_rows` is how many source rows went into it, and `place` the number of the
    first of them, counted over the split from 0; `source` is the row as it was read, where `finish` asks for it.
    """

    row: Row
    num_choices: int
    num_rows: int = 1
    place: int = 0
    source: Row | None = None


class Layout(abc.ABC):
    """A family member, built from its ``Config``: one file of this package with the class as ``LAYOUT``.

    It brings the rows of a published question set into the columns of lm-eval's stock task. Variants are told apart by
    their columns, never by a path.

    Attributes:
        name: What a task's YAML names.
        Config: Its settings, `layout_options` in the YAML; none unless a member says so.
        many_files: Whether one split is published as several files, one a subject.
        hendrycks: Whether a CSV may lack its header, with Hendrycks's columns and the subject in its name.
    """

    name: ClassVar[str]
    many_files: ClassVar[bool] = False
    hendrycks: ClassVar[bool] = False
    Config: ClassVar[type[Settings]] = Settings

    config: Any

    def __init__(self, config: Settings | None = None) -> None:
        self.config = self.Config() if config is None else config

    @abc.abstractmethod
    def read(self, row: Row) -> Item:
        """The item of a row.

        Raises:
            BadRow: The row cannot be asked.
        """

    def group(self, row: Row) -> str:
        """What a question and its solved examples have in common."""
        del row
        return ""

    def finish(self, items: list[Item], seed: int) -> list[Item]:
        """All items, joined or completed where the layout asks for it."""
        del seed
        return items


def text_of(row: Row, field: str) -> str:
    """The text of a field, with at least one character that is not a space.

    Raises:
        BadRow: Missing, null, empty or not a text.
    """
    value = row.get(field)
    if value is None:
        raise BadRow(f"field {field!r} is missing or null")
    if not isinstance(value, str):
        raise BadRow(f"field {field!r} is {type(value).__name__}, not text")
    if not value.strip():
        raise BadRow(f"field {field!r} is empty")
    return value


def texts_of(row: Row, field: str, *, at_least: int = 1) -> list[str]:
    """The list of texts in a field, none of them empty.

    Raises:
        BadRow: Missing, not a list of texts, or too short.
    """
    value = row.get(field)
    if not isinstance(value, list):
        raise BadRow(f"field {field!r} is missing or not a list")
    if len(value) < at_least:
        raise BadRow(f"field {field!r} has {len(value)} entries, fewer than {at_least}")
    if not all(isinstance(item, str) and item.strip() for item in value):
        raise BadRow(f"field {field!r} holds an entry that is empty or not text")
    return value


def index_of(row: Row, field: str, legal: dict[str, int]) -> int:
    """The position a label stands for; integers and texts are treated alike.

    Raises:
        BadRow: Missing, or not one of `legal`.
    """
    value = row.get(field)
    label = str(value).strip()
    if isinstance(value, bool) or label not in legal:
        raise BadRow(f"field {field!r} is {value!r}, none of: {', '.join(legal)}")
    return legal[label]


def labelled_choices(row: Row, question: str) -> Item:
    """`choices{text, label}` with labels of any alphabet, and `answerKey`, which must be one of them.

    Raises:
        BadRow: A field is missing, or the key no label, or a label stands twice.
    """
    choices = row.get("choices")
    if not isinstance(choices, dict):
        raise BadRow("field 'choices' is missing or not a pair of lists 'text' and 'label'")
    texts, labels = texts_of(choices, "text", at_least=2), texts_of(choices, "label", at_least=2)
    if len(texts) != len(labels):
        raise BadRow(f"{len(texts)} choices have {len(labels)} labels")
    if len({*labels}) < len(labels):
        raise BadRow(f"two choices have one label: {', '.join(labels)}")
    key = text_of(row, "answerKey").strip()
    if key not in labels:
        raise BadRow(f"field 'answerKey' is {key!r}, none of: {', '.join(labels)}")
    stock = {question: text_of(row, question), "choices": {"text": texts, "label": labels}, "answerKey": key}
    return Item(stock, len(texts))

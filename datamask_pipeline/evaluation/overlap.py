"""Which runs of words of a text stand in evaluation questions too. Knows questions' fields; no document and no record.

Words are runs of letters, digits and underscores in lower case, after Unicode NFKC and without soft hyphens and joiners; an
n-gram lies within one field of a question (its text, one of its choices, ...). Memory holds the questions' n-grams.
"""

import ast
import collections
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"\w+")
#: Soft hyphen, joiners, marks of direction and variants: they stand inside words and are not seen. (The space of no width
#: parts words.)
_UNSEEN: Final = dict.fromkeys(
    [0xAD, 0x34F, 0x180E, *range(0x200C, 0x2010), *range(0x2060, 0x2065), *range(0xFE00, 0xFE10), 0xFEFF]
)
#: What stands for words that are left out, and the most words that may stand there.
_BLANK: Final = re.compile(r"(?<!\w)_+(?!\w)")
_MOST_WORDS: Final = 32
#: Fields of a question that are no text of it.
_NO_TEXT: Final = ("question_id", "document_id", "label", "answerKey")
#: The field of RACE that holds its questions as Python writes a list, line breaks and quotes escaped.
_WRITTEN_OUT: Final = "problems"

#: A task, and the question's row in its file.
Question = tuple[str, int]


class QuestionNgrams:
    """The n-grams of questions.

    Args:
        texts: Each field of each question with its task and row.
        ngram: Words that have to be equal in a row, from 1.

    Attributes:
        ngram: That number.
        tasks: By task, ``questions``, and ``too_short``: those without so many words in a field, which cannot be told.
    """

    def __init__(self, texts: Iterable[tuple[Question, str]], ngram: int) -> None:
        self.ngram = ngram
        self._known: dict[str, set[Question]] = collections.defaultdict(set)
        longest: dict[Question, bool] = {}
        for question, text in texts:
            grams = list(_ngrams(text, ngram))
            longest[question] = longest.get(question, False) or bool(grams)
            for gram in grams:
                self._known[gram].add(question)
        self.tasks: dict[str, dict[str, int]] = {}
        for (task, _), is_told in longest.items():
            about = self.tasks.setdefault(task, {"questions": 0, "too_short": 0})
            about["questions"] += 1
            about["too_short"] += not is_told

    def found_in(self, text: str) -> dict[str, set[Question]]:
        """The n-grams of a text that stand in a question, each with the questions it stands in."""
        return {gram: self._known[gram] for gram in _ngrams(text, self.ngram) if gram in self._known}


def fields(task: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Question, str]]:
    """Every text of a task's questions, in lists and structures too; an empty one of a question without any.

    One with a blank as it is, and filled with each of the question's other texts that are short enough to be an answer: a
    document has the sentence whole.
    """
    for number, row in enumerate(rows):
        texts = list(_texts(dict(row)))
        short = [text for text in texts if not _BLANK.search(text) and len(text.split()) <= _MOST_WORDS]
        texts += [_filled(text, word) for text in texts if _BLANK.search(text) for word in short]
        for text in texts or [""]:
            yield (task, number), text


def _filled(text: str, words: str) -> str:
    return words.join(_BLANK.split(text))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name == _WRITTEN_OUT and isinstance(inner, str):
                yield from _texts(_parsed(inner))
            elif name not in _NO_TEXT:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _parsed(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):  # another data set's field of that name
        return text


def _ngrams(text: str, ngram: int) -> Iterator[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_UNSEEN)
    words = _WORD.findall(text.lower())
    for first in range(len(words) - ngram + 1):
        yield " ".join(words[first : first + ngram])

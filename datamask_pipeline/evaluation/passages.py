"""Runs of well-formed sentences in documents.

Knows no benchmark. What is not prose (code, tables, lists) is passed over.
"""

import hashlib
import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass

_BOUNDARY = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PROSE = re.compile(r"[A-Z][A-Za-z0-9 ,;:'\"()\-]+[.!?]")
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True)
class Spot:
    """A sentence with the ones before and after it in the same paragraph."""

    document_id: str
    before: tuple[str, ...]
    sentence: str
    after: tuple[str, ...]


def is_prose(sentence: str) -> bool:
    """A sentence of 6 to 40 words in plain letters and punctuation."""
    return bool(_PROSE.fullmatch(sentence)) and 6 <= len(sentence.split()) <= 40


def find_spots(documents: Iterable[tuple[str, str]], *, num_documents: int, seed: int) -> list[Spot]:
    """Every prose sentence that has a prose sentence after it, each once, from documents chosen by a hash.

    Args:
        documents: (id, text); read once, and only the chosen ones are kept.
        num_documents: Documents to draw from, among those that have such a sentence.
        seed: Another seed chooses others.
    """
    ranked = (
        (_rank(identity, seed), spots) for identity, text in documents if (spots := _spots(identity, text))
    )
    chosen = heapq.nsmallest(num_documents, ranked, key=lambda pair: pair[0])
    first_of: dict[str, Spot] = {}
    for _, spots in chosen:
        for spot in spots:
            first_of.setdefault(spot.sentence, spot)
    return list(first_of.values())


def content_words(sentence: str) -> list[str]:
    """Lower-case words of five letters or more that stand once, inside the sentence."""
    words = _WORD.findall(sentence)
    return [word for word in words[2:-1] if len(word) >= 5 and word.islower() and words.count(word) == 1]


def _spots(identity: str, text: str) -> list[Spot]:
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        run: list[str] = []
        for sentence in [*_BOUNDARY.split(" ".join(paragraph.split())), ""]:
            if is_prose(sentence):
                run.append(sentence)
                continue
            found += [
                Spot(identity, tuple(run[:place]), run[place], tuple(run[place + 1 :]))
                for place in range(len(run) - 1)
            ]
            run = []
    return found


def _rank(identity: str, seed: int) -> str:
    return hashlib.sha256(f"passages:{seed}:{identity}".encode()).hexdigest()

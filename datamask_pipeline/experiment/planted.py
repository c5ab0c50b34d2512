"""Texts that a controlled pool plants: near-copies of good documents, boilerplate, junk. Knows texts; no vector, no score.

Shape suffixes: N documents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.settings import Settings

VERSION: Final = "1"
#: What is planted. Whatever was there before is of no kind.
KINDS: Final = ("near_copies", "boilerplate", "junk")
#: The kind and the content of a document that is neither planted nor copied.
NONE: Final = -1

_BOILERPLATE: Final = (
    "We use cookies and similar technologies to give you the best experience on {site}.",
    "By clicking Accept all you agree to the storing of cookies on your device.",
    "Home | About {site} | Products | {word} | {other} | News | Careers | Contact us",
    "Sign up for our free newsletter and never miss an update about {word}.",
    "Share this page: Facebook Twitter LinkedIn Email Print",
    "Copyright {year} {site}. All rights reserved. Terms of use. Privacy policy.",
    "No part of this site may be reproduced without the prior written permission of {site}.",
    "You must be logged in to post a comment. Log in or create an account.",
    "Related articles: {word}, {other}, and more in our archive of {year}.",
    "Add to basket. Free delivery on orders over {number}. Returns within {number} days.",
    "Skip to main content. Skip to navigation. Back to top. Next page. Previous page.",
    "This website is provided as it is, and {site} accepts no liability for any loss.",
    "Loading comments. Please enable JavaScript to view this page. Error {number}.",
    "Customer service: Monday to Friday, {number} hours. Frequently asked questions about {word}.",
)
_HEADERS: Final = (
    "Archive of {year}, page {number}",
    "Reposted on {site}",
    "Printed from {site} in {year}",
    "Mirror {number} of {site}",
)
_LETTERS: Final = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789#$%&*+=<>~"))


class PlantConfig(Settings):
    """What is planted among the documents of a pool, beside what is there."""

    good_documents: int = pydantic.Field(
        100, ge=0, description="Documents that are copied, drawn from those of the best quality."
    )
    good_share: float = pydantic.Field(
        0.1, gt=0, le=1, description="Share of the documents, the best by quality, that these are drawn from."
    )
    copies: int = pydantic.Field(20, ge=1, description="Near-copies of each of them.")
    dropped_share: float = pydantic.Field(
        0.02,
        ge=0,
        lt=1,
        description="Share of its words that a near-copy lacks; each gets a header of its own.",
    )
    boilerplate: int = pydantic.Field(
        500, ge=0, description="Documents of menus, notices and legal lines alone."
    )
    junk: int = pydantic.Field(
        500,
        ge=0,
        description="Documents that say nothing: random characters, words of many documents in random order, one line "
        "again and again; a third each.",
    )

    @property
    def num_documents(self) -> int:
        """Documents that are planted."""
        return self.good_documents * self.copies + self.boilerplate + self.junk


@dataclass(frozen=True)
class Planted:
    """Which documents of a pool were planted.

    Attributes:
        kinds_N: Place of each document's kind among `KINDS`; `NONE`: it was there before.
        contents_N: Number of the good document that it is, or is a near-copy of; `NONE`: of none.
    """

    kinds_N: NDArray[np.int64]
    contents_N: NDArray[np.int64]

    def part(self, index_n: NDArray[np.int64]) -> "Planted":
        """Those of some documents."""
        return Planted(self.kinds_N[index_n], self.contents_N[index_n])


def found_of(planted: Planted, chosen_n: NDArray[np.int64]) -> dict[str, float | None]:
    """What of the planted documents a choice holds.

    Formula:
        of each kind ``precision_<kind>``, its share of the chosen documents, and ``recall_<kind>``, the share of it that was
        chosen; of good contents ``precision_good`` and ``recall_good``, that counts a content once, however many of its
        near-copies or itself were chosen, and ``times_good``, how often it was chosen. ``None``: nothing to count.

    Args:
        planted: Of the half that was chosen from.
        chosen_n: Places of the chosen documents.
    """

    def share(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    of_chosen = planted.part(chosen_n)
    found = {}
    for number, kind in enumerate(KINDS):
        mine = int((of_chosen.kinds_N == number).sum())
        found[f"precision_{kind}"] = share(mine, len(chosen_n))
        found[f"recall_{kind}"] = share(mine, int((planted.kinds_N == number).sum()))
    members = int((of_chosen.contents_N != NONE).sum())
    contents = len({*of_chosen.contents_N.tolist()} - {NONE})
    found["precision_good"] = share(contents, len(chosen_n))
    found["recall_good"] = share(contents, len({*planted.contents_N.tolist()} - {NONE}))
    found["times_good"] = share(members, contents)
    return found


def planted_texts(
    config: PlantConfig, originals: Sequence[str], texts: Sequence[str], draws: np.random.Generator
) -> Iterator[tuple[str, str]]:
    """Kind and text of each planted document: all near-copies of the first original, of the next, then the others.

    Args:
        config: How many of what.
        originals: The good documents.
        texts: Documents whose words and lengths are used.
        draws: Draws words, headers and lengths.
    """
    for original in originals:
        for _ in range(config.copies):
            yield "near_copies", _near_copy(original, config.dropped_share, draws)
    for _ in range(config.boilerplate):
        yield "boilerplate", _boilerplate(texts, draws)
    for number in range(config.junk):
        yield "junk", _junk(number % 3, texts, draws)


def originals_of(
    config: PlantConfig,
    quality_N: NDArray[np.float64],
    offered_N: NDArray[np.int64],
    draws: np.random.Generator,
) -> NDArray[np.int64]:
    """Places of the good documents.

    Args:
        config: How many, of which share.
        quality_N: Quality of every document, (N,).
        offered_N: Places of those that may be copied.
        draws: Draws them.

    Raises:
        InputError: there are fewer.
    """
    best_n = offered_N[np.argsort(-quality_N[offered_N], kind="stable")]
    best_n = best_n[: int(config.good_share * len(best_n))]
    if len(best_n) < config.good_documents:
        raise InputError(
            f"{config.good_documents} good documents are to be copied, and the best {config.good_share:.0%} are "
            f"{len(best_n)}",
            remedy="lower `good_documents`, or raise `good_share`",
        )
    return np.sort(draws.permutation(best_n)[: config.good_documents])


def _near_copy(original: str, dropped_share: float, draws: np.random.Generator) -> str:
    """The text with a header, without some words; its lines stay."""
    lines = [
        " ".join(word for word in line.split(" ") if draws.random() >= dropped_share)
        for line in original.split("\n")
    ]
    return "\n".join([_filled(str(draws.choice(_HEADERS)), [original], draws), *lines])


def _boilerplate(texts: Sequence[str], draws: np.random.Generator) -> str:
    wanted, lines, num_words = _length(texts, draws), list[str](), 0
    while num_words < wanted:
        lines.append(_filled(str(draws.choice(_BOILERPLATE)), texts, draws))
        num_words += len(lines[-1].split())
    return "\n".join(lines)


def _junk(form: int, texts: Sequence[str], draws: np.random.Generator) -> str:
    wanted = _length(texts, draws)
    if form == 0:
        sizes = draws.integers(2, 12, wanted)
        return " ".join("".join(draws.choice(_LETTERS, size)) for size in sizes)
    if form == 1:
        return " ".join(_word(texts, draws) for _ in range(wanted))
    line = " ".join(_word(texts, draws) for _ in range(8))
    return "\n".join([line] * (wanted // 8 + 1))


def _length(texts: Sequence[str], draws: np.random.Generator) -> int:
    """Words of a document, as many as one that is there has."""
    return max(8, len(texts[int(draws.integers(len(texts)))].split()))


def _word(texts: Sequence[str], draws: np.random.Generator) -> str:
    words = texts[int(draws.integers(len(texts)))].split() or ["page"]
    return words[int(draws.integers(len(words)))]


def _filled(template: str, texts: Sequence[str], draws: np.random.Generator) -> str:
    return template.format(
        site=f"{_word(texts, draws).strip('.,;:').lower()}.example",
        word=_word(texts, draws),
        other=_word(texts, draws),
        year=int(draws.integers(1998, 2026)),
        number=int(draws.integers(2, 900)),
    )

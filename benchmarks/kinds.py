"""Four kinds of vectors with scores: isotropic, in clusters, texts by their words, texts by a network; and cells of them.

Knows no engine.

Shape suffixes: N documents, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data import clustered, drawn_quality, texts_of
from benchmarks.harness import Context

DIMENSIONS, FEATURES = 64, 30_000
"""Of all kinds but embeddings, and the words that TF-IDF counts."""
PASSAGE = 40
"""Words of a text: documents are cut, as there are fewer of them than the largest block has."""
COPIED = 0.1
"""Share of the texts that are others without one word of theirs."""
Block = tuple[NDArray[np.float16], NDArray[np.float64]]


def isotropic(context: Context, size: int, dimensions: int = DIMENSIONS) -> Block:
    """Standard normal directions."""
    draws = torch.Generator().manual_seed(context.seeds[0])
    return _scored(context, torch.randn(size, dimensions, generator=draws))


def clusters(context: Context, size: int, dimensions: int = DIMENSIONS) -> Block:
    """Around 500 centres; half of the rows are near-copies."""
    return clustered(size, context.seeds[0], dimensions)


def texts(context: Context, size: int) -> Block:
    """TF-IDF of real texts and of near-copies, cut to the first singular vectors."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    draws = np.random.default_rng(context.seeds[0])
    passages = [
        passage
        for text in texts_of(context.documents, size, context.seeds[0])
        for passage in _passages(text.split())
    ]
    drawn = draws.permutation(len(passages))[: size - round(COPIED * size)]
    texts = [" ".join(passages[place]) for place in drawn]
    for source in draws.integers(len(texts), size=size - len(texts)):
        words = texts[source].split()
        gone = int(draws.integers(len(words)))
        texts.append(" ".join(words[:gone] + words[gone + 1 :]))
    counts = TfidfVectorizer(max_features=FEATURES, sublinear_tf=True).fit_transform(texts)
    rows = TruncatedSVD(DIMENSIONS, random_state=0).fit_transform(counts)
    return _scored(context, torch.from_numpy(rows) + 1e-9)


def _passages(words: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(words) - PASSAGE // 2, PASSAGE):
        yield words[start : start + PASSAGE]


def embeddings(context: Context, size: int) -> Block:
    """Around the real vectors, in their dimensions."""
    return context.block(size, context.seeds[0])


def _scored(context: Context, rows_ND: torch.Tensor) -> Block:
    embeddings_ND = torch.nn.functional.normalize(rows_ND.float()).half().numpy()
    return embeddings_ND, drawn_quality(embeddings_ND, context.seeds[0])


KINDS = {"isotropic": isotropic, "clusters": clusters, "texts": texts, "embeddings": embeddings}
_BLOCKS: dict[tuple[str, int], Block] = {}
"""The last block that was made."""


def block_of(context: Context, kind: str, size: int) -> Block:
    """The block of a kind and size."""
    if (kind, size) not in _BLOCKS:
        _BLOCKS.clear()
        _BLOCKS[kind, size] = KINDS[kind](context, size)
    return _BLOCKS[kind, size]


def cells(context: Context, budgets: Mapping[int, Sequence[int]]) -> Iterator[tuple[str, int, int]]:
    """Kind, number of documents, and how many of them are to be chosen.

    Args:
        context: Which scales the numbers of documents.
        budgets: By the number of documents; one that leaves no choice is passed over.
    """
    for kind in KINDS:
        for size in budgets:
            for budget in budgets[size]:
                if budget < context.size(size):
                    yield kind, context.size(size), budget

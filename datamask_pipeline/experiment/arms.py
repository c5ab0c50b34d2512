"""What an arm learns from on one draw: equal tokens for all. Knows documents and the engine; knows no ruler.

Shape suffixes: N documents of the half, n chosen ones in the order of learning.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.collection import Documents, combined_quality
from datamask_pipeline.experiment.config import ArmConfig
from datamask_pipeline.near_copies import NearCopyIndex
from datamask_pipeline.ngram.asked import Encode
from datamask_pipeline.ngram.trigram import Texts
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.config import SelectionConfig

#: So much more than is learnt from is chosen: shuffled words have other lengths.
_MARGIN = 1.03
_LENGTH_BINS = 50

Places = NDArray[np.int64]


def engine_budget(half: Documents, num_tokens: int) -> int:
    """Tokens that the engine may choose: it fills a budget up to where no document fits, so one long document more."""
    return int(_MARGIN * num_tokens + np.quantile(half.lengths_N, 0.9))


def chosen_places(
    arm: ArmConfig,
    engine: SelectionConfig | None,
    half: Documents,
    num_tokens: int,
    draws: np.random.Generator,
    before: dict[str, Places],
    outside_N: NDArray[np.bool_] | None = None,
) -> Places:
    """Places of the chosen documents in the order of learning, which is random; they have at least as many tokens.

    Args:
        arm: The arm.
        engine: The engine's settings; ``None`` for random documents.
        half: What is chosen from.
        num_tokens: What is learnt from.
        draws: Draws documents and order.
        before: What arms before it chose, by name.
        outside_N: Documents that somebody else chose, where the arm is that subset.

    Raises:
        InputError: the arm has too few tokens.
    """
    if outside_N is not None:
        chosen_n = draws.permutation(np.flatnonzero(outside_N))
    elif arm.lengths_of is not None:
        chosen_n = _of_lengths(half.lengths_N, before[arm.lengths_of], num_tokens, draws)
    else:
        if arm.weights is not None:
            half = replace(half, quality_N=combined_quality(half.scores, arm.weights))
        offered_N = np.arange(len(half.lengths_N)) if arm.collapse is None else _standing(half, arm.collapse)
        offered = int(half.lengths_N[offered_N].sum())
        _refuse_too_few(offered, num_tokens)
        # With no more than the engine may choose, there is nothing to choose.
        if engine is None or offered <= (engine.num_tokens or num_tokens):
            chosen_n = offered_N[draws.permutation(len(offered_N))]
        else:
            result = select_documents(
                half.vectors.chosen(offered_N),
                half.quality_N[offered_N],
                token_counts=half.lengths_N[offered_N],
                config=engine,
            )
            chosen_n = draws.permutation(offered_N[np.flatnonzero(result.mask)])
    return _enough(chosen_n, half.lengths_N, num_tokens)


def learnt_texts(
    arm: ArmConfig,
    half: Documents,
    places_n: Places,
    num_tokens: int,
    draws: np.random.Generator,
    encode: Encode,
    end: int,
) -> Texts:
    """The chosen documents' tokens, as many for every arm: the last document is cut."""
    tokens = [half.tokens[place] for place in places_n]
    shuffled = draws.permutation(len(places_n))[: round(arm.shuffled_share * len(places_n))]
    for place in shuffled:
        words = half.texts[places_n[place]].split()
        (ids,) = encode([" ".join(draws.permutation(words).tolist())])
        is_whole = tokens[place][-1] == end  # a document that the pool cuts has no end, for no arm
        tokens[place] = np.array([*ids, end] if is_whole else ids, np.int64)
    learnt = Texts.of(tokens).cut(num_tokens)
    _refuse_too_few(len(learnt.tokens_T), num_tokens)
    return learnt


def _enough(chosen_n: Places, lengths_N: NDArray[np.int64], num_tokens: int) -> Places:
    """The first ones that have the tokens wanted, and a little more."""
    totals_n = np.cumsum(lengths_N[chosen_n])
    _refuse_too_few(int(totals_n[-1]) if len(totals_n) else 0, num_tokens)
    return chosen_n[: int(np.searchsorted(totals_n, num_tokens * _MARGIN)) + 1]


def _refuse_too_few(held: int, num_tokens: int) -> None:
    if held < num_tokens:
        raise InputError(
            f"it has {held:,} tokens where {num_tokens:,} are needed",
            remedy="lower `ratio`, or give more documents",
        )


def _standing(half: Documents, threshold: float) -> Places:
    """Documents that stand for themselves, where the best by quality stands for its near-copies; in their order."""
    order_N = np.argsort(-half.quality_N, kind="stable")
    with tempfile.TemporaryDirectory() as folder:
        index = NearCopyIndex.of(Path(folder) / "index", half.vectors.chosen(order_N), threshold=threshold)
        rows_N = np.concatenate([block.rows_Q for block in index.representatives()])
    return np.sort(order_N[rows_N == np.arange(len(rows_N))])


def _of_lengths(
    lengths_N: NDArray[np.int64], wanted_n: Places, num_tokens: int, draws: np.random.Generator
) -> Places:
    """Random documents with as many of each length as the wanted ones have; again, until there are tokens enough."""
    ranks_N = np.empty(len(lengths_N), np.int64)
    # Among equal lengths at random: else the first ones would always share a bin.
    ranks_N[np.lexsort((draws.random(len(lengths_N)), lengths_N))] = np.arange(len(lengths_N))
    bins_N = ranks_N * _LENGTH_BINS // len(lengths_N)
    wanted_B = np.bincount(bins_N[wanted_n], minlength=_LENGTH_BINS)
    left = [draws.permutation(np.flatnonzero(bins_N == one)) for one in range(_LENGTH_BINS)]
    taken: list[Places] = []
    while sum(int(lengths_N[part].sum()) for part in taken) < num_tokens and any(
        len(part) and wanted for part, wanted in zip(left, wanted_B, strict=True)
    ):
        round_n = np.concatenate([part[:wanted] for part, wanted in zip(left, wanted_B, strict=True)])
        left = [part[wanted:] for part, wanted in zip(left, wanted_B, strict=True)]
        taken.append(draws.permutation(round_n))
    return np.concatenate(taken)

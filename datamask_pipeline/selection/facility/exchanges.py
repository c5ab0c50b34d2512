"""Exchanges on every similarity of a small block, until none gains, and again from masks that were drawn or changed at
random. Knows no list, bound or normalisation.

Shape suffixes: N documents, which are the references too, C of a chunk, K places of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.coverage_swaps import CoverageSwaps
from datamask_pipeline.diversity.swap_models import Floats, Places
from datamask_pipeline.products import product_into
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.seeds import generator

MOST_SIMILARITIES = 2**25
"""Of a block: 128 MiB, and half as much for each of three tables of a mask of a quarter of its documents."""
CHUNK_ROWS = 256
LEAST_GAIN = 1e-7
"""Of an exchange, in the objective's units."""
RESTART_WORK, KICK_WORK = 2**27, 2**28
"""Similarities that all drawn masks, and all kicks, together may look at: about a second."""
FOUND_AGAIN = 3
"""Where as many drawn masks end at the best that is known, others would too."""


@dataclass(frozen=True, kw_only=True)
class Exchanges:
    """A block with all its similarities.

    Attributes:
        similar_NN: float32, 0 or more.
        worth_N: A document's linear part, as many similarities as it is worth.
        groups_N: An exchange stays within one.
        scale: What one similarity is worth in the objective.
        seed: Of kicks.
    """

    similar_NN: NDArray[np.float32]
    worth_N: Floats
    groups_N: Places
    scale: float
    seed: int

    @property
    def least(self) -> float:
        """Gain of an exchange, in similarities."""
        return LEAST_GAIN / self.scale

    @classmethod
    def of(
        cls,
        documents_ND: Tensor,
        linear_N: Tensor,
        weight: float,
        groups_N: Tensor,
        seed: int,
        workers: Workers,
    ) -> Exchanges | None:
        """Those of a block; none where it is too large, or where coverage weighs nothing."""
        size = len(documents_ND)
        if size**2 > MOST_SIMILARITIES or weight <= 0:
            return None
        similar_NN = np.empty((size, size), dtype=np.float32)

        def work(start: int) -> None:
            rows_CN = torch.from_numpy(similar_NN[start : start + CHUNK_ROWS])
            chunk_CD = documents_ND[start : start + CHUNK_ROWS].float()
            product_into(rows_CN, chunk_CD, documents_ND.float()).clamp_(min=0)

        for _ in workers.map(work, range(0, size, CHUNK_ROWS)):
            pass
        scale = weight / size
        return cls(
            similar_NN=similar_NN,
            worth_N=linear_N.numpy() / scale,
            groups_N=groups_N.numpy(),
            scale=scale,
            seed=seed,
        )

    def best(self, starts: list[Tensor], most_restarts: int, most_kicks: int, goal: float) -> Tensor:
        """The best of the masks after exchanges, and of what drawn ones and kicks of it lead to until it is worth the goal:
        rows, rising.

        Source: iterated local search, Lourenço, Martin and Stützle 2003.
        """
        found = max((self._improved(start_T.numpy()) for start_T in starts), key=_Mask.value)
        found = self._kicked(found, most_kicks, goal)
        begun = self._begun_anew(found, most_restarts, goal)
        if begun is not found:
            found = self._kicked(begun, most_kicks, goal)
        return torch.from_numpy(np.sort(found.picks_K))

    def _begun_anew(self, found: _Mask, most: int, goal: float) -> _Mask:
        """The best of a mask and of what exchanges of drawn ones end at."""
        value, size, chosen = found.value(), len(self.worth_N), len(found.picks_K)
        # A table, summed twice, and more exchanges the more places there are.
        work, again = size**2 * (10 + chosen / 8), 0
        for turn in range(min(most, int(RESTART_WORK / work))):
            if value * self.scale >= goal or again == FOUND_AGAIN:
                break
            drawn = self._improved(self._drawn(found.picks_K, turn))
            again += drawn.value() >= value - self.least
            if drawn.value() > value + self.least:
                found, value, again = drawn, drawn.value(), 0
        return found

    def _kicked(self, found: _Mask, most: int, goal: float) -> _Mask:
        """The best of a mask and of what exchanges end at from it, exchanged in part at random."""
        value, size, chosen = found.value(), len(self.worth_N), len(found.picks_K)
        # Some exchanges for the root of a mask's size, a table summed anew, and some looks at it.
        work = size * (12 * size / math.sqrt(chosen) + size + 3 * chosen)
        for turn in range(min(most, int(KICK_WORK / work))):
            if value * self.scale >= goal:
                break
            kicked = found.copy()
            for place, document in self._kick(found, turn):
                kicked.exchange(place, document)
            self._improve(kicked)
            if kicked.value() > value + self.least:
                found, value = kicked, kicked.value()
        return found

    def _improved(self, picks_K: Places) -> _Mask:
        mask = _Mask(self, picks_K)
        self._improve(mask)
        return mask

    def _improve(self, mask: _Mask) -> None:
        """The best exchange of every place, the best first, while these gain; until none does by a table summed anew."""
        anew = False
        while True:
            into_K, gains_K = mask.exchanges()
            made = False
            for place in np.argsort(-gains_K, kind="stable").tolist():
                document, promised = int(into_K[place]), float(gains_K[place])
                if promised <= self.least:
                    break
                # An exchange before this one may have taken the document, or what it would have gained.
                if document in mask.chosen or mask.gain(place, document) <= max(self.least, promised / 2):
                    continue
                mask.exchange(place, document)
                made = True
            if not made and anew:
                return
            anew = not made
            if anew:
                mask.sum_up()

    def _drawn(self, picks_K: Places, turn: int) -> Places:
        """As many documents of each group as some others are, drawn."""
        order_N = torch.randperm(len(self.worth_N), generator=generator(self.seed, "restarts", turn)).numpy()
        groups, counts = np.unique(self.groups_N[picks_K], return_counts=True)
        drawn = [
            order_N[self.groups_N[order_N] == group][:count]
            for group, count in zip(groups, counts, strict=True)
        ]
        return np.concatenate(drawn)

    def _kick(self, mask: _Mask, turn: int) -> Iterator[tuple[int, int]]:
        """Some places, and a document of the same group for each: about the root of a mask's size, or half of that."""
        draws, size = generator(self.seed, "kicks", turn), len(mask.picks_K)
        count = max(2, round(math.sqrt(size) / (1 + turn % 2)))
        taken = set(mask.chosen)
        for place in torch.randperm(size, generator=draws)[:count].tolist():
            of_group_N = self.groups_N == self.groups_N[mask.picks_K[place]]
            of_group_N[list(taken)] = False
            free = np.flatnonzero(of_group_N)
            if len(free):
                document = int(free[int(torch.randint(len(free), (), generator=draws))])
                taken.add(document)
                yield place, document


class _Mask(CoverageSwaps):
    """A mask of documents that are worth something besides."""

    def __init__(self, block: Exchanges, picks_K: Places) -> None:
        super().__init__(block.similar_NN, block.similar_NN, picks_K)
        self.block = block
        self.sum_up()

    def copy(self) -> _Mask:
        """One that changes by itself."""
        other = object.__new__(_Mask)
        shared = ("block", "scale", "similar_RT", "similar_TR")
        copied = {name: held.copy() for name, held in vars(self).items() if name not in shared}
        vars(other).update({name: getattr(self, name) for name in shared}, **copied)
        return other

    def value(self) -> float:
        """The objective, in similarities."""
        return float(self.block.worth_N[self.picks_K].sum() + self.best_R.sum(dtype=np.float64))

    def exchanges(self) -> tuple[Places, Floats]:
        """Of every place the document that gains most there, and what it gains, as the table has it."""
        losses_K = self.block.worth_N[self.picks_K]
        losses_K += self.losses()
        alone_N = self.added_T + self.block.worth_N
        alone_N[self.picks_K] = -np.inf
        gains_KN = self.saved() + alone_N
        groups_N = self.block.groups_N
        if groups_N.any():
            gains_KN[groups_N[self.picks_K][:, None] != groups_N] = -np.inf
        into_K = gains_KN.argmax(1)
        return into_K, gains_KN[np.arange(len(into_K)), into_K] - losses_K

    def gain(self, place: int, document: int) -> float:
        """Of one exchange, summed anew."""
        left_N = np.where(self.first_R == place, self.next_R, self.best_R)
        after_N = np.maximum(left_N, self.similar_TR[document])
        worth_N = self.block.worth_N
        moved = float((after_N - self.best_R).sum(dtype=np.float64))
        return moved + float(worth_N[document] - worth_N[self.picks_K[place]])

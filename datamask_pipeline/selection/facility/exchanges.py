"""Exchanges on every similarity of a small block, until none gains, and again from masks that were drawn or changed at
random. Knows no list, bound or normalisation.

Shape suffixes: N documents, which are the references too, C of them whose best ones change, K places of a mask.

Of every reference the best and the second-best chosen document are known, as in FastPAM (Schubert and Rousseeuw 2019). What
an exchange gains is what its document would add to the mask as it is, plus what it saves of the loss of the other; a
table has the second for every place and document, and an exchange only changes what the references whose two best ones
change put into it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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

Doubles = NDArray[np.float64]
Places = NDArray[np.int64]


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
    worth_N: Doubles
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


class _Mask:
    """A mask, the two best of every reference, and the table of its exchanges."""

    def __init__(self, block: Exchanges, picks_K: Places) -> None:
        size = len(block.worth_N)
        self.block, self.picks_K, self.chosen = block, picks_K.copy(), set(picks_K.tolist())
        self.first_N, self.second_N = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.best_N, self.next_N = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.added_N, self.saved_KN = np.zeros(size), np.zeros((len(picks_K), size))
        for start in range(0, size, CHUNK_ROWS):
            self._rank(np.arange(start, min(start + CHUNK_ROWS, size)))
        self.sum_up()

    def copy(self) -> _Mask:
        """One that changes by itself."""
        other = object.__new__(_Mask)
        copied = {name: held.copy() for name, held in vars(self).items() if name != "block"}
        vars(other).update(copied, block=self.block)
        return other

    def value(self) -> float:
        """The objective, in similarities."""
        return float(self.block.worth_N[self.picks_K].sum() + self.best_N.sum(dtype=np.float64))

    def sum_up(self) -> None:
        """The table from all references."""
        self.added_N[:], self.saved_KN[:] = 0, 0
        for start in range(0, len(self.best_N), CHUNK_ROWS):
            self._put(np.arange(start, min(start + CHUNK_ROWS, len(self.best_N))), 1)

    def exchanges(self) -> tuple[Places, Doubles]:
        """Of every place the document that gains most there, and what it gains, as the table has it."""
        losses_K = self.block.worth_N[self.picks_K]
        losses_K += np.bincount(self.first_N, self.best_N - self.next_N, len(self.picks_K))
        alone_N = self.added_N + self.block.worth_N
        alone_N[self.picks_K] = -np.inf
        gains_KN = self.saved_KN + alone_N
        groups_N = self.block.groups_N
        if groups_N.any():
            gains_KN[groups_N[self.picks_K][:, None] != groups_N] = -np.inf
        into_K = gains_KN.argmax(1)
        return into_K, gains_KN[np.arange(len(into_K)), into_K] - losses_K

    def gain(self, place: int, document: int) -> float:
        """Of one exchange, summed anew."""
        left_N = np.where(self.first_N == place, self.next_N, self.best_N)
        after_N = np.maximum(left_N, self.block.similar_NN[document])
        worth_N = self.block.worth_N
        moved = float((after_N - self.best_N).sum(dtype=np.float64))
        return moved + float(worth_N[document] - worth_N[self.picks_K[place]])

    def exchange(self, place: int, document: int) -> None:
        """A document for the one at a place."""
        similar_N = self.block.similar_NN[document]
        lost_N = (self.first_N == place) | (self.second_N == place)
        changed_C = np.flatnonzero(lost_N | (similar_N > self.next_N))
        self._put(changed_C, -1)
        self.chosen.remove(int(self.picks_K[place]))
        self.chosen.add(document)
        self.picks_K[place] = document
        lost_C = lost_N[changed_C]
        self._rank(changed_C[lost_C])
        kept = changed_C[~lost_C]
        ahead = similar_N[kept] > self.best_N[kept]
        first, second = kept[ahead], kept[~ahead]
        self.second_N[first], self.next_N[first] = self.first_N[first], self.best_N[first]
        self.first_N[first], self.best_N[first] = place, similar_N[first]
        self.second_N[second], self.next_N[second] = place, similar_N[second]
        self._put(changed_C, 1)

    def _rank(self, rows_C: Places) -> None:
        """The two best of some references, by all that are chosen."""
        if not len(rows_C):
            return
        similar_CK = self.block.similar_NN[np.ix_(rows_C, self.picks_K)]
        every = np.arange(len(rows_C))
        self.first_N[rows_C] = first_C = similar_CK.argmax(1)
        self.best_N[rows_C] = similar_CK[every, first_C]
        if len(self.picks_K) > 1:
            similar_CK[every, first_C] = -1
            self.second_N[rows_C] = second_C = similar_CK.argmax(1)
            self.next_N[rows_C] = similar_CK[every, second_C]

    def _put(self, rows_C: Places, sign: int) -> None:
        """Add what some references put into the table, or take it away."""
        if not len(rows_C):
            return
        rows_C = rows_C[np.argsort(self.first_N[rows_C], kind="stable")]
        similar_CN = self.block.similar_NN[rows_C]
        best_C1, next_C1 = self.best_N[rows_C, None], self.next_N[rows_C, None]
        above_CN = np.maximum(similar_CN - best_C1, 0)
        self.added_N += sign * above_CN.sum(0, dtype=np.float64)
        saved_CN = np.clip(similar_CN, next_C1, best_C1, out=above_CN)
        saved_CN -= next_C1
        places_C = self.first_N[rows_C]
        starts = np.flatnonzero(np.diff(places_C, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(places_C)], strict=True):
            self.saved_KN[places_C[start]] += sign * saved_CN[start:stop].sum(0, dtype=np.float64)

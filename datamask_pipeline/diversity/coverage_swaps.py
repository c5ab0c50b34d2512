"""What exchanges do to coverage, exactly, from all similarities of a small block. Knows no quality, budget or group.

Shape suffixes: T candidates, O of them outside a mask, I inside it, K places of a mask, R references, C of them whose best
ones change.

Of every reference the best and the second-best chosen candidate are known, as in FastPAM (Schubert and Rousseeuw 2019). What
an exchange gains is what its candidate would add to the mask as it is, plus what it saves of the loss of the other; a
table has the second for every place and candidate, and an exchange only changes what the references whose two best ones
change put into it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

Similarities = NDArray[np.float32]

CHUNK_REFERENCES = 256
READ_AGAIN, OF_A_MOVE = 32, 500_000
"""Times that an exchange reads each candidate's similarity to the references that one place is the best of, as so many of
them change; and how many numbers could be read in the time of what an exchange takes besides."""


class CoverageSwaps(SwapModel):
    """The sum over references of the largest similarity to a chosen candidate, 0 where nobody is chosen.

    Args:
        similar_RT: float32, 0 or more.
        similar_TR: The same the other way round; the same array where the candidates are the references.
        picks_K: The candidates that are chosen.
        scale: What one similarity is worth.
    """

    follows = True

    def __init__(
        self, similar_RT: Similarities, similar_TR: Similarities, picks_K: Places, scale: float = 1.0
    ) -> None:
        num_references, size = similar_RT.shape
        self.similar_RT, self.similar_TR, self.scale = similar_RT, similar_TR, scale
        self.picks_K, self.chosen = picks_K.copy(), set(picks_K.tolist())
        self.first_R, self.second_R = np.zeros(num_references, np.int64), np.zeros(num_references, np.int64)
        self.best_R, self.next_R = np.zeros(num_references, np.float32), np.zeros(num_references, np.float32)
        self.added_T = np.zeros(size)
        self.saved_KT: Floats | None = None
        for references_C in self._chunks():
            self._rank(references_C)
            self._put(references_C, 1)

    def additions(self) -> Floats:
        return self.added_T * self.scale

    def removals(self, inside_I: Places) -> Floats:
        changes_I: Floats = -self.losses()[self._places(inside_I)] * self.scale
        return changes_I

    def tangents(self) -> Floats | None:
        return None

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        places_I = self._places(inside_I)
        saved_OI = self.saved()[np.ix_(places_I, outside_O)].T
        changes_OI: Floats = (saved_OI + self.added_T[outside_O, None] - self.losses()[places_I]) * self.scale
        return changes_OI

    def swap(self, into: int, out: int) -> None:
        self.exchange(int(self._places(np.array([out]))[0]), into)

    def add(self, into: int) -> None:
        self.saved_KT = None
        place, similar_R = len(self.picks_K), self.similar_TR[into]
        self.picks_K = np.append(self.picks_K, into)
        self.chosen.add(into)
        changed_C = np.flatnonzero(similar_R > self.next_R)
        self._put(changed_C, -1)
        self._follow(changed_C, place, similar_R)
        self._put(changed_C, 1)

    def losses(self) -> Floats:
        """What giving up each place's candidate loses, were nothing taken in for it: shape (K,), in similarities."""
        losses_K = np.bincount(self.first_R, self.best_R - self.next_R, len(self.picks_K))
        return losses_K.astype(np.float64, copy=False)

    def saved(self) -> Floats:
        """What each candidate saves of the loss of each place: shape (K, T), in similarities."""
        if self.saved_KT is None:
            self.sum_up()
        assert self.saved_KT is not None
        return self.saved_KT

    def sum_up(self) -> None:
        """Both tables from all references."""
        self.added_T[:] = 0
        self.saved_KT = np.zeros((len(self.picks_K), len(self.added_T)))
        for references_C in self._chunks():
            self._put(references_C, 1)

    def exchange(self, place: int, into: int) -> None:
        """A candidate for the one at a place."""
        similar_R = self.similar_TR[into]
        lost_R = (self.first_R == place) | (self.second_R == place)
        changed_C = np.flatnonzero(lost_R | (similar_R > self.next_R))
        self._put(changed_C, -1)
        self.chosen.remove(int(self.picks_K[place]))
        self.chosen.add(into)
        self.picks_K[place] = into
        lost_C = lost_R[changed_C]
        self._rank(changed_C[lost_C])
        self._follow(changed_C[~lost_C], place, similar_R)
        self._put(changed_C, 1)

    def _follow(self, references_C: Places, place: int, similar_R: Similarities) -> None:
        """Take note of a candidate that is nearer to some references than their second best."""
        ahead = similar_R[references_C] > self.best_R[references_C]
        first, second = references_C[ahead], references_C[~ahead]
        self.second_R[first], self.next_R[first] = self.first_R[first], self.best_R[first]
        self.first_R[first], self.best_R[first] = place, similar_R[first]
        self.second_R[second], self.next_R[second] = place, similar_R[second]

    def _rank(self, references_C: Places) -> None:
        """The two best of some references, by all that are chosen."""
        if not len(references_C) or not len(self.picks_K):
            return
        similar_CK = self.similar_RT[np.ix_(references_C, self.picks_K)]
        every = np.arange(len(references_C))
        self.first_R[references_C] = first_C = similar_CK.argmax(1)
        self.best_R[references_C] = similar_CK[every, first_C]
        if len(self.picks_K) > 1:
            similar_CK[every, first_C] = -1
            self.second_R[references_C] = second_C = similar_CK.argmax(1)
            self.next_R[references_C] = similar_CK[every, second_C]

    def _put(self, references_C: Places, sign: int) -> None:
        """Add what some references put into the tables, or take it away."""
        if not len(references_C):
            return
        references_C = references_C[np.argsort(self.first_R[references_C], kind="stable")]
        similar_CT = self.similar_RT[references_C]
        best_C1, next_C1 = self.best_R[references_C, None], self.next_R[references_C, None]
        above_CT = np.maximum(similar_CT - best_C1, 0)
        self.added_T += sign * above_CT.sum(0, dtype=np.float64)
        if self.saved_KT is None:
            return
        saved_CT = np.clip(similar_CT, next_C1, best_C1, out=above_CT)
        saved_CT -= next_C1
        places_C = self.first_R[references_C]
        starts = np.flatnonzero(np.diff(places_C, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(places_C)], strict=True):
            self.saved_KT[places_C[start]] += sign * saved_CT[start:stop].sum(0, dtype=np.float64)

    def _places(self, inside_I: Places) -> Places:
        places_T = np.empty(len(self.added_T), np.int64)
        places_T[self.picks_K] = np.arange(len(self.picks_K))
        return places_T[inside_I]

    def _chunks(self) -> list[Places]:
        return np.array_split(
            np.arange(len(self.best_R)), range(CHUNK_REFERENCES, len(self.best_R), CHUNK_REFERENCES)
        )

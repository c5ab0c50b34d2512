"""Exchanges after lazy greedy for facility location plus quality. Knows no learner, budget or normalisation.

The metric is the mean over all documents y of ``max over picks of max(0, <x_i, y>)``. An exchange drops one
pick and adds one other document. As in FastPAM, the nearest and the second nearest pick of every document give
the gains of all exchanges at once, in ``N^2`` time. Here they stay in a table, and an exchange only renews what
the documents that changed their nearest or second nearest pick contribute to it.

All similarities stay in memory, and a table of ``8 K N`` bytes.

Shape suffixes: N documents, C changed documents, K picks (by slot), B slots to try, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task
from benchmarks.peers.facility import dense_lazy_greedy

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]
CHUNK = 512
LEAST = 1e-12


def greedy_with_exchanges(task: Task) -> Rows:
    """Rows that no single exchange betters, in ascending order.

    A round makes the best exchange of every slot, best first, while they still gain what they promised or half of it.
    """
    state = _State.start(task, dense_lazy_greedy(task))
    _improve(state)
    return np.sort(state.picks_K)


@dataclass(kw_only=True)
class _State:
    """A mask and the gains of its exchanges.

    Attributes:
        similar_NN: Of each document with each other.
        linear_N: The task's.
        weight: What a similarity counts.
        picks_K: The row in each slot.
        first_N: The slot of the nearest pick.
        second_N: The slot of the second nearest, -1 without one.
        near_N: The similarity to the nearest pick, at least 0.
        next_N: The similarity to the second nearest, at least 0.
        added_N: What adding a row would add to all similarities, with no pick dropped.
        spared_KN: How much of a dropped slot's loss adding a row makes good.
    """

    similar_NN: Floats
    linear_N: Doubles
    weight: float
    picks_K: Rows
    first_N: Rows
    second_N: Rows
    near_N: Floats
    next_N: Floats
    added_N: Doubles
    spared_KN: Doubles

    @classmethod
    def start(cls, task: Task, picks_K: Rows) -> _State:
        rows_ND = task.embeddings_ND.astype(np.float32)
        num = len(rows_ND)
        state = cls(
            similar_NN=rows_ND @ rows_ND.T,
            linear_N=task.linear_N.astype(np.float64),
            weight=task.scale / num,
            picks_K=picks_K.copy(),
            first_N=np.zeros(num, dtype=np.int64),
            second_N=np.zeros(num, dtype=np.int64),
            near_N=np.zeros(num, dtype=np.float32),
            next_N=np.zeros(num, dtype=np.float32),
            added_N=np.zeros(num),
            spared_KN=np.zeros((len(picks_K), num)),
        )
        for begin in range(0, num, CHUNK):
            state._look_up(np.arange(begin, min(begin + CHUNK, num)))
        state.renew()
        return state

    def renew(self) -> None:
        """Compute the table anew, without the rounding of its updates."""
        self.added_N[:] = 0
        self.spared_KN[:] = 0
        order_N = np.argsort(self.first_N, kind="stable")
        for begin in range(0, len(order_N), CHUNK):
            rows_C = order_N[begin : begin + CHUNK]
            self._count(rows_C, self.similar_NN[rows_C], 1)

    def best_of_slots(self) -> tuple[Rows, Doubles]:
        """For each slot the row to exchange its pick for and the gain, up to the rounding of the table."""
        loss_K = np.bincount(self.first_N, weights=self.near_N - self.next_N, minlength=len(self.picks_K))
        add_N = self.weight * self.added_N + self.linear_N
        add_N[self.picks_K] = -np.inf
        gains_KN = self.weight * self.spared_KN
        gains_KN += add_N
        rows_K = gains_KN.argmax(axis=1)
        best_K = gains_KN[np.arange(len(rows_K)), rows_K]
        return rows_K, best_K - self.weight * loss_K - self.linear_N[self.picks_K]

    def gain(self, slot: int, row: int) -> float:
        """Of one exchange, summed in float64 whatever the table says."""
        kept_N = np.where(self.first_N == slot, self.next_N, self.near_N)
        change_N = np.maximum(kept_N, self.similar_NN[row]).astype(np.float64) - self.near_N
        return float(self.linear_N[row] - self.linear_N[self.picks_K[slot]] + self.weight * change_N.sum())

    def exchange(self, slot: int, row: int) -> None:
        new_N = self.similar_NN[row]
        lost_N = (self.first_N == slot) | (self.second_N == slot)
        changed_C = np.flatnonzero(lost_N | (new_N > self.next_N))
        similar_CN = self.similar_NN[changed_C]
        order_C = np.argsort(self.first_N[changed_C], kind="stable")
        self._count(changed_C[order_C], similar_CN[order_C], -1)
        self.picks_K[slot] = row
        lost_C = lost_N[changed_C]
        self._look_up(changed_C[lost_C])
        rest = changed_C[~lost_C]
        nearest = new_N[rest] > self.near_N[rest]
        ahead, behind = rest[nearest], rest[~nearest]
        self.second_N[ahead], self.next_N[ahead] = self.first_N[ahead], self.near_N[ahead]
        self.first_N[ahead], self.near_N[ahead] = slot, new_N[ahead]
        self.second_N[behind], self.next_N[behind] = slot, new_N[behind]
        order_C = np.argsort(self.first_N[changed_C], kind="stable")
        self._count(changed_C[order_C], similar_CN[order_C], 1)

    def _look_up(self, rows_C: Rows) -> None:
        """Nearest and second nearest pick of some documents."""
        if not len(rows_C):
            return
        near_CK = np.maximum(self.similar_NN[np.ix_(rows_C, self.picks_K)], 0)
        all_C = np.arange(len(rows_C))
        self.first_N[rows_C] = first_C = near_CK.argmax(axis=1)
        self.near_N[rows_C] = near_CK[all_C, first_C]
        if len(self.picks_K) == 1:
            self.second_N[rows_C] = -1
            return
        near_CK[all_C, first_C] = -1
        self.second_N[rows_C] = second_C = near_CK.argmax(axis=1)
        self.next_N[rows_C] = near_CK[all_C, second_C]

    def _count(self, rows_C: Rows, similar_CN: Floats, sign: int) -> None:
        """Add to the table, or take from it, what documents in the order of their nearest slot contribute."""
        if not len(rows_C):
            return
        near_C1, next_C1 = self.near_N[rows_C, None], self.next_N[rows_C, None]
        part_CN = np.maximum(similar_CN, near_C1)
        self.added_N += sign * (part_CN.sum(axis=0) - near_C1.sum())
        np.minimum(similar_CN, near_C1, out=part_CN)
        np.maximum(part_CN, next_C1, out=part_CN)
        part_CN -= next_C1
        slots_C = self.first_N[rows_C]
        begins = np.flatnonzero(np.diff(slots_C, prepend=-1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(rows_C)], strict=True):
            self.spared_KN[slots_C[begin]] += sign * part_CN[begin:end].sum(axis=0)


def _improve(state: _State) -> None:
    """Exchange until a table without rounding knows no exchange that gains."""
    exact = False
    while True:
        rows_K, gains_K = state.best_of_slots()
        order_B = np.argsort(-gains_K, kind="stable")
        made = 0
        for slot in order_B.tolist():
            row, promised = int(rows_K[slot]), float(gains_K[slot])
            if promised <= LEAST:
                break
            # An earlier exchange of the round may have picked the row.
            if made and (state.picks_K == row).any():
                continue
            if state.gain(slot, row) > max(LEAST, promised / 2):
                state.exchange(slot, row)
                made += 1
        if made:
            exact = False
        elif exact:
            return
        else:
            state.renew()
            exact = True

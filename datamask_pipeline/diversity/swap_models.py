"""What swapping two documents does to a metric, among a few candidates. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

AT_ONCE = 256
"""Candidates whose interactions with themselves are found together."""


class SwapModel(ABC):
    """Changes of a metric at a fixed number of documents, followed through one swap after the other."""

    follows: bool
    """Whether the model knows what a swap changes for the next ones; where it does not, each candidate moves once."""

    promising: tuple[int, int] = (32, 2**20)
    """How many candidates outside and inside a mask one table is worth asking for at each swap."""
    pairs_at_once: int = 2**20
    """Most pairs that one table is asked for."""
    affordable: int = 2**23
    """Most pairs that are looked at before it is said that none gains."""

    in_turn: bool = False
    """Whether pairs are cheap only beside others of the same document inside: these are looked at one after the other."""

    @abstractmethod
    def additions(self) -> Floats:
        """What each candidate would add, were it taken in with nothing given up: shape (T,)."""

    @abstractmethod
    def removals(self, inside_I: Places) -> Floats:
        """The change on giving up each of some candidates of the mask, were nothing taken in for it: shape (I,)."""

    @abstractmethod
    def tangents(self) -> Floats | None:
        """Numbers of which no swap gains more than the difference, shape (T,); none where there are no such."""

    @abstractmethod
    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        """The change on taking in one candidate and giving up another: shape (O, I)."""

    def bends(self, left: Places, right: Places) -> Floats | None:
        """Exact second derivatives of some candidates by others, by which two swaps at once differ from one and one; none
        where there are no such."""
        del left, right
        return None

    @abstractmethod
    def swap(self, into: int, out: int) -> None:
        """Takes note that one candidate came in for another."""

    @abstractmethod
    def add(self, into: int) -> None:
        """Takes note that one candidate came in."""


class QuadraticSwaps(SwapModel):
    """The second-order model.

    Args:
        scores_T: First derivatives, float64.
        interactions: Second derivatives, float64, of some candidates by others; where a metric has none, the model is
            linear and follows nothing.
    """

    def __init__(self, scores_T: Floats, interactions: Callable[[Places, Places], Floats] | None) -> None:
        self.scores_T, self.interactions = scores_T, interactions
        self.half_T = np.zeros_like(scores_T)
        self.follows = interactions is not None
        if interactions is not None:
            parts = np.split(np.arange(len(scores_T)), range(AT_ONCE, len(scores_T), AT_ONCE))
            self.half_T = np.concatenate([np.diag(interactions(part, part)) for part in parts]) / 2

    def additions(self) -> Floats:
        return self.scores_T + self.half_T

    def removals(self, inside_I: Places) -> Floats:
        changes_I: Floats = (self.half_T - self.scores_T)[inside_I]
        return changes_I

    def tangents(self) -> Floats | None:
        return self.scores_T

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        gains_O = (self.scores_T + self.half_T)[outside_O]
        costs_I = (self.scores_T - self.half_T)[inside_I]
        changes_OI: Floats = gains_O[:, None] - costs_I
        if self.interactions is not None:
            # Two documents alike attract: taking one in while the other stays costs their interaction.
            changes_OI -= self.interactions(outside_O, inside_I)
        return changes_OI

    def bends(self, left: Places, right: Places) -> Floats | None:
        return None if self.interactions is None else self.interactions(left, right)

    def swap(self, into: int, out: int) -> None:
        if self.interactions is not None:
            bends_2T = self.interactions(np.array([into, out]), np.arange(len(self.scores_T)))
            self.scores_T = self.scores_T + bends_2T[0] - bends_2T[1]

    def add(self, into: int) -> None:
        if self.interactions is not None:
            everyone_T = np.arange(len(self.scores_T))
            self.scores_T = self.scores_T + self.interactions(np.array([into]), everyone_T)[0]


class SummedSwaps(SwapModel):
    """The model of a weighted sum of metrics and a linear part.

    Args:
        linear_T: Linear part of each candidate, float64.
        parts: Weight and swap model of each metric; none where the sum is its linear part.
    """

    def __init__(self, linear_T: Floats, parts: list[tuple[float, SwapModel]]) -> None:
        self.linear_T, self.parts = linear_T, parts
        self.follows = all(part.follows for _, part in parts)
        promising = (part.promising for _, part in parts)
        self.promising = min(promising, key=lambda pair: pair[1], default=self.promising)
        self.pairs_at_once = min((part.pairs_at_once for _, part in parts), default=self.pairs_at_once)
        self.affordable = min((part.affordable for _, part in parts), default=self.affordable)
        self.in_turn = any(part.in_turn for _, part in parts)

    def additions(self) -> Floats:
        return self.linear_T + sum(weight * part.additions() for weight, part in self.parts)

    def removals(self, inside_I: Places) -> Floats:
        return sum(
            (weight * part.removals(inside_I) for weight, part in self.parts), -self.linear_T[inside_I]
        )

    def tangents(self) -> Floats | None:
        total_T = self.linear_T
        for weight, part in self.parts:
            tangents_T = part.tangents()
            if tangents_T is None:
                return None
            total_T = total_T + (weight * tangents_T if weight else 0.0)
        return total_T

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        linear_OI = self.linear_T[outside_O][:, None] - self.linear_T[inside_I]
        return linear_OI + sum(weight * part.table(outside_O, inside_I) for weight, part in self.parts)

    def bends(self, left: Places, right: Places) -> Floats | None:
        total = np.zeros((len(left), len(right)))
        for weight, part in self.parts:
            bends = part.bends(left, right)
            if bends is None:
                return None
            total += weight * bends
        return total

    def swap(self, into: int, out: int) -> None:
        for _, part in self.parts:
            part.swap(into, out)

    def add(self, into: int) -> None:
        for _, part in self.parts:
            part.add(into)

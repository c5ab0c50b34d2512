"""The masks that fill a budget in tokens: their largest sum of scores, and their largest mean. Knows no meaning of a score.

A mask is full where none of the documents left out would still fit. Its tokens are then more than the budget less the
shortest document left out. So either the shortest of all is left out, and hardly a token is left; or it is in, and what is
left depends on how many of the shortest are in.

Shape suffixes: N documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_TURNS = 100
"""Of Newton's method for one mean, which takes a handful."""
NOTHING = 1e-12
"""Of the largest numerator: a mean that is known so well."""


class FullMasks:
    """Full masks, relaxed ones among them.

    Args:
        costs_N: float64, each document's tokens.
        limit: The budget.
    """

    def __init__(self, costs_N: Tensor, limit: float) -> None:
        self.costs_N, self.limit = costs_N, limit
        self._kinds = list(_kinds(costs_N, limit))

    @property
    def fewest(self) -> int:
        """A number of documents that every full mask has, two at least."""
        longest_N = self.costs_N.sort(descending=True).values
        least = self.limit - float(longest_N[0])
        return max(2, 1 + int((longest_N.cumsum(0) <= least).sum()))

    def largest(self, worth_N: Tensor, *, every_kind: bool = True) -> tuple[float, Tensor]:
        """At least the sum of worths of every full mask, and a relaxed mask that has it, float64 of shape (N,).

        Source: Dantzig 1957, documents in falling order of what a token of theirs is worth.

        Args:
            worth_N: float64, of any sign.
            every_kind: Whether to look at those that have the shortest documents in, too.
        """
        order_N = torch.argsort(worth_N / self.costs_N, descending=True, stable=True)
        first, *others = self._kinds
        best = first.largest(worth_N, self.costs_N, order_N)
        if every_kind and float(self.costs_N[worth_N > 0].sum()) < first.least:
            # Else documents that are worth something fill it, and no mask has a larger sum.
            found = (kind.largest(worth_N, self.costs_N, order_N) for kind in others)
            best = max((best, *found), key=lambda one: one[0])
        return best

    def top(self, scores_N: Tensor) -> tuple[float, Tensor]:
        """The largest sum of scores, but for masks that have the shortest documents in, and the least score that comes in.

        Args:
            scores_N: float64.

        Returns:
            The sum; float64 of shape (N,): what the last token is worth, times the document's.
        """
        total, mask_N = self.largest(scores_N, every_kind=False)
        return total, self.costs_N * (scores_N / self.costs_N)[mask_N > 0].min()

    def largest_mean(self, scores_N: Tensor, added: float = 0.0, held: float = 0.0) -> float:
        """At least ``(sum of scores + added) / (documents + held)`` of every full mask.

        Source: Dinkelbach 1967, a ratio by the largest differences of numerator and multiples of the denominator.

        Args:
            scores_N: float64.
            added: To every numerator.
            held: To every denominator.
        """
        size = float(scores_N.abs().sum()) + abs(added) + 1e-300
        share = min(1.0, self.limit / float(self.costs_N.sum()))  # of every document: a relaxed full mask
        mean = (share * float(scores_N.sum()) + added) / (share * len(scores_N) + held)
        for every_kind in (
            False,
            True,
        ):  # those that have all of the shortest documents seldom have a larger mean
            for _ in range(MOST_TURNS):
                total, mask_N = self.largest(scores_N - mean, every_kind=every_kind)
                excess = total + added - mean * held
                if excess <= NOTHING * size:
                    break
                mean += excess / (float(mask_N.sum()) + held)
        # Of two documents at least: all means are at most this.
        return mean + max(0.0, excess) / (2 + held)


def _kinds(costs_N: Tensor, limit: float) -> Iterator[_Kind]:
    """Full masks by how many of the shortest documents they all have: none, one, three, seven and so on."""
    order_N = torch.argsort(costs_N, stable=True)
    totals_N = torch.cumsum(costs_N[order_N], 0)
    if float(totals_N[-1]) <= limit:
        yield _Kind(inside_N=torch.ones(len(costs_N), dtype=torch.bool), least=limit, most=limit)
        return
    num_in = 0
    while num_in < len(costs_N) and (num_in == 0 or float(totals_N[num_in - 1]) <= limit):
        inside_N = torch.zeros(len(costs_N), dtype=torch.bool)
        inside_N[order_N[:num_in]] = True
        # The shortest that is left out is one of the next.
        shortest = float(costs_N[order_N[min(2 * num_in, len(costs_N) - 1)]])
        yield _Kind(inside_N=inside_N, least=limit - shortest, most=limit)
        num_in = 2 * num_in + 1


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """Full masks that share some documents.

    Attributes:
        inside_N: bool, the documents.
        least: Tokens that every one has.
        most: The budget.
    """

    inside_N: Tensor
    least: float
    most: float

    def largest(self, worth_N: Tensor, costs_N: Tensor, order_N: Tensor) -> tuple[float, Tensor]:
        """The largest sum of worths of a relaxed mask, and that mask.

        Args:
            worth_N: Of each document, of any sign.
            costs_N: Its tokens.
            order_N: Documents in falling order of what a token of theirs is worth.
        """
        taken = float(costs_N[self.inside_N].sum())
        order_n = order_N[~self.inside_N[order_N]]
        worth_n, costs_n = worth_N[order_n], costs_N[order_n]
        wanted = float(costs_n[worth_n > 0].sum())
        wanted = min(max(wanted, self.least - taken), self.most - taken)
        before_n = torch.cumsum(costs_n, 0) - costs_n
        mask_N = self.inside_N.to(worth_N)
        mask_N[order_n] = ((wanted - before_n) / costs_n).clamp_(0, 1)
        return float(mask_N @ worth_N), mask_N

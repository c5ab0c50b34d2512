"""The masks that fill a budget in tokens, and the best mean among them. Knows no score's meaning.

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

from datamask_pipeline.selection.budget import Budget

MOST_TURNS = 100
"""Of Newton's method for one mean, which takes a handful."""
NOTHING = 1e-12
"""Of the largest numerator: a mean that is known so well."""


def fewest_documents(budget: Budget) -> int:
    """A number of documents that every full mask of a budget in tokens has, two at least."""
    longest_N = budget.costs_N.sort(descending=True).values
    least = budget.limits[0] - float(longest_N[0])
    return max(2, 1 + int((longest_N.cumsum(0) <= least).sum()))


def largest_mean(budget: Budget, scores_N: Tensor, added: float = 0.0, held: float = 0.0) -> float:
    """At least ``(sum of scores + added) / (documents + held)`` of every full mask: the largest of relaxed ones.

    Source: Dinkelbach 1967, a ratio by the largest differences of numerator and multiples of the denominator; Dantzig 1957,
    such a difference by what a token is worth.

    Args:
        budget: Of tokens.
        scores_N: float64.
        added: To every numerator.
        held: To every denominator.
    """
    costs_N, limit = budget.costs_N, budget.limits[0]
    everything = float(scores_N.sum() + added) / (len(scores_N) + held)
    if budget.takes_everything:
        return everything
    kinds = list(_kinds(costs_N, limit))
    size = float(scores_N.abs().sum()) + abs(added) + 1e-300
    mean = min(float(scores_N.min()), everything)  # what follows rises from there
    for turn in range(MOST_TURNS):
        worth_N = scores_N - mean
        order_N = torch.argsort(worth_N / costs_N, descending=True, stable=True)
        best = max((kind.best(worth_N, costs_N, order_N) for kind in kinds), key=lambda found: found[0])
        excess = best[0] + added - mean * held
        if excess <= NOTHING * size or turn == MOST_TURNS - 1:
            # Of two documents at least: all means are at most this.
            return mean + max(0.0, excess) / (2 + held)
        mean += excess / (best[1] + held)
    raise AssertionError("the last turn returns")


def _kinds(costs_N: Tensor, limit: float) -> Iterator[_Kind]:
    """Full masks by how many of the shortest documents they all have: none, one, three, seven and so on."""
    order_N = torch.argsort(costs_N, stable=True)
    totals_N = torch.cumsum(costs_N[order_N], 0)
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

    def best(self, worth_N: Tensor, costs_N: Tensor, order_N: Tensor) -> tuple[float, float]:
        """The largest sum of worths of a relaxed mask, and how many documents it has.

        Args:
            worth_N: Of each document, of any sign.
            costs_N: Its tokens.
            order_N: Documents in falling order of what a token of theirs is worth.
        """
        taken = float(costs_N[self.inside_N].sum())
        order_n = order_N[~self.inside_N[order_N]]
        worth_n, costs_n = worth_N[order_n], costs_N[order_n]
        tokens_n = torch.cumsum(costs_n, 0)
        wanted = float(costs_n[worth_n > 0].sum())
        wanted = min(max(wanted, self.least - taken), self.most - taken)
        whole = int((tokens_n <= wanted).sum())
        total = float(worth_N[self.inside_N].sum() + worth_n[:whole].sum())
        number = float(self.inside_N.sum()) + whole
        if whole < len(order_n):
            part = (wanted - (float(tokens_n[whole - 1]) if whole else 0.0)) / float(costs_n[whole])
            total, number = total + part * float(worth_n[whole]), number + part
        return total, number

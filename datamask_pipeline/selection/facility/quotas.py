"""Sums of the best scores under a number of documents for each group. Knows no metric.

Shape suffixes: N documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """The feasible masks: exactly ``limits[g]`` documents of each group g.

    Attributes:
        groups_N: int64 group of each document; one group for a plain budget.
        limits: Documents of each group, no more than it has.
    """

    groups_N: Tensor
    limits: tuple[int, ...]

    def top(self, scores_N: Tensor) -> tuple[float, Tensor]:
        """The largest sum of scores that a feasible mask reaches, and where each group cuts.

        Args:
            scores_N: float64.

        Returns:
            The sum; float64 of shape (N,), midway between the last score that the document's group accepts and
            the first it does not: infinite where it accepts none, minus infinity where it accepts all.
        """
        total, cuts = 0.0, []
        for group, limit in enumerate(self.limits):
            members_n = scores_N if len(self.limits) == 1 else scores_N[self.groups_N == group]
            best_k = members_n.topk(min(limit + 1, len(members_n))).values
            total += float(best_k[:limit].sum())
            if limit == 0:
                cuts.append(float("inf"))
            elif limit == len(members_n):
                cuts.append(float("-inf"))
            else:
                cuts.append(float(best_k[-2] + best_k[-1]) / 2)
        return total, torch.tensor(cuts, dtype=torch.float64)[self.groups_N]

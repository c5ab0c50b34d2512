"""Sums of the best scores under a budget in tokens. Knows no metric.

Shape suffixes: N documents.
"""

from __future__ import annotations

import torch
from torch import Tensor


class TokenBudget:
    """Relaxed masks within a budget in tokens, as the dual variables' steps ask for them.

    Args:
        costs_N: float64, each document's tokens.
        limit: The budget.
    """

    def __init__(self, costs_N: Tensor, limit: float) -> None:
        self.costs_N, self.limit = costs_N, limit

    def top(self, scores_N: Tensor) -> tuple[float, Tensor]:
        """The largest sum of scores that a mask reaches, and the score from which on each document is in: float64 (N,)."""
        order_N = torch.argsort(scores_N / self.costs_N, descending=True, stable=True)
        costs_N, worth_N = self.costs_N[order_N], scores_N[order_N]
        room_N = (self.limit - (torch.cumsum(costs_N, 0) - costs_N)) / costs_N
        taken_N = room_N.clamp(0, 1) * (worth_N > 0)
        last = int((taken_N > 0).sum()) - 1
        is_filled = 0 <= last < len(order_N) - 1 and float(room_N[last]) <= 1
        price = float(worth_N[last] / costs_N[last]) if is_filled else 0.0
        return float(taken_N @ worth_N), self.costs_N * price

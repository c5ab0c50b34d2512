"""The two distributions over masks. Knows no reward, learning rate or block.

Shape suffixes: N documents of a batch, G masks, K draws.

Each class owns its `sample` and its `log_prob` together with the gradient of the latter, so that an estimator
cannot take one from here and the other from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from datamask_pipeline.selection.budget import Budget

LogProb = Literal["product_of_softmax", "plackett_luce"]


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Sampled masks and, where they were drawn in an order, the keys that order them (higher is earlier)."""

    masks_GN: Tensor
    keys_GN: Tensor


class WithoutReplacement:
    """Documents drawn one after the other without replacement with ``P ~ softmax(logits)``, within a budget.

    The Gumbel-top-k draw (Kool, van Hoof and Welling 2019) of Plackett and Luce's ordered sample. In tokens, a batch's
    share of the budget may be less than two documents take: the first two drawn are in all the same.

    Args:
        logits_N: float32 or float64.
        budget: The batch's; each group is a draw of its own.
    """

    def __init__(self, logits_N: Tensor, budget: Budget) -> None:
        self.logits_N, self.budget = logits_N, budget

    def sample(self, num_rollouts: int, draws: torch.Generator) -> Rollouts:
        """G masks with their order."""
        shape = (num_rollouts, len(self.logits_N))
        noise_GN = torch.empty(shape, dtype=self.logits_N.dtype).exponential_(generator=draws)
        keys_GN = self.logits_N - noise_GN.log_()
        if len(self.budget.limits) > 1 or self.budget.tokens:
            masks_GN = torch.stack([self.budget.prefix(keys_N) for keys_N in keys_GN])
            if self.budget.tokens:
                masks_GN.scatter_(1, torch.topk(keys_GN, 2, dim=1).indices, True)
        else:
            chosen_GK = torch.topk(keys_GN, int(self.budget.limits[0]), dim=1, sorted=False).indices
            masks_GN = torch.zeros(shape, dtype=torch.bool).scatter_(1, chosen_GK, True)
        return Rollouts(masks_GN=masks_GN, keys_GN=keys_GN)

    def log_prob(self, rollouts: Rollouts) -> Tensor:
        """Log-probability of each ordered draw (Plackett-Luce), float64 of shape (G,)."""
        total_G = torch.zeros(len(rollouts.masks_GN), dtype=torch.float64)
        for logits_n, masks_Gn, keys_Gn, _ in self._groups(rollouts):
            order_Gn, chosen_Gn, remaining_Gn = _ordered(logits_n, masks_Gn, keys_Gn)
            total_G += ((logits_n[order_Gn] - remaining_Gn) * chosen_Gn).sum(1)
        return total_G

    def score(self, rollouts: Rollouts, weights_G: Tensor, log_prob: LogProb) -> Tensor:
        """``sum_g weights_g d log prob(mask_g) / d logits``, float64 of shape (N,).

        ``product_of_softmax`` takes ``sum over selected of log softmax``, the paper's form, which is no normalised
        distribution over masks; ``plackett_luce`` is the exact score of the ordered draw.
        """
        weights_G = weights_G.to(torch.float64)
        if log_prob == "product_of_softmax":
            drawn_N = (weights_G.to(torch.float32) @ rollouts.masks_GN.to(torch.float32)).to(torch.float64)
            counts_G = rollouts.masks_GN.sum(1).to(torch.float64)
            return drawn_N - float(weights_G @ counts_G) * torch.softmax(self.logits_N.to(torch.float64), 0)
        gradient_N = torch.zeros(len(self.logits_N), dtype=torch.float64)
        for logits_n, masks_Gn, keys_Gn, members_n in self._groups(rollouts):
            order_Gn, chosen_Gn, remaining_Gn = _ordered(logits_n, masks_Gn, keys_Gn)
            # Document k was on offer in every draw up to its own: its share is e^L_k times the sum of 1/Z_t.
            offered_Gn = torch.cumsum(chosen_Gn * torch.exp(-remaining_Gn), 1)
            expected_Gn = torch.exp(logits_n)[order_Gn] * offered_Gn
            part_Gn = torch.zeros_like(expected_Gn).scatter_(1, order_Gn, chosen_Gn - expected_Gn)
            gradient_N[members_n] = weights_G @ part_Gn
        return gradient_N

    def _groups(self, rollouts: Rollouts) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        logits_N = self.logits_N.to(torch.float64)
        logits_N = logits_N - logits_N.max()
        parts = []
        for group in range(len(self.budget.limits)):
            members_n = torch.nonzero(self.budget.groups_N == group).squeeze(1)
            parts.append(
                (
                    logits_N[members_n],
                    rollouts.masks_GN[:, members_n],
                    rollouts.keys_GN[:, members_n],
                    members_n,
                )
            )
        return parts


def _ordered(logits_n: Tensor, masks_Gn: Tensor, keys_Gn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The draw's order, who was drawn (in that order), and log Z of the documents on offer at each draw."""
    order_Gn = torch.argsort(keys_Gn, dim=1, descending=True, stable=True)
    chosen_Gn = masks_Gn.gather(1, order_Gn).to(torch.float64)
    remaining_Gn = logits_n[order_Gn].flip(1).logcumsumexp(1).flip(1)
    return order_Gn, chosen_Gn, remaining_Gn


class IndependentInclusion:
    """Each document included on its own with ``p_i = sigmoid(logits_i + tau)``, tau such that ``sum p`` is the budget.

    Another policy than `WithoutReplacement`: its masks hold the budget in expectation, which is what makes the
    expectation of a quadratic metric a closed form.
    """

    def __init__(self, logits_N: Tensor, budget: Budget) -> None:
        self.budget = budget
        self.logits_N = logits_N.to(torch.float64)
        self.probabilities_N = inclusion_probabilities(self.logits_N, budget)

    def sample(self, num_rollouts: int, draws: torch.Generator) -> Rollouts:
        """G masks; their keys carry no order."""
        shape = (num_rollouts, len(self.logits_N))
        keys_GN = torch.rand(shape, generator=draws, dtype=torch.float64)
        return Rollouts(masks_GN=keys_GN < self.probabilities_N, keys_GN=keys_GN)

    def log_prob(self, rollouts: Rollouts) -> Tensor:
        """Log-probability of each mask, float64 of shape (G,)."""
        included = self.probabilities_N.log()
        excluded = torch.log1p(-self.probabilities_N)
        return torch.where(rollouts.masks_GN, included, excluded).sum(1)

    def logit_gradient(self, marginals_N: Tensor) -> Tensor:
        """The derivative by the logits of an expectation whose derivative by the probabilities is given.

        The shift tau moves with every logit so that the budget holds: per group, the mean marginal weighted by
        ``p (1 - p)`` (and by cost) drops out.
        """
        slope_N = self.probabilities_N * (1 - self.probabilities_N)
        gradient_N = torch.empty_like(slope_N)
        for group in range(len(self.budget.limits)):
            members_N = self.budget.groups_N == group
            slope_n, costs_n = slope_N[members_N], self.budget.costs_N[members_N]
            shift = float(slope_n @ marginals_N[members_N]) / max(float(slope_n @ costs_n), 1e-300)
            gradient_N[members_N] = slope_n * (marginals_N[members_N] - shift * costs_n)
        return gradient_N

    def natural_step(self, gradient_N: Tensor) -> Tensor:
        """A gradient by logits per unit of ``p (1 - p)``, in units of its own deviation: a mirror step on ``p``."""
        slope_N = self.probabilities_N * (1 - self.probabilities_N)
        step_N = gradient_N / slope_N.clamp(min=1e-12)
        deviation = float(step_N.std())
        return step_N / deviation if deviation > 0 else torch.zeros_like(step_N)


def inclusion_probabilities(logits_N: Tensor, budget: Budget) -> Tensor:
    """``sigmoid(logits + tau)`` with the tau of each group that meets its limit in expectation, float64."""
    logits_N = logits_N.to(torch.float64)
    probabilities_N = torch.empty_like(logits_N)
    for group, limit in enumerate(budget.limits):
        members_N = budget.groups_N == group
        logits_n, costs_n = logits_N[members_N], budget.costs_N[members_N]
        if not len(logits_n):
            continue
        low, high = -float(logits_n.max()) - 50, -float(logits_n.min()) + 50
        for _ in range(100):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            taken = float(torch.sigmoid(logits_n + middle) @ costs_n)
            low, high = (low, middle) if taken > limit else (middle, high)
        probabilities_N[members_N] = torch.sigmoid(logits_n + low)
    return probabilities_N

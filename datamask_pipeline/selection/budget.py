"""What a mask may hold: documents or tokens, with quotas by group. Knows no score's meaning.

Shape suffixes: N documents.

Documents are one group, or several with a number of documents each; tokens are one group. Ties between scores
are broken by the seed, so that equal documents are chosen uniformly over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, cycle, product

import torch
from torch import Tensor

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.seeds import generator

TIE = 2.0**-21
"""Scores closer than this share of the median magnitude count as equal: what float32 products resolve."""
SLACK = 1e-9
"""Of a budget in tokens: what a sum of lengths that are not whole may differ by in another order."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The feasible masks.

    Attributes:
        costs_N: float64, what each document takes: one, or its tokens.
        groups_N: int64 group of each document.
        limits: float64 per group: the most its documents may take; documents take exactly that.
        tokens: Whether costs are tokens.
        seed: For ties and random masks.
    """

    costs_N: Tensor
    groups_N: Tensor
    limits: tuple[float, ...]
    tokens: bool
    seed: int

    @property
    def num_documents(self) -> float:
        """The number of documents of a mask: exact for a budget in documents, expected for one in tokens."""
        total = sum(self.limits)
        return total / float(self.costs_N.mean()) if self.tokens else total

    @property
    def takes_everything(self) -> bool:
        """Whether one mask alone meets the budget: that of every document."""
        return sum(self.limits) >= float(self.costs_N.sum())

    @property
    def ungrouped(self) -> Budget:
        """The same number of documents (expected, for tokens) without quotas or costs; all only where there is no choice."""
        number = self.num_documents
        if self.tokens and not self.takes_everything:
            number = min(number, len(self.costs_N) - 1)
        return Budget(
            costs_N=torch.ones_like(self.costs_N),
            groups_N=torch.zeros_like(self.groups_N),
            limits=(number,),
            tokens=False,
            seed=self.seed,
        )

    def repeated(self, copies: int) -> Budget:
        """The same limits over so many copies of each document, one after another."""
        if copies == 1:
            return self
        costs_M, groups_M = (values.repeat_interleave(copies) for values in (self.costs_N, self.groups_N))
        return Budget(
            costs_N=costs_M, groups_N=groups_M, limits=self.limits, tokens=self.tokens, seed=self.seed
        )

    def part(self, index_n: Tensor) -> Budget:
        """The budget of some of the documents: each group's share of those of its documents that are among them.

        Args:
            index_n: int64. In documents, at least two are selected of them, where two may be.
        """
        sizes_G, drawn_G = (
            torch.bincount(groups_n, minlength=len(self.limits)).tolist()
            for groups_n in (self.groups_N, self.groups_N[index_n])
        )
        shares = [
            limit * drawn / max(size, 1)
            for limit, drawn, size in zip(self.limits, drawn_G, sizes_G, strict=True)
        ]
        limits: Sequence[float] = shares
        if not self.tokens:
            most = [drawn if limit else 0 for limit, drawn in zip(self.limits, drawn_G, strict=True)]
            total = min(max(2, round(sum(shares))), sum(most))
            limits = [total] if len(shares) == 1 else shared_out(shares, total, most)
        return Budget(
            costs_N=self.costs_N[index_n],
            groups_N=self.groups_N[index_n],
            limits=tuple(float(limit) for limit in limits),
            tokens=self.tokens,
            seed=self.seed,
        )

    def mean(self, values_N: Tensor) -> float:
        """What the selected documents' mean is in expectation over random masks."""
        if len(self.limits) == 1:
            return float(values_N.mean())
        held = [(limit, values_N[self.groups_N == group]) for group, limit in enumerate(self.limits)]
        return sum(limit * float(values_n.mean()) for limit, values_n in held if limit) / sum(self.limits)

    def best(self, scores_N: Tensor, *, exact: bool = False) -> Tensor:
        """The mask of the highest scores: bool. Tokens are filled in the order of score with whatever still fits.

        Args:
            scores_N: float64.
            exact: Whether only equal scores are ties, as for given ones; computed ones resolve less.
        """
        spread = 0.0 if exact else float(scores_N.abs().median()) * TIE
        draws_N = lots(self.seed, len(scores_N))
        if spread > 0:
            return self.fill(scores_N + spread * draws_N)
        if not self.tokens and len(self.limits) == 1:
            return highest(scores_N, int(self.limits[0]), draws_N)
        return self.fill(torch.unique(scores_N, return_inverse=True)[1] + draws_N)

    def fill(self, scores_N: Tensor) -> Tensor:
        """The mask of the highest scores, none of which are equal; tokens with whatever still fits."""
        return self.fill_each(scores_N[None])[0] if self.tokens else self.prefix(scores_N)

    def fill_each(self, scores_GN: Tensor) -> Tensor:
        """The masks of a budget in tokens by so many scores: each takes, the highest first, whatever still fits."""
        order_GN = torch.argsort(scores_GN, dim=1, descending=True, stable=True)
        costs_GN = self.costs_N[order_GN]
        left_G = torch.full((len(scores_GN), 1), self.limits[0], dtype=torch.float64)
        open_GN = costs_GN <= left_G
        taken_GN = torch.zeros_like(open_GN)
        while bool(open_GN.any()):
            totals_GN = torch.cumsum(costs_GN * open_GN, 1)
            over_GN = open_GN & (totals_GN > left_G)
            now_GN = open_GN & (torch.cumsum(over_GN, 1) == 0)
            taken_GN |= now_GN
            left_G -= (costs_GN * now_GN).sum(1, keepdim=True)
            open_GN &= ~now_GN & (costs_GN <= left_G)
        return torch.zeros_like(taken_GN).scatter_(1, order_GN, taken_GN)

    def prefix(self, scores_N: Tensor) -> Tensor:
        """The mask of the highest scores, none of which are equal; tokens until one does not fit."""
        mask_N = torch.zeros(len(scores_N), dtype=torch.bool)
        for group, limit in enumerate(self.limits):
            if len(self.limits) == 1:
                members_n, scores_n = None, scores_N
            else:
                members_n = torch.nonzero(self.groups_N == group).squeeze(1)
                scores_n = scores_N[members_n]
            if self.tokens:
                order_n = torch.argsort(scores_n, descending=True, stable=True)
                chosen_n = order_n[torch.cumsum(self.costs_N[order_n], 0) <= limit]
            else:
                chosen_n = torch.topk(scores_n, int(limit), sorted=False).indices
            mask_N[chosen_n if members_n is None else members_n[chosen_n]] = True
        return mask_N

    def random(self, *stream: str | int) -> Tensor:
        """A uniformly random mask of a named stream."""
        draws = generator(self.seed, *stream)
        return self.prefix(torch.rand(len(self.costs_N), generator=draws, dtype=torch.float64))

    def every(self, most: int) -> list[Tensor] | None:
        """Every mask of a budget in documents, where there are no more than `most`; none otherwise."""
        members = [
            torch.nonzero(self.groups_N == group).flatten().tolist() for group in range(len(self.limits))
        ]
        counts = [int(limit) for limit in self.limits]
        total = math.prod(math.comb(len(rows), count) for rows, count in zip(members, counts, strict=True))
        if self.tokens or total > most:
            return None
        masks_GN = torch.zeros(total, len(self.costs_N), dtype=torch.bool)
        parts = (combinations(rows, count) for rows, count in zip(members, counts, strict=True))
        for mask_N, chosen in zip(masks_GN, product(*parts), strict=True):
            mask_N[list(chain(*chosen))] = True
        return list(masks_GN)

    @property
    def most_of_one(self) -> int:
        """How often one document would fit, with no other beside it."""
        return max(1, int(max(self.limits) // float(self.costs_N.min())))

    def breach(self, mask_N: Tensor) -> str | None:
        """How a mask breaks the budget, in words; none where it is kept.

        Args:
            mask_N: bool.
        """
        for group, limit in enumerate(self.limits):
            taken = float(self.costs_N[mask_N & (self.groups_N == group)].sum())
            over = SLACK * limit if self.tokens else 0.0
            if taken > limit + over or (taken < limit and not self.tokens):
                unit = "tokens" if self.tokens else "documents"
                place = f" in group {group}" if len(self.limits) > 1 else ""
                return f"{taken:.0f} {unit}{place} where the budget is {limit:.0f}"
        return None

    def most(self, scores_N: Tensor) -> float:
        """The largest sum of scores that any mask of documents reaches, exactly as `best` finds it."""
        mask_N = self.prefix(scores_N)
        return float(scores_N[mask_N].sum())

    def project(self, point_N: Tensor) -> Tensor:
        """The nearest relaxed mask: ``clip(point - tau cost, 0, 1)`` with the group's tau that meets its limit."""
        if len(self.limits) == 1:
            return _project(point_N, self.costs_N, self.limits[0])
        relaxed_N = torch.empty_like(point_N)
        for group, limit in enumerate(self.limits):
            members_N = self.groups_N == group
            relaxed_N[members_N] = _project(point_N[members_N], self.costs_N[members_N], limit)
        return relaxed_N


def highest(scores_N: Tensor, count: int, draws_N: Tensor | None = None) -> Tensor:
    """The mask of so many of the highest scores: bool; of equal ones the higher draws, or the earlier without draws."""
    if count == 0:
        return torch.zeros(len(scores_N), dtype=torch.bool)
    threshold = torch.topk(scores_N, count, sorted=False).values.min()
    mask_N = scores_N > threshold
    equal_n = torch.nonzero(scores_N == threshold).squeeze(1)
    num_left = count - int(mask_N.sum())
    if draws_N is not None and num_left < len(equal_n):
        equal_n = equal_n[torch.topk(draws_N[equal_n], num_left, sorted=False).indices]
    mask_N[equal_n[:num_left]] = True
    return mask_N


def lots(seed: int, num_rows: int) -> Tensor:
    """What decides between equal documents, the higher first: float64 of shape (N,), below one."""
    return torch.rand(num_rows, generator=generator(seed, "ties"), dtype=torch.float64)


def unmet_quota(
    name: str, share: float, limit: int, size: int, among: str, near: str = ""
) -> ConfigurationError:
    """The error of a group that has fewer documents than its quota asks for.

    Args:
        name: The group.
        share: Its quota.
        limit: What that is in documents.
        size: How many documents there are of it.
        among: Of what, e.g. ``block``.
        near: The nearest name of a group that documents have, where they have none of this one.
    """
    remedy = "name a group that documents have" if near else "give it a smaller quota, or lower the budget"
    return ConfigurationError(
        f"quotas: {share:g} of the budget for {name!r}{near} is {limit} documents, and the {among} has {size} that may be "
        f"selected; {remedy}"
    )


def no_two_fit(num_tokens: float, row: int, largest: float) -> InputError:
    """The error of a budget in tokens that holds no two documents, or only two that are not any two.

    Args:
        num_tokens: The budget.
        row: The longest document's row.
        largest: Its tokens.
    """
    return InputError(
        f"num_tokens {num_tokens:.0f} is too small: documents that take more than half of it are left out, and fewer than "
        "two remain; this is the longest",
        row=row,
        field="token_counts",
        value=largest,
        remedy="raise num_tokens, or cut documents into shorter ones",
    )


def shared_out(shares: Sequence[float], total: int, most: Sequence[int] | None = None) -> list[int]:
    """Whole numbers of this total next to shares of about that total, by largest remainders; the earlier of equal ones.

    Args:
        shares: 0 or more.
        total: At most the sum of `most`.
        most: What each is at most, no less than its share; any number where it is not given.
    """
    whole = [math.floor(share + 1e-9) for share in shares]
    if sum(whole) > total:
        # Of millions, shares that sum to 1 but for their last digits are documents too many.
        shares = [share * total / sum(shares) for share in shares]
        whole = [math.floor(share + 1e-9) for share in shares]
    order = sorted(range(len(shares)), key=lambda place: whole[place] - shares[place])
    left = total - sum(whole)
    for place in cycle(order):
        if left <= 0:
            break
        if most is None or whole[place] < most[place]:
            whole[place] += 1
            left -= 1
    return whole


def _project(point_N: Tensor, costs_N: Tensor, limit: float) -> Tensor:
    if limit == 0 or len(point_N) == 0:
        return torch.zeros_like(point_N)
    low = float(((point_N - 1) / costs_N).min())
    high = float((point_N / costs_N).max())
    # The sum falls in tau; bisection to the last bit of a double, then the end on the feasible side.
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        taken = float(((point_N - middle * costs_N).clamp_(0, 1) * costs_N).sum())
        low, high = (middle, high) if taken > limit else (low, middle)
    return (point_N - high * costs_N).clamp_(0, 1)

"""Swapping documents by marginals, for any mixture of metrics that offer them, or by values alone. Knows no moments.

Shape suffixes: N documents, K selected.

Each step moves the selected documents of the smallest marginals out and those of the largest in. The number moved
halves whenever the objective would not rise, so it never falls, and grows again where it did; documents alike that would
all come in together are what the halving is for. Where a bound rests on weights, swaps begin again at the largest of
these. In small blocks documents are then exchanged one for one by the objective itself.
A budget in tokens is filled up after each step with whatever still fits; there masks of every other learner are exchanged
so as well, as what fits changes with what leaves. Where a metric has nothing but values, what is tried in a document's place
is drawn by lot; of few masks all are tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import MomentMetric, are_few
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.moments.values import value_of
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rewards import marginals, rewards
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

FIRST_SHARE, GROWTH = 0.25, 1.5
"""Share of the selected documents that the first step moves; how much more the next one does after a gain."""
LONGER = 2
"""Times as many steps where no other search follows."""
LEAST_GAIN = 1e-7
"""Of an exchange, in the objective's units."""
CANDIDATES, MOST_BY_LOT = 8, 256
"""Documents tried in the place of one: those of the largest marginals without it; or drawn, where there are none."""
MOST_RESTARTS = 32
"""Random masks that are exchanged as well, as which mask exchanges end at is a matter of where they begin."""
MOST_TRIED, MOST_TRIED_FOR_SCALE, MOST_MASKS = 2**17, 2**14, 2**14
"""Masks that exchanges by values try, a fifth of those that the paper's learner draws; that they try where a term's scale is
measured; and of how many masks all are tried."""
MOST_BITS, MOST_BITS_AT_ONCE = 2**31, 2**22
"""Documents times masks that exchanges by values may try, as each mask is of the whole block; and that all masks may be."""
LENGTHS = (0, 1, -1)
"""In tokens these are, in turns, of any documents, rather of long ones, or rather of short ones: their number is free."""
MOST_SECONDS = 2.5
"""Of one core that all exchanges may take, by what looks took where they were measured: the same on every machine, as masks
depend on it."""
OF_A_LOOK, OF_A_ROW, OF_A_NUMBER = 2e-3, 2.3e-6, 3e-9
"""Seconds of a look however small the block, for each of its documents, and for each of their coordinates."""
OF_A_SECOND_MOMENT, OF_A_SPECTRUM = 1.3e-10, 2e-9
"""For each product of two coordinates of a document, where a metric needs them; for each cube of the dimensions, where one
needs eigenvalues or determinants."""
OF_A_PAIR, OF_A_PRODUCT = 2e-8, 7e-11
"""For each pair of documents where a metric compares all, and for each of the products that this takes."""
OF_A_MASK_OF_FEW, OF_A_FEW = 2.5e-4, 3e-10
"""For each mask of few documents in many dimensions that is told by their products with each other, and for each product of
two coordinates that these take."""

Worth = Callable[[Tensor], Tensor]
"""The objective of each of some masks."""


def choose_by_marginal_swaps(
    problem: Problem, config: DataMaskConfig, *, start_N: Tensor | None = None, longer: bool = False
) -> Solution:
    """Swap until no number of documents raises the objective.

    Args:
        problem: What is to be chosen.
        config: How far.
        start_N: Where to begin; by default at the best quality.
        longer: Whether no other search follows.
    """
    num_steps = config.num_steps * (LONGER if longer else 1)
    batch = batch_of(problem)
    mask_N = problem.budget.best(problem.objective.quality_N, exact=True) if start_N is None else start_N
    value = float(rewards(batch, mask_N[None])[0])
    share, step, moved = FIRST_SHARE, 0, 0
    marginals_N = _marginals(batch, mask_N)
    ties_N = _ties(problem)
    while step < num_steps:
        step += 1
        candidate_N = _swapped(mask_N, marginals_N, ties_N, problem.budget, share)
        num_moved = int((candidate_N & ~mask_N).sum())
        if num_moved == 0:
            break
        reached = float(rewards(batch, candidate_N[None])[0])
        if reached > value:
            mask_N, value, moved = candidate_N, reached, moved + num_moved
            marginals_N = _marginals(batch, mask_N)
            share = min(FIRST_SHARE, GROWTH * share)
        else:
            share /= 2
        problem.report({"step": step, "num_steps": num_steps, "objective": value})
    return Solution(
        mask_N=mask_N,
        scores_N=marginals_N,
        method="no bound: the metrics share none",
        converged=step < num_steps,
        notes={"steps": step, "swaps": moved},
    )


def swapped_from_weights(problem: Problem, solution: Solution, config: DataMaskConfig) -> Solution:
    """The solution, or what swaps end at from the largest of the weights that its bound rests on, where that is better."""
    assert solution.tangent_N is not None, "it has a bound"
    start_N = problem.budget.best(solution.tangent_N, exact=True)
    found = choose_by_marginal_swaps(problem, config, start_N=start_N, longer=True)
    before, after = rewards(batch_of(problem), torch.stack([solution.mask_N, found.mask_N])).tolist()
    if after <= before:
        return solution
    notes = solution.notes | {name: solution.notes[name] + found.notes[name] for name in ("steps", "swaps")}
    return replace(
        solution,
        mask_N=found.mask_N,
        scores_N=found.scores_N,
        evaluation=None,
        converged=found.converged,
        notes=notes,
    )


def exchanged_by_marginals(problem: Problem, solution: Solution, config: DataMaskConfig) -> Solution:
    """The solution after exchanges of two documents by the objective itself, where they raise it."""
    batch = batch_of(problem)
    guide, worth = _ByMarginals(batch, _ties(problem)), partial(rewards, batch)
    looks = _num_looks(problem)
    mask_N, value = _exchanged(batch, solution.mask_N, guide, config, looks, worth)
    moved, step = int((mask_N & ~solution.mask_N).sum()), solution.notes["steps"]
    bounded: dict[str, float] = {}
    if solution.bound is not None:
        bounded = {"bound": solution.bound, "gap": max(0.0, problem.gap(solution.bound, value))}
    problem.report({"step": step, "num_steps": step, "objective": value} | bounded)
    return replace(
        solution,
        mask_N=mask_N,
        scores_N=_marginals(batch, mask_N),
        evaluation=solution.evaluation if moved == 0 else None,
        notes=solution.notes | {"swaps": solution.notes["swaps"] + moved},
    )


def exchanged_in_tokens(problem: Problem, solution: Solution, config: DataMaskConfig) -> Solution:
    """The solution after exchanges of one document for another and what then fits, where that raises the objective.

    As it is where there is no time for a look at each of its documents.
    """
    count, looks = int(solution.mask_N.sum()), _num_looks(problem)
    told = _has_products(problem, solution.mask_N) and _num_looks_by_products(problem, count) > looks
    if told:
        looks = _num_looks_by_products(problem, count)
    if looks < count or not can_swap_by_marginals(problem):
        return solution
    batch = batch_of(problem)
    guide: _Guide = _ByMarginals(batch, _ties(problem))
    worth: Worth = partial(rewards, batch)
    if told:
        guide = _ByLot(problem.num_rows, generator(problem.config.seed, "exchange", "lots"))
        worth = partial(_values, problem)
    return _with_mask(solution, _exchanged(batch, solution.mask_N, guide, config, looks, worth)[0])


def exchanged_by_values(problem: Problem, solution: Solution, config: DataMaskConfig) -> Solution:
    """The solution of a learner that knows values alone after exchanges by these, where they raise the objective.

    As it is where there is no time for a look at each of its documents.
    """
    size, count = problem.num_rows, int(solution.mask_N.sum())
    guide = _ByLot(size, generator(problem.config.seed, "exchange", "lots"))
    looks = min(MOST_TRIED, MOST_BITS // size) // min(guide.candidates, max(1, size - count))
    if looks < count:
        return solution
    batch = batch_of(problem)
    return _with_mask(
        solution, _exchanged(batch, solution.mask_N, guide, config, looks, partial(rewards, batch))[0]
    )


def best_of_all(problem: Problem) -> Solution | None:
    """The best of all masks, where these are few; a document's score: what the best with it exceeds all without it by."""
    masks = problem.budget.every(min(MOST_MASKS, MOST_BITS_AT_ONCE // problem.num_rows))
    if masks is None:
        return None
    masks_GN = torch.stack(masks)
    values_G = rewards(batch_of(problem), masks_GN)
    with_N, without_N = (
        torch.where(side_GN, values_G[:, None], -torch.inf).amax(0) for side_GN in (masks_GN, ~masks_GN)
    )
    reach = float(values_G.max() - values_G.min()) + 1
    return Solution(
        mask_N=masks_GN[int(values_G.argmax())],
        scores_N=(with_N - without_N).nan_to_num(nan=0.0, posinf=reach, neginf=-reach),
        method="no bound: all masks were tried, and this one is the best",
        converged=True,
        notes={"masks": len(masks_GN)},
    )


def reached_by_values(problem: Problem) -> float:
    """The objective of the best of all masks, where these are few; else of what some exchanges by values end at."""
    batch, size = batch_of(problem), problem.num_rows
    best = best_of_all(problem)
    if best is not None:
        return float(rewards(batch, best.mask_N[None])[0])
    guide = _ByLot(size, generator(problem.config.seed, "exchange", "lots"))
    looks = MOST_TRIED_FOR_SCALE // min(guide.candidates, size)
    worth = partial(rewards, batch)
    return _exchanged(batch, problem.budget.random("first"), guide, DataMaskConfig(), looks, worth)[1]


def _with_mask(solution: Solution, mask_N: Tensor) -> Solution:
    moved = int((mask_N & ~solution.mask_N).sum())
    if not moved:
        return solution
    notes = solution.notes | {"swaps": solution.notes.get("swaps", 0) + moved}
    return replace(solution, mask_N=mask_N, diversity_N=None, evaluation=None, raw={}, notes=notes)


class _Guide(ABC):
    """Which documents are looked at first, and which are tried in one's place."""

    candidates: int

    @abstractmethod
    def leaving(self, mask_N: Tensor) -> Tensor:
        """Numbers by which the documents of a mask are looked at, the smallest first."""

    @abstractmethod
    def coming(self, mask_N: Tensor, count: int) -> Tensor:
        """Numbers of which the largest are tried, beside a mask that is to be filled to `count`."""


@dataclass(frozen=True)
class _ByMarginals(_Guide):
    """By marginals, of equal ones by lot."""

    batch: Batch
    ties_N: Tensor
    candidates: int = CANDIDATES

    def leaving(self, mask_N: Tensor) -> Tensor:
        return _marginals(self.batch, mask_N)

    def coming(self, mask_N: Tensor, count: int) -> Tensor:
        order_N = _marginals(self.batch, mask_N, count)
        return order_N + self.ties_N * order_N.abs().median()


@dataclass(frozen=True)
class _ByLot(_Guide):
    """By lots drawn anew each time."""

    size: int
    draws: torch.Generator
    candidates: int = MOST_BY_LOT

    def leaving(self, mask_N: Tensor) -> Tensor:
        del mask_N
        return torch.rand(self.size, generator=self.draws, dtype=torch.float64)

    def coming(self, mask_N: Tensor, count: int) -> Tensor:
        del count
        return self.leaving(mask_N)


def _num_looks(problem: Problem) -> int:
    """How many documents exchanges may look at."""
    size, dim = problem.num_rows, problem.rows.dim
    metrics = [term.metric for term in problem.objective.terms]
    seconds = OF_A_LOOK + size * (OF_A_ROW + dim * OF_A_NUMBER)
    if problem.objective.needs_second:
        seconds += OF_A_SECOND_MOMENT * size * dim**2
    if _spectral(problem):
        seconds += OF_A_SPECTRUM * dim**3
    if not all(isinstance(metric, MomentMetric) for metric in metrics):
        seconds += size**2 * (OF_A_PAIR + dim * OF_A_PRODUCT)
    return int(MOST_SECONDS / seconds)


def _spectral(problem: Problem) -> bool:
    metrics = [term.metric for term in problem.objective.terms]
    return any(isinstance(metric, MomentMetric) and metric.spectral for metric in metrics)


def _has_products(problem: Problem, mask_N: Tensor) -> bool:
    """Whether masks are of so few documents that products with each other tell what spectra in all dimensions would."""
    count, dim = int(mask_N.sum()), problem.rows.dim
    if problem.held is not None or not are_few(2 * count, dim) or not _spectral(problem):
        return False
    if problem.objective.moment_terms is None:
        return False
    rows_KD = problem.rows.take(torch.nonzero(mask_N).squeeze(1)).double().cpu()
    return problem.moment_objective.value_of_rows(mask_N, rows_KD) is not None


def _num_looks_by_products(problem: Problem, count: int) -> int:
    """How many documents exchanges by products may look at: in one's place others are tried that fit, and that do not."""
    tried = min(2 * MOST_BY_LOT, problem.num_rows)
    return int(MOST_SECONDS / (tried * (OF_A_MASK_OF_FEW + OF_A_FEW * count**2 * problem.rows.dim)))


def _values(problem: Problem, masks_GN: Tensor) -> Tensor:
    objective, statistics = problem.moment_objective, problem.statistics
    values = [value_of(objective, statistics, mask_N) for mask_N in masks_GN]
    return torch.tensor(values, dtype=torch.float64)


def batch_of(problem: Problem) -> Batch:
    """The whole block as one batch, for values and marginals of its masks."""
    return Batch(
        embeddings_ND=problem.rows.everything(),
        logits_N=torch.zeros(problem.num_rows),
        objective=problem.objective,
        budget=problem.budget,
        held=problem.held,
    )


def _ties(problem: Problem) -> Tensor:
    draws = generator(problem.config.seed, "exchange", "ties")
    return TIE * torch.rand(problem.num_rows, generator=draws, dtype=torch.float64)


def _swapped(mask_N: Tensor, marginals_N: Tensor, ties_N: Tensor, budget: Budget, share: float) -> Tensor:
    """The mask after swapping up to a share of each group's documents, as far as marginals promise a gain."""
    order_N = marginals_N + ties_N * marginals_N.abs().median()
    mask_N = mask_N.clone()
    if budget.tokens:
        inside = torch.nonzero(mask_N).squeeze(1)
        count = round(share * len(inside))
        mask_N[inside[torch.argsort(order_N[inside], stable=True)[:count]]] = False
        return _filled(mask_N, order_N, budget)
    for group, limit in enumerate(budget.limits):
        members_N = budget.groups_N == group
        inside = torch.nonzero(members_N & mask_N).squeeze(1)
        outside = torch.nonzero(members_N & ~mask_N).squeeze(1)
        count = min(max(1, round(share * limit)), len(inside), len(outside))
        if share * limit < 0.5:
            continue
        out = inside[torch.argsort(order_N[inside], stable=True)[:count]]
        into = outside[torch.argsort(order_N[outside], descending=True, stable=True)[:count]]
        gains = marginals_N[into] > marginals_N[out]
        mask_N[out[gains]], mask_N[into[gains]] = False, True
    return mask_N


def _filled(mask_N: Tensor, order_N: Tensor, budget: Budget) -> Tensor:
    """The mask with whatever still fits a budget in tokens, in descending order of these numbers."""
    return budget.fill(_ranks(order_N) + len(mask_N) * mask_N)


def _ranks(order_N: Tensor) -> Tensor:
    return torch.argsort(torch.argsort(order_N, stable=True))


def _exchanged(
    batch: Batch, mask_N: Tensor, guide: _Guide, config: DataMaskConfig, looks: int, worth: Worth
) -> tuple[Tensor, float]:
    """The best of the mask and some random ones after exchanges, which together are of limited work, and its value."""
    best_N, best = mask_N, float(worth(mask_N[None])[0])
    if config.num_swap_rounds == 0:
        return best_N, best
    for turn in range(min(MOST_RESTARTS, config.num_restarts) + 1):
        start_N = mask_N if turn == 0 else _drawn(batch.budget, turn)
        looks, found_N, value = _improved(batch, start_N, guide, config.num_swap_rounds, looks, worth)
        if value > best + LEAST_GAIN:
            best_N, best = found_N, value
        if looks == 0:
            break
    return best_N, best


def _drawn(budget: Budget, turn: int) -> Tensor:
    """A random mask to begin at."""
    if not budget.tokens:
        return budget.random("restarts", turn)
    draws = generator(budget.seed, "restarts", turn)
    lots_N = torch.rand(len(budget.costs_N), generator=draws, dtype=torch.float64)
    return budget.fill(lots_N * budget.costs_N ** LENGTHS[turn % len(LENGTHS)])


def _improved(
    batch: Batch, mask_N: Tensor, guide: _Guide, num_rounds: int, looks: int, worth: Worth
) -> tuple[int, Tensor, float]:
    """A mask after exchanges of two documents of a group, each of which raises the objective.

    A round looks once at every selected document, by marginals those of the smallest first, and tries in its place those
    that have the largest without it. Rounds end with one that gains nothing.

    Returns:
        The looks that are left, of those that may be taken; the mask; its value.
    """
    value = float(worth(mask_N[None])[0])
    for _ in range(num_rounds):
        made, order_N = False, guide.leaving(mask_N)
        selected_T = torch.nonzero(mask_N).squeeze(1)
        for leaves in selected_T[torch.argsort(order_N[selected_T], stable=True)].tolist():
            if looks == 0:
                return looks, mask_N, value
            if not mask_N[leaves]:
                continue
            looks -= 1
            without_N = mask_N.clone()
            without_N[leaves] = False
            order_N = guide.coming(without_N, int(mask_N.sum()))
            fits_N = _fits(batch.budget, mask_N, leaves)
            into_C = _largest(order_N, fits_N & ~mask_N, guide.candidates)
            if batch.budget.tokens:
                into_C = torch.cat([into_C, _largest(order_N, ~fits_N & ~mask_N, guide.candidates)])
            if len(into_C):
                masks_CN = without_N.repeat(len(into_C), 1)
                masks_CN[torch.arange(len(into_C)), into_C] = True
                if batch.budget.tokens:
                    # Who comes in stays; of the others the last leave where there is no room.
                    ranks_CN = _ranks(order_N) + len(mask_N) * masks_CN
                    ranks_CN[torch.arange(len(into_C)), into_C] += len(mask_N)
                    masks_CN = batch.budget.fill_each(ranks_CN)
                reached_C = worth(masks_CN)
                first = int(reached_C.argmax())
                if float(reached_C[first]) > value + LEAST_GAIN:
                    mask_N, value, made = masks_CN[first], float(reached_C[first]), True
        if not made:
            break
    return looks, mask_N, value


def _largest(values_N: Tensor, allowed_N: Tensor, count: int) -> Tensor:
    """The documents of the largest values of those that are allowed."""
    allowed = torch.nonzero(allowed_N).squeeze(1)
    return allowed[values_N[allowed].topk(min(count, len(allowed))).indices]


def _fits(budget: Budget, mask_N: Tensor, leaves: int) -> Tensor:
    """Which documents may come in where this one leaves the mask: bool of shape (N,)."""
    if not budget.tokens:
        return budget.groups_N == budget.groups_N[leaves]
    left = budget.limits[0] - float(budget.costs_N[mask_N].sum())
    return budget.costs_N <= left + float(budget.costs_N[leaves])


def _marginals(batch: Batch, mask_N: Tensor, count: int | None = None) -> Tensor:
    """Marginals at a mask of so many documents, by default its own: of tokens the number is free."""
    return marginals(batch, mask_N, float(mask_N.sum() if count is None else count))


def can_swap_by_marginals(problem: Problem) -> bool:
    """Whether every metric has marginals."""
    probe_ND = problem.rows.take(torch.arange(min(4, problem.num_rows)))
    probe_N = (torch.arange(len(probe_ND)) < 2).to(probe_ND.device)
    return all(term.metric.marginals(probe_ND, probe_N) is not None for term in problem.objective.terms)

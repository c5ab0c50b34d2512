"""The paper's learner: logits, random batches, sampled masks, one scalar reward each. Knows no input format.

Shape suffixes: N documents, n documents of a batch, G masks.

Source: DATAMASK (arXiv 2512.24265). Each epoch draws a random ``partial`` share of the block, G masks of it, and
moves the batch's logits along the estimator's gradient; the learning rate falls linearly; the final mask is the
largest logits. Documents of a group whose quota is 0 are in no batch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import ESTIMATORS
from datamask_pipeline.selection.policies.policy_gradient import PolicyGradientConfig
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch
from datamask_pipeline.selection.policy_gradient.rollouts import inclusion_probabilities
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

PARTIAL = 0.1
"""The share of the block that a batch is where no other is given: the paper's."""


def choose_by_policy_gradient(problem: Problem, config: PolicyGradientConfig) -> Solution:
    """Run the learner with these settings."""
    check_policy_gradient(problem, config)
    estimator = ESTIMATORS.beside(config.estimator, config)
    state = problem.checkpoint.load() or _first_state(problem, config)
    logits_N: Tensor = state["logits_N"]
    means: list[float] = state["means"]
    among_n = _selectable(problem)
    size = _batch_size(problem, config)
    deviation = 0.0
    for epoch in range(len(means), config.num_epochs):
        draws = generator(problem.config.seed, "epoch", epoch)
        batch, index_n = _batch(problem, logits_N, among_n, size, draws)
        estimate = estimator.estimate(batch, draws)
        rate = _learning_rate(config, epoch)
        update_n = rate * estimator.update(estimate, batch)
        logits_N[index_n] += update_n
        means.append(float(estimate.rewards_G.mean()))
        deviation = float(estimate.rewards_G.std()) if len(estimate.rewards_G) > 1 else 0.0
        problem.report(
            {
                "step": epoch + 1,
                "num_steps": config.num_epochs,
                "objective": means[-1],
                "reward_deviation": deviation,
                "learning_rate": rate,
                "update_norm": float(update_n.norm()),
            }
        )
        problem.checkpoint.save({"logits_N": logits_N, "means": means})
        if _converged(means, config):
            break
    return Solution(
        mask_N=problem.budget.best(logits_N),
        scores_N=logits_N,
        probabilities_N=inclusion_probabilities(logits_N, problem.budget),
        method="no bound: the learner samples",
        converged=len(means) < config.num_epochs,
        notes={"epochs": len(means), "batch_documents": size, "estimator": config.estimator},
    )


def check_policy_gradient(problem: Problem, config: PolicyGradientConfig) -> None:
    """Refuse what the learner cannot do with these settings.

    Raises:
        ConfigurationError: naming the setting and what to choose instead.
    """
    _batch_size(problem, config)
    ESTIMATORS.beside(config.estimator, config).check(problem)


def _first_state(problem: Problem, config: PolicyGradientConfig) -> dict[str, Any]:
    logits_N = torch.zeros(problem.num_rows, dtype=torch.float64)
    if config.init == "quality":
        quality_N = problem.objective.quality_N
        deviation = float(quality_N.std())
        if deviation > 0:
            logits_N = (quality_N - quality_N.mean()) / deviation
    return {"logits_N": logits_N, "means": []}


def _selectable(problem: Problem) -> Tensor:
    """Rows of documents that some mask holds."""
    limits_G = torch.tensor(problem.budget.limits, dtype=torch.float64)
    return torch.nonzero(limits_G[problem.budget.groups_N] > 0).squeeze(1)


def _batch_size(problem: Problem, config: PolicyGradientConfig) -> int:
    """Documents of a batch.

    Raises:
        ConfigurationError: the batch would select fewer than two documents.
    """
    among = len(_selectable(problem))
    # A budget in tokens may be of more documents than there are, where long ones were left out.
    selected = min(problem.budget.num_documents, among)
    least = min(among, math.ceil(2 * among / selected))
    if config.partial is None:
        return max(round(PARTIAL * among), least)
    size = max(1, round(config.partial * among))
    if size < least:
        raise ConfigurationError(
            f"partial {config.partial} leaves batches of {size} documents that select {selected * size / among:.2f}; raise "
            f"partial to {math.ceil(1000 * least / among) / 1000:g}, or the budget, so that at least 2 are selected"
        )
    return size


def _batch(
    problem: Problem, logits_N: Tensor, among_n: Tensor, size: int, draws: torch.Generator
) -> tuple[Batch, Tensor]:
    if size == len(among_n):
        index_n = among_n
    else:
        index_n = among_n[torch.sort(torch.randperm(len(among_n), generator=draws)[:size]).values]
    return Batch(
        embeddings_ND=problem.rows.take(index_n),
        logits_N=logits_N[index_n].to(torch.float32),
        objective=replace(problem.objective, quality_N=problem.objective.quality_N[index_n]),
        budget=problem.budget.part(index_n),
    ), index_n


def _learning_rate(config: PolicyGradientConfig, epoch: int) -> float:
    share = epoch / max(config.num_epochs - 1, 1)
    return config.max_lr + (config.min_lr - config.max_lr) * share


def _converged(means: list[float], config: PolicyGradientConfig) -> bool:
    """Whether the mean reward of the last epochs is that of as many epochs before them."""
    window = config.convergence_epochs
    if window is None or len(means) < 2 * window:
        return False
    before, after = means[-2 * window : -window], means[-window:]
    return abs(sum(after) - sum(before)) / window < config.convergence_tolerance

"""The engine's one function: arrays in, a selection with its reasons, value and certificate out.

Knows no file format, text or Dagster. Shape suffixes: N documents of the block, n of those left by pruning.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.errors import ConfigurationError, InternalError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.hardware import num_cores, present_device
from datamask_pipeline.selection import normalisation as scale
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.evaluation import Evaluation, evaluate
from datamask_pipeline.selection.inputs import (
    CheckedRows,
    budget_of,
    checked_ids,
    checked_quality,
    checked_rows,
)
from datamask_pipeline.selection.metrics import Diversity, made_with, metrics_of
from datamask_pipeline.selection.moments.statistics import squared_of
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve, Progress
from datamask_pipeline.selection.pruning import Pruned, prune
from datamask_pipeline.selection.reasons import PRUNED, Decided, decided
from datamask_pipeline.selection.result import Certificate, Marginals, Objective, SelectionResult, log_odds
from datamask_pipeline.selection.solution import Solution
from datamask_pipeline.selection.timings import Timings


def select_documents(
    embeddings: Any,
    quality: Any,
    *,
    config: SelectionConfig | None = None,
    diversity: Diversity | None = None,
    ids: Sequence[Any] | None = None,
    token_counts: Any = None,
    groups: Sequence[Any] | None = None,
    checkpoint_dir: Path | str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SelectionResult:
    """Choose documents for quality and diversity together.

    Args:
        embeddings: Shape (N, D), floating: an array or tensor; or what stays on disk: a ``np.memmap``, the path of a
            ``.npy``, or `datamask_pipeline.selection.sharded.ShardedVectors` over several such files. Rows of other
            than unit norm are normalised, and the record says how many.
        quality: Shape (N,), higher is better; or several such arrays by name.
        config: All settings at once, instead of `settings`.
        diversity: A metric's name, a metric object, a function of embeddings_ND and masks_GN that returns a number for
            each mask, or several of these with weights; overrides the settings'.
        ids: N document ids, checked for nulls and duplicates.
        token_counts: Shape (N,), above 0; needed for a budget in tokens, reported in the record otherwise.
        groups: N group names, for quotas.
        checkpoint_dir: Folder where learners keep their state; a killed run given the same folder goes on and
            ends with the same mask.
        progress: Called with a line of text, the step and the number of steps.
        settings: Fields of `SelectionConfig`, and of the policy's own settings.

    Raises:
        ConfigurationError: a setting that is wrong or does not fit the block.
        InputError: embeddings, scores, ids or token counts that cannot be used, naming the row.
    """
    timings = Timings()
    config, metrics, policy = check_settings(config=config, diversity=diversity, **settings)
    curve = Curve(progress)
    with Workers(config.num_workers) as workers, torch.inference_mode():
        with timings.phase("checks"):
            checked = checked_rows(embeddings, config, workers)
            scores = checked_quality(quality, checked.rows.num_rows)
            checked_ids(ids, checked.rows.num_rows)
            budget = budget_of(config, checked.rows.num_rows, token_counts, groups)
            pruned = prune(checked.rows, scores, budget, config)
            problem = raw_problem(config, metrics, pruned, workers, curve)
            policy.check(problem)
        with timings.phase("normalisation"):
            problem = normalised_problem(problem, pruned, checked, checkpoint_dir, curve)
        with timings.phase("learning"):
            solution = policy.choose(problem)
            _keeps_its_promises(solution, problem, budget, pruned)
        with timings.phase("evaluation"):
            evaluation = evaluate(problem, solution)
    problem.checkpoint.clear()
    return _result(problem, solution, evaluation, pruned, checked, curve, timings, token_counts)


def check_settings(
    *, config: SelectionConfig | None = None, diversity: Diversity | None = None, **settings: Any
) -> tuple[SelectionConfig, list[tuple[DiversityMetric, float]], SelectionPolicy]:
    """All that can be refused without a block: `select_documents` begins with it; call it before reading a large file.

    Returns:
        The settings as one, the metrics with their weights, and the policy.

    Raises:
        ConfigurationError: a setting that is wrong, a name that is not known, a device that is not there.
    """
    if config is not None and settings:
        raise ConfigurationError(f"give config or single settings, not both: {', '.join(sorted(settings))}")
    if config is None:
        named: dict[str, Any] = dict(settings)
        if isinstance(diversity, str | Mapping):
            named["diversity"] = diversity if isinstance(diversity, str) else dict(diversity)
        config = SelectionConfig.of(named)
    metrics = metrics_of(config, diversity)
    if diversity is not None:
        # The record tells what was used, however it was given.
        names = [metric.name for metric, _ in metrics]
        used = {metric.name: weight for metric, weight in metrics}
        config = config.model_copy(update={"diversity": names[0] if used == {names[0]: 1.0} else used})
    present_device(config.device)
    return config, metrics, POLICIES.beside(config.policy, config)


def raw_problem(
    config: SelectionConfig,
    metrics: list[tuple[DiversityMetric, float]],
    pruned: Pruned,
    workers: Workers,
    curve: Curve,
) -> Problem:
    """The problem on raw values, before anything was measured."""
    total = sum(weight for _, weight in metrics)
    terms = tuple(Term(name=metric.name, metric=metric, weight=weight / total) for metric, weight in metrics)
    names = [*pruned.scores, *(term.name for term in terms)]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"a quality score and a diversity metric share a name: {names}")
    constants = dict.fromkeys(names, (0.0, 1.0))
    quality_N = scale.combined_quality(pruned.scores, config.quality_weights, constants)
    return Problem(
        config=config,
        rows=pruned.rows,
        squared_N=squared_of(pruned.rows, workers),
        objective=ObjectiveFunction(lamb=config.lamb, quality_N=quality_N, terms=terms),
        budget=pruned.budget,
        workers=workers,
        constants=constants,
        random_value=0.0,
        report=curve,
        checkpoint=Checkpoint(None, "", 0.0, curve),
    )


def normalised_problem(
    problem: Problem,
    pruned: Pruned,
    checked: CheckedRows,
    checkpoint_dir: Path | str | None,
    curve: Curve,
) -> Problem:
    """The problem on the terms' common scale."""
    config, terms = problem.config, problem.objective.terms
    metrics = [term.metric for term in terms]
    raw = scale.random_values(metrics, problem.statistics, problem.budget, problem.dtype)
    constants = scale.constants_of(problem, pruned.scores, raw)
    quality_N = scale.combined_quality(pruned.scores, config.quality_weights, constants)
    objective = replace(
        problem.objective,
        quality_N=quality_N,
        terms=tuple(scale.with_constants(term, constants) for term in terms),
    )
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    random_value = objective.combine(problem.budget.mean(quality_N), objective.diversity(raw))
    if config.normalisation != "none" and config.normalisation_constants is None:
        random_value = (
            0.0  # The block's own constants put every term's random mean at zero; the rest is rounding.
        )
    identity = _identity(config, objective, checked, pruned, constants)
    return replace(
        problem,
        objective=objective,
        constants=constants,
        random_value=random_value,
        checkpoint=Checkpoint(folder, identity, config.checkpoint_seconds, curve),
    )


def _identity(
    config: SelectionConfig,
    objective: ObjectiveFunction,
    checked: CheckedRows,
    pruned: Pruned,
    constants: scale.Constants,
) -> str:
    terms = [[term.name, term.weight, made_with(term.metric)] for term in objective.terms]
    digest = hashlib.sha256(
        json.dumps([config.result_config(), config.device, terms, constants], sort_keys=True).encode()
    )
    digest.update(checked.digest.encode())
    for tensor in (*pruned.scores.values(), pruned.budget.costs_N, pruned.budget.groups_N):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _keeps_its_promises(solution: Solution, problem: Problem, budget: Budget, pruned: Pruned) -> None:
    """No mask leaves the engine that breaks the budget, a quota or the pruning of the whole block.

    Raises:
        InternalError: naming policy, metrics, budget and what the mask holds instead.
    """
    mask_n = solution.mask_N
    if mask_n.dtype != torch.bool or mask_n.shape != (problem.num_rows,):
        breach: str | None = (
            f"{mask_n.dtype} of shape {tuple(mask_n.shape)} where a mask is bool of ({problem.num_rows},)"
        )
    else:
        mask_N = torch.from_numpy(pruned.spread(mask_n.numpy(), False))
        breach = budget.breach(mask_N)
    if breach is not None:
        metrics = ", ".join(term.name for term in problem.objective.terms)
        raise InternalError(
            f"policy {problem.config.policy!r} on {metrics} chose {breach}; this is a fault of the policy, please report it"
        )


def _result(
    problem: Problem,
    solution: Solution,
    evaluation: Evaluation,
    pruned: Pruned,
    checked: CheckedRows,
    curve: Curve,
    timings: Timings,
    token_counts: Any,
) -> SelectionResult:
    config = problem.config
    mask_n = solution.mask_N.numpy()
    totals_n = evaluation.quality_N.numpy() + evaluation.diversity_N.numpy()
    decision, groups_n = POLICIES.find(config.policy).decision, problem.budget.groups_N.numpy()
    probabilities_n = _double(
        solution.mask_N if solution.probabilities_N is None else solution.probabilities_N
    )
    scores_n = _double(solution.scores_N)
    logits_n = log_odds(probabilities_n, scores_n)
    found = decided(decision, totals_n, scores_n, logits_n, mask_n, groups_n)
    mask = pruned.spread(mask_n, False)
    # The mask itself is a value that is reached: what rounding left the bound below it is no bound.
    bound = None if solution.bound is None else max(solution.bound, evaluation.value)
    gap = None if bound is None else problem.gap(bound, evaluation.value)
    curve.end(evaluation.value, bound, gap)
    method = solution.method
    if bound is not None and not pruned.kept_N.all():
        method += "; among the documents that pruning by quality left"
    record = _record(problem, solution, checked, pruned, mask, token_counts)
    record["reasons"] = dict(sorted(Counter(found.reasons_N).items()))
    record |= group_thresholds(config, found)
    return SelectionResult(
        mask=mask,
        logits=pruned.spread(logits_n, -np.inf),
        probabilities=pruned.spread(probabilities_n, 0.0),
        marginals=Marginals(
            quality_N=pruned.spread(evaluation.quality_N.numpy(), np.nan),
            diversity_N=pruned.spread(evaluation.diversity_N.numpy(), np.nan),
        ),
        threshold=found.threshold,
        reasons=pruned.spread(found.reasons_N, PRUNED),
        curve=curve.table(),
        objective=Objective(
            value=evaluation.value,
            quality=evaluation.quality,
            diversity=evaluation.diversity,
            random=problem.random_value,
            raw=evaluation.raw,
        ),
        certificate=Certificate(bound=bound, gap=gap, method=method),
        certified_at={
            name: pruned.spread(_double(values_n), np.nan)
            for name, values_n in (("tangent", solution.tangent_N), ("dual", solution.dual_N))
            if values_n is not None
        },
        normalisation=problem.constants,
        timings=timings.seconds(),
        record=record,
    )


def group_thresholds(config: SelectionConfig, found: Decided) -> dict[str, dict[str, float]]:
    """What the record says under quotas: what each group's documents were compared with, where it has selected ones."""
    if config.quotas is None:
        return {}
    names = sorted(config.quotas)
    cuts = {names[group]: cut for group, cut in found.thresholds_G.items() if np.isfinite(cut)}
    return {"group_thresholds": cuts}


def _double(values_n: Tensor) -> Any:
    return values_n.to(torch.float64).cpu().numpy()


def _record(
    problem: Problem,
    solution: Solution,
    checked: CheckedRows,
    pruned: Pruned,
    mask: Any,
    token_counts: Any,
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "config": problem.config.result_config(),
        "device": problem.config.device,
        "diversity": {term.name: term.weight for term in problem.objective.terms},
        "diversity_metrics": {term.name: made_with(term.metric) for term in problem.objective.terms},
        "rows": checked.rows.num_rows,
        "rows_pruned_by_quality": checked.rows.num_rows - pruned.rows.num_rows,
        "rows_normalised_to_unit": checked.num_normalised,
        "selected": int(mask.sum()),
        "embeddings_digest": checked.digest,
        "learner": solution.notes | {"converged": solution.converged},
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "pyarrow": pa.__version__},
        "processor": platform.processor() or platform.machine(),
        "cores": num_cores(),
    }
    if token_counts is not None:
        record["selected_tokens"] = int(np.asarray(token_counts, dtype=np.float64)[mask].sum())
    return record

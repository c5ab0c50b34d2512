"""The engine's one function: arrays in, a selection with its reasons, value and certificate out.

Knows no file format, text or Dagster. Shape suffixes: N documents of the block, n of those left by pruning.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric
from datamask_pipeline.errors import ConfigurationError, InternalError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.hardware import num_cores, present_device
from datamask_pipeline.selection import normalisation as scale
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig, require_beside, require_fitting_policy
from datamask_pipeline.selection.evaluation import Evaluation, evaluate
from datamask_pipeline.selection.facility.nearest import tells_apart
from datamask_pipeline.selection.given import Given, require_fitting, require_given
from datamask_pipeline.selection.graph.cliques import Cliques, Numbers
from datamask_pipeline.selection.groups import known_names, names_of, tell_of_unmet
from datamask_pipeline.selection.inputs import (
    CheckedRows,
    array_of_tensor,
    budget_of,
    checked_ids,
    checked_quality,
    checked_rows,
)
from datamask_pipeline.selection.likeness import AVOID, TARGET, likeness_scores, shown_of, with_shown
from datamask_pipeline.selection.max_copies import checked_copies, copied, folded, repeated
from datamask_pipeline.selection.metrics import Diversity, made_with, metrics_of, require_range
from datamask_pipeline.selection.moments.statistics import squared_of
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve, Progress
from datamask_pipeline.selection.pruning import Pruned, prune
from datamask_pipeline.selection.random_masks import random_values
from datamask_pipeline.selection.reasons import Decided, decided
from datamask_pipeline.selection.result import Certificate, Marginals, Objective, SelectionResult, log_odds
from datamask_pipeline.selection.solution import Solution, told_bound
from datamask_pipeline.selection.timings import Timings
from datamask_pipeline.spill import Room


def select_documents(
    embeddings: Any,
    quality: Any,
    *,
    config: SelectionConfig | None = None,
    diversity: Diversity | None = None,
    ids: Sequence[Any] | None = None,
    token_counts: Any = None,
    groups: Sequence[Any] | None = None,
    known_groups: Iterable[str] = (),
    max_copies: int = 1,
    target: Any = None,
    avoid: Any = None,
    given: Given | None = None,
    checkpoint_dir: Path | str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SelectionResult:
    """Choose documents for quality and diversity together.

    Args:
        embeddings: Shape (N, D), floating: an array or tensor; or what stays on disk: a ``np.memmap``, the path of a
            ``.npy``, or `datamask_pipeline.selection.sharded.ShardedVectors` over several such files; or an Arrow column of
            lists of one length, which is not copied where it is one chunk of float16 or float32. Where rows are
            of other than unit norm, all are normalised, and the record says how many those were; in two bytes a number,
            where all norms are within .001 of 1, rows are taken as they are, and objective and marginals are theirs.
        quality: Shape (N,), higher is better; or several such arrays by name.
        config: All settings at once, instead of `settings`.
        diversity: A metric's name, a metric object, a function, or several of these with their weights, as a dict or pairs;
            overrides the settings'.
            A function gets two tensors, embeddings_ND in float32 and masks_GN in bool, and returns a tensor of shape (G,),
            a number for each mask, higher is better.
        ids: N document ids, checked for nulls and duplicates.
        token_counts: Shape (N,); above 0 and needed for a budget in tokens, else 0 or more and reported in the record.
        groups: N group names, for quotas: strings, bytes or whole numbers, which are read in decimal.
        known_groups: Groups that quotas may name although no document here has them, as where these documents are one
            block of many. Of any other such quota a warning is logged: its name may be misspelt.
        max_copies: How often a document may be taken at most; the budget, objective and certificate are those of the copies,
            and `counts` of the result says how often each is. Time and memory grow with it.
        target: Shape (T, D): what the selection shall be like. A document's largest cosine to one of these joins the quality
            scores as ``target``, weighing nine times what all but it and ``avoid`` do unless `quality_weights` names it;
            Pair_simi and DiSF_uncentred then want the spread of these instead of the largest.
        avoid: The same of what it shall be unlike, as score ``avoid``.
        given: What is held already, as an earlier result's `held`: the budget is then that of the documents added, and
            objective, random value, marginals and bound are those of the union with what is held.
        checkpoint_dir: Folder where learners keep their state; a killed run given the same folder goes on and
            ends with the same mask. Of embeddings on disk, a copy of those that are read again and again lies there, too.
        progress: Called with a line of text, the step and the number of steps.
        settings: Fields of `SelectionConfig`, and of the policy's own settings.

    Raises:
        ConfigurationError: a setting that is wrong or does not fit the block.
        InputError: embeddings, scores, ids or token counts that cannot be used, naming the row.
    """
    timings, copies = Timings(), checked_copies(max_copies)
    require_given(given)
    if not isinstance(checkpoint_dir, str | Path | None):
        raise ConfigurationError(f"checkpoint_dir must be the path of a folder, not {checkpoint_dir!r:.120}")
    known = known_names(known_groups)
    config, metrics, policy = check_settings(config=config, diversity=diversity, **settings)
    curve = Curve(progress)
    with Workers(config.num_workers, present_device(config.device)) as workers, torch.inference_mode():
        with timings.phase("checks"):
            checked = checked_rows(embeddings, config, workers)
            scores = checked_quality(quality, checked.rows.num_rows)
            checked_ids(ids, checked.rows.num_rows)
            shown = shown_of({TARGET: target, AVOID: avoid}, checked.rows.dim, config, workers)
            if shown:
                config, metrics = with_shown(config, metrics, list(scores), shown)
                scores |= likeness_scores(checked.rows, shown, workers)
            token_counts = array_of_tensor(token_counts)
            budget = budget_of(config, checked.rows.num_rows, token_counts, groups, copies)
            copies = min(copies, budget.most_of_one)
            if config.quotas is not None and groups is not None:
                tell_of_unmet({*config.quotas} - known, {*names_of(groups)})
            held_count = 0.0 if given is None else given.count
            require_range(metrics, config, budget.num_documents + held_count)
            pruned = copied(prune(checked.rows, scores, budget, config, copies), copies)
            budget, token_counts = budget.repeated(copies), repeated(token_counts, copies)
            squared_M = checked.squared_N
            if copies > 1:
                squared_M = squared_M.repeat_interleave(copies)
            problem = raw_problem(config, metrics, pruned, workers, curve, pruned.left_of(squared_M))
            if given is not None:
                problem = beside(problem, given, policy)
            policy.check(problem)
        with timings.phase("normalisation"):
            problem = normalised_problem(problem, pruned, checked, checkpoint_dir, curve, given)
        with timings.phase("learning"):
            solution = policy.choose(problem)
            require_promises(solution, problem, budget, pruned)
        with timings.phase("evaluation"):
            evaluation = evaluate(problem, solution)
    problem.checkpoint.clear()
    result = result_of(problem, solution, evaluation, pruned, checked, curve, timings, token_counts, given)
    if shown:
        told = {name: {"vectors": len(one.rows_TD), "digest": one.digest} for name, one in shown.items()}
        result.record["shown"] = told
    return folded(result, copies)


def check_settings(
    *, config: SelectionConfig | None = None, diversity: Diversity | None = None, **settings: Any
) -> tuple[SelectionConfig, list[tuple[DiversityMetric, float]], SelectionPolicy]:
    """All that can be refused without a block: `select_documents` begins with it; call it before reading a large file.

    Returns:
        The settings as one, the metrics with their weights, and the policy.

    Raises:
        ConfigurationError: a setting that is wrong, a name that is not known, a device that is not there.
    """
    if not isinstance(config, SelectionConfig | None):
        raise ConfigurationError(
            f"config must be a SelectionConfig, not {config!r:.120}; give settings one by one, by their names"
        )
    if config is not None and settings:
        raise ConfigurationError(f"give config or single settings, not both: {', '.join(sorted(settings))}")
    if config is None:
        named: dict[str, Any] = dict(settings)
        if isinstance(diversity, Mapping) and not all(isinstance(name, str) for name in diversity):
            diversity = list(diversity.items())
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
    policy = POLICIES.beside(config.policy, config)
    require_fitting_policy(config, policy, {metric.name: metric for metric, _ in metrics})
    return config, metrics, policy


def raw_problem(
    config: SelectionConfig,
    metrics: list[tuple[DiversityMetric, float]],
    pruned: Pruned,
    workers: Workers,
    curve: Curve,
    squared_n: Tensor | None = None,
) -> Problem:
    """The problem on raw values, before anything was measured; `squared_n`, the rows' ``|x_i|^2``, where it is known."""
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
        squared_N=squared_of(pruned.rows, workers) if squared_n is None else squared_n,
        objective=ObjectiveFunction(lamb=config.lamb, quality_N=quality_N, terms=terms),
        budget=pruned.budget,
        workers=workers,
        constants=constants,
        random_value=0.0,
        report=curve,
        checkpoint=Checkpoint(None, "", 0.0, curve),
        tells_apart=not any(isinstance(metric, CoverageMetric) for metric, _ in metrics)
        or tells_apart(pruned.rows.everything(), torch.bfloat16),
    )


def beside(problem: Problem, given: Given, policy: SelectionPolicy) -> Problem:
    """The problem on raw values, of the unions with what is held.

    Raises:
        ConfigurationError: a metric or the policy cannot take anything as held.
        InputError: sums that are not of such vectors and scores.
    """
    metrics = {term.name: term.metric for term in problem.objective.terms}
    require_beside(problem.config.policy, policy, metrics)
    names = [name for name in problem.constants if name not in metrics]
    require_fitting(given, problem.rows.dim, names, problem.objective.needs_second)
    objective = replace(problem.objective, held_count=given.count, held_in_part=given.in_part)
    return replace(problem, objective=objective, held=given.moments(problem.objective.needs_second))


def normalised_problem(
    problem: Problem,
    pruned: Pruned,
    checked: CheckedRows,
    checkpoint_dir: Path | str | None,
    curve: Curve,
    given: Given | None = None,
    lamb: float | None = None,
) -> Problem:
    """The problem on the terms' common scale; of another lambda, if one is given, than the scale is measured with."""
    config, terms = problem.config, problem.objective.terms
    metrics = [term.metric for term in terms]
    raw = random_values(metrics, problem.statistics, problem.budget, problem.dtype)
    constants = scale.constants_of(problem, pruned.scores, raw, given)
    quality_N = scale.combined_quality(pruned.scores, config.quality_weights, constants)
    held_quality = 0.0 if given is None else scale.held_quality(given, config.quality_weights, constants)
    objective = replace(
        problem.objective,
        quality_N=quality_N,
        lamb=problem.objective.lamb if lamb is None else lamb,
        held_quality=held_quality,
        terms=tuple(scale.with_constants(term, constants) for term in terms),
    )
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    random_quality = objective.mean_quality(problem.budget.mean(quality_N), problem.budget.num_documents)
    random_value = objective.combine(random_quality, objective.diversity(raw))
    if config.normalisation != "none" and config.normalisation_constants is None:
        random_value = (
            0.0  # The block's own constants put every term's random mean at zero; the rest is rounding.
        )
    identity = _identity(config, objective, checked, pruned, constants, given)
    return replace(
        problem,
        objective=objective,
        constants=constants,
        random_value=random_value,
        checkpoint=Checkpoint(folder, identity, config.checkpoint_seconds, curve),
        room=None if folder is None else Room(folder),
    )


def _identity(
    config: SelectionConfig,
    objective: ObjectiveFunction,
    checked: CheckedRows,
    pruned: Pruned,
    constants: scale.Constants,
    given: Given | None,
) -> str:
    terms = [[term.name, term.weight, made_with(term.metric)] for term in objective.terms]
    digest = hashlib.sha256(
        json.dumps([config.result_config(), config.device, terms, constants], sort_keys=True).encode()
    )
    digest.update(checked.digest.encode())
    digest.update(b"" if given is None else given.digest.encode())
    for tensor in (*pruned.scores.values(), pruned.budget.costs_N, pruned.budget.groups_N):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def require_promises(solution: Solution, problem: Problem, budget: Budget, pruned: Pruned) -> None:
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


def result_of(
    problem: Problem,
    solution: Solution,
    evaluation: Evaluation,
    pruned: Pruned,
    checked: CheckedRows,
    curve: Curve,
    timings: Timings,
    token_counts: Any,
    given: Given | None,
) -> SelectionResult:
    """Everything that is told of a solution and its evaluation."""
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
    bound, method = told_bound(solution.bound, evaluation.value, problem.random_value, solution.method)
    gap = None if bound is None else problem.gap(bound, evaluation.value)
    curve.end(evaluation.value, bound, gap)
    if bound is not None and not pruned.kept_N.all():
        method += f"; among the documents that were not {pruned.left_out}"
    record = _record(problem, solution, checked, pruned, mask, token_counts)
    reasons_N = pruned.reasons(found.reasons_N)
    record["reasons"] = dict(sorted(Counter(reasons_N).items()))
    record |= group_thresholds(config, found)
    held = _held(evaluation, pruned, solution, record.get("selected_tokens"), given)
    if given is not None:
        record["given"] = _told_of(given, problem, evaluation, bound)
    return SelectionResult(
        mask=mask,
        counts=mask.astype(np.int64),
        logits=pruned.spread(logits_n, -np.inf),
        probabilities=pruned.spread(probabilities_n, 0.0),
        marginals=Marginals(
            quality_N=pruned.spread(evaluation.quality_N.numpy(), np.nan),
            diversity_N=pruned.spread(evaluation.diversity_N.numpy(), np.nan),
        ),
        threshold=found.threshold,
        reasons=reasons_N,
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
            if bound is not None and values_n is not None
        },
        cliques=None if bound is None or solution.cliques is None else _listed(solution.cliques, pruned),
        normalisation=problem.constants,
        timings=timings.seconds(),
        record=record,
        held=held,
    )


def _listed(found: tuple[Cliques, Numbers], pruned: Pruned) -> pa.Table:
    cliques, slopes_C = found
    return cliques.table(slopes_C, np.flatnonzero(pruned.kept_N))


def _held(
    evaluation: Evaluation,
    pruned: Pruned,
    solution: Solution,
    selected_tokens: float | None,
    given: Given | None,
) -> Given | None:
    """What is held now, for the next selection; none without a metric of moments."""
    if evaluation.moments is None:
        return None
    quality = {name: float(scores_n[solution.mask_N].sum()) for name, scores_n in pruned.scores.items()}
    tokens = None if selected_tokens is None else float(selected_tokens)
    if given is not None:
        quality = {name: total + given.quality[name] for name, total in quality.items()}
        tokens = None if tokens is None or given.tokens is None else tokens + given.tokens
    return Given.of_moments(evaluation.moments, quality, tokens)


def _told_of(
    given: Given, problem: Problem, evaluation: Evaluation, bound: float | None
) -> dict[str, float | str | None]:
    """What the record says of the documents held, and of their share in the union, its objective and its bound."""
    objective, alone = problem.objective, None
    if problem.held is not None and given.count >= 2:
        raw = problem.moment_objective.raw(problem.held)
        alone = objective.combine(objective.held_quality / given.count, objective.diversity(raw))
    return {
        "documents": given.count,
        "tokens": given.tokens,
        "share": None if evaluation.moments is None else given.count / evaluation.moments.count,
        "objective_alone": alone,
        "gain": None if alone is None else evaluation.value - alone,
        "bound_on_gain": None if alone is None or bound is None else bound - alone,
        "digest": given.digest,
    }


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
        "config": problem.config.result_config() | {"dtype": str(problem.dtype).removeprefix("torch.")},
        "device": problem.config.device,
        "diversity": {term.name: term.weight for term in problem.objective.terms},
        "diversity_metrics": {term.name: made_with(term.metric) for term in problem.objective.terms},
        "rows": len(pruned.why_N),
        **pruned.counts(),
        "rows_normalised_to_unit": checked.num_normalised,
        "selected": int(mask.sum()),
        "embeddings_digest": checked.digest,
        "learner": solution.notes | ({} if solution.converged is None else {"converged": solution.converged}),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "pyarrow": pa.__version__},
        "processor": platform.processor() or platform.machine(),
        "cores": num_cores(),
    }
    if token_counts is not None:
        tokens = float(np.asarray(token_counts, dtype=np.float64)[mask].sum())
        record["selected_tokens"] = int(tokens) if tokens.is_integer() else tokens
    return record

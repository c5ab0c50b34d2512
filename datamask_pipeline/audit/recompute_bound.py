"""Computes a certificate again from what is stored beside the mask: a tangent or dual variables. Knows no learner.

Any tangent and any dual variables give a bound that holds; so a bound is proved by the very ones that gave it.

Shape suffixes: m rows of a block that pruning left.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.audit.figures import TOLERANCE, near
from datamask_pipeline.audit.findings import Finding, contradiction, unknown

#: A relaxed mask's sums are those of its budget, but for what adding up float64 numbers loses.
SUM_TOLERANCE: Final = 1e-6
#: Documents of a tile, and references of a tile, whose similarities are compared at a time.
_TILE_DOCUMENTS, _TILE_REFERENCES = 256, 8192


@dataclass(frozen=True)
class Bounded:
    """Of what the version that wrote a record has bounds, beside what any has.

    Attributes:
        in_tokens: Budgets in tokens.
        mixtures: Coverage beside metrics of moments.
    """

    in_tokens: bool
    mixtures: bool


def check_bound(
    problem: Any,
    given: Mapping[str, Any],
    kept: NDArray[np.int64],
    found: Mapping[str, Any],
    said: str,
    bounded: Bounded,
) -> Iterator[Finding]:
    """Hold a block's certificate against its objective and what its bound was computed from.

    Args:
        problem: The block's problem, on its stored scale.
        given: ``tangent``, ``dual`` and ``probability`` of the block's rows, the first two NaN where not stored; and its
            ``cliques``, where these are.
        kept: Its rows in the part.
        found: What the manifest says of the block.
        said: The manifest's path.
        bounded: Of what there are bounds.
    """
    objective, certificate = found["objective"], found["certificate"]
    bound = certificate["bound"]
    stored = [name for name in ("tangent", "dual") if not np.isnan(given[name]).all()]
    if bound is None:
        if certificate["gap"] is not None:
            yield contradiction(said, "a gap is stated without a bound")
        if stored or _has_bound(problem, bounded):
            yield contradiction(said, "no bound is stated where its metrics, policy and budget give one")
        return
    if bound < objective["value"]:
        yield contradiction(said, f"the bound {bound} lies below the objective {objective['value']}")
    gap = problem.gap(bound, objective["value"])
    if not near(certificate["gap"], gap, TOLERANCE):
        yield contradiction(said, f"the gap is {certificate['gap']}, and that of bound and objective {gap}")
    for name in stored:
        if (problem_of := _unusable(name, given[name], problem)) is not None:
            yield contradiction(f"{said.rpartition('/')[0]}/{name}.npy", problem_of)
            return
    if problem.objective.moment_terms is not None and not problem.moment_objective.concave:
        yield from _check_ceiling(problem, objective, bound, said)
    elif problem.objective.moment_terms is not None:
        yield from _check_tangent(problem, given, objective, bound, said)
    elif _along_graph(problem):
        yield from _check_cliques(problem, given.get("cliques"), kept, objective, bound, said)
    elif _is_mixture(problem):
        yield from _check_mixture(problem, given, objective, bound, said)
    elif not _covers(problem):
        yield contradiction(said, "a bound is stated where such metrics together have none")
    elif found["record"]["learner"].get("lists") == "from regions":
        yield unknown(
            said, "the bound was not computed again: which documents were of one region is not stored"
        )
    elif "dual" not in stored:
        yield unknown(said, "the bound was not computed again: an earlier version stored no dual variables")
    else:
        yield from _check_dual(problem, given["dual"], found, said)


def _covers(problem: Any) -> bool:
    from datamask_pipeline.diversity.base import CoverageMetric

    terms = problem.objective.terms
    return len(terms) == 1 and isinstance(terms[0].metric, CoverageMetric)


def _along_graph(problem: Any) -> bool:
    from datamask_pipeline.selection.graph.objective import GraphObjective

    return GraphObjective.of(problem) is not None


def _is_mixture(problem: Any) -> bool:
    from datamask_pipeline.selection.mixture_bound import covering

    return covering(problem) is not None


def _has_bound(problem: Any, bounded: Bounded) -> bool:
    """Whether policy `datamask` gives a bound here."""
    from datamask_pipeline.selection.facility.choose import MOST_EXACT

    if problem.config.policy != "datamask" or (problem.budget.tokens and not bounded.in_tokens):
        return False
    if _along_graph(problem):
        return True
    if _is_mixture(problem):
        return bounded.mixtures
    if problem.objective.moment_terms is None:
        if not (_covers(problem) and problem.budget.tokens):
            return _covers(problem)
        references_R = problem.objective.terms[0].metric.references(problem.num_rows)
        return len(references_R) == problem.num_rows <= MOST_EXACT
    of_moments = problem.moment_objective
    known = not problem.budget.tokens or of_moments.gain_of_fewer(3.0, 2.0) is not None
    return bool(of_moments.concave and known)


def _unusable(name: str, values_m: NDArray[np.float64], problem: Any) -> str | None:
    """Why a bound cannot rest on these numbers."""
    if not np.isfinite(values_m).all():
        return f"row {int(np.argmin(np.isfinite(values_m)))} of its block has no number, and others have"
    if name == "dual":
        return f"holds {values_m.min():.9g}, which is below 0" if values_m.min() < 0 else None
    groups_m, costs_m = problem.budget.groups_N.numpy(), problem.budget.costs_N.numpy()
    unit = "tokens" if problem.budget.tokens else "documents"
    for group, limit in enumerate(problem.budget.limits):
        total = float((values_m * costs_m)[groups_m == group].sum())
        if abs(total - limit) > SUM_TOLERANCE * max(1.0, limit):
            return f"sums to {total:.9g} {unit} where the budget is {limit:.0f}"
    return None


def _check_cliques(
    problem: Any,
    table: pa.Table | None,
    kept_m: NDArray[np.int64],
    objective: Mapping[str, Any],
    bound: float,
    said: str,
) -> Iterator[Finding]:
    """What a graph's cliques and their slopes say of every mask."""
    from datamask_pipeline.selection.graph.cliques import certified
    from datamask_pipeline.selection.graph.objective import GraphObjective

    if table is None:
        yield unknown(said, "the bound was not computed again: an earlier version stored no cliques")
        return
    along, file = GraphObjective.of(problem), f"{said.rpartition('/')[0]}/cliques.parquet"
    assert along is not None, "asked before"
    try:
        cliques, slopes_C, above = certified(table, along.graph, kept_m)
    except ValueError as error:
        yield contradiction(file, str(error))
        return
    if (lowered := along.most_above(above, problem.budget)) > TOLERANCE:
        left_a, right_a, more_a = above
        worst = int(np.argmax(more_a))
        left, right = int(kept_m[left_a[worst]]), int(kept_m[right_a[worst]])
        yield contradiction(
            file,
            f"cliques of rows {left} and {right} weigh {more_a[worst]:.3g} more than the similarity of their edge (0 "
            f"without one); {len(more_a)} pairs do, and their bound may lie {lowered:.3g} too low",
        )
        return
    again = max(along.bound(cliques, slopes_C, problem.budget), objective["value"])
    if not near(bound, again, TOLERANCE):
        yield contradiction(said, f"the bound is {bound}, and its cliques give {again}")


def _check_tangent(
    problem: Any,
    given: Mapping[str, NDArray[np.float64]],
    objective: Mapping[str, Any],
    bound: float,
    said: str,
) -> Iterator[Finding]:
    """The tangent's maximum over all masks; of an earlier version's record, the tangent at the relaxed mask's end."""
    import torch

    from datamask_pipeline.selection.moments.relaxed import RelaxedObjective

    is_stored = not np.isnan(given["tangent"]).all()
    weights_m = given["tangent"] if is_stored else given["probability"]
    relaxed = RelaxedObjective(
        statistics=problem.statistics,
        objective=problem.moment_objective,
        budget=problem.budget,
        dtype=torch.float32,
    )
    moments = problem.statistics.moments(torch.from_numpy(np.ascontiguousarray(weights_m)))
    gradient_N, form = relaxed.gradient(moments, torch.float32)
    again = relaxed.bound(gradient_N, form, moments)
    assert again is not None, "the relaxation is concave, and what fewer documents gain is known"
    again = max(again, objective["value"])
    if bound > again + TOLERANCE or (is_stored and bound < again - TOLERANCE):
        yield contradiction(said, f"the bound is {bound}, and its tangent gives {again}")
    elif bound < again - TOLERANCE:
        yield unknown(
            said,
            f"the bound is {bound}; an earlier version stored no tangent, and the relaxed mask's gives {again}",
        )


def _check_mixture(
    problem: Any,
    given: Mapping[str, NDArray[np.float64]],
    objective: Mapping[str, Any],
    bound: float,
    said: str,
) -> Iterator[Finding]:
    """What the tangent at the stored weights and the dual variables say together, from every pair."""
    import torch

    from datamask_pipeline.selection.mixture_bound import bound_at, covering

    for name in ("tangent", "dual"):
        if np.isnan(given[name]).all():
            yield contradiction(said, f"a bound is stated, and no `{name}` is stored that it rests on")
            return
    weights_m, dual_m = (np.ascontiguousarray(given[name]) for name in ("tangent", "dual"))
    moments = problem.statistics.moments(torch.from_numpy(weights_m))
    offered_m = _offered(problem, covering(problem), dual_m)
    again = max(bound_at(problem, moments, torch.from_numpy(dual_m), offered_m), objective["value"])
    if not near(bound, again, TOLERANCE):
        yield contradiction(said, f"the bound is {bound}, and its tangent and dual variables give {again}")


def _check_ceiling(problem: Any, objective: Mapping[str, Any], bound: float, said: str) -> Iterator[Finding]:
    from datamask_pipeline.selection.moments.ceiling import ceiling

    again = ceiling(problem.statistics, problem.moment_objective, problem.budget)
    if again is None:
        yield contradiction(said, "a bound is stated where its metrics have none")
    elif not near(bound, max(again, objective["value"]), TOLERANCE):
        yield contradiction(said, f"the bound is {bound}, and that of every mask {again}")


def _check_dual(
    problem: Any, dual_m: NDArray[np.float64], found: Mapping[str, Any], said: str
) -> Iterator[Finding]:
    """The dual's value from every pair; lists that may miss pairs add what a sample of them says at most."""
    bound, value = found["certificate"]["bound"], found["objective"]["value"]
    again = coverage_bound(problem, dual_m)
    (term,) = problem.objective.terms
    missed = found["record"]["learner"].get("missed_excess", 0.0)
    room = (1 - problem.objective.lamb) * term.scale * missed
    if bound < max(again, value) - TOLERANCE or bound > max(again + room, value) + TOLERANCE:
        yield contradiction(
            said, f"the bound is {bound}, and its dual variables give {again} to {again + room}"
        )


def coverage_bound(problem: Any, dual_m: NDArray[np.float64]) -> float:
    """The bound that dual variables of every document give a coverage metric, by every pair; its own units.

    Formula: ``weight * mean(u) + sum of the K largest [linear_i + weight * mean over y of max(0, sim(i, y) - u_y)]``,
    see ``selection/facility/bound.py``.

    Args:
        problem: Whose objective has one term, a coverage metric.
        dual_m: Not negative.
    """
    from datamask_pipeline.selection.facility.tokens import largest_of_means
    from datamask_pipeline.selection.full_masks import FullMasks

    objective = problem.objective
    (term,) = objective.terms
    offered_m, quality_m = _offered(problem, term, dual_m), objective.lamb * objective.quality_N
    if problem.budget.tokens:
        full = FullMasks(problem.budget.costs_N, problem.budget.limits[0])
        reached, _ = largest_of_means(offered_m, quality_m, full)
    else:
        reached = problem.budget.most(quality_m / problem.budget.num_documents + offered_m)
    weight = (1 - objective.lamb) * term.scale
    return float(weight * dual_m.mean() + reached + (1 - objective.lamb) * term.offset)


def _offered(problem: Any, term: Any, dual_m: NDArray[np.float64]) -> Any:
    """What each document offers a coverage term above the dual variables, by every pair: float64 of shape (m,)."""
    import torch

    rows_mD = problem.rows.everything()
    floor_m = torch.from_numpy(dual_m.astype(np.float32))

    def above(start: int) -> Any:
        tile_nD = rows_mD[start : start + _TILE_DOCUMENTS]
        total_n = torch.zeros(len(tile_nD), dtype=torch.float64)
        for first in range(0, len(rows_mD), _TILE_REFERENCES):
            span = slice(first, first + _TILE_REFERENCES)
            excess_nr = (tile_nD @ rows_mD[span].T).sub_(floor_m[span]).clamp_(min=0)
            total_n += excess_nr.sum(1, dtype=torch.float64)
        return total_n

    sums_m = torch.cat(list(problem.workers.map(above, range(0, len(rows_mD), _TILE_DOCUMENTS))))
    return (1 - problem.objective.lamb) * term.scale / len(rows_mD) * sums_m

"""One block of a selection, posed again and evaluated at the stored mask; nothing is learnt.

Shape suffixes: n rows of the block, m of those that pruning left.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline.audit.figures import EXACT, SCALE_TOLERANCE, TOLERANCE, differing, first, near
from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.audit.recompute_bound import Bounded, check_bound
from datamask_pipeline.hardware import present_device
from datamask_pipeline.spill import Room
from datamask_pipeline.stages.release_rows import ReleaseRows
from datamask_pipeline.stages.select import BlockGiven, SelectConfig, shards_of

#: Values of a metric that is none of moments are computed for so many documents at most: all pairs are compared.
MOST_COMPARED: Final = 50_000


def check_block(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    of_block: BlockGiven,
    stored: Mapping[str, Any],
    found: Mapping[str, Any],
    file: str,
    said: str,
    bounded: Bounded,
) -> Iterator[Finding]:
    """One block: its problem is posed again, and the stored mask is evaluated, bounds of which that version had some."""
    import torch

    from datamask_pipeline.selection.api import beside, check_settings, normalised_problem, raw_problem
    from datamask_pipeline.selection.config import SelectionConfig
    from datamask_pipeline.selection.inputs import budget_of, checked_quality, checked_rows
    from datamask_pipeline.selection.parallel import Workers
    from datamask_pipeline.selection.progress import Curve
    from datamask_pipeline.selection.pruning import prune

    assert rows.vectors is not None
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    settings = {name: getattr(config, name) for name in config.model_fields_set - of_stage}
    given, frozen = of_block
    if frozen is not None:
        settings["normalisation_constants"] = frozen
    engine, metrics, policy = check_settings(**settings)
    tokens_n = rows.token_counts_N[block]
    groups = None if rows.groups is None else rows.groups.at(block)
    mask = stored["selected"][block]
    curve = Curve(None)
    with Workers(engine.num_workers, present_device(engine.device)) as workers, torch.inference_mode():
        checked = checked_rows(rows.vectors.chosen(block), engine, workers)
        scores = checked_quality(rows.quality_N[block], len(block))
        budget = budget_of(engine, len(block), None if np.isnan(tokens_n).any() else tokens_n, groups)
        if breach := budget.breach(torch.from_numpy(mask)):
            yield contradiction(file, f"the mask holds {breach}")
        pruned = prune(checked.rows, scores, budget, engine)
        if (mask & ~pruned.kept_N).any():
            yield contradiction(
                file,
                "the mask holds documents that were left out before anything was chosen",
                first(block, mask & ~pruned.kept_N),
            )
            return
        yield from _check_record(
            found["record"], checked, pruned, mask, stored["reason"][block], tokens_n, said
        )

        def posed(config: SelectionConfig) -> Any:
            raw = raw_problem(config, metrics, pruned, workers, curve)
            return raw if given is None else beside(raw, given, policy)

        of_all = _scale_of_all(rows, block, given, settings) if config.over == "shards" else None
        measured = _measured(posed(engine), pruned, given) if of_all is None else of_all[0]
        yield from _check_scale(measured, found["normalisation"], said)
        constants = {name: tuple(ends) for name, ends in found["normalisation"].items()}
        fixed = engine.model_copy(update={"normalisation_constants": constants})
        problem = normalised_problem(posed(fixed), pruned, checked, None, curve, given)
        if of_all is not None:
            problem = replace(problem, random_value=of_all[1])
        kept = block[pruned.kept_N]
        yield from _check_mask(policy, problem, stored, kept, file)
        yield from _check_figures(problem, engine, stored, kept, found, file, said, bounded)
    yield from _check_reasons(policy.decision, problem, stored, kept, found, file, said)


def _check_record(
    record: Mapping[str, Any],
    checked: Any,
    pruned: Any,
    mask: NDArray[np.bool_],
    reasons: NDArray[Any],
    tokens_n: NDArray[np.float64],
    said: str,
) -> Iterator[Finding]:
    """Counts and digests that the engine put down."""
    expected: dict[str, Any] = {
        "rows": len(mask),
        **pruned.counts(),
        "rows_normalised_to_unit": checked.num_normalised,
        "selected": int(mask.sum()),
        "embeddings_digest": checked.digest,
        "reasons": dict(sorted(Counter(reasons).items())),
    }
    if "selected_tokens" in record:
        expected["selected_tokens"] = int(tokens_n[mask].sum())
    for name, value in expected.items():
        if record[name] != value:
            yield contradiction(said, f"`{name}` is {record[name]}, and its inputs and mask give {value}")


def _measured(raw: Any, pruned: Any, given: Any) -> dict[str, tuple[float, float]]:
    """The two ends of each term's scale, of a block."""
    from datamask_pipeline.selection.normalisation import constants_of
    from datamask_pipeline.selection.random_masks import random_values

    random = random_values(
        [term.metric for term in raw.objective.terms], raw.statistics, raw.budget, raw.dtype
    )
    return constants_of(raw, pruned.scores, random, given)


def _scale_of_all(
    rows: ReleaseRows, block: NDArray[np.int64], given: Any, settings: Mapping[str, Any]
) -> tuple[dict[str, tuple[float, float]], float]:
    """The same of a selection over shards, and the mean objective of random masks."""
    from datamask_pipeline.selection.shards.api import scale_over_shards

    with tempfile.TemporaryDirectory() as folder:
        return scale_over_shards(shards_of(rows, block, Path(folder), Room(folder)), given, settings)


def _check_scale(
    measured: Mapping[str, tuple[float, float]], stored: Mapping[str, Any], said: str
) -> Iterator[Finding]:
    """The two ends of each term's scale, as they were measured again."""
    if {*measured} != {*stored}:
        yield contradiction(
            said, f"`normalisation` has terms {[*stored]} where the settings give {[*measured]}"
        )
        return
    for name, (zero, one) in measured.items():
        room = SCALE_TOLERANCE * abs(one - zero)
        if any(not abs(have - want) <= room for have, want in zip(stored[name], (zero, one), strict=True)):
            problem = (
                f"`normalisation` of {name} is {list(stored[name])}, and was measured again as {[zero, one]}"
            )
            yield contradiction(said, problem)


def _check_figures(
    problem: Any,
    config: Any,
    stored: Mapping[str, Any],
    kept: NDArray[np.int64],
    found: Mapping[str, Any],
    file: str,
    said: str,
    bounded: Bounded,
) -> Iterator[Finding]:
    """Objective, its parts, every marginal, and the certificate."""
    import torch

    from datamask_pipeline.diversity.moments import MomentMetric
    from datamask_pipeline.selection.evaluation import evaluate
    from datamask_pipeline.selection.solution import Solution

    objective = found["objective"]
    by_pairs = [t.name for t in problem.objective.terms if not isinstance(t.metric, MomentMetric)]
    if by_pairs and len(kept) > MOST_COMPARED:
        yield unknown(said, f"{', '.join(by_pairs)} of {len(kept)} documents was not computed again")
        return
    mask_m = torch.from_numpy(stored["selected"][kept])
    solution = Solution(mask_N=mask_m, scores_N=torch.zeros(len(kept)))
    approximate = found["record"]["learner"].get("lists", "exact") != "exact"
    if approximate:
        yield from _check_listed(problem, mask_m, found, said)
        solution.raw, solution.diversity_N = objective["raw"], torch.zeros(len(kept), dtype=torch.float64)
    evaluation = evaluate(problem, solution)
    frozen = config.normalisation == "none" or config.normalisation_constants is not None
    expected = {
        "value": evaluation.value,
        "quality": evaluation.quality,
        "diversity": evaluation.diversity,
        "random": problem.random_value if frozen else 0.0,
    }
    for name, value in expected.items():
        if not near(objective[name], value, TOLERANCE):
            yield contradiction(said, f"objective `{name}` is {objective[name]}, and the mask's is {value}")
    for name, value in evaluation.raw.items():
        zero, one = found["normalisation"][name]
        if not abs(objective["raw"][name] - value) <= TOLERANCE * abs(one - zero):
            yield contradiction(said, f"raw {name} is {objective['raw'][name]}, and the mask's is {value}")
    for name, again_m in (
        ("quality_marginal", evaluation.quality_N.numpy()),
        ("diversity_marginal", evaluation.diversity_N.numpy()),
    ):
        if not (approximate and name == "diversity_marginal"):
            room = TOLERANCE * float(np.nanmax(np.abs(again_m), initial=0.0))
            yield from differing(file, name, stored[name][kept], again_m, room, kept)
    given = {name: stored[name][kept] for name in ("tangent", "dual", "probability")}
    if "cliques" in stored:
        given["cliques"] = _with_any_of(stored["cliques"], kept)
    yield from check_bound(problem, given, kept, found, said, bounded)


def _with_any_of(cliques: pa.Table, kept: NDArray[np.int64]) -> pa.Table:
    """Whole cliques that have a member among these rows."""
    of_kept = cliques.filter(pc.is_in(cliques.column("row"), pa.array(kept)))
    return cliques.filter(pc.is_in(cliques.column("clique"), of_kept.column("clique").combine_chunks()))


def _check_listed(problem: Any, mask_m: Any, found: Mapping[str, Any], said: str) -> Iterator[Finding]:
    """A mask's coverage out of lists that may miss neighbours: never overstated, and no closer than that."""
    import torch

    from datamask_pipeline.diversity.coverage import value_and_marginals

    (term,) = problem.objective.terms
    rows_mD = problem.rows.everything()
    covered, _ = value_and_marginals(rows_mD, torch.arange(len(rows_mD)), mask_m, problem.workers.map)
    raw, (zero, one) = found["objective"]["raw"][term.name], found["normalisation"][term.name]
    if raw > covered + TOLERANCE * abs(one - zero):
        yield contradiction(said, f"raw {term.name} is {raw}, and the mask covers {covered}")
    yield unknown(
        said,
        f"{term.name} came from lists of neighbours that may miss some: its value was held against the largest it may have "
        f"({covered:.6g}), and its marginals were not computed again",
    )


def _check_mask(
    policy: Any, problem: Any, stored: Mapping[str, NDArray[Any]], kept: NDArray[np.int64], file: str
) -> Iterator[Finding]:
    """The mask of a policy that draws or ranks, chosen again; what orders its documents, by their logits."""
    from datamask_pipeline.selection.result import log_odds

    if not policy.by_rule:
        return
    chosen = policy.choose(problem)
    mask_m = chosen.mask_N.numpy()
    others = mask_m != stored["selected"][kept]
    if others.any():
        row = first(kept, others)
        problem_of = f"`selected` is {bool(stored['selected'][row])}, and the policy's rule gives the other"
        yield contradiction(file, f"{problem_of}; {int(others.sum())} rows differ", row)
        return
    likely_N = chosen.mask_N.double() if chosen.probabilities_N is None else chosen.probabilities_N
    logit_m = log_odds(likely_N.numpy(), chosen.scores_N.numpy())
    yield from differing(file, "logit", stored["logit"][kept], logit_m, EXACT, kept)


def _check_reasons(
    decision: Any,
    problem: Any,
    stored: Mapping[str, Any],
    kept: NDArray[np.int64],
    found: Mapping[str, Any],
    file: str,
    said: str,
) -> Iterator[Finding]:
    """Threshold and reasons out of the stored marginals, quality or logits; odds and probabilities agree."""
    from datamask_pipeline.selection.api import group_thresholds
    from datamask_pipeline.selection.reasons import decided
    from datamask_pipeline.selection.result import CERTAIN

    probability_m, logit_m = stored["probability"][kept], stored["logit"][kept]
    with np.errstate(over="ignore"):
        certain_m = np.where(
            logit_m >= CERTAIN, 1.0, np.where(logit_m <= -CERTAIN, 0.0, 1 / (1 + np.exp(-logit_m)))
        )
    yield from differing(file, "probability", probability_m, certain_m, EXACT, kept)
    totals_m = stored["quality_marginal"][kept] + stored["diversity_marginal"][kept]
    scores_m = problem.objective.quality_N.numpy()
    mask_m = stored["selected"][kept]
    again = decided(decision, totals_m, scores_m, logit_m, mask_m, problem.budget.groups_N.numpy())
    stated = np.nan if found["threshold"] is None else found["threshold"]
    if not near(stated, again.threshold, EXACT):
        yield contradiction(
            file, f"its manifest states threshold {stated}, and its rows give {again.threshold}"
        )
    for name, cuts in group_thresholds(problem.config, again).items():
        if (told := found["record"].get(name, cuts)) != cuts:
            yield contradiction(said, f"`{name}` is {told}, and its rows give {cuts}")
    thresholds_m = np.full(len(kept), again.threshold)
    yield from differing(file, "threshold", stored["threshold"][kept], thresholds_m, EXACT, kept)
    others = stored["reason"][kept] != again.reasons_N
    if others.any():
        row = first(kept, others)
        reason = again.reasons_N[np.argmax(others)]
        yield contradiction(
            file, f"`reason` is {stored['reason'][row]!r}, and its figures give {reason!r}", row
        )

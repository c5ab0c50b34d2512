"""Computes a selection's figures again from its mask and inputs, and learns nothing: quality, budget, scale, objective,
marginals, threshold, reasons, bound. Knows the engine's problem and no policy's way of choosing.

Shape suffixes: R rows of the selection, n rows of a block, m of those that pruning left.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.families import POLICIES
from datamask_pipeline.stages.release_rows import ReleaseRows, read_rows
from datamask_pipeline.stages.select import SelectConfig, blocks_of, budgets_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import MANIFEST

#: How far a figure may be off on another processor: on the objective's scale, where 0 is random and 1 the best of each
#: term alone; of marginals, as a share of the largest.
TOLERANCE: Final = 1e-4
#: How far the scale's own two ends may be, as a share of their distance: one comes from a search on a sample.
SCALE_TOLERANCE: Final = 1e-2
#: Sums in float64, whatever the processor.
EXACT: Final = 1e-9
#: Values of a metric that is none of moments are computed for so many documents at most: all pairs are compared.
MOST_COMPARED: Final = 50_000

_COLUMNS: Final = tuple(
    "position selected logit probability quality quality_marginal diversity_marginal threshold".split()
)


def check_selection(
    store: Store, ref: Ref, manifest: Mapping[str, Any], index: Ref, embeddings: Mapping[str, Ref]
) -> Iterator[Finding]:
    """Hold a selection against what it was made from.

    Args:
        store: The record.
        ref: The selection.
        manifest: Its manifest.
        index: The release's index that it read.
        embeddings: The crawls' vectors that it read.
    """
    said = f"{ref.location}/{MANIFEST}"
    basis = manifest["basis"]
    config = SelectConfig.of(_given(basis["config"]))
    if config.result_config() != dict(basis["config"]):
        yield contradiction(said, "`basis.config` are no settings that this version writes")
        return
    group_by = config.quota_by if config.quotas else None
    rows = read_rows(store, index, embeddings, config.scorers, config.score_normalisation, group_by)
    (part,) = store.part_names(ref)
    file = f"{ref.location}/{part}.parquet"
    table = store.read_table(ref, [*_COLUMNS, "reason"])
    stored = {name: table.column(name).to_numpy() for name in (*_COLUMNS, "reason")}
    positions = np.concatenate(
        [b.column("position").to_numpy() for b in store.iter_batches(index, ["position"])]
    )
    if not np.array_equal(positions[rows.scored_R], stored["position"]):
        yield contradiction(file, "its documents are not those of the index that have every score")
        return
    yield from _differing(file, "quality", stored["quality"], rows.quality_N, EXACT)
    blocks = blocks_of(len(rows), config)
    found = manifest["metadata"]["blocks"]
    if len(found) != len(blocks):
        yield contradiction(said, f"tells of {len(found)} blocks where its settings make {len(blocks)}")
        return
    for number, (block, budgeted) in enumerate(zip(blocks, budgets_of(config, blocks), strict=True)):
        yield from _check_block(budgeted, rows, block, stored, found[number], file, said)
    yield from _check_totals(manifest, stored, index, rows, said)


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a user gives them: a manifest has the default of a budget beside the one that was chosen."""
    chosen = any(settings.get(name) is not None for name in ("num_documents", "num_tokens"))
    return {name: value for name, value in settings.items() if not (chosen and name == "ratio")}


def _check_totals(
    manifest: Mapping[str, Any], stored: Mapping[str, NDArray[Any]], index: Ref, rows: ReleaseRows, said: str
) -> Iterator[Finding]:
    """What the manifest says of all blocks together."""
    selected = int(stored["selected"].sum())
    counts = {
        "rows_in": index.rows,
        "kept": selected,
        "dropped_not_selected": len(rows) - selected,
        "dropped_no_score": index.rows - len(rows),
    }
    metadata, blocks = manifest["metadata"], manifest["metadata"]["blocks"]
    if dict(manifest["counts"]) != counts or metadata["selected"] != selected:
        yield contradiction(said, f"`counts` are not {counts}")
    weights = [block["record"]["selected"] for block in blocks]
    for name, key in (
        ("objective", "value"),
        ("objective_random", "random"),
        ("quality_term", "quality"),
        ("diversity_term", "diversity"),
    ):
        mean = float(np.average([block["objective"][key] for block in blocks], weights=weights))
        if not _near(metadata[name], mean, EXACT):
            yield contradiction(said, f"`{name}` is {metadata[name]}, and that of its blocks {mean}")


def _check_block(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    stored: Mapping[str, NDArray[Any]],
    found: Mapping[str, Any],
    file: str,
    said: str,
) -> Iterator[Finding]:
    """One block: its problem is posed again, and the stored mask is evaluated."""
    import torch

    from datamask_pipeline.selection.api import check_settings, normalised_problem, raw_problem
    from datamask_pipeline.selection.config import SelectionConfig
    from datamask_pipeline.selection.inputs import budget_of, checked_quality, checked_rows
    from datamask_pipeline.selection.parallel import Workers
    from datamask_pipeline.selection.progress import Curve
    from datamask_pipeline.selection.pruning import prune

    assert rows.vectors is not None
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    engine, metrics, _ = check_settings(
        **{name: getattr(config, name) for name in config.model_fields_set - of_stage}
    )
    tokens_n = rows.token_counts_N[block]
    groups = [rows.groups[place] for place in block] if rows.groups else None
    mask = stored["selected"][block]
    curve = Curve(None)
    with Workers(engine.num_workers) as workers, torch.inference_mode():
        checked = checked_rows(rows.vectors.chosen(block), engine, workers)
        scores = checked_quality(rows.quality_N[block], len(block))
        budget = budget_of(engine, len(block), None if np.isnan(tokens_n).any() else tokens_n, groups)
        if breach := budget.breach(torch.from_numpy(mask)):
            yield contradiction(file, f"the mask holds {breach}")
        pruned = prune(checked.rows, scores, budget, engine)
        if (mask & ~pruned.kept_N).any():
            yield contradiction(
                file,
                "the mask holds documents that pruning by quality left out",
                _first(block, mask & ~pruned.kept_N),
            )
            return
        yield from _check_record(
            found["record"], checked, pruned, mask, stored["reason"][block], tokens_n, said
        )
        raw = raw_problem(engine, metrics, pruned, workers, curve)
        yield from _check_scale(raw, pruned, found["normalisation"], said)
        constants = {name: tuple(ends) for name, ends in found["normalisation"].items()}
        given = engine.model_copy(update={"normalisation_constants": constants})
        problem = normalised_problem(
            raw_problem(given, metrics, pruned, workers, curve), pruned, checked, None, curve
        )
        kept = block[pruned.kept_N]
        yield from _check_figures(problem, engine, stored, kept, found, file, said)
    config_of = POLICIES.find(config.policy).decision
    yield from _check_reasons(config_of, problem, stored, kept, found, file)


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
        "rows_pruned_by_quality": len(mask) - pruned.rows.num_rows,
        "rows_normalised_to_unit": checked.num_normalised,
        "selected": int(mask.sum()),
        "embeddings_digest": checked.digest,
        "reasons": dict(sorted(Counter(reasons[pruned.kept_N]).items())),
    }
    if "selected_tokens" in record:
        expected["selected_tokens"] = int(tokens_n[mask].sum())
    for name, value in expected.items():
        if record[name] != value:
            yield contradiction(said, f"`{name}` is {record[name]}, and its inputs and mask give {value}")


def _check_scale(raw: Any, pruned: Any, stored: Mapping[str, Any], said: str) -> Iterator[Finding]:
    """The two ends of each term's scale, measured again."""
    from datamask_pipeline.selection import normalisation as scale

    random = scale.random_values(
        [term.metric for term in raw.objective.terms], raw.statistics, raw.budget, raw.dtype
    )
    measured = scale.constants_of(raw, pruned.scores, random)
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
    stored: Mapping[str, NDArray[Any]],
    kept: NDArray[np.int64],
    found: Mapping[str, Any],
    file: str,
    said: str,
) -> Iterator[Finding]:
    """Objective, its parts, every marginal, and the certificate."""
    import torch

    from datamask_pipeline.diversity.moments import MomentMetric
    from datamask_pipeline.selection.evaluation import evaluate
    from datamask_pipeline.selection.solution import Solution

    objective, certificate = found["objective"], found["certificate"]
    by_pairs = [t.name for t in problem.objective.terms if not isinstance(t.metric, MomentMetric)]
    if by_pairs and len(kept) > MOST_COMPARED:
        yield unknown(said, f"{', '.join(by_pairs)} of {len(kept)} documents was not computed again")
        return
    mask_m = torch.from_numpy(stored["selected"][kept])
    evaluation = evaluate(problem, Solution(mask_N=mask_m, scores_N=torch.zeros(len(kept))))
    given = config.normalisation == "none" or config.normalisation_constants is not None
    expected = {
        "value": evaluation.value,
        "quality": evaluation.quality,
        "diversity": evaluation.diversity,
        "random": problem.random_value if given else 0.0,
    }
    for name, value in expected.items():
        if not _near(objective[name], value, TOLERANCE):
            yield contradiction(said, f"objective `{name}` is {objective[name]}, and the mask's is {value}")
    for name, value in evaluation.raw.items():
        zero, one = found["normalisation"][name]
        if not abs(objective["raw"][name] - value) <= TOLERANCE * abs(one - zero):
            yield contradiction(said, f"raw {name} is {objective['raw'][name]}, and the mask's is {value}")
    for name, again_m in (
        ("quality_marginal", evaluation.quality_N.numpy()),
        ("diversity_marginal", evaluation.diversity_N.numpy()),
    ):
        room = TOLERANCE * float(np.nanmax(np.abs(again_m), initial=0.0))
        yield from _differing(file, name, stored[name][kept], again_m, room, kept)
    yield from _check_certificate(problem, stored["probability"][kept], objective, certificate, said)


def _check_certificate(
    problem: Any,
    probability_m: NDArray[np.float64],
    objective: Mapping[str, Any],
    certificate: Mapping[str, Any],
    said: str,
) -> Iterator[Finding]:
    """The gap by its formula; the bound of moment metrics by the tangent at the relaxed mask, which is stored."""
    import torch

    from datamask_pipeline.selection.moments.relaxed import RelaxedObjective

    bound = certificate["bound"]
    if bound is None:
        if certificate["gap"] is not None:
            yield contradiction(said, "a gap is stated without a bound")
        return
    if bound < objective["value"]:
        yield contradiction(said, f"the bound {bound} lies below the objective {objective['value']}")
    gap = problem.gap(bound, objective["value"])
    if not _near(certificate["gap"], gap, TOLERANCE):
        yield contradiction(said, f"the gap is {certificate['gap']}, and that of bound and objective {gap}")
    if problem.objective.moment_terms is None:
        yield unknown(
            said, "the bound of a coverage metric was not computed again: its dual variables are not stored"
        )
        return
    relaxed = RelaxedObjective(
        statistics=problem.statistics,
        objective=problem.moment_objective,
        budget=problem.budget,
        dtype=torch.float32,
    )
    moments = problem.statistics.moments(torch.from_numpy(probability_m))
    gradient_N, form = relaxed.gradient(moments, torch.float32)
    again = relaxed.bound(gradient_N, form, moments)
    if again is None:
        yield contradiction(said, "a bound is stated where the relaxation is not concave")
    elif bound > max(again, objective["value"]) + TOLERANCE:
        yield contradiction(said, f"the bound is {bound}, and its tangent gives {again}")
    elif bound < again - TOLERANCE:
        yield unknown(said, f"the bound is {bound}; the tangent that is stored gives {again} only")


def _check_reasons(
    decision: Any,
    problem: Any,
    stored: Mapping[str, NDArray[Any]],
    kept: NDArray[np.int64],
    found: Mapping[str, Any],
    file: str,
) -> Iterator[Finding]:
    """Threshold and reasons out of the stored marginals, quality or logits; odds and probabilities agree."""
    from datamask_pipeline.selection.reasons import decided
    from datamask_pipeline.selection.result import CERTAIN

    probability_m, logit_m = stored["probability"][kept], stored["logit"][kept]
    with np.errstate(over="ignore"):
        certain_m = np.where(
            logit_m >= CERTAIN, 1.0, np.where(logit_m <= -CERTAIN, 0.0, 1 / (1 + np.exp(-logit_m)))
        )
    yield from _differing(file, "probability", probability_m, certain_m, EXACT, kept)
    totals_m = stored["quality_marginal"][kept] + stored["diversity_marginal"][kept]
    scores_m = problem.objective.quality_N.numpy()
    mask_m = stored["selected"][kept]
    again = decided(decision, totals_m, scores_m, logit_m, mask_m, problem.budget.groups_N.numpy())
    stated = np.nan if found["threshold"] is None else found["threshold"]
    if not _near(stated, again.threshold, EXACT):
        yield contradiction(
            file, f"its manifest states threshold {stated}, and its rows give {again.threshold}"
        )
    thresholds_m = np.full(len(kept), again.threshold)
    yield from _differing(file, "threshold", stored["threshold"][kept], thresholds_m, EXACT, kept)
    differing = stored["reason"][kept] != again.reasons_N
    if differing.any():
        row = _first(kept, differing)
        reason = again.reasons_N[np.argmax(differing)]
        yield contradiction(
            file, f"`reason` is {stored['reason'][row]!r}, and its figures give {reason!r}", row
        )


def _differing(
    file: str,
    name: str,
    have: NDArray[Any],
    want: NDArray[Any],
    room: float,
    rows: NDArray[np.int64] | None = None,
) -> Iterator[Finding]:
    """The first row in which a column differs from what it should be; null stands for NaN."""
    have, want = have.astype(np.float64), want.astype(np.float64)
    same = (np.abs(have - want) <= room) | (np.isnan(have) & np.isnan(want)) | (have == want)
    if not same.all():
        place = int(np.argmin(same))
        row = place if rows is None else int(rows[place])
        count = int((~same).sum())
        problem = (
            f"`{name}` is {have[place]:.9g} where its inputs give {want[place]:.9g}; {count} rows differ"
        )
        yield contradiction(file, problem, row)


def _first(rows: NDArray[np.int64], where: NDArray[np.bool_]) -> int:
    return int(rows[np.argmax(where)])


def _near(have: float | None, want: float, room: float) -> bool:
    if have is None or np.isnan(have) or np.isnan(want):
        return (have is None or bool(np.isnan(have))) and bool(np.isnan(want))
    return bool(abs(have - want) <= room * max(1.0, abs(want)) or have == want)

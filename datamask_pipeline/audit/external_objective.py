"""What somebody else's subset reaches of an arm's objective, beside random, top-k and ours with as many documents.

Poses the arm's problem on the release's pool, as the engine does, and evaluates masks. Knows no file of the subset.

Shape suffixes: R rows of the index, N of them with every score of the arm.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.audit.recompute import given_settings
from datamask_pipeline.audit.recompute_block import MOST_COMPARED
from datamask_pipeline.hardware import present_device
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.report.objectives import objective_names
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.stages.redundancy import RedundancyConfig, measured
from datamask_pipeline.stages.release_rows import ReleaseRows, read_rows
from datamask_pipeline.stages.select import SelectConfig
from datamask_pipeline.storage import Store, require

Progress = Callable[[str, int, int | None], None]
#: The masks that are compared: the subset's, one drawn at random, the best by quality, the arm's.
THEIRS, RANDOM, TOP_K, OURS = "external", "random", "quality_topk", "ours"
#: Places of a value on the objective's scale that are more than rounding in float64; it has sums of many documents.
_PLACES: Final = 9


def compare_masks(
    store: Store, release: str, arm: str, positions: NDArray[np.int64], scratch: Path, progress: Progress
) -> dict[str, Any]:
    """The subset's objective under an arm's settings, and its distance from the bound.

    All are masks of as many documents as the subset has in the pool. Where the arm has another number of them, or quotas,
    tokens, pruning, several blocks or documents that an earlier release holds, its learner is run again with that number of
    documents and none of these.

    Args:
        store: The record.
        release: The release.
        arm: The arm.
        positions: Of the documents of the subset, in the release's canonical order.
        scratch: Private folder.
        progress: Told of the learner's steps.

    Returns:
        ``arm``, ``documents``, ``pool_documents``, ``objective_of``, ``bound``, ``random_mean`` (value that masks drawn at
        random have on average), ``learnt`` and, by name, ``masks``: value, gap, near_copies, quality_rank, coverage and its
        error, all of one and the same mask. Where nothing can be compared, ``reason`` alone.

    Raises:
        ConfigurationError: the record has no selection of that arm.
    """
    selection = require(store, FLOW.maker("selection_mask")[1].artefact, f"{release}/{arm}")
    manifest = store.manifest(selection)
    config = SelectConfig.of(given_settings(manifest["basis"]["config"]))
    inputs = dict(inputs_of(manifest))
    embeddings = {
        name.partition("/")[2]: ref for name, ref in inputs.items() if name.startswith("embeddings/")
    }
    rows = read_rows(store, inputs["index"], embeddings, config.scorers, config.score_normalisation, None)
    of_index_R = store.read_table(inputs["index"], ["position"]).column(0).to_numpy()
    theirs_N = np.isin(of_index_R[rows.scored_R], positions)
    count = int(theirs_N.sum())
    if count < 2:
        return {"reason": f"{count} of its documents could be selected by {arm}; at least 2 are needed"}
    if len(rows) > config.block_rows:
        return {"reason": f"{len(rows)} documents are more than one block (block_rows {config.block_rows})"}
    by_pairs = {*config.diversity_weights} - _metrics_of_moments(config)
    if by_pairs and len(rows) > MOST_COMPARED:
        return {"reason": f"{', '.join(sorted(by_pairs))} of {len(rows)} documents compares all pairs"}
    engine = _settings(config, count)
    ours_N = store.read_table(selection, ["selected"]).column(0).to_numpy()
    block = manifest["metadata"]["blocks"][0]
    # A bound of what goes on from a release is of masks that hold what that one holds, and others may lie above it.
    is_free = manifest["metadata"].get("given") is None and len(manifest["metadata"]["blocks"]) == 1
    learnt = not (_is_plain(config) and is_free and int(ours_N.sum()) == count)
    if learnt:
        from datamask_pipeline.selection.api import select_documents

        result = select_documents(rows.vectors, rows.quality_N, progress=progress, **engine)
        ours_N, bound, constants = result.mask, result.certificate.bound, result.normalisation
    else:
        bound = block["certificate"]["bound"]
        constants = {name: tuple(ends) for name, ends in block["normalisation"].items()}
    masks = {THEIRS: theirs_N, RANDOM: None, TOP_K: None, OURS: ours_N}
    return {
        "arm": arm,
        "documents": count,
        "pool_documents": len(rows),
        "objective_of": objective_names({arm: manifest["metadata"]})[arm],
        "bound": bound,
        "learnt": learnt,
        **_evaluated(engine, rows, masks, bound, constants, scratch, progress),
    }


def _evaluated(
    engine: Mapping[str, Any],
    rows: ReleaseRows,
    masks: Mapping[str, NDArray[np.bool_] | None],
    bound: float | None,
    constants: Mapping[str, tuple[float, float]],
    scratch: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Each mask's value and redundancy; masks that are not given are drawn at random, or the best by quality."""
    import torch

    from datamask_pipeline.selection.api import check_settings, normalised_problem, raw_problem
    from datamask_pipeline.selection.evaluation import evaluate
    from datamask_pipeline.selection.inputs import budget_of, checked_quality, checked_rows
    from datamask_pipeline.selection.parallel import Workers
    from datamask_pipeline.selection.progress import Curve
    from datamask_pipeline.selection.pruning import prune
    from datamask_pipeline.selection.solution import Solution

    settings, metrics, _ = check_settings(**engine, normalisation_constants=dict(constants))
    curve, found = Curve(None), {}
    with Workers(settings.num_workers, present_device(settings.device)) as workers, torch.inference_mode():
        checked = checked_rows(rows.vectors, settings, workers)
        scores = checked_quality(rows.quality_N, len(rows))
        budget = budget_of(settings, len(rows), None, None)
        pruned = prune(checked.rows, scores, budget, settings)
        problem = normalised_problem(
            raw_problem(settings, metrics, pruned, workers, curve), pruned, checked, None, curve
        )
        for name, mask_N in masks.items():
            if name == RANDOM:
                chosen_N = budget.random("external audit")
            elif name == TOP_K:
                chosen_N = budget.best(problem.objective.quality_N, exact=True)
            else:
                chosen_N = torch.from_numpy(np.array(mask_N))
            evaluation = evaluate(problem, Solution(mask_N=chosen_N, scores_N=torch.zeros(len(rows))))
            figures = measured(RedundancyConfig(), rows, chosen_N.numpy(), scratch / f"near-{name}", progress)
            found[name] = {
                "value": evaluation.value,
                "gap": None if bound is None else problem.gap(bound, evaluation.value),
                **{
                    part: figures[part]
                    for part in ("near_copies", "quality_rank", "coverage", "coverage_error")
                },
            }
    return {"random_mean": round(problem.random_value, _PLACES) + 0.0, "masks": found}


def _metrics_of_moments(config: SelectionConfig) -> set[str]:
    from datamask_pipeline.diversity.moments import MomentMetric
    from datamask_pipeline.families import METRICS

    made = METRICS.make_each(
        config.diversity_weights, config.diversity_options, "diversity_options", "diversity"
    )
    return {metric.name for metric in made if isinstance(metric, MomentMetric)}


def _is_plain(config: SelectConfig) -> bool:
    """Whether any mask of as many documents is one that the arm could have chosen."""
    left_out = config.quality_pruning or config.outlier_deviations
    return not config.quotas and config.num_tokens is None and not left_out


def _settings(config: SelectConfig, count: int) -> dict[str, Any]:
    """The arm's settings as the engine takes them, for a mask of so many documents without quotas or pruning."""
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    left_out = {*of_stage, "ratio", "num_tokens", "quotas", "normalisation_constants"}
    left_out |= {"quality_pruning", "outlier_deviations"}
    given = {name: getattr(config, name) for name in config.model_fields_set - left_out}
    return given | {"num_documents": count}

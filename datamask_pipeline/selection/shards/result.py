"""What a mask over documents of several processes is worth, as files of columns and a certificate.

Shape suffixes: N documents, G groups.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datamask_pipeline.disk import new_array
from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.errors import InternalError
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.metrics import made_with
from datamask_pipeline.selection.objective import ObjectiveFunction
from datamask_pipeline.selection.reasons import BY_MARGINALS, TOO_LONG
from datamask_pipeline.selection.result import Certificate, Marginals, Objective, SelectionResult
from datamask_pipeline.selection.shards.choose import Ended, gap_of
from datamask_pipeline.selection.shards.population import Population
from datamask_pipeline.selection.solution import told_bound

REASONS = (
    BY_MARGINALS.out,
    BY_MARGINALS.in_all_the_same,
    BY_MARGINALS.out_all_the_same,
    BY_MARGINALS.into,
    TOO_LONG,
)
COLUMNS = {
    "mask": "|b1",
    "probability": "<f8",
    "logit": "<f8",
    "quality_marginal": "<f8",
    "diversity_marginal": "<f8",
    "reason": "|u1",
}


@dataclass(frozen=True, kw_only=True)
class ShardedSelection:
    """One selection over all shards; its columns lie in files, each value at its document's number.

    Attributes:
        folder: Holds ``mask.npy``, ``probability.npy``, ``logit.npy``, ``quality_marginal.npy``, ``diversity_marginal.npy``
            and ``reason.npy``, numbers of `REASONS`; and if there is a bound what it rests on, ``tangent.npy``, a relaxed
            mask, or ``dual.npy``, each document's dual variable. Log-odds beyond certainty are ordered by the gradient, or
            of Facility by the marginals, as those of `result.log_odds` by its rank.
    """

    folder: Path
    threshold: float
    curve: pa.Table
    objective: Objective
    certificate: Certificate
    normalisation: dict[str, tuple[float, float]]
    timings: dict[str, float]
    held: Given | None
    record: dict[str, Any]

    def column(self, name: str) -> NDArray[Any]:
        """A column, mapped."""
        mapped: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return mapped

    def in_memory(self, places: slice = slice(None)) -> SelectionResult:
        """The same with the columns of all documents read, or of those at some places."""
        columns = {name: np.array(self.column(name)[places]) for name in COLUMNS}
        rest = "dual" if self.held is None else "tangent"
        certified_at = {}
        if self.certificate.bound is not None:
            certified_at[rest] = np.array(self.column(rest)[places])
        return SelectionResult(
            mask=columns["mask"],
            counts=columns["mask"].astype(np.int64),
            logits=columns["logit"],
            probabilities=columns["probability"],
            marginals=Marginals(
                quality_N=columns["quality_marginal"], diversity_N=columns["diversity_marginal"]
            ),
            threshold=self.threshold,
            reasons=np.array(REASONS, dtype=object)[columns["reason"]],
            curve=self.curve,
            objective=self.objective,
            certificate=self.certificate,
            certified_at=certified_at,
            cliques=None,
            normalisation=self.normalisation,
            timings=self.timings,
            held=self.held,
            record=self.record,
        )


def measured_result(
    people: Population,
    function: ObjectiveFunction,
    config: SelectionConfig,
    constants: dict[str, tuple[float, float]],
    random_value: float,
    ended: Ended,
    opened: Mapping[str, Any],
    scores: Sequence[str],
    given: Given | None,
    folder: Path,
) -> ShardedSelection:
    """What the mask is worth, why each document is in or out, and the files of columns."""
    counts_2G = people.counts("mask")
    for group, limit in enumerate(people.limits.limits_G.tolist()):
        taken = int(counts_2G[1, group])
        if taken > limit or (taken < limit and not people.limits.tokens):
            raise InternalError(
                f"over shards policy 'datamask' chose {taken} where the budget of group {group} is {limit}; please report it"
            )
    count = float(counts_2G[0].sum()) + function.held_count
    (summed,) = people.dots(("mask", "quality"))
    quality, diversity = (summed + function.held_quality) / count, function.diversity(ended.raw)
    value = function.combine(quality, diversity)
    people.combine("quality_marginal", (function.lamb / count, "quality"))
    people.combine("total", (1.0, "quality_marginal"), (1.0, "diversity_marginal"))
    chosen_G = counts_2G[0].tolist()
    threshold = float(people.kth("total", [sum(chosen_G)])[0])
    cuts_G = people.kth("total", chosen_G) if len(chosen_G) > 1 else np.array([threshold])
    reasons = people.team.sums("reasons", name="total", mask="mask", cuts=cuts_G)["count"]
    bound, method = told_bound(ended.bound, value, random_value, ended.method)
    _write(people, folder, opened["rows"], ended)
    too_long = sum(opened["left_out"].values())
    record: dict[str, Any] = {
        "config": config.result_config(),
        "device": config.device,
        "diversity": {term.name: term.weight for term in function.terms},
        "diversity_metrics": {term.name: made_with(term.metric) for term in function.terms},
        "rows": opened["rows"],
        "rows_pruned_by_quality": 0,
        **opened["left_out"],
        "rows_normalised_to_unit": opened["rows_normalised_to_unit"],
        "selected": int(sum(chosen_G)),
        "embeddings_digest": opened["embeddings_digest"],
        "learner": ended.learner,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "pyarrow": pa.__version__},
        "processor": platform.processor() or platform.machine(),
        "reasons": {REASONS[code]: int(count) for code, count in enumerate([*reasons, too_long]) if count},
    }
    if opened["tokens"]:
        record["selected_tokens"] = int(counts_2G[1].sum())
    if config.quotas is not None:
        names = sorted(config.quotas)
        record["group_thresholds"] = {
            names[group]: float(cut) for group, cut in enumerate(cuts_G) if np.isfinite(cut)
        }
    tokens = record.get("selected_tokens")
    return ShardedSelection(
        folder=folder,
        threshold=threshold,
        curve=pa.table({}),
        objective=Objective(
            value=value, quality=quality, diversity=diversity, random=random_value, raw=ended.raw
        ),
        certificate=Certificate(
            bound=bound,
            gap=None if bound is None else gap_of(people, random_value, bound, value),
            method=method,
        ),
        normalisation=constants,
        timings={},
        held=None if ended.moments is None else _held(people, ended.moments, scores, tokens, given),
        record=record,
    )


def _held(
    people: Population, moments: Moments, scores: Sequence[str], tokens: int | None, given: Given | None
) -> Given:
    """What is held now, for the next selection."""
    sums = people.dots(*(("mask", f"score/{name}") for name in scores))
    before = dict.fromkeys(scores, 0.0) if given is None else given.quality
    quality = {name: total + before[name] for name, total in zip(scores, sums, strict=True)}
    held = None if tokens is None else float(tokens)
    if given is not None:
        held = None if held is None or given.tokens is None else held + given.tokens
    return Given.of_moments(moments, quality, held)


def _write(people: Population, folder: Path, num_rows: int, ended: Ended) -> None:
    """The files of columns: made here at their whole length, filled by every process with its own part."""
    files = {}
    for name, kind in COLUMNS.items() | ({(ended.certified_at, "<f8")} if ended.bound is not None else set()):
        files[name] = str(folder / f"{name}.npy")
        new_array(Path(files[name]), kind, (num_rows,)).flush()
    people.copy("probability", ended.weights)
    parts = people.team.parts("range", name=ended.scores)
    low, high = (float(end([part[name] for part in parts])) for end, name in ((min, "low"), (max, "high")))
    people.team.ask(
        "write",
        files=dict(sorted(files.items())),
        weights=ended.weights,
        scores=ended.scores,
        low=low,
        high=high,
    )

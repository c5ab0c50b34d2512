"""Like these, unlike those: what vectors that a caller shows make of scores and metrics. Knows no learner and no text.

Each document gets a score per set, its largest cosine to one of the set, which stands among the qualities; metrics that
average over pairs take the set in as well (`diversity.likened`). Both are linear in the mask, so every certificate stands.

Shape suffixes: N documents, n rows of a chunk, T vectors of a set, t of a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.likened import LikenedMetric
from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.inputs import checked_rows
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import Rows

TARGET, AVOID = "target", "avoid"
SIGNS = {TARGET: 1.0, AVOID: -1.0}
WEIGHT = 9.0
"""What a set's score weighs where no weight says so: so many times all other scores together."""
PART_ROWS = 4096

Weighted = list[tuple[DiversityMetric, float]]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Vectors of unit norm that a selection shall be like, or unlike, and a digest of their bytes."""

    rows_TD: Tensor
    digest: str

    @property
    def moments(self) -> Moments:
        """Their sums."""
        everything = torch.ones(len(self.rows_TD), dtype=torch.bool)
        return moments_of(self.rows_TD, everything, needs_second=True)


def shown_of(
    vectors: Mapping[str, Any], dim: int, config: SelectionConfig, workers: Workers
) -> dict[str, Shown]:
    """The sets that were given, by name.

    Args:
        vectors: By name `TARGET` or `AVOID`: shape (T, D), or none.
        dim: D of the documents.

    Raises:
        InputError: no vectors of as many dimensions, or such as no document may have; naming the set and its row.
    """
    found = {}
    for name, given in vectors.items():
        if given is None:
            continue
        try:
            checked = checked_rows(given, config, workers)
        except InputError as error:
            raise InputError(
                error.problem, row=error.row, field=name, value=error.value, remedy=error.remedy
            ) from error
        if checked.rows.dim != dim:
            raise InputError(
                f"vectors have {checked.rows.dim} dimensions, the documents {dim}",
                field=name,
                remedy="embed both by one model",
            )
        found[name] = Shown(rows_TD=checked.rows.everything(), digest=checked.digest)
    return found


def likeness_scores(rows: Rows, shown: Mapping[str, Shown], workers: Workers) -> dict[str, Tensor]:
    """Each document's largest cosine to one of a set, negative for what is to be avoided: float64 of shape (N,)."""

    def of(vectors_TD: Tensor) -> Tensor:
        def part(span: tuple[int, int]) -> Tensor:
            rows_nD = rows.chunk(*span)
            best = [(rows_nD @ part_tD.T).amax(1) for part_tD in torch.split(vectors_TD, PART_ROWS)]
            return torch.stack(best).amax(0).to(torch.float64).cpu()

        return workers.fill(part, rows.spans(), rows.num_rows)

    return {name: SIGNS[name] * of(one.rows_TD.to(rows.device)) for name, one in shown.items()}


def with_shown(
    config: SelectionConfig, metrics: Weighted, names: list[str], shown: Mapping[str, Shown]
) -> tuple[SelectionConfig, Weighted]:
    """Settings that weigh the sets' scores, and metrics that take the sets in where they can.

    Args:
        names: Of the quality scores that were given.

    Raises:
        ConfigurationError: a score or a metric has the name of a set.
    """
    if taken := sorted({*shown} & {*names, *(metric.name for metric, _ in metrics)}):
        raise ConfigurationError(f"a score or metric is called as `{taken[0]}=` is; rename it")
    weights = dict(config.quality_weights or {name: 1 / len(names) for name in names})
    total = sum(weights.get(name, 0.0) for name in names)
    weights |= {name: WEIGHT * total for name in shown if name not in weights}
    config = config.model_copy(update={"quality_weights": weights})
    return config, [(_likened(metric, shown), weight) for metric, weight in metrics]


def _likened(metric: DiversityMetric, shown: Mapping[str, Shown]) -> DiversityMetric:
    if not isinstance(metric, MomentMetric):
        return metric
    form = None
    for name, one in shown.items():
        own = metric.common_with(one.moments)
        if own is None:
            return metric
        own = own.scaled(SIGNS[name])
        form = own if form is None else form.plus(own)
    digest = " ".join(f"{name} {one.digest}" for name, one in shown.items())
    return metric if form is None else LikenedMetric(metric, form, digest)

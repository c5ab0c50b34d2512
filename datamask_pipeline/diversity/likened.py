"""A metric of moments seen beside what the selection shall be like and unlike. Knows no quality, budget or learner.

Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import (
    DrawnGroup,
    LinearForm,
    MomentMetric,
    Moments,
    RowMarginals,
    squared_norms,
)

TAKEN_OVER = (
    "name",
    "needs_second",
    "concave",
    "quadratic",
    "levelled_below",
    "exact_marginals",
    "exact_exchanges",
)
"""What is said of the metric is true of it beside a linear score."""


class LikenedMetric(MomentMetric):
    """A quadratic metric, and what the selection has in common with a target and with documents to be avoided.

    Formula: ``f(S) + 2 mean k(x, y) - 2 mean k(x, z)`` over x in S, y of the target, z to be avoided, where k is what f
    averages over pairs: the cosine (Pair_simi), or its square (DiSF_uncentred). With a target this is, but for a constant
    and for pairs of a document with itself, minus the squared distance between the moments of selection and target: largest
    where the selection is spread as the target is. What is to be avoided counts as if as many documents like it
    as are selected were so as well, however many are shown.
    Source: kernel herding (Chen, Welling and Smola 2010); the cross terms are those of a quadratic function's mutual
    information and conditional gain (Iyer et al. 2021).
    Cost: as of the metric. Concave in the relaxed mask if the metric is, as what is added is linear.

    Args:
        metric: The metric.
        form: What a document is scored by beside it, divided by the number of documents selected.
        digest: Of the vectors that the form was made of.
    """

    def __init__(self, metric: MomentMetric, form: LinearForm, digest: str) -> None:
        super().__init__(metric.config)
        self.metric, self.own, self.likened = metric, form, digest
        own: Any = self
        for name in TAKEN_OVER:
            setattr(own, name, getattr(metric, name))

    def value(self, moments: Moments) -> float:
        return self.metric.value(moments) + self.own.total(moments) / moments.count

    def gain_of_fewer(self, count: float, least: float) -> float | None:
        return self.metric.gain_of_fewer(count, least)

    def growth(self, moments: Moments) -> float:
        return self.metric.growth(moments)

    def form(self, moments: Moments) -> LinearForm:
        return self.metric.form(moments).plus(self.own.scaled(1 / moments.count))

    def relaxed_value(self, moments: Moments) -> float:
        return self.metric.relaxed_value(moments) + self.own.total(moments) / moments.count

    def relaxed_form(self, moments: Moments) -> LinearForm:
        return self.metric.relaxed_form(moments).plus(self.own.scaled(1 / moments.count))

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor | None:
        return self.metric.interaction(moments, left_TD, right_ND)

    def self_products(self, moments: Moments, squared_N: Tensor) -> Tensor:
        return self.metric.self_products(moments, squared_N)

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        own_N = self.own.scores(embeddings_ND, squared_norms(embeddings_ND)).cpu()
        masks_GN = masks_GN.cpu()
        inner_G = self.metric.values(embeddings_ND, masks_GN.to(embeddings_ND.device)).cpu()
        own_G: Tensor = masks_GN.to(torch.float64) @ own_N / masks_GN.sum(1)
        return inner_G + own_G

    def mean_over_masks(self, groups: Sequence[DrawnGroup], held: Moments | None = None) -> float | None:
        mean = self.metric.mean_over_masks(groups, held)
        if mean is None:
            return None
        own = sum(group.share * self.own.total(group.moments) for group in groups)
        count = sum(group.count for group in groups)
        if held is not None:
            own, count = own + self.own.total(held), count + held.count
        return mean + own / count

    def marginals_at(self, moments: Moments) -> RowMarginals:
        inner, own = self.metric.marginals_at(moments), self.own.scaled(1 / moments.count)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            return inner(rows_nD, weights_n) + own.scores(rows_nD, squared_norms(rows_nD))

        return marginals

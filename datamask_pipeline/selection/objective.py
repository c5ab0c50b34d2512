"""The objective: weighted quality and diversity on one scale. Knows no learner, rows or budget.

Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments
from datamask_pipeline.diversity.swap_models import Places, SummedSwaps, SwapModel


@dataclass(frozen=True, kw_only=True)
class Term:
    """One diversity metric with its weight (weights sum to one) and its affine map.

    ``zero`` and ``one`` are the raw values that become 0 and 1.
    """

    name: str
    metric: DiversityMetric
    weight: float
    zero: float = 0.0
    one: float = 1.0

    @property
    def scale(self) -> float:
        """What a raw difference is multiplied by in the diversity part."""
        return self.weight / (self.one - self.zero)

    @property
    def offset(self) -> float:
        """What is added after scaling."""
        return -self.zero * self.scale


@dataclass(frozen=True, kw_only=True)
class ObjectiveFunction:
    """``lamb * mean quality + (1 - lamb) * sum of diversity terms``.

    Attributes:
        lamb: Weight of quality.
        quality_N: float64, already weighted and normalised per document.
        terms: The diversity metrics.
        held_count: Documents that stand beside every mask.
        held_quality: The sum of theirs, on the scale of `quality_N`.
        held_in_part: Whether these are a share of more documents: their number then says nothing of the directions that
            they span.
    """

    lamb: float
    quality_N: Tensor
    terms: tuple[Term, ...]
    held_count: float = 0.0
    held_quality: float = 0.0
    held_in_part: bool = False

    @property
    def moment_terms(self) -> tuple[tuple[Term, MomentMetric], ...] | None:
        """The terms where every metric is one of moments, else none."""
        pairs = tuple((term, term.metric) for term in self.terms if isinstance(term.metric, MomentMetric))
        return pairs if len(pairs) == len(self.terms) else None

    @property
    def needs_second(self) -> bool:
        """Whether any moment metric needs second moments."""
        return any(isinstance(term.metric, MomentMetric) and term.metric.needs_second for term in self.terms)

    def quality(self, mask_N: Tensor) -> float:
        """Mean normalised quality of the selected documents, and of those held."""
        if not self.held_count:
            return float(self.quality_N[mask_N].mean())
        return (float(self.quality_N[mask_N].sum()) + self.held_quality) / self.count(mask_N)

    def count(self, mask_N: Tensor) -> float:
        """Documents selected and held."""
        return float(mask_N.sum()) + self.held_count

    def mean_quality(self, mean: float, count: float) -> float:
        """The mean of the documents held and of others, whose number and mean are given."""
        return (mean * count + self.held_quality) / (count + self.held_count) if self.held_count else mean

    def diversity(self, raw: Mapping[str, float]) -> float:
        """The diversity part from each metric's raw value."""
        return sum(term.scale * raw[term.name] + term.offset for term in self.terms)

    def combine(self, quality: float, diversity: float) -> float:
        """The objective from its two parts."""
        return self.lamb * quality + (1 - self.lamb) * diversity


@dataclass(frozen=True, kw_only=True)
class MomentObjective:
    """The objective where it depends on a mask through its moments and its summed quality.

    Attributes:
        objective: Whose terms are all moment metrics.
        moving_count: Whether masks differ in their number of documents.
    """

    objective: ObjectiveFunction
    moving_count: bool = False

    @property
    def extends(self) -> bool:
        """Whether the number of a mask's documents bounds the directions that they span, so that extensions for fewer
        documents than dimensions are used.
        """
        return not (self.moving_count or self.objective.held_in_part)

    @property
    def _terms(self) -> tuple[tuple[Term, MomentMetric], ...]:
        terms = self.objective.moment_terms
        assert terms is not None, "built for moment metrics only"
        return terms

    @property
    def concave(self) -> bool:
        """Whether the relaxation is concave, so that its linearisation bounds every mask."""
        return all(metric.concave for _, metric in self._terms)

    def gain_of_fewer(self, count: float, least: float) -> float | None:
        """`MomentMetric.gain_of_fewer` of the diversity part, weighted by ``1 - lamb``; none where one metric has none."""
        total = 0.0
        for term, metric in self._terms:
            gain = metric.gain_of_fewer(count, least)
            if gain is None:
                return None
            total += (1 - self.objective.lamb) * term.scale * gain
        return total

    def growth(self, moments: Moments) -> float:
        """`MomentMetric.growth` of the objective: that of its diversity part."""
        return (1 - self.objective.lamb) * sum(
            term.scale * metric.growth(moments) for term, metric in self._terms
        )

    @property
    def spectral(self) -> bool:
        """Whether a value takes an eigendecomposition."""
        return any(metric.spectral for _, metric in self._terms)

    def levels(self, count: float, dim: int) -> bool:
        """Whether a quadratic metric's extension is levelled at so many documents: see `MomentMetric.levelled_below`."""
        return self.extends and any(count < dim < metric.levelled_below for _, metric in self._terms)

    @property
    def quadratic(self) -> bool:
        """Whether second derivatives do not depend on the mask."""
        return all(metric.quadratic for _, metric in self._terms)

    @property
    def exact_exchanges(self) -> bool:
        """Whether `exchange_model` is exact."""
        return all(metric.quadratic or metric.exact_exchanges for _, metric in self._terms)

    def reordered(self, order_N: Tensor) -> Self:
        """The same of the block's documents in another order."""
        function = replace(self.objective, quality_N=self.objective.quality_N[order_N])
        return replace(self, objective=function)

    def raw(self, moments: Moments) -> dict[str, float]:
        """Each metric's value."""
        return {term.name: metric.value(moments) for term, metric in self._terms}

    def value(self, mask_N: Tensor, moments: Moments) -> float:
        """The objective of a binary mask with these moments."""
        return self._combined(mask_N, moments.count, self.raw(moments))

    def value_of_rows(self, mask_N: Tensor, rows_KD: Tensor) -> float | None:
        """The same of a binary mask of these rows, in float64, and of nothing else: by their products with each other.

        None where a metric takes moments.
        """
        products_KK = rows_KD @ rows_KD.T
        raw: dict[str, float] = {}
        for term, metric in self._terms:
            value = metric.value_of_products(products_KK, rows_KD.shape[1])
            if value is None:
                return None
            raw[term.name] = value
        return self._combined(mask_N, len(rows_KD), raw)

    def relaxed_value(self, weights_N: Tensor, moments: Moments) -> float:
        """The objective's extension to a relaxed mask with these moments."""
        return self._combined(weights_N, moments.count, self.relaxed_raw(moments))

    def relaxed_raw(self, moments: Moments) -> dict[str, float]:
        """Each metric's extension to relaxed masks."""
        if not self.extends:
            return self.raw(moments)
        return {term.name: metric.relaxed_value(moments) for term, metric in self._terms}

    def form(self, moments: Moments) -> LinearForm:
        """The derivative of the diversity part at a mask, weighted by ``1 - lamb``."""
        return self._weighted([metric.form(moments) for _, metric in self._terms])

    def relaxed_form(self, moments: Moments) -> LinearForm:
        """The derivative of the diversity part's extension at a relaxed mask, weighted by ``1 - lamb``."""
        if not self.extends:
            return self.form(moments)
        return self._weighted([metric.relaxed_form(moments) for _, metric in self._terms])

    def _combined(self, weights_N: Tensor, count: float, raw: Mapping[str, float]) -> float:
        quality_N = self.objective.quality_N
        total = float(weights_N.to(quality_N.dtype) @ quality_N) + self.objective.held_quality
        quality = total / count
        return self.objective.combine(quality, self.objective.diversity(raw))

    def _weighted(self, raw_forms: list[LinearForm]) -> LinearForm:
        forms = [form.scaled(term.scale) for form, (term, _) in zip(raw_forms, self._terms, strict=True)]
        total = forms[0]
        for other in forms[1:]:
            total = total.plus(other)
        return total.scaled(1 - self.objective.lamb)

    def self_products_N(self, moments: Moments, squared_N: Tensor) -> Tensor:
        """What a document's product with itself is worth, where every metric is quadratic: `MomentMetric.self_products`."""
        total_N = torch.zeros_like(squared_N)
        for term, metric in self._terms:
            total_N += (1 - self.objective.lamb) * term.scale * metric.self_products(moments, squared_N)
        return total_N

    def linear_N(self, count: float) -> Tensor:
        """The derivative of the quality part at a fixed count, what is held among it."""
        return self.objective.quality_N * (self.objective.lamb / count)

    def swap_model(self, moments: Moments, linear_T: Tensor, rows_TD: Tensor) -> SwapModel:
        """What swapping some of these rows does to the objective; the linear part is that of `linear_N`."""
        return self._summed(linear_T, [metric.swap_model(moments, rows_TD) for _, metric in self._terms])

    def exchange_model(self, moments: Moments, rows_ND: Tensor, inside_I: Places | None = None) -> SwapModel:
        """The same for the whole block, exact; `inside_I` is what the mask is made of, where there is nothing else."""
        models = [metric.exchange_model(moments, rows_ND, inside_I) for _, metric in self._terms]
        return self._summed(self.linear_N(moments.count), models)

    def filling_model(self, held: Moments, added: int, rows_ND: Tensor) -> SwapModel:
        """What adding some of these rows does beside what is held, until so many are added."""
        full = replace(held, count=held.count + added)
        inside_I = None if held.count else np.empty(0, np.int64)
        models = [
            metric.exchange_model(held if metric.moving_count else full, rows_ND, inside_I)
            for _, metric in self._terms
        ]
        return self._summed(self.linear_N(full.count), models)

    def _summed(self, linear_T: Tensor, models: list[SwapModel]) -> SwapModel:
        scales = [term.scale * (1 - self.objective.lamb) for term, _ in self._terms]
        return SummedSwaps(linear_T.numpy(), list(zip(scales, models, strict=True)))

    def work(self, num_rows: int, count: float, dim: int) -> float:
        """Numbers that its swap model reads of a block's documents at each move, at a mask of `count`."""
        return max(metric.swap_work(num_rows, count, dim) for _, metric in self._terms)

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor | None:
        """Second derivatives of the objective, shape (T, N), or none where a metric has none."""
        total: Tensor | None = None
        for term, metric in self._terms:
            part_TN = metric.interaction(moments, left_TD, right_ND)
            if part_TN is None:
                return None
            part_TN *= term.scale * (1 - self.objective.lamb)
            total = part_TN if total is None else total + part_TN
        return total

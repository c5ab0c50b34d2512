"""What a policy, or the learner behind it, hands to the engine. Knows no configuration and no report.

Shape suffixes: N documents.

A coverage solver is a function of a `selection.problem.Problem`: the engine calls
``selection.facility.choose.choose_by_coverage(problem, config)`` for policy ``datamask`` and ``greedy_coverage(problem)``
for policy ``greedy``, where the objective has one term and its metric is a `CoverageMetric`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from datamask_pipeline.selection.evaluation import Evaluation
    from datamask_pipeline.selection.graph.cliques import Cliques

TANGENT = "Frank-Wolfe: the concave relaxation's tangent at the relaxed optimum, maximised over all masks"
"""How a relaxed mask gives a bound."""
OF_FULL_MASKS = "over all masks that fill the budget: none that is left out would still fit"
TANGENT_IN_TOKENS = (
    f"Frank-Wolfe: the relaxed optimum's tangent, concave in documents' shares, maximised {OF_FULL_MASKS}"
)
"""The same where documents differ in length."""

ROUNDING = 1e-4
"""Of the distance from random: what float32 rounding may leave a bound below the value of the mask that was found."""
LAST_BITS = 1e-5
"""The same of the size of both, where they are large beside that distance, or of this much."""
LEAST_SIZE = 0.1
CONTRADICTED = (
    "no bound: the mask that was found lies above the one that was computed, by more than float32 rounding"
)

Report = Callable[[dict[str, Any]], None]
"""Called once a step with ``step``, ``num_steps``, ``objective`` (solver's units) and optionally ``bound``."""


def told_bound(bound: float | None, value: float, random: float, method: str) -> tuple[float | None, str]:
    """A bound and its argument as a result tells them: no lower than the mask that was found, whose value is reached.

    One that the mask contradicts by more than rounding is none.
    """
    if bound is None or bound >= value:
        return bound, method
    rounding = ROUNDING * abs(value - random) + LAST_BITS * max(abs(value), abs(bound), LEAST_SIZE)
    return (value, method) if value - bound <= rounding else (None, CONTRADICTED)


@dataclass(kw_only=True)
class Solution:
    """A mask and what its solver learnt on the way."""

    mask_N: Tensor
    """bool, exactly the budget."""
    scores_N: Tensor
    """float64: what orders documents of equal probability (logits, gradient, a ranking), higher is likelier."""
    probabilities_N: Tensor | None = None
    """float64 in [0, 1]: inclusion probability under the policy; none means the mask itself."""
    bound: float | None = None
    method: str = "no bound: the policy gives none"
    tangent_N: Tensor | None = None
    """float64 that sum to the budget: the weights at whose moments the tangent gave the bound, where one did. A relaxed
    mask, or of either sign."""
    dual_N: Tensor | None = None
    """float64, not negative: each document's dual variable as a reference, where these gave the bound."""
    cliques: tuple[Cliques, NDArray[np.float64]] | None = None
    """Cliques of a graph and a slope of each, where these gave the bound."""
    raw: dict[str, float] = field(default_factory=dict)
    """A metric's exact raw value at the mask by its name, where the solver has it with `diversity_N`."""
    diversity_N: Tensor | None = None
    """float64: the metric's own raw marginals at the mask, where the solver has them at hand."""
    evaluation: Evaluation | None = None
    """What the mask is worth, where the solver has measured it."""
    converged: bool | None = None
    """Whether its steps ended before all were used up; none where it takes no steps."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the record should say: iterations, neighbours, landmarks, failure signatures."""

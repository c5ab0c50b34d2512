"""What a policy or a coverage solver hands to the engine. Knows no configuration and no report.

Shape suffixes: N documents.

The problem that every solver of ``selection.coverage`` solves, minimal and already normalised by the engine::

    maximise  sum of linear_N over S  +  weight * metric(S)     subject to  |S| = budget, S within eligible_N

``linear_N`` is float64 (the quality part, divided by the budget); ``weight`` carries lambda and the
normalisation's scale; constants of the affine map are added back by the engine. A solver is called as
``solve(rows, metric, linear_N, weight, budget, eligible_N=..., config=..., report=...)`` and returns a
`Solution` whose ``bound`` is in the same units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Report = Callable[[dict[str, Any]], None]
"""Called once a step with ``step``, ``num_steps``, ``objective`` (solver's units) and optionally ``bound``."""


@dataclass(kw_only=True)
class Solution:
    """A mask and what its solver learnt on the way."""

    mask_N: Tensor
    """bool, exactly the budget."""
    scores_N: Tensor
    """float64: what the mask was cut from (logits, relaxed inclusion plus marginal, a ranking), higher is likelier."""
    probabilities_N: Tensor | None = None
    """float64 in [0, 1]: inclusion probability under the policy; none means the mask itself."""
    bound: float | None = None
    method: str = "no bound: the policy gives none"
    diversity_N: Tensor | None = None
    """float64: the metric's own marginals at the mask, before `weight`, where the solver has them at hand."""
    converged: bool = True
    notes: dict[str, Any] = field(default_factory=dict)
    """What the record should say: iterations, neighbours, landmarks, failure signatures."""

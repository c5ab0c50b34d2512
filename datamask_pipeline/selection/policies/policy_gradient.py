"""The paper's learner as a policy: see ``selection.policy_gradient``. Knows no input format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pydantic

from datamask_pipeline.families import ESTIMATORS
from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.reasons import BY_LOGITS
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class PolicyGradientConfig(Settings):
    """Epochs, batches and learning rates; the estimator's own settings stand beside them."""

    estimator: str = pydantic.Field(
        "group_relative",
        description="Gradient estimator by name: one file of selection/policy_gradient/estimators.",
    )
    num_epochs: int = pydantic.Field(5000, ge=1, description="Epochs.")
    partial: float | None = pydantic.Field(
        None,
        gt=0,
        le=1,
        description="Share of the block drawn as each epoch's batch, in (0, 1]; null is 0.1, or what more it takes for a "
        "batch to select two documents.",
    )
    max_lr: float = pydantic.Field(10.0, gt=0, description="Learning rate of the first epoch.")
    min_lr: float = pydantic.Field(
        1.0, ge=0, description="Learning rate of the last epoch; linear in between."
    )
    init: Literal["same", "quality"] = pydantic.Field(
        "quality", description="First logits: zeros, or the standardised score."
    )
    convergence_epochs: int | None = pydantic.Field(
        None,
        ge=2,
        description="Stop when this many epochs moved the mean reward less than convergence_tolerance.",
    )
    convergence_tolerance: float = pydantic.Field(
        1e-4, gt=0, description="Least change of the normalised mean reward that counts as progress."
    )

    members: ClassVar[Mapping[str, Any]] = {"estimator": ESTIMATORS}

    @pydantic.model_validator(mode="after")
    def _rates_fall(self) -> Self:
        if self.min_lr > self.max_lr:
            raise ValueError(f"min_lr {self.min_lr} is above max_lr {self.max_lr}")
        return self


class PolicyGradientPolicy(SelectionPolicy):
    """The learner with the estimator that the settings name."""

    name = "policy_gradient"
    decision = BY_LOGITS
    knows_given = False  # a batch has no share of what is held
    Config = PolicyGradientConfig
    config: PolicyGradientConfig

    def check(self, problem: Problem) -> None:
        from datamask_pipeline.selection.policy_gradient.choose import check_policy_gradient

        check_policy_gradient(problem, self.config)

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.policy_gradient.choose import choose_by_policy_gradient

        return choose_by_policy_gradient(problem, self.config)


POLICY = PolicyGradientPolicy

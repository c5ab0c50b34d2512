"""What a gradient estimator is. Knows no learning rate, epoch or checkpoint, and loads no torch.

Shape suffixes: N documents of a batch, G masks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from datamask_pipeline.diversity.moments import Moments
    from datamask_pipeline.selection.budget import Budget
    from datamask_pipeline.selection.objective import ObjectiveFunction
    from datamask_pipeline.selection.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A random share of the block with its logits.

    Attributes:
        embeddings_ND: float32 or float64 unit rows.
        logits_N: What is learnt.
        objective: The block's objective, its quality cut to the batch.
        budget: The block's, scaled to the batch.
        held: Moments of documents that stand beside every mask, if there are any.
    """

    embeddings_ND: Tensor
    logits_N: Tensor
    objective: ObjectiveFunction
    budget: Budget
    held: Moments | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A gradient by the batch's logits (float64, shape (N,)) and the rewards it was made from."""

    gradient_N: Tensor
    rewards_G: Tensor


class GradientEstimator(ABC):
    """Estimates the gradient of the expected objective under its own distribution over masks.

    A member is one file of this package with the class as ``ESTIMATOR``. Ours load torch when they estimate, not when
    they are imported, as the asset graph reads their settings.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Settings]] = Settings
    """Its own settings; none unless a member says so. Users write them beside those of the policy."""

    config: Any

    def __init__(self, config: Settings | None = None) -> None:
        self.config = self.Config() if config is None else config

    def check(self, problem: Problem) -> None:
        """Refuse, before any epoch, an objective or a budget that the estimator cannot follow.

        Raises:
            ConfigurationError: naming the setting and what to choose instead.
        """
        del problem

    @abstractmethod
    def estimate(self, batch: Batch, draws: torch.Generator) -> Estimate:
        """The estimate from fresh draws; its expectation is the gradient (times G-1 over G for the group mean)."""

    @abstractmethod
    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        """What one unit of learning rate adds to the batch's logits."""

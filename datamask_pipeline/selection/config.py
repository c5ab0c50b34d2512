"""The settings of one selection. Knows no array: what depends on the data is checked in `selection.inputs`.

One definition for the Python function, the command line and Dagster; importing it loads no torch.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from datamask_pipeline.hardware import resolve_dtype

Budget = Literal["ratio", "num_documents", "num_tokens"]


class SelectionConfig(BaseModel):
    """How a block is selected from: the objective, the budget, the policy and its numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    policy: str = Field("datamask", description="Selection policy by name: one file of selection/policies.")

    # The objective: lamb * quality + (1 - lamb) * diversity.
    lamb: float = Field(0.5, ge=0, le=1, description="Weight of quality against diversity, 0..1.")
    diversity: str | dict[str, float] = Field(
        "Pair_simi", description="A diversity metric by name, or several with their weights."
    )
    diversity_options: dict[str, dict[str, int | float | str | bool]] = Field(
        default_factory=dict,
        description="Options of a metric by the metric's name, e.g. Facility's landmarks.",
    )
    quality_weights: dict[str, float] | None = Field(
        None, description="Weight of each quality score, where several are given; none means equal weights."
    )
    normalisation: Literal["affine", "none"] = Field(
        "affine",
        description="affine: 0 is a uniformly random mask, 1 the best each term reaches alone (a stated proxy "
        "for diversity), so that lamb is free of scale; none: raw values.",
    )
    normalisation_constants: dict[str, tuple[float, float]] | None = Field(
        None, description="Frozen (zero, one) of each term, as an earlier result recorded them."
    )

    # The budget: one of three.
    ratio: float = Field(0.1, gt=0, le=1, description="Selected share of the block's documents, in (0, 1].")
    num_documents: int | None = Field(None, ge=1, description="Budget in documents, instead of ratio.")
    num_tokens: int | None = Field(None, ge=1, description="Budget in tokens, instead of ratio.")
    quotas: dict[str, float] | None = Field(
        None,
        description="Share of the budget for each group (domain or crawl), summing to 1; `*` is every group not named.",
    )
    quality_pruning: float = Field(
        0.0, ge=0, lt=1, description="Share of the block with the worst quality dropped before learning."
    )

    # The learner of the relaxed mask and its refinement (policy datamask).
    num_steps: int = Field(40, ge=1, description="Most gradient steps of the learner on the whole block.")
    gap_tolerance: float = Field(
        0.0005,
        ge=0,
        description="Stop when the certified gap, a share of the distance from random, is below.",
    )
    num_swap_rounds: int = Field(12, ge=0, description="Most rounds of pairwise swaps after rounding.")
    sample_documents: int = Field(
        20_000, ge=256, description="Documents whose statistics warm the learner up in larger blocks."
    )

    # The paper's learner (policy policy_gradient).
    estimator: Literal["group_relative", "counterfactual", "expected"] = Field(
        "group_relative", description="Gradient estimator of policy_gradient."
    )
    num_epochs: int = Field(5000, ge=1, description="Epochs of policy_gradient.")
    partial: float = Field(
        0.1, gt=0, le=1, description="Share of the block drawn as each epoch's batch, in (0, 1]."
    )
    num_rollouts: int = Field(128, ge=1, description="Masks drawn each epoch, G.")
    max_lr: float = Field(10.0, gt=0, description="Learning rate of the first epoch.")
    min_lr: float = Field(1.0, ge=0, description="Learning rate of the last epoch; linear in between.")
    init: Literal["same", "quality"] = Field(
        "quality", description="First logits: zeros, or the standardised score."
    )
    baseline: Literal["group_mean", "leave_one_out"] = Field(
        "group_mean", description="What a reward is compared with; leave_one_out is unbiased."
    )
    log_prob: Literal["product_of_softmax", "plackett_luce"] = Field(
        "product_of_softmax", description="Score function: the paper's, or the exact one of the ordered draw."
    )
    convergence_epochs: int | None = Field(
        None,
        ge=2,
        description="Stop when this many epochs moved the mean reward less than convergence_tolerance.",
    )
    convergence_tolerance: float = Field(
        1e-4, gt=0, description="Least change of the normalised mean reward that counts as progress."
    )

    # The control semdedup.
    num_clusters: int | None = Field(
        None, ge=1, description="Clusters of semdedup; none means the square root of N."
    )

    # Arithmetic.
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of every draw.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Arithmetic of gradients and searches: auto is bfloat16 where the device multiplies it natively, "
        "else float32. Objective, threshold and bound are always float32 products summed in float64.",
    )
    device: str = Field("cpu", description="Where to compute: cpu, or cuda:0 and so on.")
    num_workers: int | None = Field(
        None, ge=1, description="Threads over chunks; none means every core. No result depends on it."
    )
    chunk_rows: int = Field(
        4096, ge=64, description="Rows of one chunk: the unit of work, memory and summation."
    )
    checkpoint_seconds: float = Field(
        60.0, ge=0, description="Seconds between checkpoints, where a folder is given."
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        given = {"ratio", "num_documents", "num_tokens"} & self.model_fields_set
        given = {name for name in given if getattr(self, name) is not None}
        if len(given) > 1:
            raise ValueError(f"one budget, not {len(given)}: {', '.join(sorted(given))}")
        if self.min_lr > self.max_lr:
            raise ValueError(f"min_lr {self.min_lr} is above max_lr {self.max_lr}")
        if self.policy == "policy_gradient" and self.estimator == "group_relative" and self.num_rollouts < 2:
            raise ValueError(
                "num_rollouts = 1 leaves the group_relative estimator nothing to compare; use at least 2"
            )
        if self.quotas is not None:
            if min(self.quotas.values(), default=-1.0) < 0 or abs(sum(self.quotas.values()) - 1) > 1e-6:
                raise ValueError(f"quotas are shares of the budget that sum to 1, not {self.quotas}")
            if self.num_tokens is not None:
                raise ValueError(
                    "quotas are counted in documents; give ratio or num_documents, not num_tokens"
                )
        if isinstance(self.diversity, dict) and (not self.diversity or min(self.diversity.values()) <= 0):
            raise ValueError(
                f"diversity needs at least one metric with a positive weight, not {self.diversity}"
            )
        return self

    @property
    def budget(self) -> Budget:
        """Which of the three budgets stands."""
        if self.num_tokens is not None:
            return "num_tokens"
        return "num_documents" if self.num_documents is not None else "ratio"

    @property
    def arithmetic(self) -> str:
        """What `dtype` is on this device: ``float32`` or ``bfloat16``."""
        return resolve_dtype(self.dtype, self.device)

    @property
    def diversity_weights(self) -> dict[str, float]:
        """The diversity metrics by name with their weights."""
        return {self.diversity: 1.0} if isinstance(self.diversity, str) else dict(self.diversity)

    def record(self) -> dict[str, Any]:
        """Every setting that can change the result: all but the number of threads and the checkpoints' pace."""
        given = self.model_dump(mode="json", exclude={"num_workers", "checkpoint_seconds"})
        return given | {"dtype": self.arithmetic}

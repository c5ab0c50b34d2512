"""The settings of one selection: objective, budget, arithmetic; the policy's own stand beside them.

Knows no array: what depends on the data is checked in `selection.inputs`. One definition for the Python function, the
command line and Dagster; importing it loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from datamask_pipeline.errors import ConfigurationError, suggestion
from datamask_pipeline.families import POLICIES, readers, with_members
from datamask_pipeline.hardware import resolve_dtype
from datamask_pipeline.settings import Settings, execution_field, validated

OTHER_GROUPS = "*"
"""The quota of every group that has none of its own."""

Budget = Literal["ratio", "num_documents", "num_tokens"]


def stated_budget(settings: Mapping[str, Any]) -> str:
    """The one of the three budgets that stands, with its number: a ratio has a default, which nobody reads beside another.

    Args:
        settings: Of a selection, as its manifest has them.
    """
    name = next((each for each in ("num_tokens", "num_documents") if settings.get(each) is not None), "ratio")
    return f"{name} {settings[name]}"


class SelectionConfig(Settings):
    """How a block is selected from: the objective, the budget, the arithmetic, and the policy by name.

    `of` adds the settings of the policy, and of what the policy names: users write all of them side by side.
    """

    members: ClassVar[Mapping[str, Any]] = {"policy": POLICIES}
    one_of: ClassVar[tuple[str, ...]] = ("ratio", "num_documents", "num_tokens")

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

    # The budget: one of three; null is one that is not given.
    ratio: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Selected share of the block's documents, in (0, 1]; of two numbers equally near it the even one.",
    )
    num_documents: int | None = Field(
        None, ge=2, description="Budget in documents, two or more, instead of ratio."
    )
    num_tokens: int | None = Field(None, ge=1, description="Budget in tokens, instead of ratio.")
    quotas: dict[str, float] | None = Field(
        None,
        description="Share of the budget for each group (domain or crawl), summing to 1; `*` is every group not named.",
    )
    outlier_deviations: float | None = Field(
        None,
        gt=0,
        description="Documents that are less like their nearest neighbours than the block's median by more than so many "
        "robust standard deviations are left out before learning; 6 leaves out isotropic noise. Null leaves out none.",
    )
    quality_pruning: float = Field(
        0.0, ge=0, lt=1, description="Share of the block with the worst quality dropped before learning."
    )

    # Arithmetic.
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of every draw.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Arithmetic of gradients and searches: auto is bfloat16 where the device multiplies it natively, "
        "else float32. Objective, threshold and bound are always float32 products summed in float64.",
    )
    device: str = execution_field("cpu", description="Where to compute: cpu, or cuda:0 and so on.")
    num_workers: int | None = execution_field(
        None, ge=1, description="Threads over chunks; none means every core. No result depends on it."
    )
    chunk_rows: int = Field(
        4096,
        ge=64,
        description="Rows of one chunk: the unit of work, memory and summation. Of a block that lies in an accelerator's "
        "memory four times as many.",
    )
    checkpoint_seconds: float = execution_field(
        60.0, ge=0, description="Seconds between checkpoints, where a folder is given."
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value is not None or name not in cls.one_of}

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        given = sorted({*self.one_of} & self.model_fields_set)
        if len(given) > 1:
            raise ValueError(
                f"one budget, not {len(given)}: {', '.join(given)}; leave one of them, set the others to null"
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

    def result_config(self) -> dict[str, Any]:
        """Every setting that can change the mask, the arithmetic as it is on this device."""
        found = super().result_config() | {"dtype": self.arithmetic}
        # Where it is not asked for, selections are what they were before there was such a setting.
        return {name: value for name, value in found.items() if (name, value) != ("outlier_deviations", None)}

    @classmethod
    def of(
        cls, values: Mapping[str, Any], where: str = "", inherited: Mapping[str, str] | None = None
    ) -> Self:
        """The settings with those of the policy beside them.

        Args:
            values: By field name.
            where: Path of these settings in what the user wrote, e.g. ``arms.random``.
            inherited: Path of those that were written elsewhere, by field.

        Raises:
            UnknownNameError: no policy has that name.
            ConfigurationError: a setting is wrong, or nothing reads it.
        """
        model = with_members(cls, values, where)
        for name in values:
            if name not in model.model_fields:
                raise ConfigurationError(_unread(model, name, values, where))
        return validated(model, values, where, inherited)


def _unread(model: type[SelectionConfig], name: str, values: Mapping[str, Any], where: str) -> str:
    policy = values.get("policy", model.model_fields["policy"].default)
    readable = ", ".join(readers(SelectionConfig, name))
    remedy = f"; it is read by: {readable}" if readable else suggestion(name, model.model_fields)
    path = f"{where}.{name}" if where else name
    return f"{path}: neither objective, budget nor policy {policy!r} reads such a setting{remedy}"


def require_fitting_policy(
    config: SelectionConfig,
    policy: Any,
    metrics: Mapping[str, Any],
    where: Callable[[str], str] | None = None,
) -> None:
    """Refuse a budget or metrics that a policy cannot choose by.

    Args:
        config: The settings.
        policy: The policy.
        metrics: The diversity metrics by name.
        where: The path of a setting in what the user wrote.

    Raises:
        ConfigurationError: it is so.
    """

    def at(setting: str) -> str:
        return "" if where is None else f"{where(setting)}: "

    if config.num_tokens is not None and not policy.counts_tokens:
        raise ConfigurationError(
            f"{at('num_tokens')}policy {config.policy!r} counts documents; give ratio or num_documents, not num_tokens"
        )
    if policy.along_graph:
        from datamask_pipeline.diversity.pair_graph import PairGraph

        if [isinstance(metric, PairGraph) for metric in metrics.values()] != [True]:
            raise ConfigurationError(
                f"{at('diversity')}policy {config.policy!r} chooses along a graph: diversity has to be Pair_graph alone, "
                f"not {list(metrics)}"
            )


def require_beside(
    name: str,
    policy: Any,
    metrics: Mapping[str, Any],
    held: str = "what is held",
    where: Callable[[str], str] | None = None,
) -> None:
    """Refuse what cannot choose beside documents that are held.

    Args:
        name: The policy's name.
        policy: The policy, or its class.
        metrics: The diversity metrics, or their classes, by name.
        held: What is held, in words.
        where: The path of a setting in what the user wrote.

    Raises:
        ConfigurationError: a metric or the policy cannot take anything as held.
    """

    def at(setting: str) -> str:
        return "" if where is None else f"{where(setting)}: "

    for metric, found in metrics.items():
        if not hasattr(found, "needs_second"):
            raise ConfigurationError(
                f"{at('diversity')}diversity metric {metric!r} is none of moments, so that sums over {held} tell it "
                "nothing; use Pair_simi, DiSF_uncentred, LogDet, Vendi or DiSF"
            )
    if not policy.knows_given:
        raise ConfigurationError(
            f"{at('policy')}policy {name!r} cannot choose beside {held}; use datamask, greedy, random or quality_topk"
        )

"""The diversity metrics of one selection, however they are named. Knows no metric and no array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.function import FunctionMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.settings import Settings

Metric = str | DiversityMetric | Callable[..., Any]
Diversity = Metric | Mapping[str, float] | Sequence[tuple[Metric, float]]

FORMS = (
    "a metric's name, a DiversityMetric object, a function of embeddings and masks, or several of these with a weight "
    "each"
)


def metrics_of(
    config: SelectionConfig, diversity: Diversity | None = None
) -> list[tuple[DiversityMetric, float]]:
    """The metrics with their weights, those of names in the order of the names.

    Args:
        config: Names, weights and options.
        diversity: Instead of the names: one or several metrics, by name, as objects or as functions.

    Raises:
        UnknownNameError: no metric has that name.
        ConfigurationError: no metric, two of one name, a weight that is not positive, or wrong options.
    """
    pairs = _with_weights(config.diversity_weights if diversity is None else diversity)
    options = config.diversity_options
    METRICS.make_each([name for name, _ in pairs if isinstance(name, str)], options, "diversity_options")
    metrics = [(_metric(one, options), weight) for one, weight in pairs]
    names = {metric.name for metric, _ in metrics}
    if not names or len(names) < len(metrics) or any(not weight > 0 for _, weight in metrics):
        raise ConfigurationError(f"diversity needs different metrics with positive weights, not {pairs}")
    return metrics


def require_range(
    metrics: Sequence[tuple[DiversityMetric, float]], config: SelectionConfig, num_documents: float
) -> None:
    """Refuse metrics that tell no masks of so few documents apart, where they count.

    Args:
        metrics: With their weights.
        config: The settings.
        num_documents: Of a mask, with what is held.

    Raises:
        ConfigurationError: naming the metric and how many documents it needs.
    """
    for metric, _ in metrics:
        if num_documents < metric.least_documents and config.lamb < 1 and config.num_tokens is None:
            raise ConfigurationError(
                f"term {metric.name!r} has no range: rounding alone tells masks of {num_documents:.0f} documents apart; "
                f"select at least {metric.least_documents}, or use another metric"
            )


def _with_weights(given: Any) -> list[tuple[Any, float]]:
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        given = [(given, 1.0)]
    try:
        # Names in one order, as sums of floats follow it and fingerprints do not.
        pairs = sorted(given.items()) if isinstance(given, Mapping) else given
        return [(one, float(weight)) for one, weight in pairs]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"diversity must be {FORMS}, not {given!r:.120}") from error


def _metric(given: Any, options: Mapping[str, Mapping[str, Any]]) -> DiversityMetric:
    if isinstance(given, DiversityMetric):
        return given
    if isinstance(given, str):
        return METRICS.make(given, options.get(given), f"diversity_options.{given}")
    if callable(given) and not isinstance(given, type):
        return FunctionMetric(given)
    raise ConfigurationError(f"diversity must be {FORMS}, not {given!r:.120}")


def made_with(metric: DiversityMetric) -> dict[str, Any]:
    """What a metric was made with: its settings, and what one that somebody built keeps in plain values."""
    kept = {name: value for name, value in vars(metric).items() if isinstance(value, int | float | str)}
    settings = vars(metric).get("config")
    kept |= settings.result_config() if isinstance(settings, Settings) else {}
    return {"class": f"{type(metric).__module__}.{type(metric).__qualname__}", **kept}

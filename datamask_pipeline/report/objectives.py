"""Names the function that each arm's objective is a value of. Knows what selections record; knows no store."""

from collections.abc import Mapping
from typing import Any

#: What the normalised scale means, for every arm whose objective is on it.
AFFINE_SCALE = "0 is the mean of random masks, 1 an estimate of the best of each term alone"


def objective_names(selections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of each arm: its terms with their weights, such as ``0.5 quality + 0.5 DiSF``.

    Two arms have equal names only if their objectives are the same function on the same scale. Where constants of
    the scale differ, as by another pool or budget, the name says whose scale it is.

    Args:
        selections: Metadata of each arm's selection, by arm.
    """
    names: dict[str, str] = {}
    scales: dict[str, Any] = {}
    for arm, metadata in selections.items():
        record = metadata["blocks"][0]["record"]
        name = _terms(record)
        if record["config"]["normalisation"] != "affine":
            name += " (raw units)"
        scale = [block["normalisation"] for block in metadata["blocks"]]
        if scales.setdefault(name, scale) != scale:
            known = [other for other in scales if other.startswith(f"{name} (scale of ")]
            name = next((other for other in known if scales[other] == scale), f"{name} (scale of {arm})")
            scales[name] = scale
        names[arm] = name
    return names


def _terms(record: Mapping[str, Any]) -> str:
    config, metrics = record["config"], record["diversity"]
    total = sum(metrics.values())
    weights = {_quality(config): config["lamb"]}
    for metric, weight in metrics.items():
        options = ", ".join(
            f"{key}={value}" for key, value in config["diversity_options"].get(metric, {}).items()
        )
        weights[f"{metric}({options})" if options else metric] = (1 - config["lamb"]) * weight / total
    used = {name: weight for name, weight in weights.items() if weight}
    if len(used) == 1:
        return next(iter(used))
    return " + ".join(f"{weight:.3g} {name}" for name, weight in used.items())


def _quality(config: Mapping[str, Any]) -> str:
    weights = config["quality_weights"]
    if not weights:
        return "quality"
    return "quality(" + ", ".join(f"{name}={weight:g}" for name, weight in weights.items()) + ")"

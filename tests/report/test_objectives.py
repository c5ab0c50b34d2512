"""Objectives stand side by side only where they are the same function on the same scale."""

from typing import Any

from datamask_pipeline.report.objectives import objective_names


def selection(zero: float = 0.0, **changes: Any) -> dict[str, Any]:
    """What a selection's manifest says."""
    config = {
        "lamb": 0.5,
        "diversity_options": {},
        "quality_weights": None,
        "normalisation": "affine",
    } | changes
    diversity = config.pop("diversity", {"DiSF": 1.0})
    record = {"config": config, "diversity": diversity}
    return {"blocks": [{"record": record, "normalisation": {name: [zero, 1.0] for name in diversity}}]}


def test_a_function_is_named_by_its_terms_and_weights() -> None:
    names = objective_names(
        {
            "one": selection(),
            "two": selection(lamb=0.25),
            "mixed": selection(diversity={"DiSF": 1.0, "Vendi": 3.0}),
            "options": selection(
                diversity={"Facility": 1.0}, diversity_options={"Facility": {"landmarks": 100}}
            ),
            "quality": selection(lamb=1.0),
            "diversity": selection(lamb=0.0),
        }
    )
    assert names == {
        "one": "0.5 quality + 0.5 DiSF",
        "two": "0.25 quality + 0.75 DiSF",
        "mixed": "0.5 quality + 0.125 DiSF + 0.375 Vendi",
        "options": "0.5 quality + 0.5 Facility(landmarks=100)",
        "quality": "quality",
        "diversity": "DiSF",
    }


def test_one_function_on_two_scales_has_two_names() -> None:
    names = objective_names({"one": selection(), "two": selection(), "pruned": selection(zero=0.1)})
    assert names["one"] == names["two"] == "0.5 quality + 0.5 DiSF"
    assert names["pruned"] == "0.5 quality + 0.5 DiSF (scale of pruned)"
    raw = objective_names({"raw": selection(normalisation="none")})
    assert raw == {"raw": "0.5 quality + 0.5 DiSF (raw units)"}

"""What an experiment's report says of a sweep: the recommendation, the choices without any model, the frontier."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from datamask_pipeline.experiment.config import ExperimentConfig
from datamask_pipeline.experiment.judge import LEAST_PAIRS
from datamask_pipeline.experiment.judged import Verdict
from datamask_pipeline.experiment.recommend import on_frontier
from datamask_pipeline.experiment.shown import number, png, signed, table

#: Of the span of all points, in either direction: less than the size of a number.
_NEAR: Final = 0.04


def recommendation(config: ExperimentConfig, verdict: Verdict) -> str:
    """What the sweep recommends, in one paragraph."""
    found = verdict.recommendation
    assert found is not None
    assert config.grid is not None
    reference = config.grid.reference
    how = (
        f"Chosen out of {found.num_arms} on half of the pairs of draws and half of the questions ({found.there:+.4f} from "
        f"{reference} there, which is too good), judged on the other {found.num_pairs} pairs and {found.num_questions:,} "
        f"questions; those would have chosen {found.other_way}"
    )
    if found.num_pairs < LEAST_PAIRS:
        how += (
            f"; so few pairs that the interval is itself a guess: give `redraws` at least {4 * LEAST_PAIRS}"
        )
    less = f"{signed(found.less_reference)} bits per byte less {reference}"
    random = f"{signed(found.less_baseline)} less {config.baseline}"
    figures = f"{less}, detectable {number(found.less_reference.detectable)}; {random}"
    if not verdict.has_power:
        return f"NO POWER: nothing is recommended; {number(found.less_reference.detectable)} would be detectable. {how}."
    if found.best == reference:
        return f"No difference seen: the best of the sweep is {reference} itself, {random}. {how}."
    if found.is_better:
        return f"Recommended: {found.best}. {figures}. {how}."
    if found.less_reference.is_clear:
        return f"Not recommended: {found.best} looked best, and is worse than {reference}. {figures}. {how}."
    return f"No difference seen: {found.best} looked best, and is not clearly better than {reference}. {figures}. {how}."


def frontier(config: ExperimentConfig, verdict: Verdict) -> list[str]:
    """Arms of the sweep that no other one of it beats in both quality and coverage."""
    assert config.grid is not None
    terms = {
        name: (verdict.measures[name]["quality_rank"], verdict.measures[name]["coverage"])
        for name in config.grid.arms()
    }
    return on_frontier(terms)


def sweep(config: ExperimentConfig, verdict: Verdict) -> Iterable[str]:
    """The recommendation, then what the choices are without any model, best right answers first."""
    yield f"**{recommendation(config, verdict)}**"
    yield ""
    yield (
        "What was chosen, means over all draws. *Quality*: mean rank by quality in the half, 0 to 1, all scorers weighing "
        "the same whatever the arm's weights. *Coverage*: mean over its documents of the cosine to the nearest chosen one. "
        "*Likeness*: mean cosine of two chosen ones. *On the frontier*: no other arm of the sweep has as much quality and "
        "as much coverage, and more of either (-: is none of the sweep). "
        + (
            "Right answers are those of the table above: the first row is the best of many, and so better than it would be "
            "again "
            if verdict.has_power
            else "Arms by name "
        )
        + f"(`{config.name}_sweep.png`)."
    )
    yield ""
    few = frontier(config, verdict)
    assert config.grid is not None
    standing = {name: "yes" if name in few else "" for name in config.grid.arms()}
    header = [
        "arm",
        "on the frontier",
        "quality",
        "coverage",
        "likeness",
        "near-copies",
        "domains",
        "median length",
    ]
    rows = []
    best_first = sorted(verdict.measures, key=lambda arm: verdict.arms[arm]["gold_answers"])
    for name in best_first if verdict.has_power else sorted(verdict.measures):
        mine, about = verdict.measures[name], verdict.arms[name]
        terms = [f"{mine[term]:.4f}" for term in ("quality_rank", "coverage", "similarity")]
        less = signed(verdict.against_baseline[name]) if name in verdict.against_baseline else ""
        counts = [f"{mine['near_copies']:.1%}", f"{mine['domains']:,.0f}", f"{about['length_median']:,.0f}"]
        rows.append([name, standing.get(name, "-"), *terms, *counts, *([less] if verdict.has_power else [])])
    yield from table(header + [f"right answers less {config.baseline}"] * verdict.has_power, rows)
    yield ""


def plot_of_sweep(config: ExperimentConfig, verdicts: Mapping[str, Verdict]) -> bytes:
    """Quality against coverage of each arm, coloured by bits; the frontier as a line, pools side by side.

    Points have numbers, whose names stand beside the panels. Of a pool without power no bits are shown: arms would be ranked
    by their colours.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(name for verdict in verdicts.values() for name in verdict.measures))
    height = max(4.2, 0.15 * len(names) + 0.4)
    figure: Any = Figure(figsize=(4.6 * len(verdicts) + 2.2, height), layout="constrained")
    panels = figure.subplots(1, len(verdicts), squeeze=False)[0]
    for axes, (pool, verdict) in zip(panels, verdicts.items(), strict=True):
        places = {name: (mine["quality_rank"], mine["coverage"]) for name, mine in verdict.measures.items()}
        bits = [verdict.arms[name]["gold_answers"] for name in places]
        few = sorted(places[name] for name in frontier(config, verdict))
        axes.plot(*zip(*few, strict=True), color="0.7", linewidth=0.8)
        colours = bits if verdict.has_power else "0.4"
        points = axes.scatter(*zip(*places.values(), strict=True), c=colours, s=24, zorder=2)
        for label, place in labels({names.index(name) + 1: place for name, place in places.items()}).items():
            axes.annotate(label, place, fontsize=7, xytext=(4, 3), textcoords="offset points")
        axes.set_title(f"pool {pool}{'' if verdict.has_power else ', NO POWER'}", fontsize=9)
        axes.set_xlabel("mean rank by quality", fontsize=8)
        axes.set_ylabel("coverage of the half", fontsize=8)
        axes.tick_params(labelsize=8)
        if verdict.has_power:
            figure.colorbar(points, ax=axes, label="bits per byte of right answers")
    figure.legend(
        [Line2D([], [], linestyle="none")] * len(names),
        [f"{place}  {name}" for place, name in enumerate(names, 1)],
        loc="outside right center",
        fontsize=7,
        handlelength=0,
        handletextpad=0,
        frameon=False,
    )
    return png(figure)


def labels(places: Mapping[int, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Where numbers are written: of points whose numbers would lie over each other all at the first of them."""
    spans = [max(values) - min(values) for values in zip(*places.values(), strict=True)]
    together: dict[int, list[int]] = {}
    for mine, place in places.items():
        first = next((one for one in together if _are_near(places[one], place, spans)), mine)
        together.setdefault(first, []).append(mine)
    return {", ".join(map(str, numbers)): places[first] for first, numbers in together.items()}


def _are_near(one: tuple[float, float], other: tuple[float, float], spans: Iterable[float]) -> bool:
    return all(abs(a - b) <= _NEAR * span for a, b, span in zip(one, other, spans, strict=True))

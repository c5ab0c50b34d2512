"""What a report tells of networks along their training: a table and a plot. Knows verdicts; knows no record."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from datamask_pipeline.experiment.config import ExperimentConfig
from datamask_pipeline.experiment.judge import Difference
from datamask_pipeline.experiment.judged import Verdict
from datamask_pipeline.experiment.proxy import num_final
from datamask_pipeline.experiment.shown import draw_differences, png, signed, table, told_hollow
from datamask_pipeline.report.plots import markers


def curve(config: ExperimentConfig, verdict: Verdict) -> Iterable[str]:
    """Right answers at every checkpoint, arms below each other; then curated documents, where some were asked."""
    baseline = config.baseline
    held_out = ", ".join(f"{point.held_out[baseline]:.4f}" for point in verdict.curve)
    number = num_final([point.tokens for point in verdict.curve])
    above = "last column is what" if number == 1 else f"mean of the last {number} columns is what"
    what = f"each arm less {baseline}, of {baseline} itself the" if verdict.has_power else "each arm's"
    yield (
        f"Along the training, right answers: {what} bits per byte, after so many tokens, those read again counted "
        f"again. The {above} stands above. On held-out documents the "
        f"networks of {baseline} need {held_out}, its trigram models {verdict.arms[baseline]['trigram_held_out']:.4f}."
    )
    yield ""
    yield from _table(
        config,
        verdict,
        [point.gold_answers for point in verdict.curve],
        [point.against_baseline for point in verdict.curve],
        [point.contrast for point in verdict.curve],
    )
    contrasts = [point.curated_contrast for point in verdict.curve if point.curated_contrast is not None]
    if contrasts:
        yield "The same on curated documents, which are no benchmark and in no mean over benchmarks."
        yield ""
        yield from _table(
            config,
            verdict,
            [point.curated for point in verdict.curve],
            [point.curated_against_baseline for point in verdict.curve],
            contrasts,
        )


def _table(
    config: ExperimentConfig,
    verdict: Verdict,
    bits: Sequence[Mapping[str, float]],
    against: Sequence[Mapping[str, Difference]],
    contrasts: Sequence[Difference],
) -> Iterable[str]:
    """One line an arm, one column a checkpoint: the baseline's bits per byte, the others' differences from it; where
    nothing is ranked, everybody's bits per byte.
    """
    (first, second), baseline = config.contrast, config.baseline
    rows = [
        [name, *(f"{of[name]:.4f}" for of in bits)]
        if name == baseline or not verdict.has_power
        else [name, *(signed(of[name]) for of in against)]
        for name in [baseline, *(name for name in config.arms if name != baseline)]
    ]
    if verdict.has_power:
        rows.append([f"{first} less {second}", *(signed(one) for one in contrasts)])
    yield from table(["arm", *(f"{point.tokens:,} tokens" for point in verdict.curve)], rows)
    yield ""


def plot_of_curve(config: ExperimentConfig, verdicts: Mapping[str, Verdict]) -> bytes | None:
    """Each arm less the baseline over tokens seen, with its interval, pools side by side; those where anything is ranked.

    ``None``: no pool has networks, or in none of these is anything ranked.
    """
    from matplotlib.figure import Figure

    ranked = {pool: verdict for pool, verdict in verdicts.items() if verdict.curve and verdict.has_power}
    if not ranked:
        return None
    figure: Any = Figure(figsize=(4.5 * len(ranked) + 2.5, 3.4), layout="constrained")
    panels = figure.subplots(1, len(ranked), sharey=True, squeeze=False)[0]
    names = [name for name in config.arms if name != config.baseline]
    shapes = markers(names)
    for axes, (pool, verdict) in zip(panels, ranked.items(), strict=True):
        axes.set_title(f"pool {pool}", fontsize=9)
        axes.axhline(0.0, color="0.7", linewidth=0.8)
        # A little beside each other, so that intervals at one checkpoint can be told apart, and far from the next one's.
        seen = [point.tokens for point in verdict.curve]
        width = min([seen[-1] * 0.02, *((after - at) * 0.6 / len(names) for at, after in pairwise(seen))])
        for place, name in enumerate(names):
            found = [point.against_baseline[name] for point in verdict.curve]
            aside = width * (place - (len(names) - 1) / 2)
            draw_differences(
                axes,
                [tokens + aside for tokens in seen],
                found,
                upright=True,
                fmt=f"{shapes[name]}-",
                markersize=3,
                linewidth=1,
                capsize=2,
                label=name,
            )
        every = [one for point in verdict.curve for one in point.against_baseline.values()]
        axes.set_xlabel(f"tokens read{told_hollow(every)}", fontsize=8)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel(
        f"bits per byte of right answers\nless {config.baseline}; lower is better", fontsize=8
    )
    panels[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return png(figure)

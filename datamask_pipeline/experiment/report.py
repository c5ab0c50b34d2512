"""An experiment's report: Markdown tables and a plot, of aggregates alone. Knows verdicts; knows no record."""

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datamask_pipeline.errors import StorageError
from datamask_pipeline.experiment.config import ExperimentConfig
from datamask_pipeline.experiment.judge import LEAST_RANDOM, LEVEL, POWER, Coverage
from datamask_pipeline.experiment.judged import Verdict
from datamask_pipeline.experiment.planted import KINDS, PlantConfig
from datamask_pipeline.experiment.report_curve import curve, plot_of_curve
from datamask_pipeline.experiment.report_sweep import plot_of_sweep, sweep
from datamask_pipeline.experiment.shown import draw_differences, number, png, signed, table, told_hollow
from datamask_pipeline.printable import markdown_text
from datamask_pipeline.report.signal import without_signal
from datamask_pipeline.schema import CURATED, HELD_OUT

#: Smaller probabilities are not told apart: they are tails of a distribution that is known less well than that.
_LEAST_P = 1e-4
#: Questions of a task below which they are too few for the interval's level.
FEW_ITEMS = 20


def write_report(folder: Path, config: ExperimentConfig, verdicts: Mapping[str, Verdict]) -> list[Path]:
    """Write ``<experiment>.md`` and ``<experiment>.png`` into a folder.

    Beside them of a sweep ``<experiment>_sweep.png``, of networks ``<experiment>_curve.png``. Where no pool has power there
    is no plot of differences; one that an earlier report left is removed, as it is not this one's.

    Raises:
        StorageError: the disk is full or the file system refuses.
    """
    text = markdown(config, verdicts)
    plots = {"": plot(config, verdicts), "_curve": plot_of_curve(config, verdicts)}
    if config.grid is not None:
        plots["_sweep"] = plot_of_sweep(config, verdicts)
    files = {f"{config.name}.md": text.encode()}
    files |= {f"{config.name}{name}.png": drawn for name, drawn in plots.items() if drawn is not None}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in plots:
            (folder / f"{config.name}{name}.png").unlink(missing_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise StorageError(
            f"the report cannot be written to {folder}: {error}; make room, or name another folder: what was measured stays"
        ) from error
    return [folder / name for name in files]


def markdown(config: ExperimentConfig, verdicts: Mapping[str, Verdict]) -> str:
    """The report as Markdown."""
    lines = [
        f"Question, as the experiment's file states it: *{markdown_text(config.question)}*",
        "",
        f"Main metric: bits per byte of right answers by {_by(config, verdicts)}, the mean over the benchmarks; lower is "
        f"better. {config.redraws} draws in {config.redraws // 2} pairs of halves without a common document; every arm "
        f"learns from {config.ratio:.0%} of its half's tokens, all from equally many. Seed {config.seed}. Intervals of "
        f"{LEVEL:.0%} cover other cuts into halves and other questions, by Student's quantile for so few pairs; "
        f"*detectable* is the difference that would be found with a probability of {POWER:.0%}. They speak for "
        "this collection.",
    ]
    for line in dict.fromkeys(verdict.measured_on for verdict in verdicts.values()):
        lines += ["", f"Collection: {line}."]
    for pool, verdict in verdicts.items():
        lines += ["", f"### Pool `{pool}`", "", *_pool(config, pool, verdict)]
    return "\n".join(lines) + "\n"


def _by(config: ExperimentConfig, pools: Collection[str]) -> str:
    named = {_model(config, pool) for pool in pools}
    return named.pop() if len(named) == 1 else "the model that stands with each pool"


def _model(config: ExperimentConfig, pool: str) -> str:
    proxy = config.proxy_of(pool)
    if proxy is None:
        return "a trigram model"
    model = proxy.architecture
    often = "once" if proxy.epochs == 1 else f"{proxy.epochs} times"
    return (
        f"a network ({model.architecture}, {model.block_parameters:,} parameters without the vocabulary's) that reads its "
        f"arm's tokens {often}, its seed drawn anew with the documents"
    )


def conclusion(config: ExperimentConfig, verdict: Verdict) -> str:
    """The answer in one sentence."""
    first, second = config.contrast
    found = verdict.contrast
    if math.isnan(found.half_width):
        how = "not differ at all" if found.difference == 0 else "differ by the same in every pair of halves"
        return f"No answer: {first} and {second} do {how}, so there is no interval."
    figures = f"{signed(found)} bits per byte, detectable {found.detectable:.4f}"
    if not verdict.has_power:
        return (
            f"NO POWER: {'; '.join(verdict.no_power)}. Nothing is ranked. Of {first} less {second}, {found.detectable:.4f} "
            "bits per byte would be detectable."
        )
    if not found.is_clear:
        return f"No difference seen between {first} and {second}: {figures}."
    return f"{first} is {'better' if found.difference < 0 else 'worse'} than {second}: {figures}."


def _pool(config: ExperimentConfig, pool: str, verdict: Verdict) -> Iterable[str]:
    first, second = config.contrast
    questions = sum(number for task, number in verdict.items.items() if task in verdict.per_task)
    cut = config.pools[pool].first_tokens
    what = (
        "documents as they are"
        if cut is None
        else f"the first {cut} tokens of every longer document: equal lengths"
    )
    yield (
        f"{verdict.pool_documents:,} documents, {what}. {questions:,} questions of {len(verdict.per_task)} benchmarks, "
        f"{verdict.items[HELD_OUT]:,} held-out documents"
        + (f", {verdict.items[CURATED]:,} curated documents." if CURATED in verdict.items else ".")
    )
    if _model(config, pool) != _by(config, config.pools):
        yield ""
        yield f"Asked: {_model(config, pool)}."
    yield ""
    yield f"**{conclusion(config, verdict)}**"
    yield ""
    if not verdict.has_power:
        yield (
            "- Bits per byte of each arm stand below to show what was measured. Do not subtract them: without power nothing "
            "says how much of such a difference is chance, and one above *detectable* is no finding."
        )
    if verdict.largest_mover is not None and verdict.has_power:
        mover, without = verdict.largest_mover
        yield f"- Without {mover}, which differs most: {signed(without)}."
    if verdict.curve:
        networks, trigrams = (
            np.mean([about[name] for about in verdict.arms.values()])
            for name in ("held_out", "trigram_held_out")
        )
        yield (
            f"- The gate: on held-out documents networks need {networks:.4f} bits per byte, trigram models of the same "
            f"tokens {trigrams:.4f}, each the mean over arms."
        )
    yield f"- Random against random: {_controls(config, verdict.coverage)}."
    for line in verdict.not_held_against:
        yield f"- {line[0].upper()}{line[1:]}."
    if any(arm.shuffled_share for arm in config.arms.values()):
        dose = verdict.smallest_dose
        seen = "none of the doses is found" if dose is None else f"found from {dose:.0%} of the documents on"
        yield f"- Documents with shuffled words: {seen} (each dose by its own interval, not corrected for their number)."
    if verdict.has_power:
        yield (
            "- Intervals are not corrected for their number, those in plots neither; *p, corrected* is, over the arms, on "
            "right answers. Random against random was tried on these alone."
        )
    if verdict.cut:
        each = ", ".join(
            f"{task} {number:,} of {verdict.items[task]:,}" for task, number in verdict.cut.items()
        )
        yield f"- Longer than the networks' sequences, so asked without the beginning of their prompts: {each}."
    for name, found in verdict.outside.items():
        yield (
            f"- Arm {name} was chosen elsewhere: of its {found['rows']:,} rows {found['documents']:,} are documents of this "
            "pool; of them it learns those in the half, at random, up to the tokens of all arms."
        )
    yield ""
    less = f"less {config.baseline}"
    header = ["arm", "documents", "tokens", "length: median (tenth to ninetieth)", "right answers"]
    header += [less, "detectable", "p, corrected"] if verdict.has_power else []
    header += ["held-out documents", *([less] if verdict.has_power else [])]
    if verdict.curated:
        header += ["curated documents", *([less] if verdict.has_power else [])]
    yield from table(header, [_arm_row(name, verdict) for name in verdict.arms])
    yield ""
    if verdict.recommendation is not None:
        yield from sweep(config, verdict)
    if verdict.curve:
        yield from curve(config, verdict)
    if verdict.planted:
        yield from _planted(config, config.pools[pool].planted, verdict)
    yield f"{first} less {second}, by benchmark:" if verdict.has_power else "What was asked, by benchmark:"
    yield ""
    weak = {task: why for task in verdict.per_task if (why := without_signal(task)) is not None}
    rows = [
        [
            f"{task} \\*" if task in weak else task,
            f"{verdict.items[task]:,}",
            *([signed(one)] if verdict.has_power else []),
            number(one.detectable),
        ]
        for task, one in verdict.per_task.items()
    ]
    header = ["benchmark", "questions", *(["difference"] if verdict.has_power else []), "detectable"]
    yield from table(header, rows)
    if verdict.has_power:
        yield ""
        yield f"{len(rows)} intervals of 95 % each: about one in twenty leaves 0 out by luck alone."
    if few := [task for task in verdict.per_task if verdict.items[task] < FEW_ITEMS]:
        yield ""
        yield (
            f"Of fewer than {FEW_ITEMS} questions intervals hold the truth less often than they say: {', '.join(few)}."
        )
    if weak:
        yield ""
        yield "\\* no signal below 1 B parameters, by its own metric: " + "; ".join(
            f"on {task} {why}" for task, why in weak.items()
        )


def _planted(config: ExperimentConfig, planting: PlantConfig | None, verdict: Verdict) -> Iterable[str]:
    assert planting is not None
    kinds = {kind: kind.replace("_", "-") for kind in KINDS}
    yield (
        f"Planted: {planting.copies} near-copies of each of {planting.good_documents} documents out of the best "
        f"{planting.good_share:.0%} by quality, {planting.boilerplate} documents of boilerplate, {planting.junk} of junk. "
        "*Precision*: share of the arm's documents; *recall*: share of what its half holds. Of good contents each counts "
        "once, whether itself or a near-copy was chosen; *times*: documents chosen of each."
    )
    yield ""
    header = ["arm", "good contents: precision", "recall", "times"]
    for kind in kinds.values():
        header += [f"{kind}: precision", "recall"]
    names = ["precision_good", "recall_good", "times_good"]
    names += [f"{what}_{kind}" for kind in KINDS for what in ("precision", "recall")]
    rows = []
    for arm in config.arms:
        figures = verdict.planted[arm]
        rows.append([arm, *(_figure(*figures[name], name == "times_good") for name in names)])
    yield from table(header, rows)
    yield ""


def _figure(mean: float, half_width: float, is_count: bool) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.2f} ± {half_width:.2f}" if is_count else f"{mean:.1%} ± {half_width:.1%}"


def _controls(config: ExperimentConfig, coverage: Coverage) -> str:
    """What the random arms and subsets say of the instrument."""
    if coverage.pairs == 1:
        few = f"; {config.num_random} random subsets a draw are too few to count" if config.num_random else ""
        holds = "holds 0" if coverage.held else "does NOT hold 0"
        return (
            f"the interval of {config.again} less {config.baseline} {holds}, one trial, which says little of how often "
            f"intervals do (`num_random` at least {LEAST_RANDOM} would){few}"
        )
    if coverage.is_right:
        right = f"within binomial error of {LEVEL:.0%}"
    elif coverage.is_sound:
        right = f"above binomial error of {LEVEL:.0%}, so that intervals are rather too wide"
    else:
        right = f"BELOW binomial error of {LEVEL:.0%}"
    return (
        f"{coverage.held} of {coverage.pairs} intervals hold 0 ({coverage.share:.1%}), {right} (± {coverage.error:.1%}); "
        f"pairs of only {config.num_random} random subsets a draw, so fewer independent trials than that"
    )


def _arm_row(name: str, verdict: Verdict) -> list[str]:
    about = verdict.arms[name]
    lengths = (
        f"{about['length_median']:,.0f} ({about['length_tenth']:,.0f} to {about['length_ninetieth']:,.0f})"
    )
    row = [
        name,
        f"{about['documents']:,.0f}",
        f"{about['tokens']:,.0f}",
        lengths,
        f"{about['gold_answers']:.4f}",
    ]
    one = verdict.against_baseline.get(name)
    if verdict.has_power:
        p = verdict.corrected.get(name)
        corrected = "-" if p is None else f"< {_LEAST_P:g}" if p < _LEAST_P else f"{p:.2g}"
        row += ["", "", ""] if one is None else [signed(one), number(one.detectable), corrected]
    for what, against in (("held_out", verdict.held_out), ("curated", verdict.curated)):
        if against:
            row.append(f"{about[what]:.4f}")
            if verdict.has_power:
                row.append(signed(against[name]) if name in against else "")
    return row


def plot(config: ExperimentConfig, verdicts: Mapping[str, Verdict]) -> bytes | None:
    """Each arm less the baseline with its interval, pools side by side; ``None``: in no pool is anything ranked."""
    from matplotlib.figure import Figure

    ranked = {pool: verdict for pool, verdict in verdicts.items() if verdict.has_power}
    if not ranked:
        return None
    names = [name for name in config.arms if name != config.baseline]
    figure: Any = Figure(figsize=(4.5 * len(ranked) + 1.5, 0.32 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(ranked), sharey=True, squeeze=False)[0]
    for axes, (pool, verdict) in zip(panels, ranked.items(), strict=True):
        axes.set_title(f"pool {pool}", fontsize=9)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        found = [verdict.against_baseline[name] for name in names]
        axes.axvline(0.0, color="0.7", linewidth=0.8)
        draw_differences(
            axes, range(len(names)), found, upright=False, fmt="o", color="C0", markersize=4, capsize=2
        )
        about = f"bits per byte of right answers\nless {config.baseline}; lower is better{told_hollow(found)}"
        axes.set_xlabel(about, fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
    panels[0].invert_yaxis()
    return png(figure)

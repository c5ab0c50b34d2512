"""An experiment's verdict out of its draws: comparisons, positive controls, random against random. Aggregates only."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.experiment.config import ExperimentConfig
from datamask_pipeline.experiment.judge import (
    LEAST_PAIRS,
    LEAST_RANDOM,
    Bootstrap,
    Coverage,
    Difference,
    again_coverage,
    benchmarks_of,
    mean_over_pairs,
    random_coverage,
    smallest_dose,
    without_largest_mover,
)
from datamask_pipeline.experiment.measured_on import measured_on
from datamask_pipeline.experiment.recommend import Recommendation, recommend
from datamask_pipeline.experiment.redraw import BITS, BYTES, CURVE, RANDOM
from datamask_pipeline.intervals import holm
from datamask_pipeline.pipeline.held_against import was_not_held_against
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.schema import CURATED, HELD_OUT
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.changes import current_manifest

NUM_RANDOM_PAIRS = 400


@dataclass(frozen=True)
class CurvePoint:
    """What networks knew at one checkpoint of their training.

    Attributes:
        tokens: Tokens they had read, those read again counted again.
        gold_answers: Of each arm, bits per byte of right answers, the mean over benchmarks and draws.
        held_out: Of each arm, bits per byte of held-out documents.
        curated: Of each arm, those of curated documents; empty where none were asked.
        against_baseline: Each other arm less the baseline, on right answers.
        curated_against_baseline: The same on curated documents; empty where none were asked.
        contrast: The difference that answers the question.
        curated_contrast: The same on curated documents; ``None``: none were asked.
    """

    tokens: int
    gold_answers: Mapping[str, float]
    held_out: Mapping[str, float]
    curated: Mapping[str, float]
    against_baseline: Mapping[str, Difference]
    curated_against_baseline: Mapping[str, Difference]
    contrast: Difference
    curated_contrast: Difference | None


@dataclass(frozen=True)
class Verdict:
    """What one pool's draws say.

    Attributes:
        arms: Of each arm: ``documents, tokens``, its lengths' quantiles, bits per byte ``gold_answers`` and ``held_out``,
            ``trigram_held_out`` by the trigram model of the same tokens, and ``curated`` where such documents were asked.
        against_baseline: Each other arm less the baseline, on right answers.
        corrected: Their probabilities, corrected for their number; without those that have none.
        held_out: Each other arm less the baseline, on held-out documents.
        curated: The same on curated documents; empty where none were asked.
        contrast: The difference that answers the question.
        per_task: The same for each benchmark.
        largest_mover: The benchmark that differs most, and the difference without it; ``None``: there is only one.
        coverage: Random against random.
        smallest_dose: Of shuffled documents, from which on all were found; ``None``: none.
        below_gate: Arms whose networks predict held-out documents no better than trigram models; empty without networks.
        no_power: Why nothing may be ranked: an arm below the gate, too few pairs of draws, no dose found, random told from
            random too often; empty: the instrument is sound.
        items: Questions of each benchmark, held-out documents, and curated ones where there are some.
        pool_documents: Documents of the pool; every draw has half of them.
        planted: What of the planted documents each arm chose, by arm and by the figure's name as `found_of` has them: mean
            over draws, and half of its 95 % interval over pairs of draws; empty where nothing was planted.
        measures: What `measured` says of each arm's choice, means over draws; empty where nothing was swept.
        recommendation: The best arm of a sweep, judged apart; ``None``: nothing was swept.
        outside: Of each subset that somebody else chose its `rows`, and how many `documents` of the pool they are.
        cut: Of each benchmark the questions that networks are asked without the beginning of their prompts; empty without
            networks.
        not_held_against: Lines of warning where documents were not held against the curated ones.
        measured_on: Collection, scorers, encoder and prompts, in one line of Markdown.
        curve: The same comparisons at each checkpoint; all else speaks of the mean of the last ones. Empty without networks.
    """

    arms: Mapping[str, Mapping[str, float]]
    against_baseline: Mapping[str, Difference]
    corrected: Mapping[str, float]
    held_out: Mapping[str, Difference]
    curated: Mapping[str, Difference]
    contrast: Difference
    per_task: Mapping[str, Difference]
    largest_mover: tuple[str, Difference] | None
    coverage: Coverage
    smallest_dose: float | None
    below_gate: tuple[str, ...]
    no_power: tuple[str, ...]
    items: Mapping[str, int]
    pool_documents: int
    planted: Mapping[str, Mapping[str, tuple[float, float]]]
    measures: Mapping[str, Mapping[str, float]]
    recommendation: Recommendation | None
    outside: Mapping[str, Mapping[str, int]]
    cut: Mapping[str, int]
    not_held_against: Sequence[str]
    measured_on: str
    curve: Sequence[CurvePoint]

    @property
    def has_power(self) -> bool:
        """Whether arms may be ranked."""
        return not self.no_power


def judge(config: ExperimentConfig, store: Store, draws: Sequence[Ref]) -> Verdict:
    """Judge one pool's draws, which are all there are, in their order."""
    drawn = store.manifest(draws[0])
    has_networks = config.proxy_of(drawn["metadata"]["pool"]) is not None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bits_RAI = np.stack(
            [
                np.load(store.local_copy(ref, BITS, folder / ref.fingerprint))[_places_of(config, store, ref)]
                for ref in draws
            ]
        )
        bytes_I = np.load(store.local_copy(draws[0], BYTES, folder / draws[0].fingerprint))
    randoms = _randoms(config)
    items = _items_in_order(store, draws[0])
    bootstrap = Bootstrap.of([*config.arms, *randoms], bits_RAI, bytes_I, items, seed=config.seed)
    tasks = benchmarks_of(bootstrap)
    others = [name for name in config.arms if name != config.baseline]
    against = {name: bootstrap.difference(name, config.baseline, tasks) for name in others}
    doses = {
        config.arms[name].shuffled_share: one for name, one in against.items() if config.arms[name].is_control
    }
    coverage = (
        random_coverage(bootstrap, randoms, num_pairs=NUM_RANDOM_PAIRS, seed=config.seed)
        if len(randoms) >= LEAST_RANDOM
        else again_coverage(against[config.again])
    )
    found = smallest_dose(doses)
    arms = _about_arms(config, store, draws, bootstrap)
    below_gate: tuple[str, ...] = ()
    if has_networks:
        below_gate = tuple(
            name for name, about in arms.items() if about["held_out"] >= about["trigram_held_out"]
        )
    tested = [name for name, one in against.items() if not math.isnan(one.p)]
    return Verdict(
        arms=arms,
        against_baseline=against,
        corrected=dict(zip(tested, holm([against[name].p for name in tested]), strict=True)),
        held_out={name: bootstrap.difference(name, config.baseline, [HELD_OUT]) for name in others},
        curated=_on_curated(bootstrap, others, config.baseline),
        contrast=bootstrap.difference(*config.contrast, tasks),
        per_task={task: bootstrap.difference(*config.contrast, [task]) for task in sorted(tasks)},
        largest_mover=without_largest_mover(bootstrap, *config.contrast),
        coverage=coverage,
        smallest_dose=found,
        below_gate=below_gate,
        no_power=tuple(_no_power(config, below_gate, found, coverage)),
        items=items,
        pool_documents=drawn["metadata"]["pool_documents"],
        planted=_planted([store.manifest(ref)["metadata"].get("planted", {}) for ref in draws]),
        measures=_means([store.manifest(ref)["metadata"].get("measures", {}) for ref in draws]),
        recommendation=None
        if config.grid is None
        else recommend(
            list(config.arms),
            list(config.grid.arms()),
            config.grid.reference,
            config.baseline,
            bits_RAI,
            bytes_I,
            items,
            seed=config.seed,
        ),
        outside=drawn["metadata"].get("outside", {}),
        cut=drawn["metadata"].get("cut", {}),
        not_held_against=_not_held_against(store, drawn) if CURATED in items else (),
        measured_on=measured_on(store, drawn),
        curve=_curve(config, store, draws, bytes_I, items) if has_networks else (),
    )


def no_power_by_file(config: ExperimentConfig) -> Iterator[str]:
    """Why nothing may be ranked whatever is measured, reason by reason."""
    if (num_pairs := config.redraws // 2) < LEAST_PAIRS:
        yield (
            f"intervals over {num_pairs} pairs of halves hold the truth less often than they say, give `redraws` at least "
            f"{2 * LEAST_PAIRS}"
        )
    if not any(arm.is_control for arm in config.arms.values()):
        yield "no arm has shuffled words that have to be found, give a random one a `shuffled_share`"


def _no_power(
    config: ExperimentConfig, below_gate: Sequence[str], found: float | None, coverage: Coverage
) -> Iterator[str]:
    """Why nothing may be ranked, reason by reason."""
    if below_gate:
        yield (
            f"the networks of {', '.join(below_gate)} predict held-out documents no better than trigram models of the same "
            "tokens do"
        )
    yield from no_power_by_file(config)
    doses = [arm.shuffled_share for arm in config.arms.values() if arm.is_control]
    if doses and found is None:
        yield f"not even {max(doses):.0%} of documents with shuffled words are found"
    if not coverage.is_sound:
        yield "random documents are told from random ones too often"


def _curve(
    config: ExperimentConfig,
    store: Store,
    draws: Sequence[Ref],
    bytes_I: NDArray[np.int64],
    items: Mapping[str, int],
) -> list[CurvePoint]:
    """Each checkpoint judged as the result is."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / str(place) for place in range(len(draws))]
        read = [
            np.load(store.local_copy(ref, CURVE, folder))[:, _places_of(config, store, ref)]
            for ref, folder in zip(draws, folders, strict=True)
        ]
    bits_RCAI = np.stack(read)[:, :, : len(config.arms)]
    # Draws learn from almost equally many tokens, not exactly: a half has its own length.
    seen_RC = np.array([store.manifest(ref)["metadata"]["curve_tokens"] for ref in draws])
    points = []
    for place, tokens in enumerate(seen_RC.mean(axis=0).round().astype(int).tolist()):
        bootstrap = Bootstrap.of(list(config.arms), bits_RCAI[:, place], bytes_I, items, seed=config.seed)
        tasks = benchmarks_of(bootstrap)
        means = {name: _means_of(bootstrap, arm) for arm, name in enumerate(config.arms)}
        against = {
            name: bootstrap.difference(name, config.baseline, tasks)
            for name in config.arms
            if name != config.baseline
        }
        first, second = config.contrast
        points.append(
            CurvePoint(
                tokens=tokens,
                gold_answers={name: of["gold_answers"] for name, of in means.items()},
                held_out={name: of["held_out"] for name, of in means.items()},
                curated={name: of["curated"] for name, of in means.items() if "curated" in of},
                against_baseline=against,
                curated_against_baseline=_on_curated(bootstrap, list(against), config.baseline),
                contrast=bootstrap.difference(first, second, tasks),
                curated_contrast=_on_curated(bootstrap, [first], second).get(first),
            )
        )
    return points


def _means_of(bootstrap: Bootstrap, arm: int) -> dict[str, float]:
    """Bits per byte of right answers and of each set of documents, means over the draws."""
    means_RT = bootstrap.means_ART[arm]
    tasks = [bootstrap.tasks.index(task) for task in benchmarks_of(bootstrap)]
    found = {"gold_answers": float(means_RT[:, tasks].mean())}
    for name, task in (("held_out", HELD_OUT), ("curated", CURATED)):
        if task in bootstrap.tasks:
            found[name] = float(means_RT[:, bootstrap.tasks.index(task)].mean())
    return found


def _on_curated(bootstrap: Bootstrap, arms: Sequence[str], other: str) -> dict[str, Difference]:
    """Each arm less another one on curated documents; nothing where none were asked."""
    if CURATED not in bootstrap.tasks:
        return {}
    return {name: bootstrap.difference(name, other, [CURATED]) for name in arms}


def _not_held_against(store: Store, draw: Mapping[str, Any]) -> list[str]:
    """Warnings of the questions and the pool that the record has now; none where a purge has removed them.

    Draws are found again wherever the pool's documents are the same, whatever they were held against: so what a draw was
    made from says nothing of that.
    """
    refs = dict(inputs_of(draw))
    questions, pool = (
        current_manifest(store, refs[name].stage, refs[name].key) for name in ("questions", "candidates")
    )
    return list(was_not_held_against(store, questions, pool))


def _means(draws: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        arm: {name: float(np.mean([draw[arm][name] for draw in draws])) for name in figures}
        for arm, figures in draws[0].items()
    }


def _planted(
    draws: Sequence[Mapping[str, Mapping[str, float | None]]],
) -> dict[str, dict[str, tuple[float, float]]]:
    """Means over the draws with their intervals."""
    return {
        arm: {
            name: mean_over_pairs(np.array([draw[arm][name] for draw in draws], np.float64))
            for name in figures
        }
        for arm, figures in draws[0].items()
    }


def _randoms(config: ExperimentConfig) -> list[str]:
    return [RANDOM.format(place) for place in range(config.num_random)]


def _places_of(config: ExperimentConfig, store: Store, draw: Ref) -> list[int]:
    """Where `BITS` and `CURVE` hold each arm of the configuration, and after them the random ones, in its order.

    A draw holds arms as the file that it was measured by had them, and is found again where their order alone is another.
    """
    there = store.read_table(draw, ["arm"]).column(0).unique().to_pylist() + _randoms(config)
    return [there.index(name) for name in (*config.arms, *_randoms(config))]


def _items_in_order(store: Store, draw: Ref) -> dict[str, int]:
    """Items of each task, in the order in which `BITS` holds them: that of the rows. A manifest's names are sorted."""
    sizes = store.manifest(draw)["metadata"]["items"]
    return {task: sizes[task] for task in store.read_table(draw, ["task"]).column(0).unique().to_pylist()}


def _about_arms(
    config: ExperimentConfig, store: Store, draws: Sequence[Ref], bootstrap: Bootstrap
) -> dict[str, dict[str, float]]:
    """Means over the draws."""
    names = ("documents", "tokens", "length_tenth", "length_median", "length_ninetieth")
    rows = [row for ref in draws for row in store.read_table(ref).to_pylist() if row["task"] == HELD_OUT]
    found = {}
    for place, arm in enumerate(config.arms):
        mine = [row for row in rows if row["arm"] == arm]
        about: dict[str, float] = {name: float(np.mean([row[name] for row in mine])) for name in names}
        about |= _means_of(bootstrap, place)
        about["trigram_held_out"] = float(np.mean([row["trigram_bits"] / row["bytes"] for row in mine]))
        found[arm] = about
    return found

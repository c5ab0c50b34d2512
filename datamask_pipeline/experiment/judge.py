"""What the draws of an experiment say: differences with intervals, and whether the instrument works. Knows numbers alone.

The unit is a pair of draws, the two halves of one cut: cuts are independent of each other given the collection. Intervals
cover other cuts and other questions; every question was put to every draw, so the two samples are crossed. Shape suffixes:
R draws, P pairs, A arms, I items, L arms of all draws, T tasks, B bootstrap samples.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.intervals import student
from datamask_pipeline.schema import OF_DOCUMENTS

Numbers = NDArray[np.float64]
NUM_SAMPLES = 1_000
LEVEL, POWER = 0.95, 0.8
#: Fewer pairs' intervals hold the truth less often than they say: in simulations at worst 89.5 % of the time for two pairs,
#: 92.6 for three, 93.7 for four, where questions have a third of the spread of cuts.
LEAST_PAIRS = 4
#: Of fewer random subsets, pairs are the same few again and again.
LEAST_RANDOM = 8


@dataclass(frozen=True)
class Difference:
    """One arm less another, in bits per byte; below 0 the first is better.

    Attributes:
        difference: Mean over the tasks, and over the draws.
        half_width: Half of the 95 % interval; NaN: no spread.
        detectable: What would be found with 80 % probability, were it so large.
        p: Two-sided; NaN: no spread.
    """

    difference: float
    half_width: float
    detectable: float
    p: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return abs(self.difference) > self.half_width


@dataclass(frozen=True)
class Bootstrap:
    """Resampled bits per byte of every arm and draw.

    Attributes:
        arms: Names.
        tasks: Names of the benchmarks, and of the documents' sets.
        values_ART: Bits per byte less the mean over arms and draws.
        sampled_ARTB: The same on questions drawn again.
    """

    arms: Sequence[str]
    tasks: Sequence[str]
    values_ART: Numbers
    sampled_ARTB: NDArray[np.float32]
    means_ART: Numbers = field(repr=False)

    @classmethod
    def of(
        cls,
        arms: Sequence[str],
        bits_RAI: NDArray[np.float32],
        bytes_I: NDArray[np.int64],
        items: Mapping[str, int],
        *,
        seed: int,
        num_samples: int = NUM_SAMPLES,
    ) -> "Bootstrap":
        """Resample.

        Args:
            arms: Names of the arms in their order.
            bits_RAI: Bits of each item; draws 0 and 1 are a pair, and so on.
            bytes_I: Length of each item.
            items: Items of each task, in their order.
            seed: Draws samples.
            num_samples: Bootstrap samples.
        """
        generator = np.random.default_rng(seed)
        num_draws, num_arms, _ = bits_RAI.shape
        # Products round by where a row stands: arms stand by their names, so that no figure hangs on the file's order.
        by_name = np.argsort(np.array(arms), kind="stable")
        bits_RAI = bits_RAI[:, by_name]
        means, values, sampled, first = [], [], [], 0
        for size in items.values():
            of_task = slice(first, first + size)
            first += size
            bits_LI = bits_RAI[:, :, of_task].astype(np.float64).reshape(-1, size)
            length_I = bytes_I[of_task].astype(np.float64)
            means.append(bits_LI.sum(axis=1) / length_I.sum())
            # About the mean of all, so that float32 keeps what matters: the differences.
            centred_LI = bits_LI - bits_LI.mean(axis=0)
            weights_IB = generator.multinomial(size, np.full(size, 1 / size), num_samples).T
            values.append(centred_LI.sum(axis=1) / length_I.sum())
            products_LB = centred_LI.astype(np.float32) @ weights_IB.astype(np.float32)
            sampled.append(products_LB / (length_I @ weights_IB).astype(np.float32))

        def by_arm(stacked: Any) -> Any:
            arms_first = np.moveaxis(stacked.reshape(num_draws, num_arms, *stacked.shape[1:]), 0, 1)
            return arms_first[np.argsort(by_name)]

        return cls(
            arms,
            list(items),
            by_arm(np.stack(values, axis=1)),
            by_arm(np.stack(sampled, axis=1)),
            by_arm(np.stack(means, axis=1)),
        )

    def difference(self, arm: str, other: str, tasks: Sequence[str]) -> Difference:
        """One arm less another, as a mean over tasks."""
        num_draws = self.values_ART.shape[1]
        mine_R, others_R = (np.full(num_draws, self.arms.index(name)) for name in (arm, other))
        return self.paired(mine_R, others_R, tasks)

    def paired(
        self, arms_R: NDArray[np.integer], others_R: NDArray[np.integer], tasks: Sequence[str]
    ) -> Difference:
        """The same where every draw has arms of its own."""
        chosen = [self.tasks.index(task) for task in tasks]
        draws_R = np.arange(len(arms_R))
        delta_RT = (self.values_ART[arms_R, draws_R] - self.values_ART[others_R, draws_R])[:, chosen]
        sampled_RTB = (self.sampled_ARTB[arms_R, draws_R] - self.sampled_ARTB[others_R, draws_R])[:, chosen]
        return _judged(
            _of_pairs(delta_RT.mean(axis=1)), _of_pairs(sampled_RTB.astype(np.float64).mean(axis=1))
        )


def _of_pairs(values_R: Numbers) -> Numbers:
    """Means over the two draws of each pair."""
    return np.asarray(values_R.reshape(len(values_R) // 2, 2, *values_R.shape[1:]).mean(axis=1))


def mean_over_pairs(values_R: Numbers) -> tuple[float, float]:
    """Mean over the draws, and half of its 95 % interval over pairs of draws; NaN where a draw has no value."""
    mean_P = _of_pairs(values_R)
    error = float(mean_P.std(ddof=1)) / math.sqrt(len(mean_P))
    return float(mean_P.mean()), student(len(mean_P) - 1, (1 + LEVEL) / 2) * error


def _judged(delta_P: Numbers, sampled_PB: Numbers) -> Difference:
    """The interval of a mean over pairs of draws and over questions.

    Formula:
        variance = between pairs + max(0, between questions - what both count): the variance of the pairs' mean; that of the
        mean on questions drawn again; and the part of either that is neither's, that of the pairs' deviations from their
        mean on questions drawn again. Degrees of freedom by Satterthwaite; questions are so many that they take none.

    Source: the components of two crossed samples, as in Owen, The pigeonhole bootstrap, 2007: to draw pairs and questions
    again at once would count their interaction three times.
    """
    from scipy.special import stdtr  # scipy.stats takes a second to import

    pairs, difference = len(delta_P), float(delta_P.mean())
    between_pairs = float(delta_P.var(ddof=1)) / pairs
    mean_B = sampled_PB.mean(axis=0)
    interaction = float((sampled_PB - mean_B).var(axis=1).mean()) / (pairs - 1)
    variance = between_pairs + max(0.0, float(mean_B.var()) - interaction)
    if not between_pairs > 0:
        return Difference(difference, math.nan, math.nan, math.nan)
    error, freedom = math.sqrt(variance), (pairs - 1) * (variance / between_pairs) ** 2
    edge = student(freedom, (1 + LEVEL) / 2)
    detectable = (edge + student(freedom, POWER)) * error
    return Difference(
        difference, edge * error, detectable, 2 * float(stdtr(freedom, -abs(difference) / error))
    )


def benchmarks_of(bootstrap: Bootstrap) -> list[str]:
    """The tasks that are questions."""
    return [task for task in bootstrap.tasks if task not in OF_DOCUMENTS]


def without_largest_mover(bootstrap: Bootstrap, arm: str, other: str) -> tuple[str, Difference] | None:
    """The benchmark that differs most, and the difference without it; ``None``: there is only one."""
    tasks = benchmarks_of(bootstrap)
    if len(tasks) < 2:
        return None
    largest = max(tasks, key=lambda task: abs(bootstrap.difference(arm, other, [task]).difference))
    return largest, bootstrap.difference(arm, other, [task for task in tasks if task != largest])


@dataclass(frozen=True)
class Coverage:
    """How many intervals of random against random hold 0.

    Attributes:
        held: So many do.
        pairs: Of so many.
    """

    held: int
    pairs: int

    @property
    def share(self) -> float:
        """Share that holds 0."""
        return self.held / self.pairs

    @property
    def error(self) -> float:
        """1.96 standard errors of a binomial share of 95 %."""
        return 1.96 * math.sqrt(LEVEL * (1 - LEVEL) / self.pairs)

    @property
    def is_right(self) -> bool:
        """Whether it is within binomial error of 95 %."""
        return abs(self.share - LEVEL) <= self.error

    @property
    def is_sound(self) -> bool:
        """Whether it is not below that: intervals that are too wide find less, but find nothing that is not there."""
        return self.share >= LEVEL - self.error


def random_coverage(bootstrap: Bootstrap, randoms: Sequence[str], *, num_pairs: int, seed: int) -> Coverage:
    """Put random subsets against random subsets: on every draw two of them, drawn anew for each pair of arms."""
    generator = np.random.default_rng(seed)
    places = np.array([bootstrap.arms.index(name) for name in randoms])
    tasks, num_draws, held = benchmarks_of(bootstrap), bootstrap.values_ART.shape[1], 0
    for _ in range(num_pairs):
        two_R2 = np.stack([generator.permutation(places)[:2] for _ in range(num_draws)])
        found = bootstrap.paired(two_R2[:, 0], two_R2[:, 1], tasks)
        held += not found.is_clear  # nor are subsets that do not differ at all, which have no interval
    return Coverage(held, num_pairs)


def again_coverage(found: Difference) -> Coverage:
    """The same of the two random arms alone, one trial."""
    return Coverage(int(not found.is_clear), 1)


def smallest_dose(found: Mapping[float, Difference]) -> float | None:
    """The smallest dose from which on every one is found to be worse; ``None``: not even the largest is."""
    clear = [(dose, one.is_clear and one.difference > 0) for dose, one in sorted(found.items(), reverse=True)]
    doses = [dose for dose, _ in itertools.takewhile(lambda item: item[1], clear)]
    return min(doses) if doses else None

"""What a sweep recommends: the best arm of some draws and questions, judged on others. Knows numbers alone.

The best of many looks better than it is on the draws and questions that chose it: its interval there does not hold what it
says. Half of the pairs of draws and half of each task's questions choose; the other pairs judge it on the other questions.
Shape suffixes: R draws, A arms, I items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.judge import Bootstrap, Difference
from datamask_pipeline.schema import OF_DOCUMENTS


@dataclass(frozen=True)
class Recommendation:
    """The best arm of a sweep.

    Attributes:
        best: The arm that needs fewest bits on the draws and questions that choose.
        there: Its difference from the reference on these, which is too good.
        less_reference: The same on the draws and questions that judge.
        less_baseline: Its difference from random documents there.
        other_way: The arm that the judging draws and questions would have chosen.
        num_arms: Arms that were tried.
        num_pairs: Pairs of draws that judge.
        num_questions: Questions that judge.
    """

    best: str
    there: float
    less_reference: Difference
    less_baseline: Difference
    other_way: str
    num_arms: int
    num_pairs: int
    num_questions: int

    @property
    def is_better(self) -> bool:
        """Whether the interval of its difference from the reference lies below 0."""
        return self.less_reference.is_clear and self.less_reference.difference < 0


def recommend(
    arms: Sequence[str],
    tried: Sequence[str],
    reference: str,
    baseline: str,
    bits_RAI: NDArray[np.float32],
    bytes_I: NDArray[np.int64],
    items: Mapping[str, int],
    *,
    seed: int,
) -> Recommendation:
    """Choose on one half of pairs and questions, judge on the other.

    Args:
        arms: Names of the first arms of the bits, in their order.
        tried: Those of the sweep; the reference may be one of them.
        reference: What the best has to be better than.
        baseline: The random arm.
        bits_RAI: Bits of each item; draws 0 and 1 are a pair, and so on; eight draws at least.
        bytes_I: Length of each item.
        items: Items of each task, in their order.
        seed: Divides the questions.

    Raises:
        InputError: a task has one question, which cannot be divided.
    """
    generator = np.random.default_rng(seed)
    num_choosing = 2 * (len(bits_RAI) // 4)
    halves: list[list[NDArray[np.int64]]] = [[], []]
    sizes: list[dict[str, int]] = [{}, {}]
    first = 0
    for task, size in items.items():
        if task not in OF_DOCUMENTS:
            if size < 2:
                raise InputError(
                    f"task {task!r} has one question, and a sweep chooses on half of them",
                    remedy="raise questions_per_task",
                )
            order = first + generator.permutation(size)
            for side, part in enumerate((order[: size // 2], order[size // 2 :])):
                halves[side].append(np.sort(part))
                sizes[side][task] = len(part)
        first += size
    choosing, judging = (np.concatenate(half) for half in halves)
    draws = (bits_RAI[:num_choosing, : len(arms)], bits_RAI[num_choosing:, : len(arms)])
    means = [  # (A,) each
        _means(draws[side][:, :, of], bytes_I[of], sizes[side]) for side, of in enumerate((choosing, judging))
    ]
    best, other_way = (min(tried, key=dict(zip(arms, mean_A, strict=True)).__getitem__) for mean_A in means)
    sampled = Bootstrap.of(arms, draws[1][:, :, judging], bytes_I[judging], sizes[1], seed=seed)
    tasks = list(sizes[1])
    return Recommendation(
        best,
        float(means[0][arms.index(best)] - means[0][arms.index(reference)]),
        sampled.difference(best, reference, tasks),
        sampled.difference(best, baseline, tasks),
        other_way,
        len(tried),
        (len(bits_RAI) - num_choosing) // 2,
        len(judging),
    )


def _means(
    bits_RAI: NDArray[np.float32], bytes_I: NDArray[np.int64], sizes: Mapping[str, int]
) -> NDArray[np.float64]:
    """Bits per byte of each arm, the mean over draws and tasks, (A,)."""
    of_tasks, first = [], 0
    for size in sizes.values():
        of = slice(first, first + size)
        of_tasks.append(bits_RAI[:, :, of].astype(np.float64).sum(axis=2).mean(axis=0) / bytes_I[of].sum())
        first += size
    return np.asarray(np.mean(of_tasks, axis=0))


def on_frontier(figures: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of those that no other one is at least as good as in every figure, and better in one; higher is better."""
    return [
        name
        for name, mine in figures.items()
        if not any(
            all(a >= b for a, b in zip(other, mine, strict=True)) and tuple(other) != tuple(mine)
            for other in figures.values()
        )
    ]

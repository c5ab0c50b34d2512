"""Certificates of small blocks against every mask there is. Knows no learner.

Shape suffixes: N documents, G masks.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import Context, Outcome, at_most, processor_seconds
from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS

TITLE = "Certificates of small blocks against every mask"
QUESTION = "Does any mask exceed its bound by more than float32 rounding of its value, and how often is the best one found?"
LONG = True
CASES = 5_000
CHOICES: tuple[str | dict[str, float], ...] = (
    "Pair_simi",
    "DiSF_uncentred",
    "LogDet",
    "Vendi",
    "DiSF",
    "Facility",
    {"Pair_simi": 0.5, "DiSF_uncentred": 0.5},
    {"DiSF_uncentred": 0.7, "LogDet": 0.3},
)
KINDS = ("isotropic", "positive", "copies", "equal", "orthogonal", "clusters")
LAMBDAS = (0.0, 0.1, 0.5, 0.9, 1.0)
ROUNDING = 2e-6
"""Of the objective's own scale, times the ratio of a metric's largest raw value to its range."""


def run(context: Context) -> Outcome:
    """So many blocks of 6 to 11 documents, of which 2 to 5 are chosen, with quotas in a quarter of them.

    In another quarter quality has one of two values.
    """
    outcome, begun = Outcome(), processor_seconds()
    cases, found, refused = Counter[str](), Counter[str](), Counter[str]()
    worst: dict[str, float] = {}
    short: dict[str, list[float]] = {}
    for case in range(context.size(CASES)):
        choice = CHOICES[case % len(CHOICES)]
        name = choice if isinstance(choice, str) else " and ".join(choice)
        try:
            over, missed = _checked(case, choice)
        except ConfigurationError:
            refused[name] += 1  # a block so small may have no range to scale by
            continue
        cases[name] += 1
        found[name] += missed <= ROUNDING
        short.setdefault(name, []).append(missed)
        if over is not None:
            worst[name] = max(worst.get(name, -np.inf), over)
    for name, count in cases.items():
        outcome.rows.append(
            {
                "method": name,
                "seed": context.seeds[0],
                "cases": count,
                "refused": refused[name],
                "best found": found[name] / count,
                "short by, mean": float(np.mean(short[name])),
                "short by, most": max(short[name]),
                "above the bound by, most": worst.get(name),
            }
        )
        if name in worst:
            outcome.claims.append(
                at_most(f"{name}: a mask above its bound, in units of rounding", 1.0, worst[name] / ROUNDING)
            )
    outcome.notes.append(
        f"{sum(cases.values())} cases, {processor_seconds() - begun:.0f} processor seconds. What a mask exceeds its bound "
        "by, and what the engine's mask is short of the best by, are shares of the larger of 1 and the ratio of raw value "
        "to range, in float64; refused were blocks in which a metric or quality has no "
        "range."
    )
    return outcome


def _checked(case: int, choice: str | dict[str, float]) -> tuple[float | None, float]:
    """What the best of all masks exceeds the bound by, if there is one, and what the engine's is short of it by."""
    draws = np.random.default_rng(case)
    size = int(draws.integers(6, 12))
    budget = int(draws.integers(2, min(6, size - 1)))
    rows_ND = _rows(draws, KINDS[int(draws.integers(len(KINDS)))], size, int(draws.integers(2, 9)))
    quality_N = draws.standard_normal(size)
    if draws.random() < 0.25:
        quality_N = np.where(quality_N > 0, 1.0, 0.0)
    groups = ["a" if place % 2 else "b" for place in range(size)] if draws.random() < 0.25 else None
    of_a, lamb = budget // 2, float(draws.choice(LAMBDAS))
    shares = {"a": of_a / budget, "b": 1 - of_a / budget}
    shared: dict[str, Any] = {"groups": groups, "quotas": shares} if groups else {}
    result = select_documents(
        rows_ND,
        quality_N,
        diversity=choice,
        lamb=lamb,
        ratio=None,
        num_documents=budget,
        seed=case,
        dtype=str(draws.choice(["float32", "bfloat16"])),
        num_workers=1,
        **shared,
    )
    chosen = np.array(list(combinations(range(size), budget)))
    masks_GN = np.zeros((len(chosen), size), dtype=bool)
    np.put_along_axis(masks_GN, chosen, True, axis=1)
    if groups:
        inside_N = np.array(groups) == "a"
        masks_GN = masks_GN[(masks_GN & inside_N).sum(1) == of_a]
    values_G, coarse = _values(result, rows_ND, quality_N, masks_GN, choice, lamb)
    own = float(values_G[(masks_GN == result.mask).all(1)][0])
    best, bound = float(values_G.max()), result.certificate.bound
    return None if bound is None else (best - bound) / coarse, (best - own) / coarse


def _values(
    result: Any,
    rows_ND: NDArray[np.float32],
    quality_N: NDArray[np.float64],
    masks_GN: NDArray[np.bool_],
    choice: str | dict[str, float],
    lamb: float,
) -> tuple[NDArray[np.float64], float]:
    """The objective of every mask in float64, and how much coarser it is than its parts."""
    weights = {choice: 1.0} if isinstance(choice, str) else choice
    unit_ND = torch.nn.functional.normalize(torch.from_numpy(rows_ND).double())
    zero, one = result.normalisation["quality"]
    sums_G = masks_GN.astype(np.float64) @ quality_N / masks_GN.sum(1)
    values_G, coarse = lamb * (sums_G - zero) / (one - zero), 1.0
    for name, weight in weights.items():
        zero, one = result.normalisation[name]
        raw_G = METRICS.make(name).values(unit_ND, torch.from_numpy(masks_GN)).numpy()
        values_G = values_G + (1 - lamb) * weight * (raw_G - zero) / (one - zero)
        coarse = max(coarse, float(np.abs(raw_G).max()) / (one - zero))
    return values_G, coarse


def _rows(draws: np.random.Generator, kind: str, size: int, dimensions: int) -> NDArray[np.float32]:
    rows_ND = draws.standard_normal((size, dimensions))
    if kind == "positive":
        rows_ND = np.abs(rows_ND)
    elif kind == "copies":
        half = size // 2
        rows_ND[:half] = rows_ND[half : 2 * half] + 0.02 * draws.standard_normal((half, dimensions))
    elif kind == "equal":
        rows_ND[: size // 2] = rows_ND[size // 2 : 2 * (size // 2)]
    elif kind == "orthogonal":
        rows_ND = np.eye(dimensions)[draws.integers(dimensions, size=size)]
    elif kind == "clusters":
        rows_ND = draws.standard_normal((2, dimensions))[draws.integers(2, size=size)] + 0.3 * rows_ND
    unit_ND: NDArray[np.float32] = (rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit_ND

"""The learners on a GPU, on vectors that are made there. Knows no opponent."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.data import CENTRES, CHUNK, SPREAD
from benchmarks.harness import Context, Outcome, timed

TITLE = "On a GPU: learning, 1 000 000 x 768 bfloat16"
QUESTION = "How long does a selection take whose vectors lie on the device?"
LONG = ON_DEVICE = True
SIZES = {"Pair_simi": 1_000_000, "DiSF_uncentred": 1_000_000, "DiSF": 100_000, "Facility": 100_000}
LEFT_OUT = ("Facility", "DiSF")
"""Of all seeds but the first."""
DIMENSIONS, COMMON, WARM = 768, 0.7, 50_000
"""What all centres share, beside their own direction of norm 1; and documents of a first run, which is not timed."""


def vectors(size: int, seed: int) -> tuple[Tensor, NDArray[np.float64]]:
    """Rows around centres that share a direction, and scores of which half the variance is a direction of theirs."""
    draws = torch.Generator("cuda").manual_seed(seed)

    def directions(number: int) -> Tensor:
        normal = torch.randn(number, DIMENSIONS, generator=draws, device="cuda")
        return torch.nn.functional.normalize(normal)

    centres_CD = directions(CENTRES) + COMMON * directions(1)
    along_D = directions(1)[0]
    rows_ND = torch.empty(size, DIMENSIONS, dtype=torch.bfloat16, device="cuda")
    for start in range(0, size, CHUNK):
        part_nD = rows_ND[start : start + CHUNK]
        of_n = torch.randint(CENTRES, (len(part_nD),), generator=draws, device="cuda")
        noise_nD = torch.randn(len(part_nD), DIMENSIONS, generator=draws, device="cuda")
        rows_nD = centres_CD[of_n] + noise_nD * (SPREAD / DIMENSIONS**0.5)
        part_nD.copy_(torch.nn.functional.normalize(rows_nD))
    score_N = (rows_ND.float() @ along_D).double()
    score_N /= score_N.std()
    score_N += torch.randn(size, generator=draws, device="cuda", dtype=torch.float64)
    return rows_ND, score_N.cpu().numpy()


def run(context: Context) -> Outcome:
    """Every seed, each metric in turn."""
    outcome = Outcome()
    settings = {"device": "cuda:0", "dtype": "bfloat16"}
    for seed in context.seeds:
        rows_ND, quality_N = vectors(context.size(max(SIZES.values())), seed)
        for metric, number in SIZES.items():
            if seed != context.seeds[0] and metric in LEFT_OUT:
                continue
            size = context.size(number)
            if seed == context.seeds[0] and metric not in LEFT_OUT:
                timed(rows_ND[:WARM], quality_N[:WARM], diversity=metric, **settings)
            torch.cuda.reset_peak_memory_stats()
            ours = timed(rows_ND[:size], quality_N[:size], diversity=metric, seed=seed, **settings)
            row = ours.row(metric, seed) | {"N": size}
            outcome.rows.append(row | {"GB on the device": torch.cuda.max_memory_allocated() / 1e9})
    outcome.notes += [
        "The checks copy all vectors to the processor, to compute the digest that the record keeps. Scores, weights and "
        "their order are the processor's work too, so products on the device are the smaller part.",
        "What may not be concluded. DiSF and Facility are of 100,000 vectors, once each; DiSF's certificate says next to "
        "nothing there.",
    ]
    return outcome

"""Facility location against dense lazy greedy and two libraries at 20 000 documents. Knows no other metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import (
    LAMB,
    RATIO,
    Context,
    Outcome,
    Row,
    Selected,
    at_least,
    at_most,
    attainment,
    both_orders,
    middle,
    timed,
)
from benchmarks.peers import PEERS
from datamask_pipeline.diversity.facility import FacilityLocation

TITLE = "Facility location, N = 20 000"
QUESTION = (
    "Do neighbour lists match dense lazy greedy in half the time of the fastest exact solver, with a proof?"
)
LONG = False
OURS, DENSE = "lists", "dense lazy greedy"


def run(context: Context) -> Outcome:
    """Lists and dense lazy greedy at both lambdas and in both orders; the libraries, which know no quality, at 0."""
    outcome = Outcome()
    reached, peer_seconds = [], []
    for turn, seed in enumerate(context.seeds):
        embeddings, quality = context.block(context.size(20_000), seed)
        for lamb in (LAMB, 0.0):
            ours, dense = _pair(embeddings, quality, lamb, seed, turn)
            outcome.rows += [
                ours.row(f"{OURS}, lambda {lamb}", seed),
                dense.row(f"{DENSE}, lambda {lamb}", seed),
            ]
            random, reference = ours.result.objective.random, dense.result.objective.value
            reached.append(attainment(ours.result.objective.value, random, reference))
        if turn == 0:
            for name, peer in PEERS.items():
                seconds, picks = peer(embeddings, round(RATIO * len(embeddings)))
                row = _peer_row(name, seconds, embeddings, picks, seed)
                zero, one = ours.result.normalisation["Facility"]
                row["objective"] = (row["objective"] - zero) / (one - zero)
                row["random"] = ours.result.objective.random
                outcome.rows.append(row)
                peer_seconds.append(seconds)
    fastest = min(peer_seconds)
    for lamb in (LAMB, 0.0):
        seconds = middle(outcome.rows, f"{OURS}, lambda {lamb}", "seconds")
        opponent = min(fastest, middle(outcome.rows, f"{DENSE}, lambda {lamb}", "seconds"))
        outcome.claims.append(
            at_most(f"lambda {lamb}: share of the fastest exact solver's time", 0.5, seconds / opponent)
        )
        gap = middle(outcome.rows, f"{OURS}, lambda {lamb}", "gap")
        outcome.claims.append(at_most(f"lambda {lamb}: certified gap", 0.03, gap, ".2%"))
    outcome.claims.append(at_least("smallest attainment of dense lazy greedy's", 0.99, min(reached), ".2%"))
    outcome.notes.append(
        "Similarities are part of every time. Dense lazy greedy and the libraries use float32, as they do by "
        "default; the libraries ran on the first seed."
    )
    return outcome


def _pair(
    embeddings: NDArray[np.float16], quality: NDArray[np.float64], lamb: float, seed: int, turn: int
) -> tuple[Selected, Selected]:
    # Constants are fixed first, so that both maximise the same function; neither is the first to warm up.
    shared: dict[str, Any] = {"diversity": "Facility", "lamb": lamb, "seed": seed}
    first = timed(embeddings, quality, **shared)
    shared["normalisation_constants"] = first.result.normalisation
    ours, dense = both_orders(
        lambda: timed(embeddings, quality, **shared),
        lambda: timed(embeddings, quality, policy="greedy", **shared),
        turn,
    )
    return ours, dense


def _peer_row(
    name: str, seconds: float, embeddings: NDArray[np.float16], picks: NDArray[np.int64], seed: int
) -> Row:
    rows_ND = torch.from_numpy(embeddings.copy()).float()
    mask_N = torch.zeros(len(rows_ND), dtype=torch.bool)
    mask_N[torch.from_numpy(picks)] = True
    value = float(FacilityLocation().values(rows_ND, mask_N[None])[0])
    return {
        "method": f"{name}, lambda 0.0",
        "seed": seed,
        "seconds": seconds,
        "total_seconds": None,
        "objective": value,
        "random": None,
        "gap": None,
        "mask": None,
    }

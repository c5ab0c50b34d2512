"""Mixtures with Facility, which swap by marginals and are exchanged document by document at last; budgets in both units."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.families import METRICS

MIXTURES = [["Facility", "Pair_simi"], ["Facility", "LogDet"], ["Facility", "DiSF_uncentred", "Pair_simi"]]


def block(seed: int, size: int = 40) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(size, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), draws.random(size)


def objectives(result: Any, rows: Any, quality: Any, names: list[str], masks_GN: torch.Tensor) -> Any:
    """What masks are worth on a result's scale, in float64."""
    zero, one = result.normalisation["quality"]
    total_G = 0.5 * (masks_GN.double().numpy() @ ((quality - zero) / (one - zero))) / masks_GN.sum(1).numpy()
    for name in names:
        zero, one = result.normalisation[name]
        values_G = METRICS.make(name).values(torch.from_numpy(rows).double(), masks_GN).numpy()
        total_G += 0.5 / len(names) * (values_G - zero) / (one - zero)
    return total_G


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", MIXTURES, ids="+".join)
@pytest.mark.parametrize("quotas", [None, {"a": 0.5, "b": 0.5}], ids=["free", "quotas"])
def test_no_exchange_of_two_documents_raises_a_mixture(
    names: list[str], quotas: dict[str, float] | None
) -> None:
    """Swaps of whole sets alone ended up to .04 of the distance from random below."""
    groups = np.array(["a", "b"] * 20)
    for seed in range(2):
        rows, quality = block(seed)
        settings: dict[str, Any] = {"num_documents": 8, "diversity": dict.fromkeys(names, 1.0), "seed": seed}
        if quotas is not None:
            settings |= {"quotas": quotas, "groups": groups.tolist()}
        result = select_documents(rows, quality, **settings)
        mask_N = torch.from_numpy(result.mask)
        assert int(mask_N.sum()) == 8
        if quotas is not None:
            assert int(mask_N[groups == "a"].sum()) == 4
        (value,) = objectives(result, rows, quality, names, mask_N[None])
        assert value == pytest.approx(result.objective.value, abs=1e-5)
        for leaves in mask_N.nonzero().flatten().tolist():
            same_N = torch.from_numpy(groups == groups[leaves]) if quotas else torch.ones_like(mask_N)
            into_C = (~mask_N & same_N).nonzero().flatten()
            masks_CN = mask_N.repeat(len(into_C), 1)
            masks_CN[:, leaves] = False
            masks_CN[torch.arange(len(into_C)), into_C] = True
            assert objectives(result, rows, quality, names, masks_CN).max() <= value + 1e-6, (seed, leaves)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["free", "quotas", "tokens"])
@pytest.mark.parametrize(
    "names", [["Facility"], ["Facility", "Pair_simi"], ["Facility", "LogDet"]], ids="+".join
)
def test_two_documents_are_the_best_two(names: list[str], kind: str) -> None:
    """Masks of two were not exchanged at all: nine of ten mixtures missed the best, once by more than random masks do."""
    pairs = np.array(list(itertools.combinations(range(30), 2)))
    groups = np.array(["a", "b"] * 15)
    settings: dict[str, Any] = {"diversity": dict.fromkeys(names, 1.0), "num_documents": 2}
    if kind == "quotas":
        settings |= {"quotas": {"a": 0.5, "b": 0.5}, "groups": groups.tolist()}
        pairs = pairs[groups[pairs[:, 0]] != groups[pairs[:, 1]]]
    for seed in range(3):
        rows, quality = block(seed, 30)
        if kind == "tokens":
            counts = np.random.default_rng(seed).integers(100, 110, 30)
            settings |= {"num_documents": None, "num_tokens": 230, "token_counts": counts}
        result = select_documents(rows, quality, **settings)
        masks_PN = torch.zeros(len(pairs), 30, dtype=torch.bool)
        masks_PN[torch.arange(len(pairs))[:, None], torch.from_numpy(pairs)] = True
        best = objectives(result, rows, quality, names, masks_PN).max()
        assert result.objective.value == pytest.approx(best, abs=1e-5), seed


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "names", [*MIXTURES, ["Pair_simi"], ["DiSF_uncentred"], ["Facility"], ["LogDet"]], ids="+".join
)
def test_of_few_documents_a_budget_in_tokens_finds_the_best(names: list[str]) -> None:
    """Against every mask that nothing more fits into, all but once in six: two exchanges at once are not tried."""
    missed = 0
    for seed in range(6):
        draws = np.random.default_rng(seed)
        rows, quality = block(seed, size=11)
        tokens = draws.integers(20, 120, size=11)
        most = int(0.4 * tokens.sum())
        result = select_documents(
            rows,
            quality,
            num_tokens=most,
            token_counts=tokens,
            diversity=dict.fromkeys(names, 1.0),
            seed=seed,
        )
        every = np.array(list(itertools.product([False, True], repeat=11)))
        spent_G = every @ tokens
        full = every[(spent_G <= most) & (spent_G + np.where(every, most, tokens).min(1) > most)]
        assert result.mask.tolist() in full.tolist()
        best = objectives(result, rows, quality, names, torch.from_numpy(full)).max()
        missed += result.objective.value < best - 1e-5
        assert result.objective.value > best - 0.05
    assert missed <= 1


def test_exchanges_may_be_left_out() -> None:
    rows, quality = block(1)
    settings: dict[str, Any] = {"diversity": {"Facility": 1.0, "Pair_simi": 1.0}, "lamb": 0.2}
    swapped, exchanged = (
        select_documents(rows, quality, num_documents=8, num_swap_rounds=rounds, **settings)
        for rounds in (0, 12)
    )
    assert exchanged.normalisation == swapped.normalisation
    assert exchanged.objective.value >= swapped.objective.value

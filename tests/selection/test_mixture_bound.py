"""The bound of a mixture of Facility with metrics of moments: no mask exceeds it, and most are nearer than before."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from test_mixture import MIXTURES, block, worth

from datamask_pipeline import select_documents
from datamask_pipeline.selection import marginal_swaps, mixture
from datamask_pipeline.selection.mixture_bound import METHOD
from datamask_pipeline.selection.result import SelectionResult

BOUNDED = [names for names in MIXTURES if "Pair_graph" not in names]


def selected(rows_ND: torch.Tensor, quality_N: Any, names: list[str], **settings: Any) -> SelectionResult:
    few: dict[str, Any] = {"num_kicks": 2, "num_restarts": 2}
    return select_documents(rows_ND, quality_N, diversity=dict.fromkeys(names, 1.0), **(few | settings))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lamb", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("names", BOUNDED, ids="+".join)
def test_no_mask_exceeds_the_bound(names: list[str], seed: int, lamb: float) -> None:
    rows_ND, quality_N = block(seed, 13, 4)
    result = selected(rows_ND, quality_N, names, num_documents=4, lamb=lamb)
    of = worth(result, rows_ND, quality_N, lamb)
    best = max(of(list(mask)) for mask in combinations(range(13), 4))
    bound = result.certificate.bound
    assert bound is not None
    assert best - 1e-5 <= bound <= best + 0.75 * (best - result.objective.random)
    assert result.certificate.method == METHOD
    assert result.certified_at["tangent"].sum() == pytest.approx(4)
    assert result.certified_at["dual"].min() >= 0


def test_within_quotas_too() -> None:
    rows_ND, quality_N = block(1, 12, 4)
    groups = ["a" if row % 3 else "b" for row in range(12)]
    result = selected(
        rows_ND,
        quality_N,
        ["Facility", "LogDet"],
        num_documents=4,
        lamb=0.3,
        groups=groups,
        quotas={"a": 0.5, "b": 0.5},
    )
    of = worth(result, rows_ND, quality_N, 0.3)
    masks = [mask for mask in combinations(range(12), 4) if sum(row % 3 == 0 for row in mask) == 2]
    best = max(of(list(mask)) for mask in masks)
    assert result.certificate.bound is not None
    assert best - 1e-5 <= result.certificate.bound <= best + 0.5 * (best - result.objective.random)


@pytest.mark.parametrize("names", [["Facility", "LogDet"], ["Facility", "Pair_simi"]], ids="+".join)
def test_steps_in_turns_go_far_below_where_one_side_alone_ends(names: list[str]) -> None:
    """The tangent at the mask, beside dual variables between its best and second best: a bound, and a poor one."""
    draws = np.random.default_rng(0)
    rows = draws.standard_normal((20, 16))[draws.integers(0, 20, 300)] + 0.5 * draws.standard_normal(
        (300, 16)
    )
    rows_ND = torch.nn.functional.normalize(torch.from_numpy(rows).float())
    result = selected(rows_ND, draws.random(300), names, num_documents=30, lamb=0.3)
    assert result.certificate.gap is not None
    assert result.certificate.gap < 0.12
    curve = result.curve.to_pandas()
    assert curve["bound"].iloc[-1] == pytest.approx(result.certificate.bound)


def test_what_has_no_bound_says_so() -> None:
    rows_ND, quality_N = block(2, 40, 5)
    cases: list[tuple[list[str], str, dict[str, Any]]] = [
        (["Facility", "DiSF"], "DiSF is not concave", {"num_documents": 8}),
        (["Facility", "LogDet"], "in tokens", {"num_tokens": 300, "token_counts": np.full(40, 30)}),
        (
            ["Facility", "LogDet"],
            "each of them a reference",
            {
                "num_documents": 8,
                "diversity_options": {"Facility": {"exact_rows": 20, "num_landmarks": 20}},
            },
        ),
    ]
    for names, why, settings in cases:
        result = selected(rows_ND, quality_N, names, **settings)
        assert result.certificate.bound is None
        assert result.certificate.method.startswith("no bound: ")
        assert why in result.certificate.method
        assert not result.certified_at


def test_the_bound_does_not_depend_on_the_number_of_threads() -> None:
    rows_ND, quality_N = block(4, 600, 16)
    bounds = {
        selected(
            rows_ND,
            quality_N,
            ["Facility", "Vendi", "DiSF_uncentred"],
            num_documents=60,
            num_workers=workers,
        ).certificate.bound
        for workers in (1, 2, 3)
    }
    assert len(bounds) == 1


@pytest.mark.parametrize("seed", range(2))
def test_dual_variables_that_went_astray_do_not_end_the_search(seed: int) -> None:
    """Around one direction all documents offer much at first, and whole steps lead far away from good dual variables."""
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((300, 24)) / np.sqrt(np.arange(1, 25))
    rows[:, 0] += 2
    rows_ND = torch.nn.functional.normalize(torch.from_numpy(rows).float())
    names = ["Facility", "DiSF_uncentred"]
    result = selected(rows_ND, draws.random(300), names, num_documents=30, lamb=0.0)
    assert result.certificate.gap is not None
    assert result.certificate.gap < 0.06  # more than twice that once, with most steps not taken


@pytest.mark.parametrize("names", [["Facility", "LogDet"], ["Facility", "Pair_simi"]], ids="+".join)
def test_large_blocks_are_swapped_from_the_weights_of_the_bound(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swaps from the best quality end far below in clusters, where documents alike are of equal marginals."""
    monkeypatch.setattr(mixture, "MOST_SIMILARITIES", 0)  # as if there were more documents,
    monkeypatch.setattr(marginal_swaps, "MOST_SECONDS", 0.0)  # and no time to look at each
    draws = np.random.default_rng(0)
    rows = draws.standard_normal((40, 16))[draws.integers(0, 40, 600)] + 0.3 * draws.standard_normal(
        (600, 16)
    )
    rows_ND = torch.nn.functional.normalize(torch.from_numpy(rows).float())
    result = select_documents(
        rows_ND, draws.random(600), diversity=dict.fromkeys(names, 1.0), num_documents=60, lamb=0.0
    )
    assert result.certificate.gap is not None
    assert result.certificate.gap < 0.06
    curve = result.curve.to_pandas()
    assert curve["objective"].iloc[-1] == pytest.approx(result.objective.value)
    assert curve["bound"].iloc[-1] == pytest.approx(result.certificate.bound)

"""Mixtures of moments, Facility and Pair_graph: no exchange is left that gains, and of few masks the best is found."""

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.facility import FacilityConfig, FacilityLocation
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.mixture import MixtureObjective
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.result import SelectionResult

MIXTURES = [
    ["Facility", "Pair_simi"],
    ["Facility", "LogDet"],
    ["Facility", "Vendi", "DiSF_uncentred"],
    ["Pair_graph", "Facility"],
    ["Pair_graph", "LogDet"],
    ["Pair_graph", "Facility", "Pair_simi"],
]
NEIGHBOURS = 10


def block(seed: int, size: int, dim: int) -> tuple[torch.Tensor, NDArray[np.float64]]:
    draws = np.random.default_rng(seed)
    rows_ND = draws.standard_normal((size, dim))
    rows_ND[: size // 3] = rows_ND[-(size // 3) :] + 0.05 * draws.standard_normal((size // 3, dim))
    rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    return torch.from_numpy(rows_ND).float(), draws.random(size)


def joined_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The similarities of documents that share an edge of Pair_graph, 0 elsewhere."""
    products_NN = rows @ rows.T
    np.fill_diagonal(products_NN, -np.inf)
    near_NN = products_NN >= np.sort(products_NN)[:, [-NEIGHBOURS]]
    return np.where(near_NN | near_NN.T, np.maximum(products_NN, 0), 0)


def worth(result: SelectionResult, rows_ND: torch.Tensor, quality_N: NDArray[np.float64], lamb: float) -> Any:
    """The objective of masks by the formulas of docs/choosing.md, on the result's scale."""
    rows = rows_ND.double().numpy()
    scale, joined_NN = result.normalisation, joined_of(rows)

    def raw(name: str, chosen: list[int]) -> float:
        products = rows[chosen] @ rows[chosen].T
        count, dim = len(chosen), rows.shape[1]
        second = rows[chosen].T @ rows[chosen]
        if name == "Facility":
            return float(np.maximum(rows @ rows[chosen].T, 0).max(1).mean())
        if name == "Pair_graph":
            return float(-joined_NN[np.ix_(chosen, chosen)].sum() / count)
        if name == "Pair_simi":
            return float(-(products.sum() - np.trace(products)) / (count * (count - 1)))
        if name == "DiSF_uncentred":
            return float(-np.square(second / count).sum())
        if name == "LogDet":
            return float(np.linalg.slogdet(np.eye(dim) + dim / count * second)[1] / dim)
        spectrum = np.linalg.eigvalsh(products / np.trace(products))
        spectrum = spectrum[spectrum > 1e-12]
        return float(-(spectrum * np.log(spectrum)).sum())

    def of(chosen: list[int]) -> float:
        zero, one = scale["quality"]
        total = lamb * float((quality_N[chosen].mean() - zero) / (one - zero))
        names = [name for name in scale if name != "quality"]
        for name in names:
            zero, one = scale[name]
            total += (1 - lamb) / len(names) * (raw(name, chosen) - zero) / (one - zero)
        return total

    return of


@pytest.mark.parametrize("names", MIXTURES, ids="+".join)
def test_no_exchange_within_a_group_is_left_that_gains(names: list[str]) -> None:
    rows_ND, quality_N = block(3, 48, 6)
    groups = ["a" if row % 3 else "b" for row in range(48)]
    result = select_documents(
        rows_ND,
        quality_N,
        diversity=dict.fromkeys(names, 1.0),
        num_documents=10,
        lamb=0.3,
        groups=groups,
        quotas={"a": 0.7, "b": 0.3},
        num_kicks=2,
        num_restarts=2,
    )
    chosen = np.flatnonzero(result.mask).tolist()
    assert [sum(groups[row] == group for row in chosen) for group in "ab"] == [7, 3]
    of = worth(result, rows_ND, quality_N, 0.3)
    reached = of(chosen)
    assert reached == pytest.approx(result.objective.value, abs=1e-5)
    for out in chosen:
        for into in set(range(48)) - set(chosen):
            if groups[into] == groups[out]:
                assert of([into if row == out else row for row in chosen]) <= reached + 1e-6, (into, out)


@pytest.mark.parametrize("names", [["Facility", "Pair_simi"], ["Pair_graph", "Pair_simi"]], ids="+".join)
def test_of_hundreds_of_documents_too_no_exchange_is_left_that_gains(names: list[str]) -> None:
    """Values, asked of a few documents in each one's place, left hundreds: there was no time to ask them all."""
    (rows_ND, quality_N), count = block(3, 600, 16), 150
    result = select_documents(
        rows_ND,
        quality_N,
        diversity=dict.fromkeys(names, 1.0),
        num_documents=count,
        lamb=0.1,
        num_kicks=0,
        num_restarts=0,
    )
    products_NN = rows_ND.double().numpy() @ rows_ND.double().numpy().T
    similar_NN, scale = np.maximum(products_NN, 0), result.normalisation
    joined_NN = joined_of(rows_ND.double().numpy())
    of_one = {name: 1 / (one - zero) for name, (zero, one) in scale.items()}
    chosen = np.flatnonzero(result.mask)
    covered = similar_NN[:, chosen].max(1).mean()
    most = -np.inf
    for out in chosen:
        others = chosen[chosen != out]
        left_N1 = similar_NN[:, others].max(1, keepdims=True)
        alike_N = products_NN[others].sum(0) - products_NN[others, out].sum()
        near_N = joined_NN[others].sum(0) - joined_NN[others, out].sum()
        more = {
            "Facility": np.maximum(similar_NN, left_N1).mean(0) - covered,
            "Pair_simi": -2 * alike_N / (count * (count - 1)),
            "Pair_graph": -2 * near_N / count,
        }
        gains_N = 0.1 * of_one["quality"] * (quality_N - quality_N[out]) / count
        gains_N += sum(0.45 * of_one[name] * more[name] for name in names)
        gains_N[chosen] = -np.inf
        most = max(most, gains_N.max())
    assert most < 1e-6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", MIXTURES, ids="+".join)
def test_of_few_documents_the_best_mask_is_found(names: list[str]) -> None:
    for seed in range(4):
        rows_ND, quality_N = block(seed, 12, 5)
        result = select_documents(
            rows_ND, quality_N, diversity=dict.fromkeys(names, 1.0), num_documents=4, lamb=0.2
        )
        of = worth(result, rows_ND, quality_N, 0.2)
        best = max(of(list(chosen)) for chosen in combinations(range(12), 4))
        assert of(np.flatnonzero(result.mask).tolist()) == pytest.approx(best, abs=1e-6), seed


def test_landmarks_are_the_references() -> None:
    rows_ND, quality_N = block(5, 60, 6)
    results = [
        select_documents(
            rows_ND,
            quality_N,
            diversity={"Facility": 1.0, "Pair_simi": 1.0},
            diversity_options={"Facility": {"exact_rows": 20, "num_landmarks": 15}},
            num_documents=9,
            lamb=0.3,
            num_workers=workers,
            num_kicks=2,
            num_restarts=2,
        )
        for workers in (1, 3)
    ]
    assert results[0].mask.tolist() == results[1].mask.tolist()
    other = select_documents(
        rows_ND, quality_N, diversity={"Facility": 1.0, "Pair_simi": 1.0}, num_documents=9, lamb=0.3
    )
    assert results[0].normalisation != other.normalisation
    assert results[0].mask.sum() == 9


def test_metrics_of_coverage_alone_are_no_mixture_with_moments() -> None:
    """Two of them, as a file of one's own may bring a second, have no model of moments to be summed with."""
    terms = [
        Term(name=name, metric=FacilityLocation(FacilityConfig()), weight=0.5) for name in ("one", "other")
    ]
    of_moments = Term(name="moments", metric=METRICS.make("Pair_simi"), weight=0.5)
    rows = SimpleNamespace(everything=lambda: block(7, 40, 6)[0])

    def found(*chosen: Term) -> MixtureObjective | None:
        function = ObjectiveFunction(lamb=0.1, quality_N=torch.zeros(40), terms=chosen)
        budget = SimpleNamespace(tokens=False)
        with Workers(1) as workers:
            problem: Any = SimpleNamespace(
                objective=function, num_rows=40, rows=rows, budget=budget, held=None, workers=workers
            )
            return MixtureObjective.of(problem)

    assert found(*terms) is None
    assert found(of_moments) is None
    assert found(terms[0], of_moments) is not None

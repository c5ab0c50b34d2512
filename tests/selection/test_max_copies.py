"""Counts instead of a mask: totals, value and certificate against every count vector there is."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS


def block(size: int, seed: int = 0):
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(size, 5)) + 0.5
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), draws.random(size)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "Facility", "LogDet"])
@pytest.mark.parametrize("max_copies", [2, 3])
def test_total_value_and_certificate_are_those_of_every_count_vector(name: str, max_copies: int) -> None:
    import torch

    rows, quality = block(6, seed=max_copies)
    result = select_documents(
        rows, quality, max_copies=max_copies, num_documents=5, diversity=name, lamb=0.4, dtype="float32"
    )
    (zero_q, one_q), (zero_d, one_d) = result.normalisation["quality"], result.normalisation[name]
    metric = METRICS.make(name)

    def value(counts: tuple[int, ...]) -> float:
        chosen = np.repeat(np.arange(6), counts)
        # The pool counts each document as often as any other, so that coverage of it is that of the documents once.
        everything = torch.from_numpy(np.concatenate([rows[chosen], rows]) if name != "Facility" else rows)
        mask = torch.zeros(1, len(everything), dtype=torch.bool)
        mask[0, torch.arange(5) if name != "Facility" else torch.from_numpy(np.unique(chosen))] = True
        diversity = float(metric.values(everything, mask)[0])
        return 0.4 * (quality[chosen].mean() - zero_q) / (one_q - zero_q) + 0.6 * (diversity - zero_d) / (
            one_d - zero_d
        )

    values = {c: value(c) for c in product(range(max_copies + 1), repeat=6) if sum(c) == 5}
    counts = tuple(result.counts.tolist())
    assert sum(counts) == 5
    assert max(counts) <= max_copies
    assert result.objective.value == pytest.approx(values[counts], abs=1e-5)
    assert result.certificate.bound >= max(values.values()) - 1e-5
    assert values[counts] >= max(values.values()) - 0.05
    assert result.record["selected_copies"] == 5
    assert result.record["selected"] == result.mask.sum() == len(set(np.flatnonzero(counts)))
    best = np.argsort(-quality)
    top = select_documents(
        rows, quality, max_copies=max_copies, num_documents=5, lamb=1.0, policy="quality_topk"
    )
    assert top.counts[best].tolist() == ([2, 2, 1, 0, 0, 0] if max_copies == 2 else [3, 2, 0, 0, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "Facility"])
def test_in_tokens_no_full_count_vector_exceeds_the_bound(name: str) -> None:
    import torch

    rows, quality = block(6, seed=7)
    tokens = np.array([3, 5, 8, 4, 7, 6])
    result = select_documents(
        rows,
        quality,
        max_copies=2,
        num_tokens=25,
        token_counts=tokens,
        diversity=name,
        lamb=0.4,
        normalisation="none",
        dtype="float32",
    )

    def value(counts: NDArray[np.int64]) -> float:
        chosen = np.repeat(np.arange(6), counts)
        everything = torch.from_numpy(np.concatenate([rows[chosen], rows]) if name != "Facility" else rows)
        mask = torch.zeros(1, len(everything), dtype=torch.bool)
        mask[0, torch.arange(len(chosen)) if name != "Facility" else torch.from_numpy(np.unique(chosen))] = (
            True
        )
        return 0.4 * quality[chosen].mean() + 0.6 * float(METRICS.make(name).values(everything, mask)[0])

    every = [np.array(counts) for counts in product(range(3), repeat=6) if sum(counts) > 1]
    left = [(counts, 25 - int(counts @ tokens)) for counts in every]
    full = [counts for counts, rest in left if 0 <= rest < tokens[counts < 2].min(initial=100)]
    assert result.counts.tolist() in [counts.tolist() for counts in full]
    assert result.objective.value == pytest.approx(value(result.counts), abs=1e-5)
    assert max(map(value, full)) - 1e-6 <= result.certificate.bound <= max(map(value, full)) + 0.3


def test_what_is_told_of_a_document_is_of_its_copies_together_or_of_one_more() -> None:
    rows, quality = block(6)
    budget = {"max_copies": 3, "num_documents": 7, "lamb": 0.5}
    top = select_documents(rows, quality, policy="quality_topk", diversity="Facility", **budget)
    assert sorted(top.counts.tolist()) == [0, 0, 0, 1, 3, 3]
    assert top.probabilities.tolist() == pytest.approx((top.counts / 3).tolist())
    assert set(top.reasons[top.mask]) == {"quality at or above threshold"}
    # A second copy covers nothing that the first does not; nor is the third one missed.
    assert not top.marginals.diversity_N[top.mask].any()
    assert (top.marginals.diversity_N[~top.mask] > 0).all()
    learnt = select_documents(rows, quality, diversity="Pair_simi", **budget)
    tangent = learnt.certified_at["tangent"]
    assert tangent.sum() == pytest.approx(7)
    assert tangent.max() <= 3 + 1e-9
    covering = select_documents(rows, quality, diversity="Facility", **budget)
    assert covering.certified_at["dual"].max() <= 1 + 1e-6
    cliques = select_documents(rows, quality, diversity="Pair_graph", **budget).cliques
    assert set(cliques.column("row").to_pylist()) == set(range(6))


@pytest.mark.slow
def test_counts_keep_budgets_quotas_and_pruning() -> None:
    rows, quality = block(60)
    groups = ["a"] * 20 + ["b"] * 40
    result = select_documents(
        rows,
        quality,
        max_copies=3,
        num_documents=80,
        groups=groups,
        quotas={"a": 0.5, "b": 0.5},
        quality_pruning=0.1,
    )
    assert result.counts.sum() == 80
    assert result.counts[:20].sum() == 40
    worst = np.argsort(quality)[:6]
    assert not result.counts[worst].any()
    assert set(result.reasons[worst]) == {"pruned by quality"}
    assert result.record["rows"] == 60
    assert result.record["rows_pruned_by_quality"] == 6
    assert sum(result.record["reasons"].values()) == 60
    assert result.record["reasons"]["pruned by quality"] == 6
    assert (result.logits == -np.inf).sum() == 6
    assert np.array_equal(result.mask, result.counts > 0)
    assert result.certified_at["tangent"][result.probabilities > 0].max() <= 3
    assert np.nansum(result.certified_at["tangent"]) == pytest.approx(80)
    tokens = np.arange(60) + 5
    spent = select_documents(rows, quality, max_copies=2, num_tokens=3000, token_counts=tokens)
    assert 2500 < (spent.counts * tokens).sum() <= 3000
    assert spent.record["selected_tokens"] == (spent.counts * tokens).sum()
    once = select_documents(rows, quality, max_copies=1, ratio=0.2)
    assert np.array_equal(once.counts, once.mask.astype(int))


def test_what_is_no_number_of_copies_or_too_much_is_refused() -> None:
    rows, quality = block(10)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ConfigurationError, match="max_copies must be a whole number above 0"):
            select_documents(rows, quality, max_copies=wrong)
    with pytest.raises(
        ConfigurationError, match="the budget is 21 documents, the block has 20: lower `num_documents`"
    ):
        select_documents(rows, quality, max_copies=2, num_documents=21)


@pytest.mark.slow
def test_more_copies_than_the_budget_holds_are_as_many_as_it_holds() -> None:
    rows, quality = block(40)
    found, most = (
        select_documents(rows, quality, max_copies=copies, num_documents=3) for copies in (3, 10**9)
    )
    assert found.counts.tolist() == most.counts.tolist()
    assert found.objective.value == most.objective.value

"""Facility location through the public function: determinism, ties, quotas, budgets, large blocks, certificate."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.selection.facility import choose
from datamask_pipeline.selection.facility.choose import first_length
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.solve import CoverageTask, certified_mask
from datamask_pipeline.selection.parallel import Workers


def clumped(num_rows: int, seed: int, num_clumps: int = 30, dim: int = 16):
    draws = np.random.default_rng(seed)
    centres_CD = draws.standard_normal((num_clumps, dim))
    rows_ND = centres_CD[draws.integers(num_clumps, size=num_rows)] + 0.4 * draws.standard_normal(
        (num_rows, dim)
    )
    rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    return rows_ND.astype(np.float32), draws.standard_normal(num_rows)


def facility(embeddings, quality, **settings):
    return select_documents(embeddings, quality, **({"diversity": "Facility"} | settings))


def plain_task(rows_ND, budget, workers):
    num_rows = len(rows_ND)
    return CoverageTask(
        linear_N=torch.zeros(num_rows, dtype=torch.float64),
        weight=1.0,
        costs_N=torch.ones(num_rows, dtype=torch.float64),
        groups_N=torch.zeros(num_rows, dtype=torch.int64),
        limits=(float(budget),),
        cover=lambda selected_T: coverage_of(
            rows_ND, torch.arange(num_rows), selected_T, workers, torch.float32
        ),
    )


NEAR_COPIES = [
    (10, 0.05, 0.1, 0.5),
    (10, 0.002, 0.5, 0.5),
    (20, 0.002, 0.3, 0.0),
    (20, 0.05, 0.5, 0.5),
    (40, 0.05, 0.5, 0.0),
]
"""Templates, noise, ratio, lambda."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_bytes_whatever_the_number_of_workers(dtype):
    embeddings, quality = clumped(900, seed=0)
    one, two = (facility(embeddings, quality, dtype=dtype, num_workers=workers) for workers in (1, 2))
    assert np.array_equal(one.mask, two.mask)
    assert np.array_equal(one.logits, two.logits)
    assert one.certificate.bound == two.certificate.bound
    assert one.objective.value == two.objective.value


def test_not_below_dense_lazy_greedy_and_certified():
    for seed in range(3):
        embeddings, quality = clumped(900, seed)
        ours = facility(embeddings, quality, seed=seed)
        dense = facility(
            embeddings, quality, seed=seed, policy="greedy", normalisation_constants=ours.normalisation
        )
        assert ours.mask.sum() == dense.mask.sum() == 90
        assert ours.objective.value >= dense.objective.value - 1e-9
        assert dense.objective.value <= ours.certificate.bound + 1e-6
        assert 0 <= ours.certificate.gap < 0.05


@pytest.mark.parametrize("seed", range(6))
def test_bound_and_mask_against_enumeration(seed):
    embeddings, quality = clumped(14, seed, num_clumps=5, dim=5)
    ours = facility(embeddings, quality, num_documents=3, normalisation="none", lamb=0.3, seed=seed)
    similar_NN = np.maximum(embeddings.astype(np.float64) @ embeddings.T.astype(np.float64), 0)

    def value(subset):
        rows = list(subset)
        return 0.3 * quality[rows].mean() + 0.7 * similar_NN[:, rows].max(1).mean()

    values = [value(subset) for subset in combinations(range(14), 3)]
    assert ours.objective.value == pytest.approx(value(np.flatnonzero(ours.mask)), abs=1e-6)
    assert max(values) <= ours.certificate.bound + 1e-7
    assert ours.objective.value >= max(values) - 0.1 * (max(values) - np.mean(values))


def test_a_planted_cover_is_found():
    draws = np.random.default_rng(1)
    centres_CD = np.linalg.qr(draws.standard_normal((24, 24)))[0][:20]
    rows_ND = np.repeat(centres_CD, 30, axis=0) + 0.15 * draws.standard_normal((600, 24))
    rows_ND[::30] = centres_CD
    rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    found = facility(rows_ND.astype(np.float32), draws.standard_normal(600), num_documents=20, lamb=0.0)
    assert np.array_equal(np.flatnonzero(found.mask), np.arange(0, 600, 30))


@pytest.mark.slow
def test_identical_documents_are_chosen_uniformly_over_seeds():
    embeddings = np.zeros((12, 4), dtype=np.float32)
    embeddings[:, 1] = 1
    counts = np.zeros(12)
    for seed in range(240):
        counts += facility(
            embeddings, np.zeros(12), num_documents=3, lamb=0.0, normalisation="none", seed=seed
        ).mask
    # Binomial with 240 draws of 1/4: mean 60, deviation 6.7.
    assert counts.sum() == 720
    assert counts.min() > 60 - 4 * 6.7
    assert counts.max() < 60 + 4 * 6.7


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_isotropic_vectors_are_never_worse_than_random(seed: int):
    draws = np.random.default_rng(seed)
    rows_ND = draws.standard_normal((400, 64)).astype(np.float32)
    found = facility(rows_ND, draws.standard_normal(400), seed=seed, lamb=0.0)
    assert found.objective.value > found.objective.random


def test_quotas_are_met_and_bounded():
    embeddings, quality = clumped(600, seed=2)
    groups = np.where(np.arange(600) % 4 == 0, "rare", "common")
    found = facility(embeddings, quality, groups=groups, quotas={"rare": 0.5, "common": 0.5})
    assert found.mask[groups == "rare"].sum() == found.mask[groups == "common"].sum() == 30
    free = facility(embeddings, quality, normalisation_constants=found.normalisation)
    assert found.certificate.bound >= found.objective.value
    assert found.certificate.bound <= free.certificate.bound + 1e-3
    assert free.objective.value > found.objective.value


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("lamb", [0.0, 0.7])
def test_a_token_budget_is_kept_and_certified(lamb: float):
    embeddings, quality = clumped(600, seed=3)
    tokens = np.random.default_rng(0).integers(10, 200, size=600)
    found = facility(embeddings, quality, lamb=lamb, num_tokens=5000, token_counts=tokens, num_restarts=0)
    assert 4900 < tokens[found.mask].sum() <= 5000
    assert 0 <= found.certificate.gap < 0.05
    assert "fill the budget" in found.certificate.method


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("lamb", [0.0, 0.3, 0.9])
def test_of_full_masks_none_exceeds_the_bound(lamb: float):
    """Coverage and mean quality of every mask of nine documents that no other fits beside, in float64."""
    gaps = []
    for seed in range(4):
        embeddings, quality = clumped(9, seed, num_clumps=4, dim=4)
        tokens = np.random.default_rng(seed).integers(5, 40, size=9)
        limit = max(2 * int(tokens.max()), int(0.6 * tokens.sum()))
        settings = {"lamb": lamb, "num_tokens": limit, "token_counts": tokens, "normalisation": "none"}
        found = facility(embeddings, quality, **settings)
        similarities = np.maximum(embeddings.astype(np.float64) @ embeddings.T.astype(np.float64), 0)
        values = []
        for chosen in (np.flatnonzero(mask) for mask in product([0, 1], repeat=9)):
            left = limit - tokens[chosen].sum()
            if len(chosen) > 1 and 0 <= left < np.delete(tokens, chosen).min(initial=1000):
                coverage = similarities[:, chosen].max(1).mean()
                values.append(lamb * quality[chosen].mean() + (1 - lamb) * coverage)
        assert found.certificate.bound >= max(values) - 1e-6
        gaps.append(found.certificate.bound - max(values))
    assert min(gaps) < 0.1


@pytest.mark.slow
def test_blocks_beyond_exact_lists_are_certified_too():
    embeddings, quality = clumped(1500, seed=4)
    options = {"Facility": {"exact_rows": 1000, "num_landmarks": 700}}
    exact = facility(embeddings, quality)
    large = facility(
        embeddings, quality, diversity_options=options, normalisation_constants=exact.normalisation
    )
    again = facility(
        embeddings,
        quality,
        diversity_options=options,
        normalisation_constants=exact.normalisation,
        num_workers=1,
    )
    assert large.record["learner"]["lists"] == "from clusters"
    assert "probability" in large.certificate.method
    assert large.certificate.bound >= exact.objective.value
    assert large.objective.value == pytest.approx(exact.objective.value, abs=0.02)
    assert np.array_equal(large.mask, again.mask)
    assert large.certificate.bound == again.certificate.bound


@pytest.mark.slow
def test_blocks_of_many_documents_have_lists_from_clusters(monkeypatch):
    """Every document is a reference of the metric, and still not every similarity is looked at."""
    embeddings, quality = clumped(1500, seed=4)
    exact = facility(embeddings, quality)
    monkeypatch.setattr(choose, "MOST_EXACT", 1499)
    large = facility(embeddings, quality, normalisation_constants=exact.normalisation)
    assert exact.record["learner"]["lists"] == "exact"
    assert large.record["learner"]["lists"] == "from clusters"
    assert large.objective.random == pytest.approx(exact.objective.random, abs=1e-9)
    assert large.certificate.bound >= exact.objective.value
    distance = exact.objective.value - exact.objective.random
    assert large.objective.value == pytest.approx(exact.objective.value, abs=0.005 * distance)


def test_lists_grow_where_quality_leaves_references_outside():
    embeddings, _ = clumped(800, seed=5)
    # All quality in one half-space: the best documents are far from half of the references.
    quality = 10.0 * (embeddings[:, 0] > 0.2) + 0.01 * embeddings[:, 1]
    first, _ = first_length(800, 40)
    found = facility(embeddings, quality, ratio=0.05, lamb=0.95)
    assert found.record["learner"]["neighbours"] > first
    assert found.record["learner"]["references_outside_lists"] < 0.5


def test_greedy_led_by_the_bound_beats_plain_greedy():
    gains = []
    for seed in range(4):
        rows_ND = torch.from_numpy(clumped(900, seed)[0])
        with Workers(2) as workers:
            lists = nearest(rows_ND, torch.arange(900), 24, workers)
            task = plain_task(rows_ND, 90, workers)
            first = task.measured(task.picks(lists))
            certified = certified_mask(task, lists, first)
        assert first.value <= certified.mask.value <= certified.bound + 1e-9
        gains.append((certified.mask.value - first.value) / (certified.bound - first.value))
    # It closes a good part of the distance to the bound.
    assert np.median(gains) > 0.3


def near_copies(num_rows: int, seed: int, num_templates: int, noise: float, dim: int = 64):
    """Three in ten rows are near-copies of a few templates, the others lie in clumps."""
    draws = np.random.default_rng(seed)
    rows_ND, quality = clumped(num_rows, seed, num_clumps=60, dim=dim)
    templates_CD = draws.standard_normal((num_templates, dim))
    copies = draws.permutation(num_rows)[: 3 * num_rows // 10]
    rows_ND[copies] = templates_CD[draws.integers(num_templates, size=len(copies))]
    rows_ND[copies] += noise * draws.standard_normal((len(copies), dim))
    return rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True), quality


@pytest.mark.slow
@pytest.mark.parametrize(("num_templates", "noise", "ratio", "lamb"), NEAR_COPIES)
def test_near_copies_do_not_crowd_out_the_rest_whatever_the_arithmetic(num_templates, noise, ratio, lamb):
    embeddings, quality = near_copies(2000, 0, num_templates, noise)
    shared = {"ratio": ratio, "lamb": lamb}
    fine = facility(embeddings, quality, dtype="float32", **shared)
    shared["normalisation_constants"] = fine.normalisation
    coarse = facility(embeddings, quality, dtype="bfloat16", **shared)
    dense = facility(embeddings, quality, policy="greedy", dtype="float32", **shared)
    distance = fine.objective.value - fine.objective.random
    assert coarse.objective.value >= fine.objective.value - 0.002 * distance
    assert coarse.objective.value >= dense.objective.value
    assert coarse.certificate.gap <= fine.certificate.gap + 0.005


@pytest.mark.slow
def test_little_is_left_for_a_swap():
    for seed in range(3):
        embeddings, quality = clumped(240, seed)
        found = facility(embeddings, quality, seed=seed, lamb=0.3)
        similar_NN = np.maximum(embeddings.astype(np.float64) @ embeddings.T.astype(np.float64), 0)
        (zero, one), (low, high) = found.normalisation["Facility"], found.normalisation["quality"]

        def value(rows, similar_NN=similar_NN, scale=(zero, one, low, high), quality=quality):
            zero, one, low, high = scale
            covered = similar_NN[:, rows].max(1).mean()
            return 0.3 * (quality[rows].mean() - low) / (high - low) + 0.7 * (covered - zero) / (one - zero)

        chosen = np.flatnonzero(found.mask)
        reached = value(chosen)
        best = max(
            value([*(row for row in chosen if row != out), into])
            for out in chosen
            for into in np.flatnonzero(~found.mask)
        )
        assert best - reached <= 0.0005 * (reached - found.objective.random)

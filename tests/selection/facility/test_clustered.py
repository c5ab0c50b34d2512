"""Lists from clusters: what they hold is true, enough of it is found, and what they miss is bounded."""

import math

import pytest
import torch

from datamask_pipeline.selection.facility import clustered as module
from datamask_pipeline.selection.facility.clustered import clustered_lists
from datamask_pipeline.selection.facility.clusters import spherical_clusters
from datamask_pipeline.selection.facility.evaluate import completed, coverage_of, listed_coverage
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.sampled import ERROR_PROBABILITY, mean_at_most, missed_excess
from datamask_pipeline.selection.parallel import Workers


def clumps(num_rows: int = 1200, dim: int = 32, seed: int = 0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    centres_CD = torch.nn.functional.normalize(torch.randn(40, dim, generator=draws))
    noise_ND = torch.randn(num_rows, dim, generator=draws) / dim**0.5
    rows_ND = centres_CD[torch.randint(40, (num_rows,), generator=draws)] + 0.7 * noise_ND
    return torch.nn.functional.normalize(rows_ND)


@pytest.fixture
def small_pools(monkeypatch):
    monkeypatch.setattr(module, "DOCUMENTS_PER_CLUSTER", 16)
    monkeypatch.setattr(module, "GROUP_REFERENCES", 32)
    monkeypatch.setattr(module, "POOL", 64)


def lists_of(rows_ND, num_workers=2, length=10):
    with Workers(num_workers) as workers:
        return clustered_lists(rows_ND, length, torch.Generator().manual_seed(1), workers, torch.float32)


def test_clusters_partition_the_documents():
    rows_ND = clumps()
    with Workers(2) as workers:
        clusters = spherical_clusters(rows_ND, 30, torch.Generator().manual_seed(0), workers, torch.float32)
    assert sorted(clusters.order_N.tolist()) == list(range(len(rows_ND)))
    assert clusters.offsets[0] == 0
    assert clusters.offsets[-1] == len(rows_ND)
    groups = clusters.groups(100)
    assert [first for first, _ in groups] == [0, *(last for _, last in groups[:-1])]
    assert groups[-1][1] == len(clusters)
    # Each family's share is rounded up, so that none goes without a cluster.
    assert 30 <= len(clusters) <= 30 + len(clusters.families_FD)
    assert all(len(set(clusters.families_C[first:last].tolist())) == 1 for first, last in groups)
    inside = [
        float((rows_ND[clusters.order_N[start:stop]] @ clusters.centroids_CD[cluster]).mean())
        for cluster, (start, stop) in enumerate(zip(clusters.offsets, clusters.offsets[1:], strict=False))
        if stop > start
    ]
    assert min(inside) > float((rows_ND @ clusters.centroids_CD.T).mean()) + 0.2


def test_listed_similarities_are_true_and_most_neighbours_are_found(small_pools):
    rows_ND = clumps()
    lists = lists_of(rows_ND)
    true_NN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0)
    torch.testing.assert_close(
        lists.similarities_Rk.double(), true_NN.gather(1, lists.documents_Rk), atol=1e-6, rtol=0
    )
    assert (lists.similarities_Rk.diff(dim=1) <= 0).all()
    assert all(len(set(row)) == 10 for row in lists.documents_Rk.tolist())
    best_Nk = true_NN.topk(10, dim=1).indices
    recall = (best_Nk[:, :, None] == lists.documents_Rk[:, None, :]).any(2).double().mean()
    assert 0.85 < float(recall) < 1
    assert lists.ceiling_R is None


def test_lists_do_not_depend_on_the_number_of_workers(small_pools):
    one, two = lists_of(clumps(), num_workers=1), lists_of(clumps(), num_workers=2)
    assert torch.equal(one.documents_Rk, two.documents_Rk)
    assert torch.equal(one.similarities_Rk, two.similarities_Rk)


def test_coverage_from_lists_is_never_overstated(small_pools):
    rows_ND = clumps()
    selected_T = torch.arange(0, 1200, 17)
    with Workers(1) as workers:
        true = coverage_of(rows_ND, torch.arange(1200), selected_T, workers, torch.float32)
        lists = lists_of(rows_ND)
        rough = listed_coverage(lists, selected_T)
        listed = completed(
            lists, rough, rows_ND, torch.arange(len(rows_ND)), selected_T, workers, torch.float32
        )
    assert (listed.best_R <= true.best_R + 1e-6).all()
    assert float((listed.best_R >= true.best_R - 1e-6).double().mean()) > 0.95
    assert bool(torch.isin(listed.owner_R, selected_T).all())
    # Without the search for those outside the lists, some would count as covered up to their floor.
    assert not (rough.best_R <= true.best_R + 1e-6).all()


@pytest.mark.parametrize("seed", range(8))
def test_what_lists_miss_is_bounded(small_pools, seed):
    rows_ND = clumps(seed=seed)
    lists = lists_of(rows_ND, length=6)
    levels_R = lists.similarities_Rk[:, 2].double() - 0.02
    with Workers(1) as workers:
        exact = nearest(rows_ND, torch.arange(1200), 60, workers)
        draws = torch.Generator().manual_seed(seed)
        bounded, held = missed_excess(rows_ND, lists, levels_R, draws, workers, torch.float32, sample=800)
    listed_Nk = (exact.documents_Rk[:, :, None] == lists.documents_Rk[:, None, :]).any(2)
    missed_R = exact.similarities_Rk.masked_fill(listed_Nk, 0).amax(1).double()
    truth = float((missed_R - levels_R).clamp(min=0).mean())
    assert truth > 0
    assert truth <= bounded <= truth + 0.02
    assert 0 < held <= 1


def test_the_mean_bound_is_the_binomial_tail():
    # No success in n draws: the mean p with (1 - p)^n = error probability, the exact one-sided bound.
    assert mean_at_most(0.0, 100) == pytest.approx(1 - ERROR_PROBABILITY ** (1 / 100), rel=1e-9)
    assert mean_at_most(1.0, 100) == 1.0
    assert 0.3 < mean_at_most(0.3, 1000) < 0.3 + 3 * math.sqrt(0.21 / 1000) * 1.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_document_is_on_its_own_list_whatever_the_pools(small_pools, dtype):
    draws = torch.Generator().manual_seed(2)
    copies_ND = torch.randn(6, 32, generator=draws).repeat(50, 1) + 1e-3 * torch.randn(
        300, 32, generator=draws
    )
    rows_ND = torch.cat([clumps(900), torch.nn.functional.normalize(copies_ND)])
    with Workers(2) as workers:
        lists = clustered_lists(rows_ND, 10, torch.Generator().manual_seed(1), workers, dtype)
    assert bool((lists.documents_Rk == torch.arange(1200)[:, None]).any(1).all())

"""Lists from clusters: what they hold is true, enough of it is found, and what they miss is bounded."""

import math

import pytest
import torch

from datamask_pipeline.selection.facility import clustered as module
from datamask_pipeline.selection.facility import sampled
from datamask_pipeline.selection.facility.clustered import clustered_lists
from datamask_pipeline.selection.facility.clusters import spherical_clusters
from datamask_pipeline.selection.facility.evaluate import completed, coverage_of, listed_coverage
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.parts import Parts
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


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("value", "chance"), [(1.0, 0.01), (1.0, 0.3), (0.05, 0.1), (0.5, 0.002)])
def test_the_mean_bound_fails_no_more_often_than_it_says(monkeypatch, value, chance):
    monkeypatch.setattr(sampled, "ERROR_PROBABILITY", 0.05)
    draws = torch.Generator().manual_seed(0)
    bounds = [mean_at_most(value * (torch.rand(300, generator=draws) < chance).double()) for _ in range(300)]
    failures = sum(bound < value * chance for bound in bounds)
    # Three deviations of a binomial with 300 draws of 1/20.
    assert failures <= 15 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_the_mean_bound_of_small_shares_is_little_above_what_none_would_give():
    none = mean_at_most(torch.zeros(4096, dtype=torch.float64))
    # The exact one-sided bound without a success is 1 - p ** (1 / n); the mixture of bets costs a factor of two.
    assert 1 - ERROR_PROBABILITY ** (1 / 4096) < none < 1.12 * (1 - ERROR_PROBABILITY ** (1 / 4096))
    small = mean_at_most(torch.full((4096,), 0.002, dtype=torch.float64))
    assert small < 0.002 + 1.01 * none
    assert mean_at_most(torch.ones(50, dtype=torch.float64)) == 1.0


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


def test_what_a_coarse_sample_cannot_tell_is_looked_at_again():
    draws = torch.Generator().manual_seed(0)
    centres_CD = torch.nn.functional.normalize(torch.randn(10, 64, generator=draws))
    rows_ND = torch.nn.functional.normalize(
        centres_CD.repeat(60, 1) + 0.01 * torch.randn(600, 64, generator=draws)
    )
    with Workers(2) as workers:
        exact = nearest(rows_ND, torch.arange(600), 11, workers)
        lists = NeighbourLists(
            num_documents=600,
            documents_Rk=exact.documents_Rk[:, :10],
            similarities_Rk=exact.similarities_Rk[:, :10],
            ceiling_R=None,
        )
        # Nothing that is missed stands above these, by less than bfloat16 resolves.
        levels_R = exact.similarities_Rk[:, 10].double() + 1e-3
        bounded, _ = missed_excess(rows_ND, lists, levels_R, draws, workers, torch.bfloat16, sample=800)
    none = float((1 - levels_R).mean()) * mean_at_most(torch.zeros(800, dtype=torch.float64))
    assert bounded == pytest.approx(none)


def test_who_is_near_those_near_me_is_found():
    rows_ND = clumps(dim=16)
    best_Nk = (rows_ND @ rows_ND.T).topk(10, dim=1).indices
    draws = torch.Generator().manual_seed(0)
    rough_Nk = best_Nk.int()
    others_Nk = torch.randint(1200, rough_Nk.shape, generator=draws).int()
    rough_Nk = torch.where(torch.rand(rough_Nk.shape, generator=draws) < 0.4, others_Nk, rough_Nk)
    rough_Nk[:, 0] = torch.arange(1200)
    with Workers(2) as workers:
        clusters = spherical_clusters(rows_ND, 75, draws, workers, torch.float32)
        fine_Nk, similarities_Nk = module._fine_lists(
            rows_ND, rough_Nk, clusters, clusters.groups(32), workers, Parts()
        )
    recall = (best_Nk[:, :, None] == fine_Nk[:, None, :]).any(2).double().mean()
    assert float(recall) > 0.95
    true_NN = (rows_ND @ rows_ND.T).clamp(min=0)
    torch.testing.assert_close(similarities_Nk, true_NN.gather(1, fine_Nk), atol=1e-6, rtol=0)


def test_near_pools_hold_their_members_whatever_their_size():
    rough_Nk = torch.randint(400, (400, 12), generator=torch.Generator().manual_seed(0)).int()
    rough_Nk[:, 0] = torch.arange(400)
    members_q = torch.arange(0, 400, 40)
    for size in (20, 50, 1000):
        pool_p = module._near_pool(rough_Nk, members_q, size)
        assert bool(torch.isin(members_q, pool_p).all())
        assert bool((pool_p.diff() > 0).all())
        assert len(pool_p) <= size

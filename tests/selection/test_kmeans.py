"""K-means of unit rows against its definition."""

import pytest
import torch

from datamask_pipeline.selection.kmeans import nearest_means, unit_means
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows


def block() -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(500, 12, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("chunk_rows", [64, 1000])
def test_means_and_owners_are_the_definition(chunk_rows):
    rows_ND = block()
    means_CD = rows_ND[:7]
    for _ in range(3):
        owner_N = (rows_ND @ means_CD.T).argmax(1)
        sums_CD = torch.stack([rows_ND[owner_N == cluster].double().sum(0) for cluster in range(7)])
        means_CD = torch.nn.functional.normalize(sums_CD).float()
    rows = MemoryRows(rows_ND, chunk_rows)
    with Workers(2) as workers:
        found_CD = unit_means(rows, rows_ND[:7], 3, torch.float32, workers)
        owner_N, closeness_N = nearest_means(rows, found_CD, torch.float32, workers)
    torch.testing.assert_close(found_CD, means_CD)
    products_NC = rows_ND @ means_CD.T
    assert torch.equal(owner_N, products_NC.argmax(1))
    torch.testing.assert_close(closeness_N, products_NC.amax(1))


def test_a_worker_alone_finds_what_all_find():
    rows = MemoryRows(block(), 64)
    with Workers(2) as workers:
        together_CD = unit_means(rows, rows.chunk(0, 7), 3, torch.bfloat16, workers)
        assert torch.equal(unit_means(rows, rows.chunk(0, 7), 3, torch.bfloat16), together_CD)


def test_a_cluster_without_documents_keeps_its_mean():
    rows_ND = block().abs()
    first_CD = torch.cat([rows_ND[:3], -rows_ND[:1]])
    means_CD = unit_means(MemoryRows(rows_ND, 64), first_CD, 2, torch.float32)
    assert torch.equal(means_CD[3], first_CD[3])
    assert not torch.equal(means_CD[:3], first_CD[:3])

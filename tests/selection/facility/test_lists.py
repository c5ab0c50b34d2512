"""Neighbour lists against brute force, whatever the arithmetic and the number of workers."""

import pytest
import torch

from datamask_pipeline.selection.facility import nearest as module
from datamask_pipeline.selection.facility.evaluate import (
    completed,
    coverage_of,
    listed_coverage,
    listed_marginals,
)
from datamask_pipeline.selection.facility.nearest import nearest, rounding_margin
from datamask_pipeline.selection.parallel import Workers


def unit_rows(num_rows: int, dim: int, seed: int) -> torch.Tensor:
    rows_ND = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows_ND + 0.5)


@pytest.mark.parametrize("tile", [64, 150, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lists_hold_the_most_similar_documents(monkeypatch, dtype, tile):
    monkeypatch.setattr(module, "TILE_CANDIDATES", tile)
    monkeypatch.setattr(module, "CHUNK_REFERENCES", 50)
    rows_ND = unit_rows(301, 24, seed=0)
    references_R = torch.arange(0, 301, 3)
    with Workers(2) as workers:
        lists = nearest(rows_ND, references_R, 9, workers, dtype=dtype)
        margin = rounding_margin(rows_ND, dtype, workers)
    true_RN = (rows_ND[references_R].double() @ rows_ND.double().T).clamp(min=0)
    torch.testing.assert_close(
        lists.similarities_Rk.double(), true_RN.gather(1, lists.documents_Rk), atol=1e-6, rtol=0
    )
    assert (lists.similarities_Rk.diff(dim=1) <= 0).all()
    assert all(len(set(row)) == 9 for row in lists.documents_Rk.tolist())
    rest_R = true_RN.scatter(1, lists.documents_Rk, 0).amax(1)
    assert (lists.ceiling_R >= rest_R).all()
    assert (lists.ceiling_R <= lists.floor_R + 2 * margin).all()
    if dtype == torch.float32:
        best_Rk = true_RN.topk(9, dim=1).values
        torch.testing.assert_close(lists.similarities_Rk.double(), best_Rk, atol=1e-6, rtol=0)


def test_candidates_restrict_the_lists_and_a_full_list_has_no_ceiling():
    rows_ND = unit_rows(80, 8, seed=1)
    candidates_C = torch.tensor([3, 5, 70, 71])
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(80), 10, workers, candidates_C=candidates_C)
    assert lists.length == 4
    assert set(lists.documents_Rk.reshape(-1).tolist()) == {3, 5, 70, 71}
    assert (lists.ceiling_R == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lists_do_not_depend_on_the_number_of_workers(dtype):
    rows_ND = unit_rows(3000, 64, seed=2)
    found = []
    for num_workers in (1, 2):
        with Workers(num_workers) as workers:
            found.append(nearest(rows_ND, torch.arange(3000), 12, workers, dtype=dtype))
    assert torch.equal(found[0].documents_Rk, found[1].documents_Rk)
    assert torch.equal(found[0].similarities_Rk, found[1].similarities_Rk)
    assert torch.equal(found[0].ceiling_R, found[1].ceiling_R)


def test_the_margin_bounds_the_rounding_of_products():
    rows_ND = unit_rows(400, 96, seed=3)
    rough_NN = (rows_ND.bfloat16() @ rows_ND.bfloat16().T).double()
    error = float((rough_NN - rows_ND.double() @ rows_ND.double().T).abs().max())
    with Workers(1) as workers:
        assert error <= rounding_margin(rows_ND, torch.bfloat16, workers) <= 6 * error


def test_entries_by_document_are_the_same_entries():
    rows_ND = unit_rows(60, 8, seed=5)
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(60), 6, workers)
    entries = lists.by_document
    back = {
        (document, int(entries.references_E[place]), float(entries.similarities_E[place]))
        for document in range(60)
        for place in range(entries.offsets_N1[document], entries.offsets_N1[document + 1])
    }
    there = {
        (document, reference, similarity)
        for reference in range(60)
        for document, similarity in zip(
            lists.documents_Rk[reference].tolist(), lists.similarities_Rk[reference].tolist(), strict=True
        )
    }
    assert back == there


def test_coverage_and_listed_marginals_are_exact_where_lists_are_full():
    rows_ND = unit_rows(40, 8, seed=6)
    mask_N = torch.zeros(40, dtype=torch.bool)
    mask_N[[1, 7, 20, 33]] = True
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(40), 40, workers)
        coverage = coverage_of(
            rows_ND, torch.arange(40), torch.nonzero(mask_N).squeeze(1), workers, torch.float32
        )
    similarity_NN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0)

    def value(mask_N: torch.Tensor) -> float:
        return float(similarity_NN[:, mask_N].amax(1).mean())

    assert coverage.mean == pytest.approx(value(mask_N), abs=1e-6)
    for document, change in enumerate(listed_marginals(lists, coverage)):
        other_N = mask_N.clone()
        other_N[document] = ~other_N[document]
        assert float(change) == pytest.approx(abs(value(mask_N) - value(other_N)), abs=1e-6)


def near_copies(num_rows: int, dim: int, seed: int, num_templates: int = 4) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.randn(num_templates, dim, generator=draws).repeat(num_rows // num_templates, 1)
    return torch.nn.functional.normalize(rows_ND + 1e-4 * torch.randn(num_rows, dim, generator=draws))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_document_is_on_its_own_list_beside_more_near_copies_than_it_holds(dtype):
    rows_ND = near_copies(400, 32, seed=0)
    candidates_C = torch.arange(0, 400, 3)
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(400), 9, workers, dtype=dtype)
        part = nearest(rows_ND, torch.arange(400), 9, workers, dtype=dtype, candidates_C=candidates_C)
    assert bool((lists.documents_Rk == torch.arange(400)[:, None]).any(1).all())
    assert bool((part.documents_Rk[candidates_C] == candidates_C[:, None]).any(1).all())


def test_no_ceiling_is_above_what_any_product_can_be():
    rows_ND = near_copies(400, 32, seed=1)
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(400), 9, workers, dtype=torch.bfloat16)
    assert float(lists.ceiling_R.max()) < 1 + 1e-4


def uneven(rows_ND: torch.Tensor, workers: Workers):
    """Lists of 6, those of every fourth reference lengthened to 20."""
    references_R = torch.arange(len(rows_ND))
    few_r = references_R[::4]
    longer = nearest(rows_ND, few_r, 20, workers)
    return nearest(rows_ND, references_R, 6, workers).lengthened(few_r, longer), longer


def test_lists_of_uneven_length_keep_every_entry_once():
    rows_ND = near_copies(200, 16, seed=2)
    with Workers(1) as workers:
        lists, longer = uneven(rows_ND, workers)
    entries = lists.by_document
    assert len(entries.references_E) == 150 * 6 + 50 * 20
    assert float(entries.similarities_E.min()) >= 0
    held = {(int(r), int(d)) for r, row in enumerate(longer.documents_Rk) for d in row}
    found = {
        (reference // 4, document)
        for document in range(200)
        for reference in entries.references_E[slice(*entries.offsets_N1[document : document + 2])].tolist()
        if reference % 4 == 0
    }
    assert found == held
    assert torch.equal(lists.floor_R[::4], longer.floor_R)
    assert torch.equal(lists.ceiling_R[::4], longer.ceiling_R)
    assert torch.equal(lists.floor_R[1::4], lists.similarities_Rk[1::4, 5])


def test_nothing_is_second_where_one_document_is_selected():
    """Also where a list holds all documents, the last of which is no second one."""
    rows_ND, references_R = near_copies(8, 4, seed=3).abs(), torch.arange(8)
    with Workers(1) as workers:
        lists = nearest(rows_ND, references_R, 8, workers)
        listed = listed_coverage(lists, torch.tensor([2]))
        found = completed(lists, listed, rows_ND, references_R, torch.tensor([2]), workers, torch.float32)
    assert not found.second_R.any()
    assert float(listed_marginals(lists, found)[2]) == pytest.approx(found.mean)


@pytest.mark.parametrize("seed", range(6))
def test_what_uneven_lists_do_not_say_is_looked_up(seed):
    rows_ND = near_copies(200, 16, seed=seed)
    selected_T = (
        torch.randperm(200, generator=torch.Generator().manual_seed(seed))[: 3 + 9 * seed].sort().values
    )
    references_R = torch.arange(200)
    with Workers(1) as workers:
        lists, _ = uneven(rows_ND, workers)
        rough = listed_coverage(lists, selected_T)
        found = completed(lists, rough, rows_ND, references_R, selected_T, workers, torch.float32)
        true = coverage_of(rows_ND, references_R, selected_T, workers, torch.float32)
    torch.testing.assert_close(found.best_R, true.best_R, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.second_R, true.second_R, atol=1e-6, rtol=0)
    assert bool((rough.owner_R < 0).any() | (rough.runner_R < 0).any())


@pytest.mark.parametrize("seed", range(2))
def test_a_coarse_search_lists_what_a_fine_one_does(seed):
    draws = torch.Generator().manual_seed(seed)
    centres_CD = torch.nn.functional.normalize(torch.randn(20, 64, generator=draws))
    rows_ND = centres_CD.repeat(60, 1) + 0.3 / 8 * torch.randn(1200, 64, generator=draws)
    rows_ND = torch.nn.functional.normalize(rows_ND)
    with Workers(2) as workers:
        fine, coarse = (
            nearest(rows_ND, torch.arange(1200), 24, workers, dtype=dtype)
            for dtype in (torch.float32, torch.bfloat16)
        )
        margin = rounding_margin(rows_ND, torch.bfloat16, workers)
    held_Rk = (fine.documents_Rk[:, :, None] == coarse.documents_Rk[:, None, :]).any(2)
    assert float(held_Rk.double().mean()) > 0.999
    # What is left out is known nearly as closely as in float32, not up to the rounding of the search.
    assert float((coarse.ceiling_R - fine.ceiling_R).clamp(min=0).mean()) < 0.25 * margin

"""Exact nearest documents of every reference by blocked products. Knows no mask's meaning, quality or budget.

Shape suffixes: N documents, R references, r references of a chunk, C candidates, c candidates of a tile, D
dimensions, k list entries.

The search runs in the arithmetic asked for; what it keeps is computed again in float32, and what it leaves out is
bounded by the search's own rounding error (`rounding_margin`), so that the ceiling of a list holds whatever the
arithmetic was.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.parts import Parts
from datamask_pipeline.selection.parallel import Workers

CHUNK_REFERENCES = 256
TILE_CANDIDATES = 20_480
"""A product's size: large enough for the matrix unit, small enough that allocators hand the same memory out again."""
OWN = 2.0
"""What a document's product with itself counts as in a search: more than any other."""
SPARE = 50
"""Candidates a coarse search finds beyond the length asked for, in hundredths of it."""
ALIKE_ROWS, STEPS = 512, 8
"""Documents whose similarities say whether half precision tells them apart, and steps of its rounding that these span."""
GROUP = 8
"""Columns whose maximum stands for them while the best columns of a tile are sought."""


def nearest(
    documents_ND: Tensor,
    references_R: Tensor,
    length: int,
    workers: Workers,
    *,
    dtype: torch.dtype = torch.float32,
    candidates_C: Tensor | None = None,
    parts: Parts | None = None,
) -> NeighbourLists:
    """The `length` most similar candidates of each reference; one that is a candidate itself is on its own list.

    Args:
        documents_ND: Unit rows, float32, on the device of the search; lists come back on the CPU.
        references_R: int64 rows that are references.
        length: k, at most the number of candidates.
        workers: Threads over chunks of references.
        dtype: Arithmetic of the search; float32 or bfloat16.
        candidates_C: int64 rows that may be listed; None means all.
        parts: Of an earlier run of the same search, and who is told of new ones.

    Returns:
        Lists with a ceiling.
    """
    announce_sparse()
    references_R = references_R.to(documents_ND.device)
    pool_CD = documents_ND if candidates_C is None else documents_ND[candidates_C.to(documents_ND.device)]
    search_CD = pool_CD.to(dtype)
    length = min(length, len(pool_CD))
    # What a coarse search ranks behind the last by less than its error is compared as well.
    spare = 0 if dtype == torch.float32 else SPARE * length // 100
    searched = min(length + spare, len(pool_CD))
    margin, fine_margin = (rounding_margin(pool_CD, kind, workers) for kind in (dtype, torch.float32))
    own_R = references_R if candidates_C is None else _places(candidates_C, references_R, len(documents_ND))

    def work(start: int) -> tuple[Tensor, Tensor, Tensor]:
        chunk = slice(start, start + CHUNK_REFERENCES)
        chunk_rD = documents_ND[references_R[chunk]]
        rough_rk, places_rk = search(chunk_rD.to(dtype), search_CD, searched, own_R[chunk])
        exact_rk = listed_products(chunk_rD, pool_CD, places_rk)
        rest_r = rough_rk.amin(1) + margin
        if searched > length:
            # The row itself stays: beside exact copies its product may be a rounding below theirs.
            itself_rk = places_rk == own_R[chunk, None].to(places_rk.device)
            order_rk = (exact_rk + OWN * itself_rk).argsort(dim=1, descending=True, stable=True)
            places_rk, exact_rk = places_rk.gather(1, order_rk), exact_rk.gather(1, order_rk)
            rest_r = rest_r.maximum(exact_rk[:, length] + fine_margin)
            places_rk, exact_rk = places_rk[:, :length], exact_rk[:, :length]
        sorted_rk, order_rk = exact_rk.sort(dim=1, descending=True, stable=True)
        return sorted_rk.clamp_(min=0).cpu(), places_rk.gather(1, order_rk).cpu(), rest_r.cpu()

    starts = range(0, len(references_R), CHUNK_REFERENCES)
    found = (parts or Parts()).gather(workers, work, starts)
    places_Rk = torch.cat([part[1] for part in found])
    # No product exceeds that of the two longest rows, however coarse the search was.
    largest = float(torch.linalg.vector_norm(documents_ND, dim=1).max()) ** 2 + fine_margin
    ceiling_R = torch.cat([part[2] for part in found]).clamp_(min=0, max=largest)
    if length == len(pool_CD):
        ceiling_R.zero_()
    return NeighbourLists(
        num_documents=len(documents_ND),
        documents_Rk=places_Rk if candidates_C is None else candidates_C[places_Rk],
        similarities_Rk=torch.cat([part[0] for part in found]),
        ceiling_R=ceiling_R,
    )


def rounding_margin(rows_ND: Tensor, dtype: torch.dtype, workers: Workers) -> float:
    """How far a product of two unit rows computed in `dtype` may lie from the true one.

    With ``e`` the largest norm of a row's rounding error, ``|x.y - x'.y'| <= 2e + e^2``; sums are float32, and a
    result in bfloat16 is rounded once more, by half a step of [0.5, 1).
    """
    sums = rows_ND.shape[1] * 2.0**-23
    if dtype == torch.float32:
        return sums

    def error_of(start: int) -> float:
        part_nD = rows_ND[start : start + TILE_CANDIDATES]
        return float(torch.linalg.vector_norm(part_nD - part_nD.to(dtype).float(), dim=1).max())

    error = max(workers.map(error_of, range(0, len(rows_ND), TILE_CANDIDATES)))
    return sums + 2 * error + error**2 + torch.finfo(dtype).eps / 4


def tells_apart(rows_ND: Tensor, dtype: torch.dtype) -> bool:
    """Whether a search in this arithmetic tells documents apart that are more and less like another: not in a narrow cone.

    The middle of `ALIKE_ROWS` documents' similarities, four fifths of them, spans `STEPS` of what rounding leaves or more.
    """
    step = torch.finfo(dtype).eps / 2
    places_n = torch.linspace(0, len(rows_ND) - 1, min(ALIKE_ROWS, len(rows_ND))).long().to(rows_ND.device)
    sample_nD = rows_ND[places_n].float()
    low, high = (sample_nD @ sample_nD.T).quantile(torch.tensor([0.1, 0.9]).to(sample_nD), dim=1)
    return float((high - low).median()) > STEPS * step


def _places(candidates_C: Tensor, references_R: Tensor, num_documents: int) -> Tensor:
    """The place of each reference among the candidates, -1 for one that is none."""
    places_N = torch.full((num_documents,), -1, device=references_R.device)
    places_N[candidates_C.to(references_R.device)] = torch.arange(
        len(candidates_C), device=references_R.device
    )
    return places_N[references_R]


def search(chunk_rD: Tensor, search_CD: Tensor, length: int, own_r: Tensor) -> tuple[Tensor, Tensor]:
    """The largest products of each row with the candidates, in the rows' arithmetic: values, and places rising.

    The candidate that is the row itself (`own_r`; -1 for none) is always among them: beside more near-copies than
    the length, a coarse arithmetic could leave it out. Its value is then `OWN`.
    """
    values_rk = chunk_rD.new_empty(len(chunk_rD), 0, dtype=torch.float32)
    places_rk = torch.empty_like(values_rk, dtype=torch.int64)
    for start in range(0, len(search_CD), TILE_CANDIDATES):
        tile_rc = chunk_rD @ search_CD[start : start + TILE_CANDIDATES].T
        here = torch.nonzero((own_r >= start) & (own_r < start + TILE_CANDIDATES)).squeeze(1)
        tile_rc[here, own_r[here] - start] = OWN
        found_rk, where_rk = _largest(tile_rc, min(length, tile_rc.shape[1]))
        both_r2k = torch.cat([values_rk, found_rk.float()], dim=1)
        places_r2k = torch.cat([places_rk, where_rk + start], dim=1)
        values_rk, kept_rk = both_r2k.topk(min(length, both_r2k.shape[1]), dim=1)
        places_rk = places_r2k.gather(1, kept_rk)
    # Rising places: the order of entries, and so of sums, does not depend on the arithmetic of the search.
    places_rk, order_rk = places_rk.sort(dim=1)
    return values_rk.gather(1, order_rk), places_rk


def _largest(tile_rc: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Values and columns of each row's largest entries, in no order.

    The largest entries lie in the groups of columns with the largest maxima, so that most columns are only
    compared within their group.
    """
    rows, columns = tile_rc.shape
    groups = columns // GROUP
    if groups < 2 * length:
        return tile_rc.topk(length, dim=1, sorted=False)
    # Group g holds the columns g, g + groups, g + 2 groups, ...; what does not fill one more is sought in full.
    head_rGg = tile_rc[:, : groups * GROUP].view(rows, GROUP, groups)
    best_rk = head_rGg.amax(1).topk(length, dim=1, sorted=False).indices
    chosen_r1k = best_rk[:, None, :]
    rest_c = torch.arange(groups * GROUP, columns, device=tile_rc.device)
    values_rm = torch.cat(
        [head_rGg.gather(2, chosen_r1k.expand(rows, GROUP, length)).flatten(1), tile_rc[:, rest_c]], dim=1
    )
    first_1G1 = groups * torch.arange(GROUP, device=tile_rc.device)[None, :, None]
    columns_rm = torch.cat([(chosen_r1k + first_1G1).flatten(1), rest_c.expand(rows, -1)], dim=1)
    found_rk, place_rk = values_rm.topk(length, dim=1, sorted=False)
    return found_rk, columns_rm.gather(1, place_rk)


def listed_products(chunk_rD: Tensor, pool_CD: Tensor, places_rk: Tensor) -> Tensor:
    """Each row's products with its listed candidates, float32 of shape (r, k)."""
    if chunk_rD.is_cuda:
        return torch.einsum("rkd,rd->rk", pool_CD[places_rk], chunk_rD)
    rows, length = places_rk.shape
    pattern = torch.sparse_csr_tensor(
        torch.arange(0, rows * length + 1, length),
        places_rk.reshape(-1),
        torch.zeros(rows * length),
        size=(rows, len(pool_CD)),
        check_invariants=False,
    )
    return torch.sparse.sampled_addmm(pattern, chunk_rD, pool_CD.T, beta=0.0).values().view(rows, length)


@cache
def announce_sparse() -> None:
    """Lets torch say once that its sparse layouts are in beta, unheard: filters are not safe among threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed_products(torch.ones(1, 1), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int64))

"""Facility location. Knows no quality, budget, learner or neighbour list.

Shape suffixes: N documents, V references, v references of a chunk, T selected documents, G masks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.errors import ConfigurationError

CHUNK_REFERENCES = 512
"""References of one product: the memory of an evaluation is this times N, and the order of its sums is fixed."""


class FacilityLocation(CoverageMetric):
    """How well the selected documents stand for all: the mean similarity of a text to its nearest selected one.

    Formula: ``(1 / |V|) sum over y in V of max over x in S of max(0, <x, y>)``.
    Source: the ``Facility`` of DATAMASK (arXiv 2512.24265); Cornuejols, Fisher and Nemhauser (1977).
    Cost: ``values`` O(|V| K d) a mask, ``marginals`` O(|V| N d); memory O(chunk N). Monotone, submodular.

    Args:
        exact_rows: Largest block whose every document is a reference.
        num_landmarks: References drawn uniformly from larger blocks, the same for every mask.
        seed: Of that draw.

    Raises:
        ConfigurationError: a number that leaves no reference.
    """

    name = "Facility"

    def __init__(self, exact_rows: int = 100_000, num_landmarks: int = 20_000, seed: int = 0) -> None:
        for field, number in (("exact_rows", exact_rows), ("num_landmarks", num_landmarks)):
            if number < 1:
                raise ConfigurationError(f"Facility {field} must be 1 or more, not {number}")
        self.exact_rows, self.num_landmarks, self.seed = exact_rows, num_landmarks, seed

    def references(self, num_rows: int) -> Tensor:
        """Rows of V in rising order, int64: every row of a block up to `exact_rows`, else the landmarks."""
        if num_rows <= self.exact_rows or num_rows <= self.num_landmarks:
            return torch.arange(num_rows)
        draws = torch.Generator().manual_seed(self.seed)
        return torch.randperm(num_rows, generator=draws)[: self.num_landmarks].sort().values

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        references_V = self.references(len(embeddings_ND)).to(embeddings_ND.device)
        columns_G = [torch.nonzero(mask_N).squeeze(1) for mask_N in masks_GN.to(embeddings_ND.device)]
        # With many masks one product with every document is cheaper than one for each mask.
        shared = sum(len(columns_T) for columns_T in columns_G) > len(embeddings_ND)
        pools_G = None if shared else [embeddings_ND[columns_T] for columns_T in columns_G]
        totals_G = torch.zeros(len(columns_G), dtype=torch.float64)
        for chunk_v in torch.split(references_V, CHUNK_REFERENCES):
            chunk_vD = embeddings_ND[chunk_v]
            if pools_G is None:
                products_vN = chunk_vD @ embeddings_ND.T
                best_Gv = [products_vN[:, columns_T].amax(1) for columns_T in columns_G]
            else:
                best_Gv = [(chunk_vD @ pool_TD.T).amax(1) for pool_TD in pools_G]
            for index, best_v in enumerate(best_Gv):
                totals_G[index] += float(best_v.clamp_(min=0).sum(dtype=torch.float64))
        return totals_G / len(references_V)

    def marginals(self, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor:
        references_V = self.references(len(embeddings_ND)).to(embeddings_ND.device)
        mask_N = mask_N.to(embeddings_ND.device)
        columns_T = torch.nonzero(mask_N).squeeze(1)
        changes_N = torch.zeros(len(embeddings_ND), dtype=torch.float64, device=embeddings_ND.device)
        for chunk_v in torch.split(references_V, CHUNK_REFERENCES):
            products_vN = (embeddings_ND[chunk_v] @ embeddings_ND.T).clamp_(min=0)
            two_v2, where_v2 = products_vN[:, columns_T].topk(min(2, len(columns_T)), dim=1)
            best_v, second_v = (
                two_v2[:, 0],
                two_v2[:, 1] if len(columns_T) > 1 else torch.zeros_like(two_v2[:, 0]),
            )
            gains_vN = products_vN.sub_(best_v[:, None]).clamp_(min=0)
            changes_N += gains_vN.sum(0, dtype=torch.float64)
            # Selected documents never gain: what stands there is the loss on dropping them.
            changes_N.index_add_(0, columns_T[where_v2[:, 0]], (best_v - second_v).double())
        return changes_N / len(references_V)


METRIC = FacilityLocation

"""Facility location. Knows no quality, budget, learner or neighbour list.

Shape suffixes: N documents, V references, v references of a chunk, T selected documents, G masks.
"""

from __future__ import annotations

import pydantic
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.settings import Settings

CHUNK_REFERENCES = 512
"""References of one product: the memory of an evaluation is this times N, and the order of its sums is fixed."""


class FacilityConfig(Settings):
    """Which documents are references."""

    exact_rows: int = pydantic.Field(
        100_000, ge=1, description="Largest block whose every document is a reference."
    )
    num_landmarks: int = pydantic.Field(
        20_000, ge=1, description="References drawn uniformly from larger blocks, the same for every mask."
    )
    seed: int = pydantic.Field(0, ge=0, lt=2**63, description="Seed of that draw.")


class FacilityLocation(CoverageMetric):
    """How well the selected documents stand for all: the mean similarity of a text to its nearest selected one.

    Formula: ``(1 / |V|) sum over y in V of max over x in S of max(0, <x, y>)``.
    Source: the ``Facility`` of DATAMASK (arXiv 2512.24265); Cornuejols, Fisher and Nemhauser (1977).
    Cost: ``values`` O(|V| K d) a mask, ``marginals`` O(|V| N d); memory O(chunk N). Monotone, submodular.

    """

    name = "Facility"
    Config = FacilityConfig
    config: FacilityConfig

    def references(self, num_rows: int) -> Tensor:
        """Rows of V in rising order, int64: every row of a block up to `exact_rows`, else the landmarks."""
        config = self.config
        if num_rows <= config.exact_rows or num_rows <= config.num_landmarks:
            return torch.arange(num_rows)
        draws = torch.Generator().manual_seed(config.seed)
        return torch.randperm(num_rows, generator=draws)[: config.num_landmarks].sort().values

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


METRIC = FacilityLocation

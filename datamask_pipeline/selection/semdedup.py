"""Semantic de-duplication: clusters, then pruning of near copies inside each. Knows no metric of the objective.

Shape suffixes: N documents, C clusters, n documents of a cluster, D embedding dimensions.

Source: SemDeDup (arXiv 2303.09540). K-means on unit vectors; inside a cluster a document's redundancy is its
largest similarity to one that is kept before it, those farther from the centroid first; the least redundant
documents of the block fill the budget. The paper cuts at a threshold on that similarity: here it is the one that
meets the budget.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from datamask_pipeline.selection.budget import TIE
from datamask_pipeline.selection.kmeans import nearest_means, unit_means
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

ROUNDS = 9
"""Times the means are taken anew; documents are assigned once more after the last."""
BLOCK_ROWS = 2048


def choose_by_clusters(problem: Problem, num_clusters: int | None) -> Solution:
    """The documents that are least like another one of their cluster; by default as many clusters as sqrt(N)."""
    num_clusters = min(num_clusters or max(1, round(math.sqrt(problem.num_rows))), problem.num_rows)
    draws = generator(problem.config.seed, "policy", "semdedup")
    first_C = torch.sort(torch.randperm(problem.num_rows, generator=draws)[:num_clusters]).values
    first_CD = problem.rows.take(first_C)
    means_CD = unit_means(problem.rows, first_CD, ROUNDS, torch.float32, problem.workers)
    cluster_N, closeness_N = nearest_means(problem.rows, means_CD, torch.float32, problem.workers)
    draws = generator(problem.config.seed, "policy", "semdedup", "ties")
    closeness_N += TIE * torch.rand(problem.num_rows, generator=draws)
    members = [torch.nonzero(cluster_N == cluster).squeeze(1) for cluster in range(num_clusters)]
    redundancy_N = torch.zeros(problem.num_rows, dtype=torch.float64)

    def prune(index_n: Tensor) -> tuple[Tensor, Tensor]:
        order_n = index_n[torch.argsort(closeness_N[index_n], stable=True)]
        return order_n, _redundancy(problem.rows.take(order_n)).cpu()

    for order_n, largest_n in problem.workers.map(prune, members):
        redundancy_N[order_n] = largest_n.to(torch.float64)
        problem.report({"step": int((redundancy_N != 0).sum()), "num_steps": problem.num_rows})
    return Solution(
        mask_N=problem.budget.best(-redundancy_N),
        scores_N=-redundancy_N,
        notes={"clusters": num_clusters, "rounds": ROUNDS},
    )


def _redundancy(rows_nD: Tensor) -> Tensor:
    """Each row's largest cosine to one before it; -1 for the first."""
    parts = []
    for start in range(0, len(rows_nD), BLOCK_ROWS):
        block = rows_nD[start : start + BLOCK_ROWS]
        products = block @ rows_nD[: start + len(block)].T
        own = torch.arange(start, start + len(block), device=rows_nD.device)
        later = torch.arange(products.shape[1], device=rows_nD.device) >= own[:, None]
        parts.append(products.masked_fill_(later, -1.0).amax(1) if products.numel() else products.sum(1))
    return torch.cat(parts) if parts else rows_nD.new_empty(0)

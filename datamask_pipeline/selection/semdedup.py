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
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rows import Rows
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

ITERATIONS = 10
BLOCK_ROWS = 2048


def choose_by_clusters(problem: Problem, num_clusters: int | None) -> Solution:
    """The documents that are least like another one of their cluster; by default as many clusters as sqrt(N)."""
    num_clusters = min(num_clusters or max(1, round(math.sqrt(problem.num_rows))), problem.num_rows)
    _, cluster_N, closeness_N = kmeans(
        problem.rows, num_clusters, problem.workers, generator(problem.config.seed, "policy", "semdedup")
    )
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
        notes={"clusters": num_clusters, "iterations": ITERATIONS},
    )


def kmeans(
    rows: Rows, num_clusters: int, workers: Workers, draws: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Spherical k-means from random rows.

    Returns:
        Unit centres (C, D), the cluster of each row (int64) and its cosine to the centre (float32).
    """
    first_C = torch.sort(torch.randperm(rows.num_rows, generator=draws)[:num_clusters]).values
    centres_CD = rows.take(first_C)
    for iteration in range(ITERATIONS):

        def assign(span: tuple[int, int], centres_CD: Tensor = centres_CD) -> tuple[Tensor, Tensor, Tensor]:
            rows_nD = rows.chunk(*span)
            closeness_n, cluster_n = (rows_nD @ centres_CD.T).max(1)
            sums_CD = torch.zeros_like(centres_CD).index_add_(0, cluster_n, rows_nD)
            return cluster_n.cpu(), closeness_n.cpu(), sums_CD

        clusters, closeness, totals_CD = [], [], torch.zeros_like(centres_CD, dtype=torch.float64)
        for cluster_n, closeness_n, sums_CD in workers.map(assign, rows.spans()):
            clusters.append(cluster_n)
            closeness.append(closeness_n)
            totals_CD += sums_CD
        norms_C = torch.linalg.vector_norm(totals_CD, dim=1, keepdim=True)
        if iteration < ITERATIONS - 1:
            # A cluster that lost its last document keeps its centre.
            centres_CD = torch.where(norms_C > 0, totals_CD / norms_C.clamp(min=1e-30), centres_CD).float()
    return centres_CD, torch.cat(clusters), torch.cat(closeness)


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

"""Budget, quotas and pruning hold in every result: each policy, each metric, blocks of every kind, many seeds."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from datamask_pipeline import select_documents
from datamask_pipeline.errors import InternalError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.policies.quality_topk import QualityTopKPolicy
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.solution import Solution

Rows = NDArray[np.float32]


def clustered(draws: np.random.Generator, size: int) -> Rows:
    centres = draws.normal(size=(7, 12))
    return centres[draws.integers(7, size=size)] + 0.5 * draws.normal(size=(size, 12)) + 0.4


def near_copies(draws: np.random.Generator, size: int) -> Rows:
    originals = draws.normal(size=(size // 6, 16))
    return originals[draws.integers(len(originals), size=size)] + 1e-3 * draws.normal(size=(size, 16))


def isotropic(draws: np.random.Generator, size: int) -> Rows:
    return draws.normal(size=(size, 20))


def identical(draws: np.random.Generator, size: int) -> Rows:
    return np.tile(draws.normal(size=9), (size, 1))


def texts(draws: np.random.Generator, size: int) -> Rows:
    """TF-IDF of texts of topics and templates, cut to 32 dimensions."""
    words = np.array([f"w{number}" for number in range(600)])
    shares = 1 / np.arange(1, 601)
    topics = [draws.permutation(words) for _ in range(10)]
    documents = [
        " ".join(
            draws.choice(topics[draws.integers(10)], size=draws.integers(20, 80), p=shares / shares.sum())
        )
        for _ in range(size)
    ]
    for copy in range(0, size, 4):
        documents[copy] = documents[0] + f" w{copy % 600}"
    counts = TfidfVectorizer().fit_transform(documents)
    return TruncatedSVD(32, random_state=0).fit_transform(counts)


KINDS: tuple[Callable[[np.random.Generator, int], Rows], ...] = (
    clustered, near_copies, isotropic, identical, texts,
)  # fmt: skip
BUDGETS: tuple[dict[str, Any], ...] = (
    {"ratio": 0.1},
    {"ratio": 0.3, "quality_pruning": 0.4},
    {"num_documents": 27},
    {"num_tokens": 3000},
    {"num_tokens": 3000, "quality_pruning": 0.3},
    {"ratio": 0.2, "quotas": {"a": 0.5, "b": 0.37, "*": 0.13}},
    {"num_documents": 21, "quotas": {"a": 0.4, "b": 0.0, "*": 0.6}, "quality_pruning": 0.2},
)
SIZE = 100
SCALED = (clustered, near_copies)
"""Kinds whose scale is measured, which takes longer than all else."""
FEW: dict[str, dict[str, Any]] = {
    "datamask": {"num_steps": 8, "num_kicks": 1, "num_restarts": 1, "num_swap_rounds": 1},
    "policy_gradient": {"num_epochs": 3, "num_rollouts": 6, "partial": 0.5},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("metric", METRICS.names())
@pytest.mark.parametrize("policy", POLICIES.names())
def test_every_result_keeps_its_budget(policy: str, metric: str) -> None:
    for kind in KINDS:
        for place, budget in enumerate(BUDGETS):
            if policy in ("greedy", "gist", "partitioned_greedy") and "num_tokens" in budget:
                continue  # refused
            if policy == "partitioned_greedy" and metric != "Pair_graph":
                continue  # refused
            for seed in (place, 10 + place) if policy == "datamask" else (place,):
                _select_and_count(kind, policy, metric, budget, seed)


@cache
def _rows(kind: Callable[[np.random.Generator, int], Rows], seed: int) -> Rows:
    return kind(np.random.default_rng(seed), SIZE).astype(np.float32)


def _select_and_count(
    kind: Callable[[np.random.Generator, int], Rows],
    policy: str,
    metric: str,
    budget: dict[str, Any],
    seed: int,
) -> None:
    draws = np.random.default_rng(1000 + seed)
    rows, quality = _rows(kind, seed), draws.normal(size=SIZE)
    tokens, groups = draws.integers(20, 600, SIZE), draws.choice(["a", "b", "c", "d"], SIZE)
    result = select_documents(
        rows,
        quality,
        diversity=metric,
        policy=policy,
        lamb=0.3,
        token_counts=tokens,
        groups=groups.tolist(),
        normalisation="affine" if policy == "datamask" and kind in SCALED else "none",
        seed=seed,
        num_workers=1,
        **FEW.get(policy, {}),
        **budget,
    )
    case = (kind.__name__, policy, metric, budget, seed)
    if "num_tokens" in budget:
        assert 0 < tokens[result.mask].sum() <= budget["num_tokens"], case
        assert result.mask.sum() >= 2, case
    else:
        total = budget.get("num_documents", round(budget.get("ratio", 0) * SIZE))
        assert result.mask.sum() == total, case
        for group, share in budget.get("quotas", {}).items():
            members = groups == group if group != "*" else (groups == "c") | (groups == "d")
            assert abs(result.mask[members].sum() - share * total) < 1, case
    dropped = int(budget.get("quality_pruning", 0) * SIZE)
    assert not result.mask[np.argsort(quality)[:dropped]].any(), case


def test_a_policy_that_breaks_the_budget_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_too_many(self: QualityTopKPolicy, problem: Problem) -> Solution:
        mask_N = torch.arange(problem.num_rows) < 11
        return Solution(mask_N=mask_N, scores_N=mask_N.double())

    monkeypatch.setattr(QualityTopKPolicy, "choose", one_too_many)
    draws = np.random.default_rng(0)
    block = draws.normal(size=(100, 8)).astype(np.float32), draws.normal(size=100)
    with pytest.raises(
        InternalError, match=r"'quality_topk' on Pair_simi chose 11 documents .* budget is 10"
    ):
        select_documents(*block, ratio=0.1, policy="quality_topk")
    groups = ["a"] * 50 + ["b"] * 50
    with pytest.raises(InternalError, match=r"chose 11 documents in group 0 .* budget is 6"):
        select_documents(
            *block, num_documents=11, policy="quality_topk", groups=groups, quotas={"a": 0.5, "b": 0.5}
        )

"""Dropping the worst by quality: who is dropped, how the whole block is told, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.pruning import prune
from datamask_pipeline.selection.reasons import TOO_LONG
from datamask_pipeline.selection.rows import MemoryRows

SIZE = 50


def budget(limits: tuple[float, ...] = (10.0,), groups: list[int] | None = None) -> Budget:
    return Budget(
        costs_N=torch.ones(SIZE, dtype=torch.float64),
        groups_N=torch.tensor(groups or [0] * SIZE),
        limits=limits,
        tokens=False,
        seed=0,
    )


def rows() -> MemoryRows:
    draws = torch.Generator().manual_seed(0)
    return MemoryRows(torch.nn.functional.normalize(torch.randn(SIZE, 4, generator=draws)), 16)


def scores(seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=SIZE))


def test_the_worst_share_is_dropped() -> None:
    quality_N = scores()
    pruned = prune(rows(), {"quality": quality_N}, budget(), SelectionConfig(quality_pruning=0.33))
    assert (~pruned.kept_N).sum() == 16
    assert set(np.flatnonzero(~pruned.kept_N)) == set(np.argsort(quality_N.numpy())[:16])
    assert torch.equal(pruned.rows.everything(), rows().everything()[pruned.kept_N])
    assert torch.equal(pruned.scores["quality"], quality_N[pruned.kept_N])
    assert pruned.budget.limits == (10.0,)
    assert len(pruned.budget.costs_N) == len(pruned.budget.groups_N) == 34


def test_several_scores_count_by_their_mean_ranks() -> None:
    """Against ranks of an independent library; scales differ by a million, and there are ties."""
    one_N, other_N = (scores(1) * 4).round(), scores(2) * 1e6
    config = SelectionConfig(quality_pruning=0.4, quality_weights={"one": 0.3, "other": 0.7})
    pruned = prune(rows(), {"one": one_N, "other": other_N}, budget(), config)
    ranks = 0.3 * rankdata(one_N) + 0.7 * rankdata(other_N)
    assert set(np.flatnonzero(~pruned.kept_N)) == set(np.argsort(ranks)[:20])


def test_values_are_spread_over_the_whole_block() -> None:
    pruned = prune(rows(), {"quality": scores()}, budget(), SelectionConfig(quality_pruning=0.5))
    spread = pruned.spread(np.arange(25.0), -1.0)
    assert (spread[~pruned.kept_N] == -1).all()
    assert spread[pruned.kept_N].tolist() == list(range(25))
    whole = prune(rows(), {"quality": scores()}, budget(), SelectionConfig())
    assert whole.kept_N.all()
    assert whole.spread(np.arange(50), -1).tolist() == list(range(50))


@pytest.mark.slow
def test_documents_too_long_for_a_token_budget_are_left_out_and_counted() -> None:
    """One of 5 000 tokens and one of exactly half, among 48 of 10 to 57."""
    draws = np.random.default_rng(0)
    vectors, quality = draws.normal(size=(SIZE, 6)), draws.random(SIZE)
    tokens = np.arange(SIZE) + 10
    tokens[[7, 9]] = 5000, 150
    quality[[7, 9]] = 9.0
    for policy in ("datamask", "quality_topk", "random"):
        result = select_documents(vectors, quality, policy=policy, num_tokens=300, token_counts=tokens)
        assert result.reasons[7] == TOO_LONG
        assert (result.reasons == TOO_LONG).sum() == 1
        assert not result.mask[7]
        assert np.isnan(result.marginals.total_N[7])
        assert result.record["rows_too_long"] == 1
        assert result.record["rows_pruned_by_quality"] == 0
        assert tokens[result.mask].sum() <= 300
    assert select_documents(vectors, quality, num_tokens=300, token_counts=tokens).mask[9]
    everything = select_documents(vectors, quality, num_tokens=2000, token_counts=tokens)
    assert everything.mask.sum() == SIZE - 1
    with pytest.raises(
        InputError, match=r"num_tokens 15 is too small: .*fewer than two remain.*row 7.*raise num_tokens"
    ):
        select_documents(vectors, quality, num_tokens=15, token_counts=tokens)


def test_a_quota_that_pruning_leaves_too_few_for_is_refused() -> None:
    quality_N = torch.arange(SIZE, dtype=torch.float64)
    quotas = budget((8.0, 2.0), [0] * 25 + [1] * 25)
    with pytest.raises(ConfigurationError, match=r"quality_pruning 0\.4 leaves 5 where the budget needs 8"):
        prune(rows(), {"quality": quality_N}, quotas, SelectionConfig(quality_pruning=0.4))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", [{"outlier_deviations": 50.0}, {"quality_pruning": 0.1}])
def test_tokens_that_too_long_documents_take_away_are_not_missed_by_another_setting(setting: dict) -> None:
    """One document is longer than half of the budget; without it there are fewer tokens, whatever else is asked."""
    draws = np.random.default_rng(0)
    settings = {"num_tokens": 3_000, "token_counts": np.array([2_500] + [10] * 59), "num_workers": 1}
    rows, quality = draws.standard_normal((60, 8)), draws.random(60)
    alone = select_documents(rows, quality, **settings)
    assert alone.mask.sum() == 59
    found = select_documents(rows, quality, **settings, **setting)
    assert found.mask.sum() == 59 - (6 if "quality_pruning" in setting else 0) + (
        "quality_pruning" in setting
    )

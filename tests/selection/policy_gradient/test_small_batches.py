"""Batches that hold few documents: each mask has two, quotas of 0 are in none, and the share drawn follows."""

import numpy as np
import pytest
import torch

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.budget import Budget, shared_out
from datamask_pipeline.selection.policy_gradient.rollouts import WithoutReplacement

FEW = {"policy": "policy_gradient", "num_epochs": 40, "num_rollouts": 8}


def test_a_draw_in_tokens_takes_its_first_two_and_then_what_fits() -> None:
    budget = Budget(
        costs_N=torch.tensor([90.0, 80.0, 70.0, 1.0, 1.0], dtype=torch.float64),
        groups_N=torch.zeros(5, dtype=torch.int64),
        limits=(60.0,),
        tokens=True,
        seed=0,
    )
    found = WithoutReplacement(torch.zeros(5), budget).sample(200, torch.Generator().manual_seed(0))
    sizes_G = found.masks_GN.sum(1)
    assert set(sizes_G.tolist()) == {2}
    first_G2 = torch.topk(found.keys_GN, 2, dim=1).indices
    assert bool(found.masks_GN.gather(1, first_G2).all())


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_few_long_documents_learn_within_a_budget_in_tokens(seed: int) -> None:
    draws = np.random.default_rng(seed)
    rows, quality = draws.normal(size=(200, 8)).astype("f4"), draws.random(200)
    tokens = np.maximum(1, draws.lognormal(3, 1.2, size=200)).astype(int)
    most = int(tokens.sum() * 0.15)
    result = select_documents(rows, quality, num_tokens=most, token_counts=tokens, **FEW)
    assert result.mask.sum() >= 2
    assert tokens[result.mask].sum() <= most


@pytest.mark.timeout(60)
def test_a_batch_whose_share_one_long_document_takes_is_learnt_from() -> None:
    draws = np.random.default_rng(4)
    rows, quality = draws.standard_normal((40, 4)), draws.random(40)
    tokens = np.where(draws.random(40) < 0.2, 400, 5)
    settings = FEW | {"num_epochs": 60, "num_rollouts": 16, "estimator": "counterfactual", "seed": 4}
    result = select_documents(rows, quality, num_tokens=900, token_counts=tokens, **settings)
    assert result.mask.sum() >= 2
    assert tokens[result.mask].sum() <= 900


@pytest.mark.parametrize("estimator", ["group_relative", "counterfactual"])
def test_a_batch_has_two_documents_where_the_budget_is_of_more_than_there_are(estimator: str) -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.standard_normal((5, 4)), draws.random(5)
    found = select_documents(
        rows, quality, num_tokens=100, token_counts=[1, 1, 1, 1, 100], estimator=estimator, **FEW
    )
    assert found.mask.tolist() == [True, True, True, True, False]
    assert found.record["learner"]["batch_documents"] == 2


@pytest.mark.parametrize("seed", [1, 4])
def test_documents_of_a_quota_of_0_are_in_no_batch(seed: int) -> None:
    draws = np.random.default_rng(seed)
    rows, quality = draws.normal(size=(95, 16)).astype("f4"), draws.random(95)
    groups = draws.choice(["a", "b", "c", "dd"], size=95)
    quotas = {"a": 0.5, "b": 0, "*": 0.5}
    settings = FEW | {"partial": 0.12, "seed": seed, "num_documents": 19, "init": "same"}
    result = select_documents(rows, quality, groups=groups, quotas=quotas, **settings)
    assert result.mask.sum() == 19
    assert not result.mask[groups == "b"].any()


def test_a_batch_takes_two_where_one_group_has_one() -> None:
    budget = Budget(
        costs_N=torch.ones(40, dtype=torch.float64),
        groups_N=torch.tensor([0] * 10 + [1] * 10 + [2] * 20),
        limits=(9.0, 0.0, 1.0),
        tokens=False,
        seed=0,
    )
    assert budget.part(torch.tensor([0, 15, 30])).limits == (1.0, 0.0, 1.0)
    assert budget.part(torch.tensor([0, 15, 16])).limits == (1.0, 0.0, 0.0), "one alone may be"
    assert shared_out([0.9, 0.0, 0.1], 2, [1, 0, 1]) == [1, 0, 1]


def test_the_share_drawn_is_a_tenth_or_what_two_documents_take() -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.normal(size=(60, 8)).astype("f4"), draws.random(60)

    def spread(embeddings, masks):
        return torch.stack([embeddings[mask].std(0).sum() for mask in masks])

    few = {"num_rollouts": 8, "num_epochs": 5, "policy": "policy_gradient"}
    by_default = select_documents(rows, quality, diversity=spread, **few)
    assert by_default.record["learner"]["batch_documents"] == 20
    assert select_documents(rows, quality, ratio=0.5, **few).record["learner"]["batch_documents"] == 6
    with pytest.raises(ConfigurationError, match=r"raise partial to 0\.334, or the budget") as refused:
        select_documents(rows, quality, diversity=spread, partial=0.1, **few)
    remedied = float(str(refused.value).split("raise partial to ")[1].split(",")[0])
    again = select_documents(rows, quality, diversity=spread, partial=remedied, **few)
    assert (again.mask == by_default.mask).all()

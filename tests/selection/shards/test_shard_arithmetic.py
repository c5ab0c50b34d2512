"""Sums, order and projection over any cut of the documents are those of one process."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.inputs import budget_of
from datamask_pipeline.selection.shards.api import jobs_of, over_shards
from datamask_pipeline.selection.shards.keys import key_of, lots, shares, value_of
from datamask_pipeline.selection.shards.population import Population
from datamask_pipeline.selection.shards.problem import open_documents
from datamask_pipeline.selection.shards.source import dealt, numbered
from datamask_pipeline.selection.shards.sums import group_numbers, group_sums, limbs_of, number_of
from datamask_pipeline.selection.shards.team import Together
from datamask_pipeline.selection.shards.wire import pack, unpack

FLOATS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(FLOATS, max_size=30), where=st.integers(0, 30))
def test_sums_are_exact_wherever_they_are_cut(values: list[float], where: int) -> None:
    left, right = np.array(values[:where]), np.array(values[where:])
    assert number_of(limbs_of(left) + limbs_of(right)) == math.fsum(values)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(allow_nan=False), min_size=2, max_size=30))
def test_keys_are_in_the_order_of_floats(values: list[float]) -> None:
    array = np.array(values)
    keys = key_of(array)
    for left, right in itertools.pairwise(range(len(values))):
        assert (array[left] < array[right]) == (keys[left] < keys[right])
        assert (array[left] == array[right]) == (keys[left] == keys[right])
    np.testing.assert_array_equal(value_of(keys), array)


def test_lots_know_a_document_by_its_number_alone() -> None:
    numbers = np.arange(20_000, dtype=np.int64)
    found = lots(numbers, 7)
    assert len(np.unique(found)) == len(found)
    np.testing.assert_array_equal(found[5000:6000], lots(numbers[5000:6000], 7))
    assert abs(shares(found).mean() - 0.5) < 0.01
    assert abs(np.corrcoef(shares(found), shares(lots(numbers, 8)))[0, 1]) < 0.03


def test_group_sums_keep_forty_bits() -> None:
    draws = np.random.default_rng(0)
    values, groups = draws.random(5000), draws.integers(0, 7, 5000).astype(np.int32)
    halves = group_sums(values[:1234], groups[:1234], 7) + group_sums(values[1234:], groups[1234:], 7)
    np.testing.assert_array_equal(halves, group_sums(values, groups, 7))
    np.testing.assert_allclose(group_numbers(halves), np.bincount(groups, values), atol=1e-8)


def test_messages_come_out_as_they_went_in() -> None:
    message = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": [{"c": np.array(True)}, 1.5, None, "x"],
        "d": 2**63 + 1,
    }
    again = unpack(pack(message))
    np.testing.assert_array_equal(again["a"], message["a"])
    assert again["b"][0]["c"].shape == ()
    assert again["b"][1:] == [1.5, None, "x"]
    assert again["d"] == 2**63 + 1


def test_documents_are_dealt_in_whole_units(cut: Callable[..., Any]) -> None:
    for workers in (1, 2, 3, 7, 40):
        parts = dealt(numbered(cut((0, 10, 700))), workers, 64)
        numbers = [n for part in parts for s in part for n in range(s.first, s.first + s.num_rows)]
        assert numbers == list(range(1100))
        assert len(parts) == workers
        assert all(part[0].first % 64 == 0 for part in parts if part)


@pytest.mark.parametrize("kind", ["documents", "tokens", "quotas"])
def test_order_and_projection_are_those_of_one_process(
    kind: str, cut: Any, columns: dict[str, Any], budgets: dict[str, Any]
) -> None:
    config = SelectionConfig.of({**budgets[kind], "chunk_rows": 64, "seed": 4})
    groups = [g if g != "crawl-2" else "*" for g in columns["groups"].tolist()]
    budget = budget_of(config, 1100, columns["token_counts"], groups if config.quotas else None)
    scores_N = torch.from_numpy(columns["quality"])
    for workers, starts in ((1, (0,)), (3, (0, 77, 500)), (6, (0, 512))):
        with Together(jobs_of(numbered(cut(starts)), config, workers)) as team:
            people, _ = open_documents(team, *over_shards(config, {}), 1100, None)
            _compared(people, budget, scores_N, team)


def _compared(people: Population, budget: Budget, scores_N: torch.Tensor, team: Together) -> None:
    name = "score/quality"
    assert people.median(name) == float(scores_N.median())
    assert people.dots((name, None))[0] == pytest.approx(float(scores_N.sum()), rel=1e-14)
    wanted_N = budget.best(scores_N, exact=True)
    people.best("mask", name, exact=True)
    mask_N = torch.from_numpy(_column(team, "mask"))
    assert budget.breach(mask_N) is None
    # Equal documents are drawn by other lots than in one process: the numbers chosen are the same.
    left, right = (torch.sort(scores_N[mask]).values for mask in (mask_N, wanted_N))
    if not budget.tokens:
        assert torch.equal(left, right)
        assert people.most(name) == pytest.approx(budget.most(scores_N), rel=1e-14)
    far_N = 4 * scores_N - 2.5
    people.combine("point", (4.0, name), (-2.5, None))
    people.project("target", "point")
    relaxed_N = torch.from_numpy(_column(team, "target"))
    torch.testing.assert_close(relaxed_N, budget.project(far_N), atol=1e-7, rtol=0)
    people.drawn("drawn", "target")
    assert budget.breach(torch.from_numpy(_column(team, "drawn"))) is None
    cuts = people.kth(name, [3] * len(budget.limits))
    for group, cut_at in enumerate(cuts):
        own = scores_N[budget.groups_N == group]
        assert cut_at == float(torch.sort(own, descending=True).values[2])


def _column(team: Together, name: str) -> Any:
    team.ask("range", name="squared")  # after all that waits
    views = [member.views["whole"] for member in team._members]
    return np.concatenate([(v.masks if name in v.masks else v.floats)[name] for v in views])


def test_tokens_are_filled_as_in_one_process(cut: Any, columns: dict[str, Any]) -> None:
    config = SelectionConfig.of({"num_tokens": 1234, "chunk_rows": 64})
    budget = budget_of(config, 1100, columns["token_counts"])
    keys_N = torch.rand(1100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with Together(jobs_of(numbered(cut()), config, 4)) as team:
        people, _ = open_documents(team, *over_shards(config, {}), 1100, None)
        for member in team._members:
            view = member.views["whole"]
            view.floats["keys"] = keys_N.numpy()[view.numbers_N]
        people.best("mask", "keys", exact=True)
        assert torch.equal(torch.from_numpy(_column(team, "mask")), budget.fill(keys_N))


def test_drawn_documents_come_in_with_their_weight(cut: Any) -> None:
    held = np.zeros(1100)
    for seed in range(40):
        config = SelectionConfig.of({"num_documents": 110, "chunk_rows": 64, "seed": seed})
        with Together(jobs_of(numbered(cut()), config, 2)) as team:
            people, _ = open_documents(team, *over_shards(config, {}), 1100, None)
            people.combine("point", (0.3, "score/quality"), (-0.1, None))
            people.project("target", "point")
            people.drawn("drawn", "target")
            held += _column(team, "drawn")
            weights = _column(team, "target")
    error = (held / 40 - weights) / np.sqrt(np.maximum(weights * (1 - weights), 1e-3) / 40)
    assert abs(error[weights > 0].mean()) < 0.3
    assert error.std() < 1.3

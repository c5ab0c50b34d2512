"""Annealed masks: quotas of all, none and some are kept, the best of all masks is found from the worst one."""

from dataclasses import replace

import numpy as np
import pytest
from graph_blocks import block, every, posed, worth

from datamask_pipeline import select_documents
from datamask_pipeline.selection.graph.annealing import annealed
from datamask_pipeline.selection.graph.exchanges import exchanged, filled, kicked


def test_quotas_of_all_none_and_some_are_kept() -> None:
    for seed in range(4):
        objective, budget, _ = posed(93, seed, 30, groups=3)
        budget = replace(budget, limits=(31.0, 0.0, 9.0))
        start = budget.best(budget.costs_N * 0).numpy()
        masks = annealed(
            objective, budget, start, num_masks=3, num_sweeps=50, draws=np.random.default_rng(seed)
        )
        groups = budget.groups_N.numpy()
        assert masks[:, groups == 0].all()
        assert not masks[:, groups == 1].any()
        assert np.abs(masks[:, groups == 2].sum(1) - 9).max() <= 5
        for mask in masks:
            full = filled(objective, budget, mask)
            assert [full[groups == group].sum() for group in range(3)] == [31, 0, 9]


@pytest.mark.parametrize("absent", ["A", "z"])
def test_a_quota_of_none_whose_group_no_document_has_changes_nothing(absent: str) -> None:
    rows, quality = block(120, 8, 3)
    groups = ["ab"[place % 2] for place in range(120)]
    common = {"diversity": "Pair_graph", "ratio": 0.3, "groups": groups}
    plain = select_documents(rows, quality, quotas={"a": 0.6, "b": 0.4}, **common)
    beside = select_documents(rows, quality, quotas={"a": 0.6, "b": 0.4, absent: 0.0}, **common)
    assert beside.mask.tolist() == plain.mask.tolist()


@pytest.mark.parametrize("groups", [1, 2])
def test_the_best_of_all_masks_is_annealed_from_the_worst(groups: int) -> None:
    for seed in range(8):
        objective, budget, known = posed(12, seed, 4, groups=groups)
        masks = every(budget)
        values = [worth(objective, known, mask) for mask in masks]
        found = annealed(
            objective,
            budget,
            masks[int(np.argmin(values))],
            num_masks=8,
            num_sweeps=300,
            draws=np.random.default_rng(seed),
        )
        ends = [worth(objective, known, filled(objective, budget, mask)) for mask in found]
        assert max(ends) == pytest.approx(max(values))


def test_filling_drops_what_adds_least_and_takes_what_adds_most() -> None:
    objective, budget, known = posed(60, 2, 20)
    for count in (19, 21):
        mask = np.zeros(60, bool)
        mask[np.random.default_rng(count).permutation(60)[:count]] = True
        full = filled(objective, budget, mask)
        changes = [row for row in range(60) if mask[row] == (count > 20)]
        others = [np.where(np.arange(60) == row, ~mask, mask) for row in changes]
        best = max(worth(objective, known, other) for other in others)
        assert full.sum() == 20
        assert worth(objective, known, full) == pytest.approx(best)


def test_a_kick_exchanges_within_groups_and_brings_in_nobody_back() -> None:
    objective, budget, _ = posed(90, 3, 27, groups=2)
    mask = exchanged(objective, budget, budget.best(budget.costs_N * 0).numpy())
    other = kicked(budget, mask, 10, np.random.default_rng(1))
    groups = budget.groups_N.numpy()
    assert (mask & ~other).sum() == (other & ~mask).sum() == 10
    for group in (0, 1):
        assert other[groups == group].sum() == mask[groups == group].sum()

"""Cliques make up the similarities, and what is read of them again is refused where no bound may rest on it."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from graph_blocks import every, posed

from datamask_pipeline.diversity.pair_graph import SimilarityGraph
from datamask_pipeline.selection.graph import cliques as module
from datamask_pipeline.selection.graph.cliques import Cliques, certified, cliques_of


def summed(cliques: Cliques, size: int) -> np.ndarray:
    found = np.zeros((size, size))
    for number, weight in enumerate(cliques.weight_C):
        for one, other in itertools.combinations(cliques.rows_M[cliques.clique_M == number], 2):
            found[one, other] += weight
            found[other, one] += weight
    return found


@pytest.mark.parametrize("most", [400_000, 0])
def test_their_weights_sum_up_to_the_similarities(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PEELED", most)
    for seed in range(6):
        objective, _, known = posed(40, seed, 12)
        cliques = cliques_of(objective.graph)
        assert np.abs(summed(cliques, 40) - known).max() < 1e-9
        assert (cliques.sizes_C.max() > 3) == (most > 0)


def test_four_alike_are_one_clique_of_which_two_pairs_at_least_are_in_three_members() -> None:
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    cliques = cliques_of(SimilarityGraph(4, pairs[:, 0], pairs[:, 1], np.full(6, 0.5)))
    assert (cliques.sizes_C.tolist(), cliques.weight_C.tolist()) == ([4], [0.5])
    for count, slope in itertools.product(range(5), np.linspace(0, 3, 13)):
        least, reached = cliques.conjugate(np.array([slope]))
        assert slope * count - least[0] <= count * (count - 1) / 2 + 1e-12
        assert slope * reached[0] - least[0] == pytest.approx(reached[0] * (reached[0] - 1) / 2)


def test_a_clique_grows_by_whom_its_lowest_similarity_stays_highest_with() -> None:
    ends = np.array([[0, 1], [0, 2], [1, 2], [0, 3], [1, 3]])
    cliques = cliques_of(SimilarityGraph(4, ends[:, 0], ends[:, 1], np.array([0.9, 0.4, 0.5, 0.6, 0.7])))
    first = cliques.rows_M[cliques.clique_M == 0]
    assert (sorted(first.tolist()), cliques.weight_C[0]) == ([0, 1, 3], 0.6)


def forged(table: pa.Table, column: str, row: int, value: float) -> pa.Table:
    values = table.column(column).to_numpy().copy()
    values[row] = value
    return table.set_column(table.schema.get_field_index(column), column, pa.array(values))


def test_what_no_bound_may_rest_on_is_refused() -> None:
    objective, budget, _ = posed(40, 2, 12)
    cliques, rows = cliques_of(objective.graph), np.arange(100, 140)
    slopes = np.random.default_rng(0).random(len(cliques.weight_C))
    table = cliques.table(slopes, rows)
    again, slopes_again, above = certified(table, objective.graph, rows)
    assert again.rows_M.tolist() == cliques.rows_M.tolist()
    assert again.weight_C.tolist() == cliques.weight_C.tolist()
    assert slopes_again.tolist() == slopes.tolist()
    assert objective.most_above(above, budget) < 1e-12
    _, none, above = certified(table.slice(0, 0), objective.graph, rows)
    assert (len(none), objective.most_above(above, budget)) == (0, 0)
    named = table.set_column(0, "clique", pa.array(7 * table.column("clique").to_numpy() + 3))
    whole = table.slice(0, int(cliques.sizes_C[0]))
    for wrong, said in (
        (forged(table, "weight", 0, 0.001), "clique 0 has members of two weights"),
        (forged(table, "slope", 0, 9.0), "clique 0 has members of two slopes"),
        (forged(named, "slope", len(whole), -1e-9), "clique 10 has a slope that is no number"),
        (forged(table, "slope", 0, np.nan), "slope that is no number"),
        (forged(table, "weight", 0, np.nan), "weight that is no positive number"),
        (forged(table, "weight", 0, np.inf), "weight that is no positive number"),
        (forged(table, "weight", 0, 0.0), "weight that is no positive number"),
        (forged(table, "row", 0, 99), "another block"),
        (forged(table, "row", 0, 140), "another block"),
    ):
        with pytest.raises(ValueError, match=said):
            certified(wrong, objective.graph, rows)


def test_what_cliques_weigh_above_similarities_counts_as_much_as_it_lowers_their_bound() -> None:
    for seed in range(6):
        objective, budget, known = posed(11, seed, 4, groups=2)
        draws, cliques = np.random.default_rng(seed), cliques_of(objective.graph)
        heavy = Cliques(
            rows_M=np.concatenate([cliques.rows_M, [0, 1, 2, 3, 3, 4, 5]]),
            clique_M=np.concatenate(
                [cliques.clique_M, len(cliques.weight_C) + np.array([0, 0, 0, 1, 1, 2, 2])]
            ),
            weight_C=np.concatenate([cliques.weight_C * (1 + 0.1 * draws.random()), [0.3, 0.1, 1e-4]]),
        )
        slopes = 2 * draws.random(len(heavy.weight_C))
        table = heavy.table(slopes, np.arange(11))
        table = table.take(draws.permutation(len(table)))  # members in any order are those of their clique
        _, _, above = certified(table, objective.graph, np.arange(11))
        left, right, more = above
        missing = np.zeros((11, 11))
        missing[left, right] = more
        assert np.abs(missing + missing.T - np.maximum(0, summed(heavy, 11) - known)).max() < 1e-12
        room = objective.most_above(above, budget)
        inside = max(missing[np.ix_(mask, mask)].sum() for mask in every(budget))
        assert objective.weight * inside - 1e-12 <= room <= objective.weight * more.sum() + 1e-12

"""Cliques make up the similarities, and what is read of them again is refused where no bound may rest on it."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from graph_blocks import posed

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


def forged(table: pa.Table, column: str, row: int, value: float) -> pa.Table:
    values = table.column(column).to_numpy().copy()
    values[row] = value
    return table.set_column(table.schema.get_field_index(column), column, pa.array(values))


def test_what_no_bound_may_rest_on_is_refused() -> None:
    objective, _, _ = posed(40, 2, 12)
    cliques, rows = cliques_of(objective.graph), np.arange(100, 140)
    slopes = np.random.default_rng(0).random(len(cliques.weight_C))
    table = cliques.table(slopes, rows)
    again, slopes_again = certified(table, objective.graph, rows, 1e-9)
    assert again.rows_M.tolist() == cliques.rows_M.tolist()
    assert again.weight_C.tolist() == cliques.weight_C.tolist()
    assert slopes_again.tolist() == slopes.tolist()
    assert len(certified(table.slice(0, 0), objective.graph, rows, 1e-9)[1]) == 0
    near = set(zip(objective.graph.left_E.tolist(), objective.graph.right_E.tolist(), strict=True))
    first = int(cliques.rows_M[1])
    far = next(row for row in range(40) if row != first and tuple(sorted((row, first))) not in near)
    whole = table.slice(0, int(cliques.sizes_C[0]))
    heavy = whole.set_column(2, "weight", pa.array(np.full(len(whole), 2.0)))
    for wrong, said in (
        (forged(table, "weight", 0, 0.001), "two weights"),
        (forged(table, "slope", 0, 9.0), "two slopes"),
        (heavy.set_column(3, "slope", pa.array(np.full(len(whole), -1.0))), "slope that is no number"),
        (heavy.set_column(2, "weight", pa.array(np.full(len(whole), np.nan))), "two weights"),
        (forged(table, "row", 0, 99), "another block"),
        (forged(table, "row", 0, 100 + far), "without an edge"),
        (forged(table, "row", 0, 100 + first), "without an edge"),
        (heavy, "more than the similarity"),
    ):
        with pytest.raises(ValueError, match=said):
            certified(wrong, objective.graph, rows, 1e-9)

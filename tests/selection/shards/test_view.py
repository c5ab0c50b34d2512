"""What is done to a process's columns leaves nothing of every document in memory."""

import itertools
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from datamask_pipeline.selection.shards import view
from datamask_pipeline.selection.shards.view import View
from datamask_pipeline.spill import Room

NUM_ROWS = 1_000_000


def _ranked(of: View, name: str | None) -> None:
    of.order(name, 1.0, 0.0, 7, absolute=False, grouped=False)
    prefix, everywhere = np.zeros(1, np.uint64), np.ones(1, bool)
    for shift in range(48, -1, -16):
        counts_B = of.histogram(prefix, everywhere, shift, 16, by_tie=False, weighted=False)[0]
        prefix = prefix << np.uint64(16) | np.uint64(counts_B.argmax())
    of.choose("chosen", prefix, np.zeros(1, np.uint64), "some")


@pytest.mark.parametrize(
    "done",
    [
        lambda of: of.combine("into", [(2.0, "a"), (1.0, None), (1.0, "some")]),
        lambda of: of.combine_product("into", "a", "a"),
        lambda of: of.combine_between("into", "a", 0.2, 0.4),
        lambda of: of.combine_group("into", 0),
        lambda of: of.combine_draw("into", "a", 3),
        lambda of: of.combine_filling("into", "some", "a", 3),
        lambda of: of.clip("into", "a", np.array([0.1])),
        lambda of: of.taken("a", np.array([0.1]), 2.0),
        lambda of: of.tally(["a", "some"]),
        lambda of: of.counts("some"),
        lambda of: _ranked(of, "a"),
        lambda of: _ranked(of, "equal"),
    ],
    ids="combine product between group draw filling clip taken tally counts ranked equals".split(),
)
def test_memory_is_of_a_piece(done: Callable[[View], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "WIDE_PIECE", view.PIECE)
    draws = np.random.default_rng(5)
    edges = range(0, NUM_ROWS + 1, NUM_ROWS // 50)
    of = View(
        np.arange(NUM_ROWS),
        [*itertools.pairwise(edges)],
        np.zeros(NUM_ROWS, np.int32),
        np.ones(NUM_ROWS, np.int64),
        1,
        Room(),
    )
    of.floats["a"], of.floats["equal"] = draws.random(NUM_ROWS), np.zeros(NUM_ROWS)
    of.masks["some"] = draws.random(NUM_ROWS) < 0.5
    tracemalloc.start()
    done(of)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * NUM_ROWS, "a number of each document was in memory"

"""Items drawn ahead: the same items in the same order, errors in their place, and no thread left behind."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from datamask_pipeline.ahead import drawn_ahead


def test_items_come_in_their_order() -> None:
    assert list(drawn_ahead(range(1_000))) == list(range(1_000))
    assert list(drawn_ahead([None, [], 0])) == [None, [], 0]


def test_they_are_drawn_while_the_last_one_is_used() -> None:
    drawn = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        drawn.set()
        yield 1

    following = drawn_ahead(items())
    assert next(following) == 0
    assert drawn.wait(10), "the second was not asked for, and drawn all the same"
    assert list(following) == [1]


def test_an_error_is_raised_after_what_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise KeyError("the sixth")

    following = drawn_ahead(items())
    assert [next(following) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="the sixth"):
        next(following)


def test_who_stops_early_leaves_no_thread_and_draws_few_more() -> None:
    numbers, before = itertools.count(), threading.active_count()
    for item in drawn_ahead(numbers):
        if item == 10:
            break
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert next(numbers) < 20

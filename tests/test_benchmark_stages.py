"""The benchmark of stages measures what is asked for and what that is made from, and leaves other rows as they are."""

import pytest

from benchmarks.stages import exponent_of, merged
from benchmarks.stages_work import COMMANDS, STEPS, with_needed


def test_steps_come_with_what_they_are_made_from() -> None:
    assert with_needed(["pool"]) == ["ingest", "pool"]
    assert with_needed(["pool, near_duplicates"]) == ["ingest", "pool, near_duplicates"]
    assert with_needed(["select, over: shards", "embed"]) == [
        *["ingest", "embed", "score", "pool", "copies", "gather", "select, over: shards"],
    ]
    assert with_needed(["select, over: shards", "materialise"])[-3:] == [
        *["select", "select, over: shards", "materialise"],
    ]
    assert with_needed(["materialise"])[-2:] == ["select", "materialise"]
    assert with_needed(["audit why"]) == [*STEPS, "audit why"]
    assert with_needed([*STEPS, *COMMANDS]) == [*STEPS, *COMMANDS]


def test_rows_of_other_steps_and_sizes_stay_with_their_commits() -> None:
    names = [("pool", 10), ("ingest", 10), ("ingest", 20)]
    rows = [{"method": step, "documents": size, "processor seconds": 1.0} for step, size in names]
    again = [
        {"method": "pool", "documents": 10, "processor seconds": 2.0 + turn, "commit": "b"}
        for turn in range(2)
    ]
    further = {"method": "pool", "documents": 20, "processor seconds": 3.0, "commit": "b"}
    first = merged({"code": "a", "rows": rows}, [*again, further])
    assert first == [rows[1] | {"commit": "a"}, *again, rows[2] | {"commit": "a"}, further]
    last = {**again[0], "commit": "c"}
    assert merged({"code": "b", "rows": first}, [last]) == [first[0], last, *first[3:]]


@pytest.mark.parametrize(("fixed", "power"), [(0.0, 1.0), (20.0, 1.1), (3.0, 0.7), (500.0, 2.0)])
def test_an_exponent_is_that_of_what_grows(fixed: float, power: float) -> None:
    sizes = [100_000, 1_000_000, 3_000_000]
    seconds = [fixed + 3e-3 * size**power for size in sizes]
    assert exponent_of(sizes, seconds) == pytest.approx(power, rel=1e-6)


def test_what_hardly_grows_has_no_exponent() -> None:
    sizes = [100_000, 1_000_000, 3_000_000]
    assert exponent_of(sizes, [2.0, 2.4, 9.0]) is None
    assert exponent_of(sizes, [2.0, 9.0, 9.2]) is None

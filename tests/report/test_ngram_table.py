"""Bits per byte, their paired intervals, and the gate that neural models have to pass."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from datamask_pipeline.report.bits import bit_differences, bits_per_byte
from datamask_pipeline.report.ngram import ngram_figures, no_power, print_ngram, uneven_gates
from datamask_pipeline.schema import HELD_OUT


def rows(task: str, bits: list[float], sizes: list[int]) -> list[dict[str, object]]:
    return [
        {"task": task, "question_id": str(i), "gold_bits": b, "gold_bytes": n, "gold_probability": 0.25}
        for i, (b, n) in enumerate(zip(bits, sizes, strict=True))
    ]


def test_bits_per_byte_are_all_bits_over_all_bytes() -> None:
    assert bits_per_byte(rows("piqa", [3.0, 5.0], [1, 3]) + rows("mmlu", [4.0], [2])) == {
        "piqa": 2.0,
        "mmlu": 2.0,
    }


def test_the_interval_of_equal_lengths_is_students() -> None:
    (row,) = bit_differences(
        rows("piqa", [3.0, 5.0, 4.0], [2, 2, 2]), rows("piqa", [3.0, 3.0, 3.0], [2, 2, 2])
    )
    deltas = [0.0, 1.0, 0.5]
    assert row["difference"] == pytest.approx(0.5)
    assert row["half_width"] == pytest.approx(4.302653 * np.std(deltas, ddof=1) / math.sqrt(3), rel=1e-6)


def test_the_interval_covers_what_it_says() -> None:
    """Of 600 draws of 40 questions of unequal lengths, as many intervals hold the truth as a binomial count allows."""
    generator, held = np.random.default_rng(0), 0
    for _ in range(600):
        sizes = generator.integers(1, 30, 40)
        base = sizes * 2.0
        mine = base + sizes * generator.normal(0.1, 0.5, 40)
        (row,) = bit_differences(
            rows("piqa", mine.tolist(), sizes.tolist()), rows("piqa", base.tolist(), sizes.tolist())
        )
        held += abs(row["difference"] - 0.1) <= row["half_width"]
    assert (
        0.95 * 600 - 4 * math.sqrt(600 * 0.95 * 0.05) <= held <= 0.95 * 600 + 3 * math.sqrt(600 * 0.95 * 0.05)
    )


def test_questions_that_differ_alike_have_no_interval() -> None:
    same = rows("piqa", [3.0, 5.0], [2, 2])
    assert math.isnan(bit_differences(same, same)[0]["half_width"])
    assert math.isnan(bit_differences(same[:1], same)[0]["half_width"])


def about(neural: float) -> dict[str, object]:
    of = {
        "random": rows(HELD_OUT, [20.0, 22.0], [10, 10]) + rows("piqa", [3.0], [2]),
        "datamask": rows(HELD_OUT, [21.0, 20.0], [10, 10]) + rows("piqa", [2.0], [2]),
    }
    ngram = ngram_figures(of, {"random": 900, "datamask": 800}, "random")
    arms = {
        "random": {"architectures": {"dense": 1.9, "moe": neural}},  # of which the mean would pass
        "datamask": {"architectures": {}},
    }
    told = [{"arm": arm, "tokens": 1000, "epochs": 0.8 if arm == "datamask" else 2.0} for arm in of]
    return {"arms": told, "gold": {"arms": arms}, "ngram": ngram, "baseline": "random"}


def test_a_proxy_worse_than_an_ngram_model_has_no_power() -> None:
    for bits, powerless in ((2.2, True), (2.1, True), (2.09, False)):
        told = about(bits)
        lines = no_power(told["gold"]["arms"], told["ngram"])  # type: ignore[index]
        assert len(lines) == powerless
        if lines:
            assert lines[0].startswith("NO POWER: on the held-out documents these models need no fewer bits")
            assert lines[0].endswith(f"do not count: moe of random {bits:.4f} (trigram of 900 tokens 2.1000)")


def test_of_several_arms_without_power_one_line_tells() -> None:
    told = about(2.2)
    told["gold"]["arms"]["datamask"] = {"architectures": {"dense": 3.0}}  # type: ignore[index]
    (line,) = no_power(told["gold"]["arms"], told["ngram"])  # type: ignore[index]
    assert line.endswith(
        "moe of random 2.2000 (trigram of 900 tokens 2.1000), dense of datamask 3.0000 (trigram of 800 tokens 2.0500)"
    )


def test_a_gate_of_fewer_tokens_than_the_networks_read_is_said_to_be_low() -> None:
    told = about(2.0)
    (line,) = uneven_gates(told["arms"], told["ngram"])  # type: ignore[arg-type]
    assert line.startswith("the gate of random is a low one: its trigram model learnt from 900 tokens")
    assert "`-s ngram.max_tokens=1000`" in line
    none = [{"arm": "random", "tokens": None, "epochs": None}]
    assert not uneven_gates(none, told["ngram"])  # type: ignore[arg-type]


def test_a_low_gate_is_raised_to_what_the_networks_read_not_to_all_that_the_arm_has() -> None:
    told = [{"arm": "random", "tokens": 413_173, "epochs": 60_416 / 413_173}]
    (line,) = uneven_gates(told, {"random": {"tokens": 30_000}})
    assert "its models from some 60,416 different ones" in line
    assert line.endswith("`-s ngram.max_tokens=60416` lets it learn from as many")
    assert not uneven_gates(told, {"random": {"tokens": 60_416}})


def test_a_gate_of_far_more_tokens_than_the_networks_read_is_said_to_be_high() -> None:
    told = [{"arm": "random", "tokens": 413_173, "epochs": 60_416 / 413_173}]
    (line,) = uneven_gates(told, {"random": {"tokens": 413_173}})
    assert line.startswith("the gate of random is a high one: its trigram model learnt from 413,173 tokens")
    assert line.endswith("`-s ngram.max_tokens=60416` lets it learn from no more")
    assert not uneven_gates(told, {"random": {"tokens": 66_000}})


def test_the_table_has_every_figure_and_says_what_it_cannot() -> None:
    console = Console(file=io.StringIO(), width=120)
    print_ngram(console, about(3.0))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for text in (
        "held out documents",
        "2.1000",
        "2.0500",
        "-0.0500 ± ",
        "-0.5000 (no interval)",
        "a low one",
    ):
        assert text in shown
    assert "different numbers of tokens: `-s ngram.max_tokens=800` makes them equal" in shown
    assert "not another draw of documents" in shown
    print_ngram(console, {"gold": None, "ngram": {}, "baseline": "random"})
    assert console.file.getvalue() == shown

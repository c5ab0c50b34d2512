"""What models say of right answers and held-out documents, by task, and paired differences. Knows rows, no store."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datamask_pipeline.intervals import student
from datamask_pipeline.report.comparison import ROUNDING, interval_of

Row = Mapping[str, Any]


def bits_per_byte(rows: Iterable[Row]) -> dict[str, float]:
    """Of each task: all bits over all bytes.

    Args:
        rows: One a question or document: ``task, gold_bits, gold_bytes``.
    """
    found: dict[str, tuple[list[float], list[int]]] = {}
    for row in rows:
        bits, sizes = found.setdefault(row["task"], ([], []))
        bits.append(row["gold_bits"])
        sizes.append(row["gold_bytes"])
    return {task: math.fsum(bits) / sum(sizes) for task, (bits, sizes) in found.items()}


def bit_differences(rows: Sequence[Row], baseline: Sequence[Row]) -> list[dict[str, Any]]:
    """Bits per byte less those of the baseline, task by task, over the same questions; below 0 is better.

    The 95 % interval is Student's over the questions: what other questions would give. It says nothing of what another
    draw of the documents would give.

    Formula:
        d = sum(bits - bits of the baseline) / sum(bytes); its error is that of a ratio: the standard deviation of
        (bits - bits of the baseline - d bytes), over the mean of bytes and the root of the number of questions.

    Args:
        rows: One a question or document: ``task, question_id, gold_bits, gold_bytes``.
        baseline: The same of the arm to compare with.

    Returns:
        Rows of ``task, difference, half_width, questions``; ``half_width`` is NaN for fewer than two questions, or where
        all differ alike.
    """
    control = {(row["task"], row["question_id"]): row["gold_bits"] for row in baseline}
    pairs: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        key = row["task"], row["question_id"]
        if key in control:
            pairs.setdefault(row["task"], []).append((row["gold_bits"] - control[key], row["gold_bytes"]))
    return [{"task": task, **_difference(mine)} for task, mine in pairs.items()]


def _difference(pairs: Sequence[tuple[float, int]]) -> dict[str, Any]:
    number, size = len(pairs), sum(size for _, size in pairs)
    difference = math.fsum(bits for bits, _ in pairs) / size
    squares = math.fsum((bits - difference * mine) ** 2 for bits, mine in pairs)
    half_width = math.nan
    if number > 1 and squares > (ROUNDING * difference) ** 2 * math.fsum(mine**2 for _, mine in pairs):
        error = math.sqrt(squares / (number - 1) / number) * number / size
        half_width = student(number - 1) * error
    return {"difference": difference, "half_width": half_width, "questions": number}


def shares(rows: Sequence[Row]) -> dict[str, float]:
    """Of each task with choices: the mean share of the right answer among them.

    Args:
        rows: One a question: ``task, gold_probability``; ``None``: no choices.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["gold_probability"] is not None:
            found.setdefault(row["task"], []).append(row["gold_probability"])
    return {task: math.fsum(mine) / len(mine) for task, mine in found.items()}


def share_differences(rows: Sequence[Row], baseline: Sequence[Row]) -> list[dict[str, Any]]:
    """Shares less those of the baseline, task by task, over the same questions; above 0 is better.

    Args:
        rows: One a question: ``task, question_id, gold_probability``; ``None``: no choices.
        baseline: The same of the arm to compare with.

    Returns:
        Rows of ``task, difference, half_width``, the interval as in `bit_differences`.
    """
    control = {(row["task"], row["question_id"]): row["gold_probability"] for row in baseline}
    pairs: dict[str, list[float]] = {}
    for row in rows:
        mine, other = row["gold_probability"], control.get((row["task"], row["question_id"]))
        if mine is not None and other is not None:
            pairs.setdefault(row["task"], []).append(mine - other)
    return [
        {"task": task, "difference": math.fsum(values) / len(values), "half_width": interval_of(values)}
        for task, values in pairs.items()
    ]

"""The one order of arms and tasks in all tables of a report, and what their intervals cover. Knows no store."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: Name of the mean over benchmarks among the tasks.
MEAN = "mean of tasks"
#: Student's quantile of fewer seeds is so large, and their spread so uncertain, that the interval is a guess.
LEAST_SEEDS = 4
#: So many intervals, and one of them leaves 0 out by luck as likely as not.
MANY = 14


def arms_in_order(names: Iterable[str], about: Mapping[str, Any]) -> list[str]:
    """The baseline first, then as configured.

    Args:
        names: Arms.
        about: The release's figures: ``baseline``, and ``arms`` in the order of the configuration.
    """
    configured = [row["arm"] for row in about.get("arms", ())]
    places = {name: place for place, name in enumerate(configured)}
    return sorted(names, key=lambda name: (name != about["baseline"], places.get(name, len(places))))


def columns_in_order(columns: Iterable[tuple[str, str]], about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Arms with their architectures, each once: by arm as `arms_in_order`, then by architecture."""
    known = sorted(set(columns))
    arms = arms_in_order(dict.fromkeys(arm for arm, _ in known), about)
    return sorted(known, key=lambda column: (arms.index(column[0]), column[1]))


def tasks_in_order(tasks: Iterable[str]) -> list[str]:
    """By name, each once, their mean last."""
    return sorted(set(tasks), key=lambda task: (task == MEAN, task))


def covered(rows: Sequence[Mapping[str, Any]], items: str = "questions") -> str:
    """What the intervals of some differences are over, such as ``2 seeds``.

    Args:
        rows: Differences: ``interval, seeds``.
        items: What to call questions.
    """
    found = {f"{row['seeds']} seeds" if row["interval"] == "seeds" else items for row in rows}
    return " or ".join(sorted(found))


def about_intervals(about: Mapping[str, Any]) -> list[str]:
    """What the intervals between models cover, and whether seeds are too few for one; nothing without differences."""
    rows = [*about["differences"], *(about.get("gold") or {}).get("differences", ())]
    numbers = sorted({row["seeds"] for row in rows})
    lines = []
    if 1 in numbers:
        lines.append(
            "one seed: intervals between models cover other questions put to these very models, not another seed, nor "
            "another draw of documents"
        )
    if several := [number for number in numbers if number > 1]:
        each = " or ".join(map(str, several))
        lines.append(
            f"{each} seeds: intervals between models cover other seeds, not other questions, nor another draw of documents"
        )
    if several and several[0] < LEAST_SEEDS:
        lines.append(
            f"the spread of {several[0]} seeds is hardly known, so these intervals are a guess: give "
            f"{LEAST_SEEDS} `seeds` or more"
        )
    known = [row for row in rows if not math.isnan(_number(row["half_width"]))]
    if len(known) >= MANY:
        beyond = sum(abs(row["difference"]) > row["half_width"] for row in known)
        lines.append(
            f"{len(known)} intervals of 95 %: about {round(len(known) / 20)} leave 0 out by luck alone; {beyond} do"
        )
    return lines


def _number(value: float | None) -> float:
    """NaN of what a manifest says as null."""
    return math.nan if value is None else value

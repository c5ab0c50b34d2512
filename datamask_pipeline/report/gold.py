"""Tables of right answers and of documents: bits per byte and shares by arm, and what differs. Knows rows, no store.

Documents never enter a mean over tasks: that is of benchmarks alone.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from datamask_pipeline.report.bits import bit_differences, bits_per_byte, share_differences, shares
from datamask_pipeline.report.comparison import interval_of
from datamask_pipeline.report.order import MEAN, arms_in_order, columns_in_order, covered, tasks_in_order
from datamask_pipeline.report.tables import figure, print_in_blocks, signed
from datamask_pipeline.schema import HELD_OUT, OF_DOCUMENTS

Row = Mapping[str, Any]
BITS, SHARE, ARCHITECTURES = "bits_per_byte", "probability", "architectures"


def gold_figures(answers: Sequence[Row], *, baseline: str) -> dict[str, Any]:
    """What models say of the right answers, and of documents.

    With several seeds the 95 % interval is Student's over the seeds' differences. With one seed it is over the questions,
    and says nothing of what another seed would give; that of the mean over tasks then holds the tasks fixed.

    Args:
        answers: One row a question or document of each run, as of `comparison.final_rows`: ``arm, architecture, seed, task,
            question_id, gold_bits, gold_bytes, gold_probability``.
        baseline: The arm to compare with.

    Returns:
        ``arms``: by arm, ``bits_per_byte`` and ``probability`` by task, each the mean over its models, and of each of its
        ``architectures`` the bits per byte of held-out documents, the mean over seeds. ``differences``: rows
        of ``measure, arm, architecture, task, difference, half_width, interval, seeds``; NaN: no interval.
    """
    models: dict[tuple[str, str, int], list[Row]] = {}
    for row in answers:
        models.setdefault((row["arm"], row["architecture"], row["seed"]), []).append(row)
    arms = {
        arm: {
            BITS: _mean_of_models([bits_per_byte(rows) for key, rows in models.items() if key[0] == arm]),
            SHARE: _mean_of_models([shares(rows) for key, rows in models.items() if key[0] == arm]),
            ARCHITECTURES: _held_out(
                {key[1:]: bits_per_byte(rows) for key, rows in models.items() if key[0] == arm}
            ),
        }
        for arm in dict.fromkeys(arm for arm, *_ in models)
    }
    differences: list[dict[str, Any]] = []
    for measure, compare in {BITS: bit_differences, SHARE: share_differences}.items():
        paired: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
        for (arm, architecture, seed), rows in models.items():
            control = models.get((baseline, architecture, seed))
            if arm != baseline and control is not None:
                paired.setdefault((arm, architecture), []).append(compare(rows, control))
        for (arm, architecture), of_seeds in sorted(paired.items()):
            key = {"measure": measure, "arm": arm, "architecture": architecture}
            differences += [key | row for row in _over_seeds(of_seeds)]
    return {"arms": arms, "differences": differences}


def _held_out(found: Mapping[tuple[str, int], Mapping[str, float]]) -> dict[str, float]:
    """Bits per byte of held-out documents by architecture; without those that were asked none."""
    bits: dict[str, list[float]] = {}
    for (architecture, _), of in found.items():
        if HELD_OUT in of:
            bits.setdefault(architecture, []).append(of[HELD_OUT])
    return {architecture: math.fsum(values) / len(values) for architecture, values in bits.items()}


def _over_seeds(of_seeds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each task's difference and that of their mean, with their intervals."""
    of_questions = [[row for row in rows if row["task"] not in OF_DOCUMENTS] for rows in of_seeds]
    means = [_mean_of_tasks(rows) for rows in of_questions if rows]
    by_task: dict[str, list[Row]] = {}
    for row in [*(row for rows in of_seeds for row in rows), *means]:
        by_task.setdefault(row["task"], []).append(row)
    found = []
    for task, mine in by_task.items():
        values = [row["difference"] for row in mine]
        about = {"task": task, "difference": math.fsum(values) / len(values), "seeds": len(values)}
        if len(values) > 1:
            half_width, over = interval_of(values), "seeds"
        else:
            half_width, over = mine[0]["half_width"], "questions"
        found.append(about | {"half_width": half_width, "interval": over})
    return found


def _mean_of_tasks(rows: Sequence[Row]) -> dict[str, Any]:
    number = len(rows)
    known = all(math.isfinite(row["half_width"]) for row in rows)
    half_width = math.sqrt(math.fsum(row["half_width"] ** 2 for row in rows)) / number if known else math.nan
    difference = math.fsum(row["difference"] for row in rows) / number
    return {"task": MEAN, "difference": difference, "half_width": half_width}


def _mean_of_models(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    tasks = dict.fromkeys(task for of in found for task in of)
    means = {}
    for task in tasks:
        values = [of[task] for of in found if task in of]
        means[task] = math.fsum(values) / len(values)
    benchmarks = [value for task, value in means.items() if task not in OF_DOCUMENTS]
    return {**means, MEAN: math.fsum(benchmarks) / len(benchmarks)} if benchmarks else means


def print_gold(console: Console, about: Mapping[str, Any]) -> None:
    """Print both measures of right answers by arm, then their differences from the baseline, then the same of documents.

    Nothing where a record has none.

    Args:
        console: Where to.
        about: The release's figures: ``gold`` and ``baseline``.
    """
    gold = about.get("gold")
    if not gold or not gold["arms"]:
        return
    tasks = {
        measure: tasks_in_order(task for of in gold["arms"].values() for task in of[measure])
        for measure in (BITS, SHARE)
    }
    answers = {measure: [task for task in tasks[measure] if task not in OF_DOCUMENTS] for measure in tasks}
    title = (
        "right answers: bits per byte, lower is better; and their share among the choices, higher is better"
    )
    _print(console, about, answers, title, "right answers", "questions")
    documents = {BITS: [task for task in OF_DOCUMENTS if task in tasks[BITS]]}
    _print(
        console, about, documents, "documents: bits per byte, lower is better", "documents' bits", "documents"
    )


def _print(
    console: Console,
    about: Mapping[str, Any],
    tasks: Mapping[str, Sequence[str]],
    title: str,
    what: str,
    items: str,
) -> None:
    """Two tables of some tasks by measure: the figures, and their differences."""
    wanted = [(measure, of_measure) for measure, of_measure in tasks.items() if of_measure]
    if not wanted:
        return
    found_of: Mapping[str, Mapping[str, Mapping[str, float]]] = about["gold"]["arms"]
    arms = {arm: found_of[arm] for arm in arms_in_order(found_of, about)}
    sections = [
        [
            (_name(measure, task), [figure(of[measure].get(task)) for of in arms.values()])
            for task in of_measure
        ]
        for measure, of_measure in wanted
    ]
    print_in_blocks(console, title, list(arms), sections)
    found = {
        (row["arm"], row["architecture"], row["measure"], row["task"]): row
        for row in about["gold"]["differences"]
        if row["task"] in tasks.get(row["measure"], ())
    }
    columns = columns_in_order((key[:2] for key in found), about)
    if not columns:
        return
    sections = [
        [
            (_name(measure, task), [signed(found.get((*column, measure, task))) for column in columns])
            for task in of_measure
        ]
        for measure, of_measure in wanted
    ]
    over = covered(list(found.values()), items)
    title = f"{what} less those of {about['baseline']}, with the 95 % interval over {over}"
    print_in_blocks(console, title, [" ".join(column) for column in columns], sections)


def _name(measure: str, task: str) -> str:
    if task in OF_DOCUMENTS:
        return task.replace("_", " ")
    return f"{task}, {'bits per byte' if measure == BITS else 'share'}"

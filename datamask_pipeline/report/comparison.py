"""Compares arms by their benchmark results. Knows rows; knows no store and no stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from datamask_pipeline.report.signal import without_signal

Row = Mapping[str, Any]


def final_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What stands for each run: of each metric or question, the mean over the run's final checkpoints.

    Args:
        rows: Results or answers of any checkpoints: ``run, checkpoint, final, task, metric`` and, of answers,
            ``question_id``. In a record that does not say which are final, each run's last one is.

    Returns:
        One row a run and metric, or question, with the keys of its last checkpoint's; ``checkpoints`` says of how many it
        is the mean. Of several, ``stderr`` is null: that of their mean is not known.
    """
    last: dict[str, int] = {}
    for row in rows:
        last[row["run"]] = max(last.get(row["run"], row["checkpoint"]), row["checkpoint"])
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.get("final", row["checkpoint"] == last[row["run"]]):
            key = (row["run"], row["task"], row.get("metric"), row.get("question_id"))
            found.setdefault(key, []).append(row)
    return [_mean_of_checkpoints(mine) for mine in found.values()]


def _mean_of_checkpoints(rows: Sequence[Row]) -> dict[str, Any]:
    mean = dict(max(rows, key=lambda row: row["checkpoint"])) | {"checkpoints": len(rows)}
    for name in ("value", "gold_bits", "gold_probability"):
        if mean.get(name) is not None:
            mean[name] = math.fsum(row[name] for row in rows) / len(rows)
    if len(rows) > 1 and "stderr" in mean:
        mean["stderr"] = None
    return mean


def differences(answers: Sequence[Row], *, baseline: str) -> list[dict[str, Any]]:
    """Each arm's mean score less the baseline's, task by task, over the same questions.

    Models of equal architecture and seed are compared in pairs, question by question. With several seeds the
    95 % interval is Student's over the seeds' differences; with one seed it is the normal one over the
    questions' differences, and says nothing of what another seed would give.

    Args:
        answers: One row a question of each run, as of `final_rows`: ``arm, architecture, seed, task, question_id,
            value``; rows without a value, which are documents, are left out.
        baseline: The arm to compare with.

    Returns:
        Rows of ``arm, architecture, task, difference, half_width, interval, no_interval, seeds, questions,
        discordant``. ``interval`` says what the sample is (``seeds`` or ``questions``) and ``discordant`` how many pairs
        differ. A sample without spread has no interval: ``half_width`` is NaN then, and ``no_interval`` the reason.
    """
    values: dict[tuple[str, str, str], dict[tuple[int, str], float]] = {}
    for row in answers:
        if row["value"] is None:
            continue
        group = values.setdefault((row["arm"], row["architecture"], row["task"]), {})
        group[row["seed"], row["question_id"]] = row["value"]
    compared = []
    for (arm, architecture, task), mine in sorted(values.items()):
        control = values.get((baseline, architecture, task), {})
        paired = {key: value - control[key] for key, value in mine.items() if key in control}
        if arm != baseline and paired:
            compared.append({"arm": arm, "architecture": architecture, "task": task, **_interval(paired)})
    return compared


def tasks_asked(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each task: ``n`` questions, ``chance``, whether any model is clearly ``above_chance``, how many prompts of a model
    lost their beginning at most (``truncated``) of how many (``prompts``; null: an older record does not say), and why it
    has ``no_signal`` for small models.

    Args:
        rows: Results of runs, as of `final_rows`: ``task, value, n, chance, num_truncated`` and, but of an older record,
            ``num_prompts``; a value is a mean over questions, in 0..1.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: str(row["task"])):
        task = row["task"]
        begun = {"n": row["n"], "chance": row["chance"], "above_chance": False, "truncated": 0}
        begun["prompts"] = row.get("num_prompts")
        about = found.setdefault(task, begun | {"no_signal": without_signal(task)})
        about["truncated"] = max(about["truncated"], row["num_truncated"])
        about["n"] = min(about["n"], row["n"])
        # Where guessing scores nothing, one right answer may still be luck.
        about["above_chance"] |= lower_bound(row["value"], row["n"]) > max(row["chance"], 1 / row["n"])
    return found


def lower_bound(score: float, n: int) -> float:
    """Lower end of the exact 95 % binomial interval of a mean over n questions, sound at 0 and 1 too.

    Formula: the 2.5 % quantile of Beta(k, n - k + 1), k = n score. Source: Clopper and Pearson, 1934.
    """
    from scipy.stats import beta

    right = score * n
    return float(beta.ppf(0.025, right, n - right + 1)) if right > 0 else 0.0


def mean_score(rows: Sequence[Row], arm: str) -> float:
    """Mean over the tasks of the arm's mean over runs; NaN without rows."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        if row["arm"] == arm:
            by_task.setdefault(row["task"], []).append(row["value"])
    means = [sum(values) / len(values) for values in by_task.values()]
    return sum(means) / len(means) if means else math.nan


def _interval(paired: Mapping[tuple[int, str], float]) -> dict[str, Any]:
    by_seed: dict[int, list[float]] = {}
    for (seed, _), delta in paired.items():
        by_seed.setdefault(seed, []).append(delta)
    means = [sum(deltas) / len(deltas) for deltas in by_seed.values()]
    covers, sample = ("seeds", means) if len(means) > 1 else ("questions", list(paired.values()))
    discordant = sum(delta != 0 for delta in paired.values())
    reason = _why_no_interval(sample, discordant)
    return {
        "difference": sum(means) / len(means),
        "half_width": math.nan if reason else _half_width(sample),
        "interval": covers,
        "no_interval": reason,
        "seeds": len(means),
        "questions": len(paired) // len(means),
        "discordant": discordant,
    }


def _why_no_interval(sample: Sequence[float], discordant: int) -> str | None:
    """The reason why a sample has no spread: 0 +- 0 would say that the difference is known exactly."""
    if not discordant:
        return "no discordant pair"
    if len(sample) < 2:
        return "one question"
    return "all differences are equal" if len(set(sample)) == 1 else None


def interval_of(sample: Sequence[float]) -> float:
    """Half of Student's 95 % interval of a mean; NaN for a sample without spread."""
    return math.nan if len(set(sample)) < 2 else _half_width(sample)


def _half_width(sample: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean; with many questions that is the normal one."""
    from scipy.stats import t

    mean = sum(sample) / len(sample)
    variance = sum((value - mean) ** 2 for value in sample) / (len(sample) - 1)
    return float(t.ppf(0.975, len(sample) - 1)) * math.sqrt(variance / len(sample))

"""Compares arms by their benchmark results. Knows rows; knows no store and no stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from datamask_pipeline.intervals import holm, student
from datamask_pipeline.report.signal import without_signal

Row = Mapping[str, Any]

#: Of its size, what a sum in another order may change in a difference.
ROUNDING: Final = 1e-9
#: How probable it may be that a report calls any score above chance that is luck: the upper tail of a 95 % interval.
LUCK: Final = 0.025


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
    95 % interval is Student's over the seeds' differences; with one seed it is Student's over the
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
    """Of each task: ``n`` questions, ``chance``, how many ``models`` answered, how many of these are clearly above chance
    (``models_above``) and whether any is (``above_chance``), how many prompts of a model lost their beginning at most
    (``truncated``) of how many (``prompts``), how many solved examples stood before each question (``shots``; null, as of
    prompts: an older record does not say), and why it has ``no_signal`` for small models.

    Clearly above chance is what remains of all models and tasks together: one of many scores is high by luck.

    Args:
        rows: Results of runs, as of `final_rows`: ``task, value, n, chance, num_truncated`` and, but of an older record,
            ``num_prompts`` and ``shots``; a value is a mean over questions, in 0..1.
    """
    found: dict[str, dict[str, Any]] = {}
    ordered = sorted(rows, key=lambda row: str(row["task"]))
    above = beyond_luck([luck(row["value"], row["n"], row["chance"]) for row in ordered])
    for row, is_above in zip(ordered, above, strict=True):
        task = row["task"]
        begun = {"n": row["n"], "chance": row["chance"], "models": 0, "models_above": 0, "truncated": 0}
        begun |= {
            "prompts": row.get("num_prompts"),
            "no_signal": without_signal(task),
            "shots": row.get("shots"),
        }
        about = found.setdefault(task, begun)
        about["truncated"] = max(about["truncated"], row["num_truncated"])
        about["n"] = min(about["n"], row["n"])
        about["models"] += 1
        about["models_above"] += is_above
    for about in found.values():
        about["above_chance"] = about["models_above"] > 0
    return found


def luck(score: float, n: int, chance: float) -> float:
    """Probability that guessing n questions scores so much or more; where guessing scores nothing, one right answer may
    still be luck, so that chance counts as 1 / n at least.

    Formula: P(Binomial(n, chance) >= k), k = n score, as Beta(k, n - k + 1) has it for any k: a mean over checkpoints need
    be no whole number of answers.
    """
    from scipy.special import betainc  # scipy.stats takes a second to import

    right = score * n
    return float(betainc(right, n - right + 1, max(chance, 1 / n))) if right > 0 else 1.0


def beyond_luck(probabilities: Sequence[float]) -> list[bool]:
    """Which of these are too small for luck, by `holm`: that any is by luck has a probability of at most `LUCK`."""
    return [probability <= LUCK for probability in holm(probabilities)]


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
    return None if _spreads(sample) else "all differences are equal"


def interval_of(sample: Sequence[float]) -> float:
    """Half of Student's 95 % interval of a mean; NaN for a sample without spread."""
    return _half_width(sample) if _spreads(sample) else math.nan


def _spreads(sample: Sequence[float]) -> bool:
    """Whether numbers differ by more than sums in another order do."""
    return len(sample) > 1 and max(sample) - min(sample) > ROUNDING * max(map(abs, sample))


def _half_width(sample: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean; with many questions that is the normal one."""
    mean = sum(sample) / len(sample)
    variance = sum((value - mean) ** 2 for value in sample) / (len(sample) - 1)
    return student(len(sample) - 1) * math.sqrt(variance / len(sample))

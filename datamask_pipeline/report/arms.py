"""The tables over a release's arms: for a terminal or as CSV. Knows their figures; knows no store and no stage."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from datamask_pipeline.report.comparison import LUCK
from datamask_pipeline.report.gold import print_gold
from datamask_pipeline.report.ngram import print_ngram
from datamask_pipeline.report.objectives import AFFINE_SCALE
from datamask_pipeline.report.order import (
    MEAN,
    about_intervals,
    arms_in_order,
    columns_in_order,
    covered,
    tasks_in_order,
)
from datamask_pipeline.report.tables import Row, figure, print_in_blocks

#: Models that read one arm so many times as often as another are not held for equally trained.
_ABOUT_AS_OFTEN = 1.05
#: Below it, a part of the subset was read alone, and not by rounding.
_WHOLE = 0.995


def print_arms(console: Console, about: Mapping[str, Any]) -> None:
    """Print what each arm selected and how its models did, and how far that is from the baseline.

    Args:
        console: Where to.
        about: The release's figures: ``release``, ``crawls``, ``no_power``, ``arms``, ``redundancy``, ``ngram``, ``tasks``,
            ``checkpoints``, ``differences`` and ``baseline``.
    """
    for line in about["no_power"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    rows = {arm["arm"]: arm for arm in about["arms"]}
    arms: list[dict[str, Any]] = [rows[name] for name in arms_in_order(rows, about)]
    objectives = _objectives(arms)
    title = f"release {about['release']}: {', '.join(about['crawls'])}"
    sections = [
        _selections(arms, objectives),
        _redundancy([about["redundancy"].get(arm["arm"]) for arm in arms]),
        _results(arms, about["tasks"]),
    ]
    print_in_blocks(console, title, [arm["arm"] for arm in arms], sections)
    for function, row_name in objectives.items():
        if function:
            scale = "" if function.endswith("(raw units)") else f"; {AFFINE_SCALE}"
            console.print(f"{row_name}: {function}{scale}", highlight=False, markup=False, soft_wrap=True)
    cautions = [
        *_about_pools(about["redundancy"], arms, about["baseline"]),
        *_about_epochs(arms),
        *_about_models(arms),
        *_about_checkpoints(about["checkpoints"]),
        *_about_tasks(about["tasks"]),
    ]
    for line in cautions:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if about["differences"]:
        _print_differences(console, about)
    print_gold(console, about)
    for line in about_intervals(about):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    print_ngram(console, about)


def as_csv(summaries: Sequence[Mapping[str, Any]]) -> str:
    """One row an arm; figures unrounded, nothing where there is none."""
    rows = [
        {
            "release": about["release"],
            **{key: arm[key] for key in arm if key != "tasks"},
            **{f"subset {name}": value for name, value in about["redundancy"].get(arm["arm"], {}).items()},
            **_gold(about.get("gold"), arm["arm"]),
            **_ngram(about["ngram"].get(arm["arm"])),
            **arm["tasks"],
            **{
                f"{task} {name}": of[name]
                for task, of in about["tasks"].items()
                for name in ("n", "chance", "shots", "truncated", "prompts")
            },
            "no power": "; ".join(about["no_power"]),
            "caveat": about["caveat"],
        }
        for about in summaries
        for arm in about["arms"]
    ]
    table = io.StringIO()
    writer = csv.DictWriter(
        table, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()


def _gold(found: Mapping[str, Any] | None, arm: str) -> dict[str, Any]:
    measures = found["arms"].get(arm, {}) if found else {}
    return {f"gold {name} {task}": value for name, of in measures.items() for task, value in of.items()}


def _ngram(found: Mapping[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    of_tasks = {
        f"ngram {name} {task}": value
        for name in ("bits_per_byte", "gold_probability")
        for task, value in found[name].items()
    }
    return {"ngram tokens": found["tokens"], **of_tasks}


def caveat(tasks: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A warning, where no model learnt enough for most of the tasks to tell arms apart."""
    near = [task for task, about in tasks.items() if not about["above_chance"]]
    if 2 * len(near) <= len(tasks):
        return None
    return (
        f"On {len(near)} of {len(tasks)} tasks no model is clearly above chance ({', '.join(near)}): the table shows "
        "that the chain works, not which arm is better."
    )


def _objectives(arms: Sequence[Mapping[str, Any]]) -> dict[str | None, str]:
    """Each function that an arm's objective is a value of, and the name of its row: only equal ones share a row."""
    functions = list(dict.fromkeys(arm.get("objective_of") for arm in arms))
    if len(functions) == 1:
        return {functions[0]: "objective"}
    return {function: f"objective {number}" for number, function in enumerate(functions, start=1)}


def _selections(arms: Sequence[Mapping[str, Any]], objectives: Mapping[str | None, str]) -> list[Row]:
    counted = [(name, [arm[name] for arm in arms]) for name in ("documents", "tokens")]
    rows: list[Row] = [
        (name, ["-" if value is None else f"{value:,}" for value in of]) for name, of in counted
    ]
    for function, row_name in objectives.items():
        mine = [figure(arm["objective"]) if arm.get("objective_of") == function else "-" for arm in arms]
        rows.append((row_name, mine))
    return [*rows, ("certified gap", [figure(arm["gap"]) for arm in arms])]


def _redundancy(found: Sequence[Mapping[str, Any] | None]) -> list[Row]:
    """What was measured without training; no rows where no arm has it, as in a record of an earlier version."""
    if not any(found):
        return []

    def shown(cell: Callable[[Mapping[str, Any]], str]) -> list[str]:
        return ["-" if of is None else cell(of) for of in found]

    return [
        (
            "near-copies",
            shown(lambda of: f"{of['near_copies']:,} ({of['near_copies'] / of['documents']:.1%})"),
        ),
        ("exact copies", shown(lambda of: f"{of['exact_copies']:,}")),
        ("mean quality rank", shown(lambda of: figure(of["quality_rank"]))),
        ("coverage of the pool", shown(_coverage)),
    ]


def _coverage(of: Mapping[str, Any]) -> str:
    error = f" ± {figure(of['coverage_error'])}" if of["coverage_error"] else ""
    return figure(of["coverage"]) + error


def _results(arms: Sequence[Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = [
        ("times read", [figure(arm.get("epochs")) for arm in arms]),
        ("validation bits per byte", [figure(arm["bits_per_byte"]) for arm in arms]),
    ]
    for task in tasks_in_order(tasks):
        asked = tasks[task]
        name = f"{task} (n {asked['n']})" + ("" if asked["no_signal"] is None else " *")
        rows.append((name, [figure(arm["tasks"].get(task)) for arm in arms]))
    rows.append((MEAN, [figure(arm["mean"]) for arm in arms]))
    strong = [task for task, asked in tasks.items() if asked["no_signal"] is None]
    if 0 < len(strong) < len(tasks):
        rows.append(("mean without *", [_mean_of(arm["tasks"], strong) for arm in arms]))
    return rows


def _mean_of(scores: Mapping[str, float], tasks: Sequence[str]) -> str:
    known = [scores[task] for task in tasks if task in scores]
    return figure(sum(known) / len(known)) if known else "-"


def _about_pools(
    redundancy: Mapping[str, Mapping[str, Any]], arms: Sequence[Mapping[str, Any]], baseline: str
) -> list[str]:
    """Whether arms could choose from different numbers of documents: a document lacks a score that only some arms need."""
    pools = {arm["arm"]: redundancy.get(arm["arm"], {}).get("pool_documents") for arm in arms}
    known = {arm: documents for arm, documents in pools.items() if documents is not None}
    if len(set(known.values())) < 2:
        return []
    each = ", ".join(f"{arm} {documents:,}" for arm, documents in known.items())
    return [
        f"arms chose from different documents, those that have every score of their `scorers`: {each}; so they differ by "
        f"that, too, and quality rank and coverage are among each arm's own. With the `scorers` of an arm, {baseline} is "
        "its control"
    ]


def _about_epochs(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether models read a part of an arm alone, or some arms more often than others."""
    often = {arm["arm"]: arm["epochs"] for arm in arms if arm.get("epochs")}
    if not often:
        return []
    partly = ", ".join(f"{epochs:.0%} of {arm}" for arm, epochs in often.items() if epochs < _WHOLE)
    lines = [f"models saw {partly}: `pretrain.token_budget` says how much is read"] if partly else []
    if max(often.values()) > max(1, _ABOUT_AS_OFTEN * min(often.values())):
        each = ", ".join(f"{arm} {figure(epochs)} times" for arm, epochs in often.items())
        lines.append(
            f"arms of fewer tokens were read more often ({each}): `select.num_tokens` makes their tokens equal"
        )
    return lines


def _about_models(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of how many models an arm's scores are the mean; nothing where it is one."""
    numbers = sorted({arm["runs"] for arm in arms if arm["runs"]})
    if not any(number > 1 for number in numbers):
        return []
    of = " or ".join(map(str, numbers))
    return [
        f"scores and bits per byte of an arm are means over its {of} models, of every architecture and seed"
    ]


def _about_checkpoints(numbers: Sequence[int]) -> list[str]:
    """Of how many checkpoints a model's scores are the mean; nothing where it is one."""
    if not any(number > 1 for number in numbers):
        return []
    of = " or ".join(map(str, numbers))
    return [
        f"scores and bits per byte are means over each model's last checkpoints ({of}, by evaluate.final_checkpoints)"
    ]


def _about_tasks(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a reader of their scores has to know: solved examples, prompts that were cut, tasks that cannot tell small models
    apart.
    """
    cut = [
        f"{task} {about['truncated']:,}" + ("" if about["prompts"] is None else f" of {about['prompts']:,}")
        for task, about in tasks.items()
        if about["truncated"]
    ]
    shots = sorted({about["shots"] for about in tasks.values() if about["shots"]})
    solved = " or ".join(map(str, shots))
    lines = [f"solved examples before each question: {solved} (evaluate.shots)"] if shots else []
    lines += (
        [f"prompts, one for each choice, that lost their beginning to evaluate.max_length: {', '.join(cut)}"]
        if cut
        else []
    )
    chances = [f"{task} {figure(about['chance'])}" for task, about in tasks.items()]
    lines += [f"guessing scores: {', '.join(chances)}"] if chances else []
    lines += _about_luck(tasks)
    weak = {task: about["no_signal"] for task, about in tasks.items() if about["no_signal"] is not None}
    return lines + [f"* {task} has no signal below 1 B parameters: {reason}" for task, reason in weak.items()]


def _about_luck(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How many scores, each of one model on one task, are above chance although so many were looked at."""
    asked = sum(about["models"] for about in tasks.values())
    if not asked:
        return []
    found = {task: about["models_above"] for task, about in tasks.items() if about["models_above"]}
    where = f" ({', '.join(f'{task} {number}' for task, number in found.items())})" if found else ""
    return [
        f"{sum(found.values()):,} of {asked:,} scores, each of one model on one task, are above chance by more than luck"
        f"{where}: exact binomial tests with Holm's correction for all of them, by which luck alone shows any in at most "
        f"{LUCK:.1%} of reports"
    ]


def _print_differences(console: Console, about: Mapping[str, Any]) -> None:
    found = {(row["arm"], row["architecture"], row["task"]): row for row in about["differences"]}
    columns = columns_in_order(((arm, architecture) for arm, architecture, _ in found), about)
    rows = [
        (task, [_difference(found.get((*column, task))) for column in columns])
        for task in tasks_in_order(task for *_, task in found)
    ]
    over = covered(about["differences"])
    title = f"score less that of {about['baseline']}, with the 95 % interval over {over}"
    print_in_blocks(console, title, [" ".join(column) for column in columns], [rows])


def _difference(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    if not row["half_width"]:
        return f"{row['difference']:+z.4f} ({row.get('no_interval') or 'no spread'})"
    one = " (one discordant pair: a guess)" if row.get("discordant") == 1 else ""
    return f"{row['difference']:+z.4f} ± {row['half_width']:.4f}{one}"

"""The table of the n-gram ruler, and the gate that neural models have to pass. Knows figures; knows no store."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from datamask_pipeline.report.bits import bit_differences, bits_per_byte, shares
from datamask_pipeline.report.order import arms_in_order, tasks_in_order
from datamask_pipeline.report.tables import figure, print_in_blocks, signed
from datamask_pipeline.schema import HELD_OUT, OF_DOCUMENTS

Row = Mapping[str, Any]

FAR_MORE = 1.1
"""Times the tokens that networks read: an n-gram model of more of them is a gate that they need not pass."""


def ngram_figures(
    rows: Mapping[str, Sequence[Row]], tokens: Mapping[str, int], baseline: str
) -> dict[str, Any]:
    """What n-gram models say of a release's arms.

    Args:
        rows: One a question or document by arm: ``task, question_id, gold_bits, gold_bytes, gold_probability``.
        tokens: What each arm's model learnt from.
        baseline: The arm to compare with.

    Returns:
        By arm ``tokens``, ``bits_per_byte`` and ``gold_probability`` by task, and ``differences`` from the baseline; the
        baseline has none.
    """
    return {
        arm: {
            "tokens": tokens[arm],
            "bits_per_byte": bits_per_byte(mine),
            "gold_probability": shares(mine),
            "differences": []
            if arm == baseline or baseline not in rows
            else bit_differences(mine, rows[baseline]),
        }
        for arm, mine in rows.items()
    }


def no_power(arms: Mapping[str, Row], ngram: Mapping[str, Row]) -> list[str]:
    """One line for all arms and architectures that predict held-out documents no better than the n-gram model of the same
    arm; none where there is no such.

    Args:
        arms: As of `gold_figures`.
        ngram: As of `ngram_figures`.
    """
    weak = []
    for arm, counted in ((arm, ngram[arm]) for arm in arms if arm in ngram):
        trigram = counted["bits_per_byte"][HELD_OUT]
        weak += [
            f"{architecture} of {arm} {figure(bits)} (trigram of {counted['tokens']:,} tokens {figure(trigram)})"
            for architecture, bits in arms[arm].get("architectures", {}).items()
            if bits >= trigram
        ]
    if not weak:
        return []
    return [
        "NO POWER: on the held-out documents these models need no fewer bits per byte than a trigram model of their arm's "
        f"tokens, so their numbers do not count: {', '.join(weak)}"
    ]


def uneven_gates(arms: Sequence[Row], ngram: Mapping[str, Row]) -> list[str]:
    """A line for each arm whose networks read other tokens than its n-gram model learnt from: more of them, or far fewer.

    Args:
        arms: Rows of ``arm, tokens, epochs``; ``None``: it has no networks.
        ngram: As of `ngram_figures`.
    """
    lines = []
    for row in arms:
        counted = ngram.get(row["arm"])
        if counted is None or row["epochs"] is None:
            continue
        read = round(row["tokens"] * min(1, row["epochs"]))
        is_low, is_high = counted["tokens"] < read, counted["tokens"] > read * FAR_MORE
        if is_low or is_high:
            kind, remedy = ("low", "as many") if is_low else ("high", "no more")
            lines.append(
                f"the gate of {row['arm']} is a {kind} one: its trigram model learnt from {counted['tokens']:,} tokens, its "
                f"models from some {read:,} different ones; `-s ngram.max_tokens={read}` lets it learn from {remedy}"
            )
    return lines


def print_ngram(console: Console, about: Row) -> None:
    """Print bits per byte by arm, their differences from the baseline, and what they cannot say.

    Args:
        console: Where to.
        about: The release's figures: ``arms``, ``ngram`` and ``baseline``.
    """
    ngram: Mapping[str, Row] = {arm: about["ngram"][arm] for arm in arms_in_order(about["ngram"], about)}
    if not ngram:
        return
    asked = tasks_in_order(next(iter(ngram.values()))["bits_per_byte"])
    documents = [task for task in OF_DOCUMENTS if task in asked]
    tasks = [*documents, *(task for task in asked if task not in OF_DOCUMENTS)]
    names = {task: task.replace("_", " ") if task in documents else f"{task} answers" for task in tasks}
    learnt = ("tokens learnt from", [f"{of['tokens']:,}" for of in ngram.values()])
    bits = [(names[task], [figure(of["bits_per_byte"].get(task)) for of in ngram.values()]) for task in tasks]
    title = "n-gram ruler: bits per byte of documents and of right answers, lower is better"
    print_in_blocks(console, title, list(ngram), [[learnt], bits])
    compared = {
        arm: {row["task"]: row for row in of["differences"]} for arm, of in ngram.items() if of["differences"]
    }
    if compared:
        title = f"n-gram bits per byte less those of {about['baseline']}, with the 95 % interval over questions or documents"
        rows = [(names[task], [signed(of.get(task)) for of in compared.values()]) for task in tasks]
        print_in_blocks(console, title, list(compared), [rows])
    for line in [*_caution(ngram), *uneven_gates(about["arms"], ngram)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _caution(ngram: Mapping[str, Row]) -> list[str]:
    tokens = [of["tokens"] for of in ngram.values()]
    lines = [
        "these intervals cover other questions, or documents asked, not another draw of documents to learn from: "
        "`docs/experiments.md`"
    ]
    if min(tokens) < max(tokens):
        lines.append(
            f"n-gram models learnt from different numbers of tokens: `-s ngram.max_tokens={min(tokens)}` makes them equal"
        )
    return lines

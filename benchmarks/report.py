"""Results as a Markdown page with plots. Knows JSON records, no engine and no benchmark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.plots import plot_series

Record = dict[str, Any]
HIDDEN = ("seed", "mask")
MEASURED = ("method", "kind", "N", "K", "lambda", "metric", "question", "text", "crawls", "documents")
"""Columns that say what was measured: rows that agree in them are runs of one thing."""
FOLDED_ROWS = 30
"""Longer tables are folded: a reader opens them."""

PREFACE = """# Benchmarks

Written by `python -m benchmarks` (`make bench`; `make bench-long` adds what takes longer). Every benchmark runs in a
process of its own, its opponents in the same one where nothing else is said. Ratio 0.1 and lambda 0.5 unless said; input
is float16.

`seconds` is the search alone, similarities and certificate included; `total_seconds` is the whole call: checks,
normalisation, search, evaluation. `cpu_seconds` is the processor's time of the whole call, over all threads. Shares of
an opponent's time are shares of it, though an opponent has no checks, evaluation or certificate to compute. Figures are
medians over seeds. Most results were run while other work shared the cores: their seconds on the clock are
upper limits. A gap is `(bound - value) / (bound - random)`, an attainment `(value - random) / (reference - random)`:
shares of the distance from random masks, never of the raw value. What ran on a GPU says so in its title.
"""


def write_report(path: Path, results: Path, order: Sequence[str]) -> None:
    """One page of every result there is, in order, with a plot for each that has lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = {
        name: json.loads((results / f"{name}.json").read_text())
        for name in order
        if (results / f"{name}.json").exists()
    }
    parts = [PREFACE]
    if records:
        parts += [_overview(list(records.values())), _machines(list(records.values()))]
    for name, record in records.items():
        parts.append(_section(record))
        if record["series"]:
            plot = path.parent / path.stem / f"{name}.svg"
            plot_series(plot, record["title"], record["series"], scaling="N" in record["rows"][0])
            parts.append(f"![{record['title']}]({path.stem}/{name}.svg)\n")
    path.write_text("\n".join(parts))


def _overview(records: list[Record]) -> str:
    """Every result in a line, and every claim that was not met."""
    machines = _distinct_machines(records)
    lines = ["## At a glance\n", "| result | claims met | commit | machine |", "|---|---|---|---|"]
    missed = ["| result | claim | target | measured |", "|---|---|---|---|"]
    for record in records:
        claims = record["claims"]
        met = f"{sum(claim['met'] for claim in claims)} of {len(claims)}" if claims else ""
        link = f"[{record['title']}](#{_anchor(record['title'])})"
        machine = machines.index(record["machine"]) + 1
        lines.append(f"| {link} | {met} | {_commit(record)} | {machine} |")
        for number, claim in enumerate(claim for claim in claims if not claim["met"]):
            named = "" if number else link
            missed.append(f"| {named} | {claim['text']} | {claim['target']} | {claim['measured']} |")
    if len(missed) > 2:
        lines += ["\n### Not met\n", *missed]
    return "\n".join([*lines, ""])


def _machines(records: list[Record]) -> str:
    """What results were made on and from; machines side by side where there are several."""
    machines = _distinct_machines(records)
    numbers = " | ".join(str(number) for number in range(1, len(machines) + 1))
    lines = ["## Machines, versions, data\n", f"| machine | {numbers} |", "|---|" + "---|" * len(machines)]
    for name in dict.fromkeys(name for machine in machines for name in machine):
        lines.append(f"| {name} | {' | '.join(machine.get(name, '') for machine in machines)} |")
    lines.append("")
    for what in ("vectors", "documents"):
        lines += sorted({f"- {what}: {record[what]}" for record in records if what in record})
    total = sum(record["wall_seconds"] for record in records)
    lines.append(f"- wall time of all results on this page: {total / 60:.0f} minutes\n")
    return "\n".join(lines)


def _distinct_machines(records: list[Record]) -> list[dict[str, str]]:
    """Results of different machines may stand side by side: each once, in the order of the results."""
    machines: list[dict[str, str]] = []
    for record in records:
        if record["machine"] not in machines:
            machines.append(record["machine"])
    return machines


def _anchor(title: str) -> str:
    """The name under which a heading is reached."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _commit(record: Record) -> str:
    if any("commit" in row for row in record["rows"]):
        return "by row"
    return str(record.get("code") or "")


def _section(record: Record) -> str:
    lines = [f"## {record['title']}\n", record["question"] + "\n"]
    if record["shrink"] != 1:
        lines.append(f"**Sizes divided by {record['shrink']}: a trial of the code, no result.**\n")
    lines.append(_folded(_table(record["rows"])))
    if record["claims"]:
        lines += ["", "| claim | target | measured | met |", "|---|---|---|---|"]
        for claim in record["claims"]:
            met = "yes" if claim["met"] else "**no**"
            lines.append(f"| {claim['text']} | {claim['target']} | {claim['measured']} | {met} |")
    lines.append("")
    lines += [f"{note}\n" for note in record["notes"]]
    seeds = sorted({row["seed"] for row in record["rows"] if "seed" in row})
    lines.append(f"{_counted(seeds)}{record['wall_seconds']:.0f} s. {_code(record)}\n")
    return "\n".join(lines)


def _folded(table: str) -> str:
    """A long table, which opens where a reader asks for it."""
    num_rows = table.count("\n") - 1
    if num_rows <= FOLDED_ROWS:
        return table
    return f"<details><summary>{num_rows} rows</summary>\n\n{table}\n\n</details>"


def _code(record: Record) -> str:
    if "commit" in record["rows"][0]:
        return "Each row names the commit that it was run at."
    if record.get("code"):
        return f"Run at commit {record['code']}."
    return "**Run on an earlier version of the code: to be run again before anything rests on it.**"


def _counted(seeds: list[int]) -> str:
    if not seeds:
        return ""
    return f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}; "


def _table(rows: list[Record]) -> str:
    columns = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in HIDDEN]
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in MEASURED), []).append(row)
    lines = [f"| {' | '.join([*columns, 'runs'])} |", "|" + "---|" * (len(columns) + 1)]
    for group in groups.values():
        cells = [_cell([row[name] for row in group if row.get(name) is not None]) for name in columns]
        lines.append(f"| {' | '.join([*cells, str(len(group))])} |")
    return "\n".join(lines)


def _cell(values: list[Any]) -> str:
    if not values:
        return ""
    if isinstance(values[0], str | bool):
        return str(values[0])
    middle = median(values)
    return f"{middle:,.0f}" if isinstance(values[0], int) else f"{middle:.5g}"

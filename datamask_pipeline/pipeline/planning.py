"""Documents, bytes, memory, hours and money of a release by stage, before anything runs. Reads manifests; computes nothing.

A stage's seconds a document are this record's own where it has made one; else those of a file in ``benchmarks/results``,
which names what ran where; else unknown, and told as that.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np

from datamask_pipeline.pipeline.chain import Pipeline
from datamask_pipeline.pipeline.estimate import PROPORTION, duration, measured, rate
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.printable import cell
from datamask_pipeline.schema import EMBEDDING_DIM, EMBEDDING_DTYPE


@dataclasses.dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark measured of a stage's work.

    Attributes:
        seconds: Processor seconds.
        documents: Documents they were for.
        gigabytes: Anonymous memory of the process at a number of documents: two points of a line; empty: not measured.
        file: Where it stands, below ``benchmarks/results``.
    """

    seconds: float
    documents: int
    gigabytes: tuple[tuple[int, float], ...]
    file: str

    def memory(self, documents: float) -> float | None:
        """Gigabytes by the line through both points, never less than the first."""
        if len(self.gigabytes) < 2:
            return self.gigabytes[0][1] if self.gigabytes else None
        (few, least), (many, most) = self.gigabytes
        return max(least, least + (most - least) / (many - few) * (documents - few))


#: On two cores, no GPU; each file says which.
BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "ingest": Benchmark(1.580, 90_272, ((90_272, 0.159),), "ingest.json"),
    "embed": Benchmark(131.5, 512, (), "one_pass.json"),
    "pool": Benchmark(34.86, 3_000_000, ((1_000_000, 0.285), (3_000_000, 0.355)), "stages.json"),
    "copies": Benchmark(135.0, 3_000_000, ((1_000_000, 0.574), (3_000_000, 0.713)), "near_copies.json"),
    "gather": Benchmark(14.56, 3_000_000, ((1_000_000, 0.188), (3_000_000, 0.207)), "stages.json"),
    # Its memory is of the stage, by blocks of a million: `stages.json`.
    "select": Benchmark(427.6, 5_000_000, ((1_000_000, 0.540), (3_000_000, 0.560)), "out_of_core.json"),
    "materialise": Benchmark(15.88, 1_000_000, ((1_000_000, 0.340), (10_000_000, 1.113)), "release.json"),
    "redundancy": Benchmark(91.22, 3_000_000, ((1_000_000, 0.277), (3_000_000, 0.289)), "stages.json"),
}

#: Of vectors that stand in a file already.
IMPORTED: Final = Benchmark(98.94, 3_000_000, ((3_000_000, 0.458),), "stages.json")

#: How a stage's work may be shared: shards among machines; the cores of one machine; one process.
Shared = Literal["machines", "cores", "no"]
_BY_CORES: Final = ("select", "copies", "redundancy", "pretrain", "evaluate")


@dataclasses.dataclass(frozen=True, slots=True)
class Machines:
    """What it is to run on.

    Attributes:
        number: Machines that share the record.
        cores: Of each.
        price: Of one for an hour, in any currency.
    """

    number: int = 1
    cores: int = 1
    price: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """One stage of a release; ``None`` for what nobody measured.

    Attributes:
        stage: Its name.
        times: How often it runs: for each crawl's documents once, for each arm, for each model.
        hours: On the clock, all of these one after the other.
        machines: How many of them work on it.
        money: Of these machines for these hours.
        num_bytes: That it leaves in the record.
        gigabytes: Of memory in a process.
        known_by: What the hours rest on.
    """

    stage: str
    times: int
    hours: float | None
    machines: int
    money: float | None
    num_bytes: float | None
    gigabytes: float | None
    known_by: str


def planned(
    pipeline: Pipeline, documents: float, machines: Machines, *, text_bytes: float, until: str | None = None
) -> list[Planned]:
    """Each stage of one release of so many documents, from nothing.

    Args:
        pipeline: The chain; its configuration says which stages there are, how many arms and models, and what is selected.
        documents: Of all its crawls.
        machines: What it runs on.
        text_bytes: Of a document's text, before compression.
        until: Only this stage and those it needs.
    """
    return [
        _planned(pipeline, stage, documents, machines, text_bytes) for stage in pipeline.config.stages(until)
    ]


def _planned(
    pipeline: Pipeline, stage: Stage, documents: float, machines: Machines, text_bytes: float
) -> Planned:
    config, took = pipeline.config, measured(pipeline, stage.name)
    times = {"arm": len(config.arms), "run": len(config.run_names())}.get(stage.scope, 1)
    is_imported = stage.name == "embed" and bool(config.embed.imported_file)
    benchmark = IMPORTED if is_imported else BENCHMARKS.get(stage.name)
    shared: Shared = (
        "machines" if hasattr(stage.module, "begin") else "cores" if stage.name in _BY_CORES else "no"
    )
    at_work = machines.number if shared == "machines" else 1
    seconds, known_by = None, "not measured"
    if stage.scope == "run":
        if took:  # by its tokens, which the settings say, not by documents
            seconds, known_by = sum(each.seconds for each in took) / len(took), "this record"
    elif took and all(each.documents for each in took):
        seconds, known_by = rate(took) * documents / at_work, "this record"
    elif benchmark is not None:
        cores = 1 if shared == "no" else machines.cores * at_work
        seconds, known_by = benchmark.seconds / benchmark.documents * documents / cores, benchmark.file
    hours = None if seconds is None else seconds * times / 3600
    return Planned(
        stage.name,
        times,
        hours,
        at_work,
        None if hours is None else hours * at_work * machines.price,
        _bytes(pipeline, stage, documents, times, text_bytes),
        None if benchmark is None else benchmark.memory(documents if shared != "machines" else 0),
        known_by,
    )


def _bytes(pipeline: Pipeline, stage: Stage, documents: float, times: int, text_bytes: float) -> float | None:
    took = [each for each in measured(pipeline, stage.name) if each.documents]
    if took and stage.scope == "run":  # how large a model is, and what it is asked, is in the settings
        return sum(each.num_bytes + each.fixed_bytes for each in took) / len(took) * times
    if took:
        of_one = sum(each.num_bytes for each in took) / sum(each.documents for each in took)
        return (of_one * documents + sum(each.fixed_bytes for each in took) / len(took)) * times
    if stage.name == "ingest":
        return documents * text_bytes
    if stage.name == "embed":
        return documents * EMBEDDING_DIM * np.dtype(EMBEDDING_DTYPE).itemsize
    if stage.name == "materialise":
        arms = pipeline.config.settings(FLOW.stage("select")).values()
        chosen = [_chosen(settings.result_config(), documents) for settings in arms]
        known = [number for number in chosen if number is not None]
        return sum(known) * text_bytes if len(known) == len(chosen) else None
    return None


def _chosen(settings: Mapping[str, Any], documents: float) -> float | None:
    """How many of so many documents an arm chooses; not known where its budget is in tokens."""
    if settings["num_tokens"] is not None:
        return None
    if settings["num_documents"] is not None:
        return min(float(settings["num_documents"]), documents)
    return float(settings["ratio"]) * documents


def told(rows: list[Planned], documents: float, machines: Machines) -> Iterator[str]:
    """The table and what dominates, line by line."""
    yield (
        f"{documents:,.0f} documents on {machines.number:,} x {machines.cores} cores"
        + (f" at {machines.price:g} an hour each" if machines.price else "")
    )
    yield f"{cell('stage', 14)}{'times':>6}{'on the clock':>14}{'machines':>10}{'money':>14}{'bytes':>12}{'memory':>10}  by"
    for row in rows:
        hours = "?" if row.hours is None else duration(row.hours * 3600)
        money = "?" if row.money is None else f"{row.money:,.2f}"
        memory = "?" if row.gigabytes is None else f"{row.gigabytes:.1f} GB"
        yield (
            f"{cell(row.stage, 14)}{row.times:>6}{hours:>14}{row.machines:>10,}{money:>14}{in_bytes(row.num_bytes):>12}"
            f"{memory:>10}  {row.known_by}"
        )
    known = [row for row in rows if row.hours is not None]
    total = sum(row.hours or 0.0 for row in known)
    paid = sum(row.money or 0.0 for row in known)
    stored = sum(row.num_bytes or 0.0 for row in rows)
    yield f"in all: {duration(total * 3600)}, {paid:,.2f} in money, at least {in_bytes(stored)} in the record"
    if total:
        longest = max(known, key=lambda row: row.hours or 0.0)
        yield f"{(longest.hours or 0) / total:.0%} of the time is {longest.stage}"
    if any(row.known_by.startswith("this record") for row in rows):
        yield f"by this record: {PROPORTION}"
    if unknown := [row.stage for row in rows if row.hours is None]:
        yield f"not in it, as nobody measured it: {', '.join(unknown)}; a small run in this record measures them"


def in_bytes(number: float | None) -> str:
    """For people to read; `?` for what is not known."""
    if number is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} PB"

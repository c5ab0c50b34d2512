"""What every benchmark shares: a context, one timed selection, ratios and an outcome. Knows no benchmark."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.data import Base, block
from benchmarks.peers import Task
from datamask_pipeline import select_documents
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.moments import MomentMetric
from datamask_pipeline.hardware import num_cores, resolve_dtype
from datamask_pipeline.selection.result import SelectionResult

RATIO, LAMB = 0.1, 0.5
SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
"""Documents where time is measured against their number."""
PACKAGES = ("torch", "numpy", "pyarrow", "apricot-select", "submodlib-py", "gist-select", "datamask-pipeline")
SAMPLE_SECONDS = 0.02
FEWEST_DOCUMENTS, FEWEST_EPOCHS = 512, 10
"""Below these, a shrunken run would not try the code that a full one runs."""
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a benchmark runs on.

    Attributes:
        shrink: Sizes are divided by it: 1 for results, more to try the code.
        documents: Parquet files with text.
        folder: For files that are too large for memory.
        results: Where results of earlier runs lie, one JSON a benchmark.
        steps: What alone is measured again, by a benchmark of several steps; empty for all of it.
    """

    base: Base
    documents: Path
    seeds: tuple[int, ...]
    shrink: int
    folder: Path
    results: Path
    steps: tuple[str, ...] = ()

    def size(self, number: int) -> int:
        """A number of documents in this run."""
        return max(FEWEST_DOCUMENTS, number // self.shrink)

    def epochs(self, number: int) -> int:
        """A number of epochs in this run."""
        return max(FEWEST_EPOCHS, number // self.shrink)

    def block(self, num_documents: int, seed: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        """Embeddings and quality of a seed."""
        return block(self.base, num_documents, seed)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement with its target, and whether it held."""

    text: str
    target: str
    measured: str
    met: bool


@dataclass(kw_only=True)
class Outcome:
    """What a benchmark found.

    Attributes:
        rows: One a method, block and seed; keys are columns.
        series: Lines to plot by name: x and y.
    """

    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Selected:
    """One timed selection.

    Attributes:
        seconds: Of the search alone, certificate included.
        cpu_seconds: Of the processor, over all threads, for the whole call.
        total_seconds: Of the whole call.
    """

    result: SelectionResult
    seconds: float
    cpu_seconds: float
    total_seconds: float

    def row(self, method: str, seed: int) -> Row:
        """The columns that every benchmark reports."""
        objective, certificate = self.result.objective, self.result.certificate
        return {
            "method": method,
            "seed": seed,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "total_seconds": self.total_seconds,
            "objective": objective.value,
            "random": objective.random,
            "gap": certificate.gap,
            "mask": hashlib.sha256(self.result.mask.tobytes()).hexdigest()[:12],
        }


def timed(embeddings: Any, quality: Any, **settings: Any) -> Selected:
    """One selection at the benchmarks' ratio and lambda unless told otherwise."""
    begun = processor_seconds()
    result = select_documents(embeddings, quality, **({"ratio": RATIO, "lamb": LAMB} | settings))
    return Selected(
        result=result,
        seconds=result.timings["learning"],
        cpu_seconds=processor_seconds() - begun,
        total_seconds=result.timings["total"],
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Every product by one thread, an opponent's too: threads that wait for each other count as processor seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def processor_seconds() -> float:
    """Of this process with all its threads, and of its children that have ended."""
    return sum(os.times()[:4])


@dataclass(frozen=True, kw_only=True)
class Opposed:
    """One timed run of an opponent: it has no checks, no normalisation and no certificate to compute."""

    picks: NDArray[np.int64]
    seconds: float
    cpu_seconds: float
    objective: float

    def row(self, method: str, seed: int, random: float) -> Row:
        """The columns that every benchmark reports."""
        return {
            "method": method,
            "seed": seed,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "total_seconds": self.seconds,
            "objective": self.objective,
            "random": random,
            "gap": None,
            "mask": None,
        }


@dataclass(frozen=True, kw_only=True)
class Opponents:
    """Opponents on the function that a selection of the engine's maximised: quality and one diversity metric.

    Attributes:
        constants: The engine's, (zero, one) by name.
    """

    embeddings_ND: NDArray[np.float16]
    quality_N: NDArray[np.float64]
    metric: DiversityMetric
    constants: Mapping[str, tuple[float, float]]
    budget: int
    lamb: float = LAMB

    @property
    def task(self) -> Task:
        """What an opponent is given."""
        (zero, one), (low, high) = self.constants["quality"], self.constants[self.metric.name]
        return Task(
            embeddings_ND=self.embeddings_ND,
            linear_N=self.lamb * (self.quality_N - zero) / (one - zero) / self.budget,
            scale=(1 - self.lamb) / (high - low),
            budget=self.budget,
        )

    def objective(self, picks: NDArray[np.int64]) -> float:
        """By the metric's own definition, in at least float32."""
        task = self.task
        if isinstance(self.metric, MomentMetric):
            rows_ND = torch.from_numpy(self.embeddings_ND[picks]).double()
            mask_N = torch.ones(len(rows_ND), dtype=torch.bool)
        else:
            rows_ND = torch.from_numpy(self.embeddings_ND.copy()).float()
            mask_N = torch.zeros(len(rows_ND), dtype=torch.bool)
            mask_N[torch.from_numpy(picks)] = True
        raw = float(self.metric.values(rows_ND, mask_N[None])[0])
        zero, _ = self.constants[self.metric.name]
        return float(task.linear_N[picks].sum()) + task.scale * (raw - zero)

    def run(self, opponent: Callable[[Task], NDArray[np.int64]]) -> Opposed:
        """Timed, then measured.

        Raises:
            ValueError: the opponent broke the budget.
        """
        task = self.task
        begun, worked = time.perf_counter(), processor_seconds()
        picks = opponent(task)
        seconds, cpu_seconds = time.perf_counter() - begun, processor_seconds() - worked
        if len(set(picks.tolist())) != self.budget:
            raise ValueError(f"{len(set(picks.tolist()))} documents picked, the budget is {self.budget}")
        return Opposed(picks=picks, seconds=seconds, cpu_seconds=cpu_seconds, objective=self.objective(picks))


class Done:
    """Cells that were done already, a line each: a run that is ended goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path, self.code = path, code_version()
        lines = path.read_text().splitlines() if path.exists() else []
        told = [json.loads(line) for line in lines]
        self.rows = {json.dumps(one["cell"]): one["row"] for one in told if one["code"] == self.code}

    def row(self, cell: Row, measure: Callable[[], Row]) -> Row:
        """The row of a cell."""
        name = json.dumps(cell)
        if name not in self.rows:
            self.rows[name] = measure() | {"commit": self.code}
            with self.path.open("a") as file:
                file.write(json.dumps({"code": self.code, "cell": cell, "row": self.rows[name]}) + "\n")
        return cell | self.rows[name]


def both_orders(first: Callable[[], Any], second: Callable[[], Any], turn: int) -> tuple[Any, Any]:
    """Both results, the first run first on even turns and second on odd ones: no method always finds a warm machine."""
    if turn % 2 == 0:
        left = first()
        return left, second()
    right = second()
    return first(), right


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of the time against the number of documents, both logarithmic, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def attainment(value: float, random: float, reference: float) -> float:
    """Share of the reference's distance from random."""
    return (value - random) / (reference - random)


def middle(rows: list[Row], method: str, column: str) -> float:
    """Median over seeds of a column."""
    return median(float(row[column]) for row in rows if row["method"] == method)


def at_most(text: str, target: float, measured: float, form: str = ".3g") -> Claim:
    """A claim that a number is small enough."""
    return Claim(
        text=text, target=f"<= {target:{form}}", measured=f"{measured:{form}}", met=measured <= target
    )


def at_least(text: str, target: float, measured: float, form: str = ".3g") -> Claim:
    """A claim that a number is large enough."""
    return Claim(
        text=text, target=f">= {target:{form}}", measured=f"{measured:{form}}", met=measured >= target
    )


class AnonymousMemory:
    """The most anonymous memory of this process while it is open, in bytes."""

    def __enter__(self) -> AnonymousMemory:
        self.most, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.most = max(self.most, int(line.split()[1]) * 1024)


def machine() -> dict[str, str]:
    """Processor, cores, memory and versions."""
    facts = {
        "processor": _processor(),
        "cores": str(num_cores()),
        "system": f"{platform.system()} on {platform.machine()}",
    }
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts |= {"memory": f"{pages / 2**30:.0f} GiB", "python": platform.python_version()}
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    facts["arithmetic of the learners"] = resolve_dtype("auto", "cpu")
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def code_version() -> str:
    """The commit that is checked out, with a + where code differs from it; empty outside a checkout."""
    git = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    git = ["git", "status", "--porcelain", "--", ":/", ":/!benchmarks/results", ":/!docs"]
    changed = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return commit + ("+" if changed else "")


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()

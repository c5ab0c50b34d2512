"""What every benchmark shares: a context, one timed selection, ratios and an outcome. Knows no benchmark."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Base, block
from datamask_pipeline import select_documents
from datamask_pipeline.hardware import num_cores, resolve_dtype
from datamask_pipeline.selection.result import SelectionResult

RATIO, LAMB = 0.1, 0.5
SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
"""Documents where time is measured against their number."""
PACKAGES = ("torch", "numpy", "pyarrow", "apricot-select", "submodlib-py", "datamask-pipeline")
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
    """

    base: Base
    documents: Path
    seeds: tuple[int, ...]
    shrink: int
    folder: Path

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
    """One timed selection: `seconds` is the search alone, certificate included; `total_seconds` the whole call."""

    result: SelectionResult
    seconds: float
    total_seconds: float

    def row(self, method: str, seed: int) -> Row:
        """The columns that every benchmark reports."""
        objective, certificate = self.result.objective, self.result.certificate
        return {
            "method": method,
            "seed": seed,
            "seconds": self.seconds,
            "total_seconds": self.total_seconds,
            "objective": objective.value,
            "random": objective.random,
            "gap": certificate.gap,
            "mask": hashlib.sha256(self.result.mask.tobytes()).hexdigest()[:12],
        }


def timed(embeddings: Any, quality: Any, **settings: Any) -> Selected:
    """One selection at the benchmarks' ratio and lambda unless told otherwise."""
    result = select_documents(embeddings, quality, **({"ratio": RATIO, "lamb": LAMB} | settings))
    return Selected(result=result, seconds=result.timings["learning"], total_seconds=result.timings["total"])


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


def machine() -> dict[str, str]:
    """Processor, cores, memory and versions."""
    facts = {
        "processor": _processor(),
        "cores": str(num_cores()),
        "system": f"{platform.system()} on {platform.machine()}",
    }
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts |= {"memory": f"{pages / 2**30:.0f} GiB", "python": platform.python_version()}
    facts["arithmetic of the learners"] = resolve_dtype("auto", "cpu")
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def code_version() -> str:
    """The commit that is checked out, with a + where files differ from it; empty outside a checkout."""
    git = ["git", "describe", "--always", "--dirty=+", "--abbrev=7"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()

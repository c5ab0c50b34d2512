"""Runs benchmarks, each in a process of its own, and writes their report. Knows no benchmark's content."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.data import Base, base_of_file, base_of_installation, documents_of_installation
from benchmarks.four_kinds import RIVALS
from benchmarks.harness import Context, code_version, machine
from benchmarks.orchestration import SIZES
from benchmarks.report import write_report
from benchmarks.stages_work import COMMANDS, STEPS

ORDER = (
    "facility_20k",
    "moments",
    "faithful_20k",
    "correlation_5k",
    "scaling",
    "ablation",
    "ingest",
    "facility_100k",
    "facility_1m",
    "correlation_20k",
    "faithful_disf_20k",
    "defaults",
    "out_of_core",
    "near_copies",
    "reselection",
    "stages",
    "shards",
    "shards_facility",
    "release",
    "four_kinds",
    "along_graph",
    "by_distances",
    "small_cases",
    "audit_10m",
    "embed",
    "one_pass",
    "training",
    "orchestration",
    "gpu_learner",
    "gpu_embed",
    "gpu_training",
)
RESULTS = Path("benchmarks/results")
REPORT = Path("docs/benchmarks.md")


def main() -> None:
    """Parse, run, report."""
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.results.mkdir(parents=True, exist_ok=True)
    if options.inside:
        _run_one(options, options.only[0])
        return
    chosen = options.only or [
        name
        for name in ORDER
        if (options.long or not import_module(f"benchmarks.{name}").LONG) and not _on_device(name)
    ]
    if options.embeddings is None and not all(map(_on_device, chosen)):
        base_of_installation(options.folder / "installed.npy")
    failed = []
    for name in chosen:
        print(f"{name} ...", flush=True)
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "benchmarks", *sys.argv[1:], "--only", name, "--inside"])
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    write_report(options.report, options.results, ORDER)
    print(f"report: {options.report}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--long", action="store_true", help="run the long ones too")
    parser.add_argument("--only", nargs="+", choices=ORDER, help="run these alone")
    parser.add_argument(
        "--embeddings", type=Path, help="Parquet file with real vectors; else the embedded default's"
    )
    parser.add_argument("--column", default="feature_arr", help="its list column of floats")
    parser.add_argument("--quality-column", help="its score column; else a drawn score")
    parser.add_argument(
        "--documents",
        type=Path,
        help="folder of Parquet files with id, text and language; else the embedded default",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of data and engine")
    parser.add_argument("--shrink", type=int, default=1, help="divide every size by this, to try the code")
    parser.add_argument("--folder", type=Path, default=Path("build/benchmarks"), help="for files on disk")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where results go, one JSON a benchmark"
    )
    parser.add_argument("--report", type=Path, default=REPORT, help="the Markdown report")
    parser.add_argument(
        "--steps",
        nargs="+",
        choices=[*STEPS, *COMMANDS, *SIZES, *RIVALS],
        default=[],
        help="of `stages`, measure these and what they are made from, its other rows stay as they are; of "
        "`orchestration`, one more turn of these sizes alone; of `four_kinds`, these metrics alone, its other rows stay",
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name, known in (
        ("stages", {*STEPS, *COMMANDS}),
        ("orchestration", {*SIZES}),
        ("four_kinds", {*RIVALS}),
    ):
        if name in (options.only or ()) and (others := {*options.steps} - known):
            parser.error(
                f"--steps {', '.join(sorted(others))}: no step of {name}; it has {', '.join(sorted(known))}"
            )
    return options


def _on_device(name: str) -> bool:
    """Whether a benchmark needs a GPU, and makes its vectors there: those are run where they are named."""
    return getattr(import_module(f"benchmarks.{name}"), "ON_DEVICE", False)


def _base(options: argparse.Namespace, name: str) -> Base:
    if _on_device(name):
        return Base(vectors_MD=np.empty((0, 0), np.float16), quality_M=None, source="made on the device")
    if options.embeddings is None:
        return base_of_installation(options.folder / "installed.npy")
    return base_of_file(options.embeddings, options.column, options.quality_column)


def _run_one(options: argparse.Namespace, name: str) -> None:
    benchmark = import_module(f"benchmarks.{name}")
    base = _base(options, name)
    context = Context(
        base=base,
        documents=options.documents or documents_of_installation(options.folder),
        seeds=tuple(options.seeds),
        shrink=options.shrink,
        folder=options.folder,
        results=options.results,
        steps=tuple(options.steps),
    )
    begun = time.perf_counter()
    outcome = benchmark.run(context)
    record = outcome.record() | {
        "title": benchmark.TITLE,
        "question": benchmark.QUESTION,
        "wall_seconds": time.perf_counter() - begun,
        "seeds": options.seeds,
        "shrink": options.shrink,
        "vectors": base.source,
        "documents": "given in a folder" if options.documents else "the embedded default",
        "machine": machine(),
        "code": code_version(),
    }
    (options.results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

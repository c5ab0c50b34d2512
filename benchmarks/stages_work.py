"""One step of `benchmarks.stages` in a process of its own. Run as `python -m benchmarks.stages_work FOLDER STEP`.

Prints seconds on the clock and of the processor, imports included, the most anonymous memory of this process and its
children together, and what was made.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shards_work import Memory

RELEASE = "first"
ARMS: dict[str, dict[str, Any]] = {"blocks": {}, "shards": {"over": "shards"}}
#: By what the results call it: the stage, its key, and settings for it alone.
STEPS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "ingest": ("ingest", ("made",), {}),
    "embed": ("embed", ("made",), {}),
    "score": ("score", ("made",), {}),
    "pool, near_duplicates": ("pool", (RELEASE,), {"near_duplicates": {}}),
    "pool": ("pool", (RELEASE,), {}),
    "copies": ("copies", (RELEASE,), {}),
    "gather": ("gather", (RELEASE,), {}),
    "select": ("select", (RELEASE, "blocks"), {}),
    "select, over: shards": ("select", (RELEASE, "shards"), {}),
    "materialise": ("materialise", (RELEASE, "blocks"), {}),
    "redundancy": ("redundancy", (RELEASE, "blocks"), {}),
    "tokenizer": ("tokenizer", (RELEASE,), {}),
    "questions": ("questions", (RELEASE,), {}),
    "ngram": ("ngram", (RELEASE, "blocks"), {}),
    "pretrain": ("pretrain", (RELEASE, "blocks.dense.seed0"), {}),
    "evaluate": ("evaluate", (RELEASE, "blocks.dense.seed0"), {}),
}
#: What is asked of the finished record.
COMMANDS: dict[str, list[str]] = {
    "run, all done": ["run", "--until", "gather"],
    "audit why": ["audit", "why", "ID"],
    "audit status": ["audit", "status"],
}


def with_needed(steps: Sequence[str]) -> list[str]:
    """Steps, with those that make what they read, in order. A command is asked of a record with everything in it."""
    from datamask_pipeline.pipeline.flow import FLOW

    if any(step in COMMANDS for step in steps):
        return [*STEPS, *(step for step in COMMANDS if step in steps)]
    asked = [STEPS[step][0] for step in steps]
    read = {stage.name for name in asked for stage in FLOW.until(name) if stage.name != name}
    return [
        step
        for step, (stage, names, overrides) in STEPS.items()
        if step in steps or (stage in read and not overrides and names != (RELEASE, "shards"))
    ]


def configuration(folder: Path) -> dict[str, Any]:
    """The chain: vectors from files, the score from a column, near-copies left out, one arm of each kind."""
    return {
        "name": "made",
        "store": str(folder / "record"),
        "source": {"name": "local", "options": {"root": str(folder / "crawls")}},
        "embed": {"imported_file": str(folder / "vectors"), "imported_model": "made"},
        "score": {"scorers": ["column"], "options": {"column": {"column": "quality"}}},
        "pool": {"validation_share": 0.001},
        "copies": {"threshold": 0.98},
        "arms": ARMS,
        "pretrain": {"preset": "smoke"},
        "compare": {"baseline": "blocks"},
        "ngram": {"max_tokens": 300_000},
    }


def run_step(folder: Path, step: str) -> dict[str, Any]:
    """One step of the flow."""
    from datamask_pipeline.pipeline import Pipeline, load_config

    stage, names, overrides = STEPS[step]
    made = Pipeline(load_config(str(folder / "chain.yaml"))).run(stage, *names, overrides=overrides or None)
    return {"rows": made[0].rows, "digest": made[0].content_digest}


def ask(folder: Path, step: str) -> dict[str, Any]:
    """One command."""
    from datamask_pipeline.cli.app import app

    arguments = [(folder / "asked").read_text() if word == "ID" else word for word in COMMANDS[step]]
    os.environ["DATAMASK_CONFIG"] = str(folder / "chain.yaml")
    app(arguments, standalone_mode=False)
    return {}


def main() -> None:
    """Do it, and tell what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("step", choices=[*STEPS, *COMMANDS])
    options = parser.parse_args()
    begun = time.perf_counter()
    with Memory() as memory:
        told = (ask if options.step in COMMANDS else run_step)(options.folder, options.step)
    told["anonymous_bytes"] = sum(memory.most.values())
    told["wall_seconds"] = time.perf_counter() - begun
    told["cpu_seconds"] = sum(os.times()[:4])
    print(json.dumps(told))


if __name__ == "__main__":
    main()

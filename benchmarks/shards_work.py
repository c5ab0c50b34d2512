"""One selection over shards in a process of its own. Run as `python -m benchmarks.shards_work FOLDER METRIC`.

Prints seconds on the clock and of the processor, imports included; with --memory the most anonymous memory of this process
and of each of its members, which a thread looks at.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.02


class Memory:
    """The most anonymous memory of this process and of its children while it is open, in bytes by process id.

    A child counts from its second sample on: one that has just begun still has its parent's pages.
    """

    def __init__(self) -> None:
        self.most: dict[int, int] = {}
        self._done = threading.Event()

    def __enter__(self) -> Memory:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        own = os.getpid()
        known = {own}
        while not self._done.wait(SAMPLE_SECONDS):
            begun = {own, *map(int, Path(f"/proc/self/task/{own}/children").read_text().split())}
            counted, known = begun & known, begun
            for process in counted:
                try:
                    status = Path(f"/proc/{process}/status").read_text()
                except OSError:  # it has ended
                    continue
                if "RssAnon" in status:
                    size = int(status.partition("RssAnon:")[2].split()[0]) * 1024
                    self.most[process] = max(self.most.get(process, 0), size)


def main() -> None:
    """Select, and tell what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("metric")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--in-memory", action="store_true", help="by the learner of one block")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    work = in_memory if options.in_memory else over_shards
    if options.memory:
        with Memory() as memory:
            told = work(options)
        sizes = dict(memory.most)
        told["driver_bytes"] = sizes.pop(os.getpid(), 0)
        told["member_bytes"] = max(sizes.values(), default=0)
    else:
        told = work(options)
    told["cpu_seconds"] = sum(os.times()[:4])
    print(json.dumps(told))


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Of both ways."""
    return {"diversity": options.metric, "ratio": 0.1, "lamb": 0.5, "num_workers": 1}


def over_shards(options: argparse.Namespace) -> dict[str, Any]:
    """The shards of a folder."""
    from benchmarks.shard_data import shards_in
    from datamask_pipeline.selection.shards.api import select_over_shards

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as out:
        found = select_over_shards(
            shards_in(options.folder), out, workers=options.workers, **settings_of(options)
        )
    return told_of(found, time.perf_counter() - begun)


def in_memory(options: argparse.Namespace) -> dict[str, Any]:
    """The same documents as one block, mapped."""
    from benchmarks.shard_data import in_one, shards_in
    from datamask_pipeline import select_documents

    begun = time.perf_counter()
    vectors, quality_N = in_one(shards_in(options.folder))
    found = select_documents(vectors, quality_N, **settings_of(options))
    return told_of(found, time.perf_counter() - begun)


def told_of(found: Any, seconds: float) -> dict[str, Any]:
    """Plain values of a selection."""
    return {
        "seconds": seconds,
        "phases": found.timings,
        "objective": found.objective.value,
        "random": found.objective.random,
        "bound": found.certificate.bound,
        "gap": found.certificate.gap,
        "steps": found.curve.num_rows,
        "learner": found.record["learner"],
        "normalisation": found.normalisation,
    }


if __name__ == "__main__":
    main()

"""kill -9 at random over all stages, of a step, of its worker or of both: the same record as an undisturbed run's.

Ten kills, or as many as CHAOS_KILLS says, from the seed in CHAOS_SEED; a failure prints what it takes to see it again.
"""

import contextlib
import hashlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_kill import digests

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require

KILLS = int(os.environ.get("CHAOS_KILLS", "10"))
SEED = int(os.environ.get("CHAOS_SEED", "0"))
#: At most so many in one campaign: one goes on from what the kills before it left.
KILLS_OF_A_CAMPAIGN = 20
#: For a campaign, on a busy machine too.
SECONDS_TO_WAIT = 900
TREE = Path(__file__).with_name("chaos_tree.py")


class Reader:
    """Somebody who reads the record all the time, by its documentation alone."""

    def __init__(self, record: Path) -> None:
        self.record, self.seen, self.wrong = record, dict[str, set[str]](), list[str]()

    def look(self) -> None:
        """Whatever is current is whole; what was current once and was replaced does not come back."""
        for pointer in self._pointers():
            location = json.loads(pointer.read_bytes())["location"]
            known = self.seen.setdefault(str(pointer), set())
            if location not in known:
                known.add(location)
                self.wrong += [f"{location}: {fault}" for fault in self._faults(self.record / location)]
            if len(known) > 1:
                self.wrong.append(f"{pointer} changed: {sorted(known)}")

    def _pointers(self) -> Iterator[Path]:
        """`os.walk` passes over folders that go away meanwhile, as scratch does."""
        for folder, inner, files in os.walk(self.record):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            if "current.json" in files:
                yield Path(folder) / "current.json"

    def _pointers(self) -> Iterator[Path]:
        """Of every stage. What is hidden, e.g. checkpoints, comes and goes, and is nobody's to read."""
        stages = self.record.iterdir() if self.record.is_dir() else []
        for stage in stages:
            if not stage.name.startswith("."):
                yield from stage.rglob("current.json")

    def _faults(self, folder: Path) -> Iterator[str]:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        wanted = {f"{part['name']}.parquet": part["sha256"] for part in manifest["parts"]}
        wanted |= {file["name"]: file["sha256"] for file in manifest["files"]}
        for tree in manifest["trees"]:
            wanted |= {f"{tree['name']}/{name}": sha256 for name, sha256 in tree["files"].items()}
        if not wanted:
            yield "nothing is named"
        for name, sha256 in wanted.items():
            path = folder / name
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                yield f"{name} is missing or another"


class Tree:
    """The chain's processes, and what they tell."""

    def __init__(self, config: Path, record: Path, log: Path) -> None:
        self.told: queue.Queue[dict[str, Any]] = queue.Queue()
        self.worker, self.steps, self.is_over, self.failed = 0, list[int](), True, ""
        with log.open("ab") as stream:
            self._zygote = subprocess.Popen(
                [sys.executable, str(TREE), str(config), json.dumps({"store": str(record)})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
            )
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.told.get(timeout=SECONDS_TO_WAIT) == {"ready": True}

    def _listen(self) -> None:
        assert self._zygote.stdout is not None
        for line in self._zygote.stdout:
            self.told.put(json.loads(line))

    def start(self) -> None:
        """Another worker, from the beginning: what a person does after a failure."""
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(b"\n")
        self._zygote.stdin.flush()
        self.is_over, self.failed = False, ""

    def next(self, seconds: float) -> dict[str, Any] | None:
        """What is told next, within some time."""
        try:
            event = self.told.get(timeout=seconds)
        except queue.Empty:
            return None
        self.worker = event.get("worker", self.worker)
        if "step" in event:
            self.steps.append(event["step"])
        self.failed = event.get("failed", "")
        self.is_over |= "done" in event or "failed" in event
        return event

    def kill(self, kind: str) -> None:
        """End a step, its worker, or both at once, with no last word."""
        with contextlib.suppress(ProcessLookupError):
            if kind == "step":
                os.kill(self.steps[-1], signal.SIGKILL)
            elif kind == "worker":
                os.kill(self.worker, signal.SIGKILL)
            else:
                os.killpg(self.worker, signal.SIGKILL)
        self.is_over |= kind != "step"

    def orphans(self) -> list[int]:
        """Steps that are still at work."""
        alive = []
        for pid in self.steps:
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                alive += [pid] if state not in "ZX" else []
        return alive

    def close(self) -> None:
        """End everything."""
        for pid in self.orphans():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._zygote.kill()
        self._zygote.wait()


def campaign(
    tree: Tree, reader: Reader, steps: list[tuple[str, str]], seconds: dict[str, float], kills: int, seed: int
) -> list[str]:
    """Start the chain and kill it so many times, each time at a random moment of a random step, then let it end.

    Returns:
        What was killed, one line each; fewer where the chain ended before.
    """
    chance = random.Random(seed)
    places = sorted(chance.choices(range(len(steps)), k=kills))
    done: list[str] = []
    deadline = time.monotonic() + SECONDS_TO_WAIT
    tree.start()

    def follow(until: float, wanted: int | None) -> None:
        """Listen until a time, until a step from `wanted` on begins, or until the chain has ended."""
        while time.monotonic() < until and not tree.is_over:
            event = tree.next(0.02)
            reader.look()
            if tree.failed:
                assert tree.failed.endswith(f"status {signal.SIGKILL:d}"), tree.failed
                tree.start()  # killed as often as it is tried: a person starts it again
            at = -1 if event is None or "step" not in event else steps.index((event["stage"], event["key"]))
            if wanted is not None and at >= wanted:
                return

    for place in places:
        kind, share = chance.choice(["step", "worker", "tree"]), chance.random()
        follow(deadline, place)
        if tree.is_over:
            break
        stage, key = steps[place]
        follow(time.monotonic() + share * seconds[stage], None)
        if tree.is_over:
            break
        tree.kill(kind)
        done.append(f"{kind} at {share:.0%} of {stage} of {key}")
        if kind != "step":
            tree.start()
    follow(deadline, None)
    assert tree.is_over, f"not over after {SECONDS_TO_WAIT} s"
    while tree.orphans():
        reader.look()
        assert time.monotonic() < deadline, "an orphan did not end"
        time.sleep(0.02)
    reader.look()
    return done


@pytest.mark.slow
@pytest.mark.timeout(1_000 + 60 * KILLS)
def test_killed_at_random_the_chain_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    steps = [(stage, key) for stage, key, _ in tiny_run.steps("first")]
    made = [tiny_run.store.manifest(require(tiny_run.store, *step)) for step in steps]
    seconds = {manifest["stage"]: float(manifest["wall_seconds"]) for manifest in made}
    wanted, killed = digests(tiny_run.store), 0
    for number in range(2 * KILLS):
        if killed >= KILLS:
            break
        seed, record = SEED + number, tmp_path / f"record{number}"
        kills = min(KILLS - killed, KILLS_OF_A_CAMPAIGN)
        tree, reader = Tree(tiny_config_file, record, tmp_path / "log"), Reader(record)
        try:
            done = campaign(tree, reader, steps, seconds, kills, seed)
        finally:
            tree.close()
        told = f"CHAOS_SEED={seed} CHAOS_KILLS={kills}: " + "; ".join(done)
        print(told)
        assert not reader.wrong, told
        assert digests(Store(record)) == wanted, told
        Store(record).sweep()  # as the next run does
        assert not list((record / ".staging").iterdir()), f"{told}: private files are left behind"
        killed += len(done)
    assert killed >= KILLS

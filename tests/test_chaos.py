"""kill -9 at random over all stages, of a step, of its worker or of both: the same record as an undisturbed run's.

Ten kills, or as many as CHAOS_KILLS says, from the seed in CHAOS_SEED; a failure prints what it takes to see it again. Of
several campaigns every second one changes its settings, while a step that lost its worker may be at work by the old ones.
"""

import contextlib
import dataclasses
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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_kill import digests

from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
from datamask_pipeline.storage import Store, require

KILLS = int(os.environ.get("CHAOS_KILLS", "10"))
SEED = int(os.environ.get("CHAOS_SEED", "0"))
#: At most so many in one campaign: one goes on from what the kills before it left.
KILLS_OF_A_CAMPAIGN = 20
#: For a campaign, on a busy machine too.
SECONDS_TO_WAIT = 900
#: For how long a chain of later settings may try to pass a step of the earlier ones that stands still; less than a lease.
SECONDS_STILL = 20
TREE = Path(__file__).with_name("chaos_tree.py")


#: Settings that a campaign may change to: the longest documents are dropped, so that every artefact is another.
LATER = {"ingest.max_chars": 670}


class Reader:
    """Somebody who reads the record all the time, by its documentation alone.

    Args:
        record: The record.
        generations: Where the artefacts of undisturbed runs lie, by the settings that come one after the other.
    """

    def __init__(self, record: Path, generations: Sequence[set[str]]) -> None:
        self.record, self.generations = record, generations
        self.seen, self.wrong = dict[str, list[str]](), list[str]()

    def look(self) -> None:
        """Whatever is current is whole, and of no earlier settings than what was current before."""
        for pointer in self._pointers():
            location = json.loads(pointer.read_bytes())["location"]
            before = self.seen.setdefault(str(pointer), [])
            if location in before[-1:]:
                continue
            before.append(location)
            self.wrong += [f"{location}: {fault}" for fault in self._faults(self.record / location)]
            found = [self._generation(each) for each in before]
            if found != sorted(set(found)) or -1 in found:
                self.wrong.append(f"{pointer} changed: {before}")

    def look_again(self) -> None:
        """All that was ever seen is still whole."""
        for location in {each for locations in self.seen.values() for each in locations}:
            self.wrong += [
                f"{location} in the end: {fault}" for fault in self._faults(self.record / location)
            ]

    def _generation(self, location: str) -> int:
        """The first whose settings make it; -1: none."""
        return next((number for number, each in enumerate(self.generations) if location in each), -1)

    def _pointers(self) -> Iterator[Path]:
        """Of every stage. What is hidden, e.g. checkpoints, comes and goes, and is nobody's to read."""
        stages = self.record.iterdir() if self.record.is_dir() else []
        for stage in stages:
            if not stage.name.startswith("."):
                for folder, _, names in os.walk(stage):
                    if "current.json" in names:
                        yield Path(folder, "current.json")

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

    def start(self, settings: Mapping[str, Any]) -> None:
        """Another worker, from the beginning: what a person does after a failure."""
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(settings).encode() + b"\n")
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
                while Path(
                    f"/proc/{self.worker}"
                ).exists():  # its group's steps would be hung up if they stood still
                    time.sleep(0.001)
            else:
                os.killpg(self.worker, signal.SIGKILL)
        self.is_over |= kind != "step"

    def signal(self, pid: int, number: int) -> None:
        """Tell a step to stand still, or to go on; one that has ended is told nothing."""
        if pid in self.orphans():
            os.kill(pid, number)

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


@dataclasses.dataclass(frozen=True)
class Kill:
    """One of a campaign: a `kind` of process, at a share of the time that a step of that stage and key takes."""

    kind: str
    stage: str
    key: str
    share: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.share:.0%} of {self.stage} of {self.key}"


def drawn(steps: Sequence[tuple[str, str]], kills: int, chance: random.Random) -> list[Kill]:
    """So many kills in the order of the steps: each stage is as likely as any other, and each of its steps."""
    stages = list(dict.fromkeys(stage for stage, _ in steps))
    places = [
        chance.choice([step for step in steps if step[0] == stage])
        for stage in chance.choices(stages, k=kills)
    ]
    return [
        Kill(chance.choice(["step", "worker", "tree"]), *place, chance.random())
        for place in sorted(places, key=steps.index)
    ]


def campaign(
    tree: Tree,
    reader: Reader,
    steps: list[tuple[str, str]],
    seconds: dict[str, float],
    kills: Sequence[Kill],
    change: int | None,
) -> tuple[list[Kill], bool]:
    """Start the chain and kill it so many times, then let it end.

    Args:
        tree: Its processes.
        reader: Who looks at the record meanwhile.
        steps: Stage and key of each step, in order.
        seconds: How long a step of each stage takes undisturbed.
        kills: What to kill, and when.
        change: From the first kill of a worker on that comes after so many, it is started with `LATER`; the step that lost
            it stands still meanwhile.

    Returns:
        What was killed, fewer than asked for where the chain ended before; and whether it ended with `LATER`.
    """
    done: list[Kill] = []
    settings: Mapping[str, Any] = {}
    deadline = time.monotonic() + SECONDS_TO_WAIT
    tree.start(settings)

    def follow(until: float, wanted: int | None) -> None:
        """Listen until a time, until a step from `wanted` on begins, or until the chain has ended."""
        while time.monotonic() < until and not tree.is_over:
            event = tree.next(max(0.0, min(0.1, until - time.monotonic())))
            reader.look()
            if tree.failed:
                assert tree.failed.endswith(f"status {signal.SIGKILL:d}"), tree.failed
                tree.start(settings)  # killed as often as it is tried: a person starts it again
            at = -1 if event is None or "step" not in event else steps.index((event["stage"], event["key"]))
            if wanted is not None and at >= wanted:
                return

    for kill in kills:
        follow(deadline, steps.index((kill.stage, kill.key)))
        if tree.is_over:
            break
        follow(time.monotonic() + kill.share * seconds[kill.stage], None)
        if tree.is_over:
            break
        step, place = tree.steps[-1], steps.index((kill.stage, kill.key))
        changes = kill.kind != "step" and settings is not LATER and change is not None and len(done) >= change
        tree.kill(kill.kind)
        if changes:
            tree.signal(step, signal.SIGSTOP)
        done.append(kill)
        if kill.kind != "step":
            settings = LATER if changes else settings
            tree.start(settings)
        if changes:  # the chain comes to that step again, and past it unless somebody keeps it, before the old one goes on
            follow(deadline, place)
            follow(time.monotonic() + SECONDS_STILL, place + 1)
            tree.signal(step, signal.SIGCONT)
    follow(deadline, None)
    assert tree.is_over, f"not over after {SECONDS_TO_WAIT} s"
    while tree.orphans():
        reader.look()
        assert time.monotonic() < deadline, "an orphan did not end"
        time.sleep(0.02)
    reader.look()
    reader.look_again()
    return done, settings is LATER


def made_by(pipeline: Pipeline) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """Fingerprint and content digest of all that a run made, and where it lies."""
    steps = [
        (output.artefact, key)
        for stage in FLOW
        for output in stage.makes
        for key in pipeline.store.keys(output.artefact)
    ]
    return digests(pipeline.store), {require(pipeline.store, *step).location for step in steps}


@pytest.fixture
def later_run(tiny_config_file: Path, tmp_path: Path) -> Pipeline:
    """The tiny chain with `LATER`, undisturbed."""
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "later"), **LATER}))
    for _, _, call in pipeline.steps("first"):
        call()
    return pipeline


@pytest.mark.timeout(1_000 + 60 * KILLS)
def test_killed_at_random_the_chain_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    steps = [(stage, key) for stage, key, _ in tiny_run.steps("first")]
    made = [tiny_run.store.manifest(require(tiny_run.store, *step)) for step in steps]
    seconds = {manifest["stage"]: float(manifest["wall_seconds"]) for manifest in made}
    runs = [made_by(tiny_run)]
    if KILLS > KILLS_OF_A_CAMPAIGN:
        runs.append(made_by(request.getfixturevalue("later_run")))
    killed: list[Kill] = []
    for number in range(2 * KILLS):
        if len(killed) >= KILLS:
            break
        seed, record = SEED + number, tmp_path / f"record{number}"
        chance = random.Random(seed)
        kills = drawn(steps, min(KILLS - len(killed), KILLS_OF_A_CAMPAIGN), chance)
        change = chance.randrange(len(kills)) if number % 2 and len(runs) > 1 else None
        tree = Tree(tiny_config_file, record, tmp_path / "log")
        reader = Reader(record, [where for _, where in runs])
        try:
            done, is_later = campaign(tree, reader, steps, seconds, kills, change)
        finally:
            tree.close()
        told = f"CHAOS_SEED={seed} CHAOS_KILLS={len(kills)}: " + "; ".join(map(str, done))
        print(told + "; ended with later settings" * is_later)
        assert not reader.wrong, (told, reader.wrong)
        assert digests(Store(record)) == runs[is_later][0], told
        Store(record).sweep()  # as the next run does
        assert not list((record / ".staging").iterdir()), f"{told}: private files are left behind"
        killed += done
    assert len(killed) >= KILLS
    for what in ("kind", "stage"):
        print(dict(Counter(getattr(kill, what) for kill in killed)))
    if KILLS >= 100:
        assert {kill.stage for kill in killed} == {stage for stage, _ in steps}

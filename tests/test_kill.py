"""kill -9 in the middle of each stage, then run again: the same fingerprints and content digests."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store

#: Stages whose work takes long enough to be caught in the middle of, in the order of the flow.
STAGES = ("ingest", "embed", "score", "pool", "tokenizer", "select", "materialise", "pretrain", "evaluate")


def digests(store: Store) -> dict[str, tuple[str, str]]:
    """Fingerprint and content digest of every current artefact."""
    stages = sorted(path.name for path in Path(store.root).iterdir() if not path.name.startswith("."))
    refs = [store.current(stage, key) for stage in stages for key in store.keys(stage)]
    return {
        f"{ref.stage}/{ref.key}": (ref.fingerprint, ref.content_digest) for ref in refs if ref is not None
    }


def start(config: Path, record: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from datamask_pipeline.cli import main; main()"]
    arguments = ["run", "-c", str(config), "-s", f"store={record}"]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_inside(stage: str, config: Path, record: Path) -> bool:
    """Start the chain and kill it a moment after the stage has begun; whether it was still at work then."""
    process = start(config, record)
    traces = (record / ".scratch" / stage, record / stage)
    while process.poll() is None and not any(trace.exists() for trace in traces):
        time.sleep(0.002)
    time.sleep(0.03)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_chain_killed_in_every_stage_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    killed = [kill_inside(stage, tiny_config_file, record) for stage in STAGES]
    assert all(killed), dict(zip(STAGES, killed, strict=True))
    assert start(tiny_config_file, record).wait() == 0
    assert digests(Store(record)) == digests(tiny_run.store)
    assert not list((record / ".staging").glob("*")), "the finishing run sweeps what the killed ones left"

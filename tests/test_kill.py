"""kill -9 inside every stage, an end before every manifest; then run again: the same fingerprints and digests."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store

#: Stages whose work takes long enough to be caught in the middle of, in the order of the flow.
STAGES = ("ingest", "embed", "score", "pool", "tokenizer", "select", "materialise", "pretrain", "evaluate")


def digests(store: Store) -> dict[str, tuple[str, str]]:
    """Fingerprint and content digest of every current artefact."""
    stages = sorted(path.name for path in Path(store.root).iterdir() if not path.name.startswith("."))
    refs = [store.current(stage, key) for stage in stages for key in store.keys(stage)]
    return {
        f"{ref.stage}/{ref.key}": (ref.fingerprint, ref.content_digest) for ref in refs if ref is not None
    }


def start(config: Path, record: Path, messages: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from datamask_pipeline.cli import main; main()"]
    arguments = ["run", "-c", str(config), "-s", f"store={record}"]
    with messages.open("wb") as stream:
        return subprocess.Popen([*command, *arguments], stdout=stream, stderr=stream)


def kill_inside(stage: str, config: Path, record: Path, messages: Path) -> None:
    """Start the chain and kill it a moment after the stage has begun."""
    process = start(config, record, messages)
    traces = (record / ".scratch" / stage, record / stage)
    while process.poll() is None and not any(trace.exists() for trace in traces):
        time.sleep(0.002)
    time.sleep(0.03)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, f"ended by itself before {stage}:\n{messages.read_text()}"


@pytest.mark.slow
def test_a_chain_killed_in_every_stage_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record, messages = tmp_path / "record", tmp_path / "messages.txt"
    for stage in STAGES:
        kill_inside(stage, tiny_config_file, record, messages)
    assert start(tiny_config_file, record, messages).wait() == 0, messages.read_text()
    assert digests(Store(record)) == digests(tiny_run.store)
    assert not list((record / ".staging").glob("*")), "the finishing run sweeps what the killed ones left"


class CutOffError(Exception):
    """Stands for a kill between an artefact's last part and its manifest."""


def test_a_chain_cut_off_before_every_manifest_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, cut_off = ArtefactBuilder.commit, set()

    def commit_at_the_second_attempt(self: ArtefactBuilder, *args: Any, **options: Any) -> Ref:
        if self.location not in cut_off:
            cut_off.add(self.location)
            raise CutOffError
        return commit(self, *args, **options)

    monkeypatch.setattr(ArtefactBuilder, "commit", commit_at_the_second_attempt)
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))
    for _, _, call in pipeline.steps("first"):
        while True:
            try:
                call()
                break
            except CutOffError:
                continue
    found = digests(pipeline.store)
    assert found == digests(tiny_run.store)
    assert len(cut_off) == len(found)

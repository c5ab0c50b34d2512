"""kill -9 inside every stage, an end before every manifest; then run again: the same fingerprints and digests."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import forked
import pytest

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store

#: Stages in the order of the flow, and what a stage publishes or reports next when it is killed.
STAGES = {
    "ingest": "file 3",
    "embed": "file 3",
    "score": "file 3",
    "pool": "file 3",
    "gather": "file 3",
    "select": "step 3",
    "materialise": "file 3",
    "tokenizer": "file 2",
    "pretrain": "step 5",
    "evaluate": "file 2",
}
RUN = "from datamask_pipeline.cli import main; main()"
KILLED = """
import os, signal, sys
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store

stage, kind, left = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))
publish, run = Store._publish, Pipeline.run
def one_more(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def publish_or_die(self, private, target):
    if target.startswith(f"{self.root}/{stage}/"):
        one_more()
    publish(self, private, target)
def step_or_die(self, name, *names, **options):
    self.progress = one_more if name == stage else None
    return run(self, name, *names, **options)
if kind == "file":
    Store._publish = publish_or_die
else:
    Pipeline.run = step_or_die
"""


def digests(store: Store) -> dict[str, tuple[str, str]]:
    """Fingerprint and content digest of every current artefact."""
    stages = sorted(path.name for path in Path(store.root).iterdir() if not path.name.startswith("."))
    refs = [store.current(stage, key) for stage in stages for key in store.keys(stage)]
    return {
        f"{ref.stage}/{ref.key}": (ref.fingerprint, ref.content_digest) for ref in refs if ref is not None
    }


def run_chain(script: str, *arguments: str, config: Path, record: Path) -> subprocess.CompletedProcess[str]:
    return forked.run(script, *arguments, "run", "-c", str(config), "-s", f"store={record}")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_chain_killed_in_every_stage_ends_as_an_undisturbed_one(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    for stage, moment in STAGES.items():
        arguments = (stage, *moment.split())
        killed = run_chain(KILLED + RUN, *arguments, config=tiny_config_file, record=record)
        assert killed.returncode == -signal.SIGKILL, f"ended by itself before {stage}:\n{killed.stderr}"
    assert list((record / ".staging").iterdir()), "killed with a file that was not published yet"
    done = run_chain(RUN, config=tiny_config_file, record=record)
    assert done.returncode == 0, done.stderr
    assert digests(Store(record)) == digests(tiny_run.store)
    assert not list((record / ".staging").iterdir()), "the finishing run sweeps what the killed ones left"


class CutOffError(Exception):
    """Stands for a kill between an artefact's last part and its manifest."""


@pytest.mark.slow
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

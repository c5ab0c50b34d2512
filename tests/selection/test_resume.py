"""A killed run goes on and ends with the mask of an undisturbed one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError

SCRIPT = """
import sys, time, numpy as np
from datamask_pipeline import select_documents
rows, quality, out, folder = np.load(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3], sys.argv[4]
settings = eval(sys.argv[5])
def slow(line, step, total):
    print(step, flush=True)
    time.sleep(float(sys.argv[6]))
result = select_documents(rows, quality, checkpoint_dir=folder, checkpoint_seconds=0, progress=slow, **settings)
np.savez(out, mask=result.mask, logits=result.logits)
"""

KILLED_AT = {"policy_gradient": 5, "datamask": 5, "exact lists": 30, "lists from clusters": 30}
LEARNERS = {
    "policy_gradient": {"policy": "policy_gradient", "num_epochs": 60, "num_rollouts": 8, "partial": 0.5},
    "datamask": {"diversity": "DiSF", "num_steps": 12},
    "exact lists": {"diversity": "Facility"},
    "lists from clusters": {
        "diversity": "Facility",
        "diversity_options": {"Facility": {"exact_rows": 1, "num_landmarks": 100}},
    },
}


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_kill_and_resume(learner: str, clustered, tmp_path: Path) -> None:
    rows = np.repeat(clustered[0], 8, axis=0)
    rows += 0.1 * np.random.default_rng(3).standard_normal(rows.shape).astype(np.float32)
    quality = np.repeat(clustered[1], 8)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "quality.npy", quality)
    folder, out = tmp_path / "state", tmp_path / "out.npz"
    files = [str(tmp_path / "rows.npy"), str(tmp_path / "quality.npy"), str(out), str(folder)]
    command = [sys.executable, "-c", SCRIPT, *files, repr(LEARNERS[learner])]
    process = subprocess.Popen([*command, "0.1"], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= KILLED_AT[learner]:
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (folder / "selection.checkpoint").exists()
    assert not out.exists()
    steps = subprocess.run(
        [*command, "0"], check=True, capture_output=True, text=True, env=os.environ
    ).stdout.split()
    assert int(steps[0]) >= KILLED_AT[learner] - 1
    resumed = np.load(out)
    whole = select_documents(rows, quality, **LEARNERS[learner])
    assert resumed["mask"].tobytes() == whole.mask.tobytes()
    assert resumed["logits"].tobytes() == whole.logits.tobytes()
    assert not (folder / "selection.checkpoint").exists()


def test_a_state_of_another_run_is_refused(clustered, tmp_path: Path) -> None:
    def stop(line: str, step: int, total: int | None) -> None:
        if step == 3:
            raise KeyboardInterrupt

    learn = {**LEARNERS["policy_gradient"], "checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        select_documents(*clustered, progress=stop, **learn)
    with pytest.raises(ConfigurationError, match="other settings or input"):
        select_documents(*clustered, **{**learn, "seed": 1})
    with pytest.raises(ConfigurationError, match="other settings or input"):
        select_documents(clustered[0][::-1].copy(), clustered[1], **learn)


def test_time_is_not_part_of_the_result(clustered, tmp_path: Path) -> None:
    begun = time.monotonic()
    first = select_documents(*clustered, checkpoint_dir=tmp_path, checkpoint_seconds=0.0)
    second = select_documents(*clustered)
    assert first.mask.tobytes() == second.mask.tobytes()
    assert time.monotonic() - begun < 30

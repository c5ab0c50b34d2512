"""A killed run goes on and ends with the mask of an undisturbed one."""

import itertools
import os
import signal
import time
from pathlib import Path

import forked
import numpy as np
import pytest

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError

#: Kills itself at a step, when the state of an earlier one has been written.
SCRIPT = """
import os, signal, sys, numpy as np
from datamask_pipeline import select_documents
rows, quality, out, folder = np.load(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3], sys.argv[4]
settings, killed_at = eval(sys.argv[5]), float(sys.argv[6])
def deadly(line, step, total):
    print(step, flush=True)
    if step >= killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
result = select_documents(rows, quality, checkpoint_dir=folder, checkpoint_seconds=0, progress=deadly, **settings)
np.savez(out, mask=result.mask, logits=result.logits)
"""

KILLED_AT = {"policy_gradient": 5, "datamask": 5, "exact lists": 30, "lists from clusters": 30}
LEARNERS = {
    "policy_gradient": {"policy": "policy_gradient", "num_epochs": 60, "num_rollouts": 8, "partial": 0.5},
    "datamask": {"diversity": "DiSF", "num_steps": 12, "num_restarts": 1, "num_kicks": 1},
    "exact lists": {"diversity": "Facility"},
    "lists from clusters": {
        "diversity": "Facility",
        "diversity_options": {"Facility": {"exact_rows": 1, "num_landmarks": 100}},
    },
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_kill_and_resume(learner: str, clustered, tmp_path: Path) -> None:
    rows = np.repeat(clustered[0], 2, axis=0)
    rows += 0.1 * np.random.default_rng(3).standard_normal(rows.shape).astype(np.float32)
    quality = np.repeat(clustered[1], 2)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "quality.npy", quality)
    folder, out = tmp_path / "state", tmp_path / "out.npz"
    files = [str(tmp_path / "rows.npy"), str(tmp_path / "quality.npy"), str(out), str(folder)]
    command = [SCRIPT, *files, repr(LEARNERS[learner])]
    killed_at = str(KILLED_AT[learner])
    killed = forked.run(*command, killed_at)
    assert killed.returncode == -signal.SIGKILL
    assert (folder / "selection.checkpoint").exists()
    assert not out.exists()
    rest = forked.run(*command, "inf")
    assert rest.returncode == 0, rest.stderr
    assert int(rest.stdout.split()[0]) >= int(killed.stdout.split()[-1]) - 1
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


def test_what_a_kill_left_of_a_state_goes_with_it(clustered, tmp_path: Path) -> None:
    ended = forked.run("import os; print(os.getpid())").stdout.strip()
    (tmp_path / f"selection.{ended}.writing").write_bytes(b"half a st")
    at_work = tmp_path / f"selection.{os.getppid()}.writing"
    at_work.write_bytes(b"half a st")
    learn = {**LEARNERS["policy_gradient"], "checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    select_documents(*clustered, **learn)
    assert [*tmp_path.iterdir()] == [at_work]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_time_is_not_part_of_the_result(
    learner: str, clustered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = select_documents(*clustered, **LEARNERS[learner])
    hours = itertools.count(step=3600.0)
    for clock in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    second = select_documents(*clustered, checkpoint_dir=tmp_path, **LEARNERS[learner])
    assert first.mask.tobytes() == second.mask.tobytes()
    assert first.logits.tobytes() == second.logits.tobytes()

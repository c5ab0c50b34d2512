"""The curve and the progress of a run that was interrupted are those of one run."""

from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError, StorageError
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.progress import Curve

LEARNERS = {
    "policy_gradient": {"policy": "policy_gradient", "num_epochs": 20, "num_rollouts": 8, "partial": 0.5},
    "datamask": {"diversity": "DiSF", "num_steps": 12, "num_restarts": 1, "num_kicks": 1},
    "lists": {
        "diversity": "Facility",
        "diversity_options": {"Facility": {"exact_rows": 1, "num_landmarks": 100}},
    },
}


class StoppedError(Exception):
    """Raised by whoever watches."""


def stopped_after(rows, quality, num_lines: int, folder: Path, **learner) -> None:
    lines = []

    def watch(line: str, step: int, total: int | None) -> None:
        lines.append(line)
        if len(lines) == num_lines:
            raise StoppedError

    with pytest.raises(StoppedError):
        select_documents(
            rows, quality, checkpoint_dir=folder, checkpoint_seconds=0, progress=watch, **learner
        )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_a_resumed_run_ends_with_the_whole_curve(name: str, clustered, tmp_path: Path) -> None:
    whole = select_documents(*clustered, **LEARNERS[name])
    stopped_after(*clustered, 3, tmp_path, **LEARNERS[name])
    assert (tmp_path / "selection.checkpoint").exists()
    resumed = select_documents(*clustered, checkpoint_dir=tmp_path, **LEARNERS[name])
    assert resumed.curve.drop_columns(["wall_seconds"]).equals(whole.curve.drop_columns(["wall_seconds"]))
    seconds = resumed.curve.column("wall_seconds").to_pylist()
    assert seconds == sorted(seconds)


def test_other_weights_of_metrics_are_another_run(clustered, tmp_path: Path) -> None:
    steps = {"num_steps": 6, "num_swap_rounds": 0}
    stopped_after(*clustered, 3, tmp_path, diversity=[("DiSF_uncentred", 1.0), ("Pair_simi", 1.0)], **steps)
    assert (tmp_path / "selection.checkpoint").exists()
    with pytest.raises(ConfigurationError, match="other settings or input"):
        select_documents(
            *clustered,
            checkpoint_dir=tmp_path,
            diversity=[("DiSF_uncentred", 1.0), ("Pair_simi", 9.0)],
            **steps,
        )


@pytest.mark.parametrize("policy", ["random", "quality_topk", "semdedup", "greedy", "gist"])
def test_a_policy_without_steps_tells_what_it_reached(policy: str, clustered) -> None:
    lines = []
    result = select_documents(
        *clustered, policy=policy, progress=lambda line, step, total: lines.append(line)
    )
    assert result.curve.column("objective").to_pylist() == [result.objective.value]
    assert f"objective {result.objective.value:.6g}" in lines[-1]


def test_the_time_left_is_told_by_the_steps_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    lines: list[str] = []
    curve = Curve(lambda line, step, total: lines.append(line))
    curve.go_on_from([{"step": 90, "wall_seconds": 900.0}])
    now[0] += 20
    curve({"step": 92, "num_steps": 100, "objective": 0.5})
    assert lines == ["objective 0.5, at most 80 s left"]
    assert curve.records[-1]["wall_seconds"] == pytest.approx(920)


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make the checkpoint folder"):
        Checkpoint(tmp_path / "file" / "folder", "", 0.0, Curve(None))
    checkpoint = Checkpoint(tmp_path / "folder", "", 0.0, Curve(None))
    (tmp_path / "folder").rmdir()
    with pytest.raises(StorageError, match=r"selection\.checkpoint.*its folder was removed; run again"):
        checkpoint.save({})


def test_a_step_that_is_told_again_replaces_what_came_after_it() -> None:
    curve = Curve(None)
    for step, objective in [(0, 0.0), (1, 0.1), (2, 0.2), (1, 0.3), (3, 0.4)]:
        curve({"step": step, "objective": objective})
    table = curve.table().to_pydict()
    assert (table["step"], table["objective"]) == ([0, 1, 3], [0.0, 0.3, 0.4])


def test_who_used_up_all_steps_has_not_converged() -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.standard_normal((600, 32)), draws.random(600)
    settings = {
        "diversity": "DiSF_uncentred",
        "ratio": 0.1,
        "num_workers": 1,
        "num_kicks": 0,
        "num_restarts": 0,
    }
    for steps, ended in ((1, False), (400, True)):
        result = select_documents(rows, quality, num_steps=steps, **settings)
        assert result.record["learner"]["converged"] is ended

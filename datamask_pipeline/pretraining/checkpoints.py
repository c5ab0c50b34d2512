"""Which states of a killed run can be trusted, and which weights are published.

Knows no data and no loss. The trainer writes a checkpoint file by file; a process killed in between
leaves a directory that looks like one. Only a directory with our mark, written last, is resumed from,
and only while the files that the mark names, the published weights among them, have the sizes that it states: of a
machine that lost power they may not.
Further files may stand there: other processes write theirs, as the state of their draws, after the mark.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from datamask_pipeline.errors import DataMaskError, IntegrityError, StorageError, first_line
from datamask_pipeline.pretraining.config import PretrainConfig

#: What a run's end by numbers that are not finite means, and what to do about it.
DIVERGED = "training diverged; lower learning_rate or max_grad_norm, or raise warmup_ratio"
_MARK = "COMPLETE"
_STOPWATCH = "stopwatch.json"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Checkpoint:
    """Weights after `step` optimiser steps, loadable with `from_pretrained`."""

    step: int
    directory: Path


def resumable(states: Path) -> Path | None:
    """The newest whole trainer state below `states`."""
    return max(filter(_is_whole, states.glob("checkpoint-*")), key=_step, default=None)


def remove_halves(states: Path) -> None:
    """Remove trainer states that a killed run did not finish, or of which not all is left; before any process trains."""
    for candidate in states.glob("checkpoint-*"):
        if not _is_whole(candidate):
            shutil.rmtree(candidate)


def _sizes(state: Path, weights: Path) -> str:
    """The files of a trainer state, but for the mark, and of the weights published with it: path from the state, size."""
    files = sorted(file for file in (*state.iterdir(), *weights.iterdir()) if file.name != _MARK)
    return json.dumps({os.path.relpath(file, state): file.stat().st_size for file in files})


def _is_whole(state: Path) -> bool:
    mark = state / _MARK
    if not mark.is_file():
        return False
    try:
        sizes = json.loads(mark.read_text())
    except ValueError:  # of an earlier version: empty
        return False
    return all(
        (state / name).is_file() and (state / name).stat().st_size == size for name, size in sizes.items()
    )


def published(models: Path) -> list[Checkpoint]:
    """The published weights below `models`, by step."""
    found = [Checkpoint(_step(item), item) for item in models.glob("step-*")]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def bind(states: Path, fingerprint: str) -> None:
    """Refuse to resume in a directory that another configuration or subset has begun.

    Raises:
        IntegrityError: `states` belongs to another run.
    """
    owner = states / "run"
    if owner.is_file() and owner.read_text() != fingerprint:
        raise IntegrityError(
            f"{states} holds the state of a run with another configuration, tokenizer or subset; "
            "remove it or choose another directory"
        )
    states.mkdir(parents=True, exist_ok=True)
    if not owner.is_file():
        staged = states / "run.partial"
        staged.write_text(fingerprint)
        staged.replace(owner)


class Publish(TrainerCallback):
    """Marks each trainer state whole, and publishes its weights under a name that appears at once."""

    def __init__(self, states: Path, models: Path, num_steps: int, progress: Progress | None) -> None:
        self._states, self._models = states, models
        self._num_steps, self._progress = num_steps, progress

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Tell the caller how far the run is; let the curve end at the last step."""
        control.should_log |= state.global_step == self._num_steps
        if self._progress is not None:
            self._progress(state.global_step, self._num_steps)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel,
        **_: Any,
    ) -> None:
        """Publish first, mark second: a marked state implies published weights.

        Raises:
            DataMaskError: A weight is not finite, as after a gradient that overflowed.
        """
        if not all(torch.isfinite(weight).all() for weight in model.parameters()):
            raise DataMaskError(
                f"the weights are not finite after step {state.global_step} of {state.max_steps}: {DIVERGED}"
            )
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # each process has written its part of the state
        if not state.is_world_process_zero:
            return
        weights = publish(model, self._models, state.global_step)
        newest = self._states / f"checkpoint-{state.global_step}"
        (newest / _MARK).write_text(_sizes(newest, weights))
        for old in self._states.glob("checkpoint-*"):
            if _step(old) < state.global_step:
                shutil.rmtree(old)


class Stopwatch(TrainerCallback):
    """Times the steps of this process but the first, which warms up, and leaves tokens and seconds beside the states."""

    def __init__(self, states: Path, config: PretrainConfig) -> None:
        self._file = states / _STOPWATCH
        self._tokens_per_step = config.batch_size * config.sequence_length
        self._first_step, self._begun = -1, 0.0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Begin after the first step."""
        if self._first_step < 0:
            self._first_step, self._begun = state.global_step, time.perf_counter()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Write what was timed; a resumed run that had nothing left to do keeps what stands."""
        if state.is_world_process_zero and self._first_step >= 0:
            tokens = (state.global_step - self._first_step) * self._tokens_per_step
            self._file.write_text(
                json.dumps({"tokens": tokens, "seconds": time.perf_counter() - self._begun})
            )


def read_stopwatch(states: Path) -> dict[str, Any]:
    """`tokens` and `seconds` of the process that last trained; zeros where none was timed to its end."""
    file = states / _STOPWATCH
    return json.loads(file.read_text()) if file.is_file() else {"tokens": 0, "seconds": 0.0}


def loss_history(states: Path, step: int) -> list[dict[str, float]]:
    """What the trainer logged up to a step whose state is whole."""
    state = json.loads((states / f"checkpoint-{step}" / "trainer_state.json").read_text())
    return [entry for entry in state["log_history"] if "loss" in entry]


def publish(model: PreTrainedModel, models: Path, step: int) -> Path:
    """Write the weights after `step` steps, whole or not at all; where they lie."""
    final, staged = models / f"step-{step:07d}", models / f".step-{step:07d}.partial"
    for leftover in (staged, final):
        shutil.rmtree(leftover, ignore_errors=True)
    with writing(models):
        model.save_pretrained(staged)
    staged.replace(final)
    return final


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Inside it, safetensors and torch write below a folder.

    Both tell of a want of room by errors of their own, torch by a bare RuntimeError whose words depend on where it ended;
    what it raises of a device is another kind.

    Raises:
        StorageError: they could not write.
    """
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        if type(error) not in (SafetensorError, RuntimeError):
            raise
        raise StorageError(
            f"cannot write weights or the state of training below {folder}: {first_line(error)}; free disk space, or raise "
            "this user's or service's limit on files (`ulimit -f`), and run again"
        ) from error


def _step(directory: Path) -> int:
    return int(directory.name.rsplit("-", 1)[1])


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """While a model is trained or loaded, transformers draws no bars of its own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

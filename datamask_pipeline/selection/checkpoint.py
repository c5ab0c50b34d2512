"""A learner's state on disk, so that a killed run goes on. Knows no learner.

A state is written beside its place and renamed, so a reader sees a whole one or none. It carries the identity of
the run (settings and input), and a state of another run is refused; and the curve so far, so that a resumed run ends
with the curve of an undisturbed one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from datamask_pipeline.disk import sync
from datamask_pipeline.errors import ConfigurationError, StorageError
from datamask_pipeline.selection.progress import Curve


class Checkpoint:
    """Where a learner keeps its state; without a folder it keeps none.

    Args:
        folder: The folder, made when it is not there; none means no checkpoints.
        identity: Digest of all that decides the result.
        seconds: Least time between two writes.
        curve: The curve that is kept with the state.

    Raises:
        StorageError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None, identity: str, seconds: float, curve: Curve) -> None:
        self.path = None if folder is None else folder / "selection.checkpoint"
        self.identity, self.seconds, self.curve = identity, seconds, curve
        self._last = time.monotonic()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(f"cannot make the checkpoint folder {folder}: {error}") from error

    def load(self) -> dict[str, Any] | None:
        """The last state, or none.

        Raises:
            ConfigurationError: the folder holds the state of another run.
        """
        if self.path is None or not self.path.exists():
            return None
        stored = torch.load(self.path, weights_only=True)
        if stored["identity"] != self.identity:
            raise ConfigurationError(
                f"{self.path} belongs to a selection with other settings or input; "
                "give another checkpoint folder or delete the file"
            )
        self.curve.go_on_from(stored["curve"])
        state: dict[str, Any] = stored["state"]
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Write the state (tensors and plain values), if the last write is long enough ago.

        Raises:
            StorageError: the disk is full, or refuses; or the folder was removed.
        """
        if self.path is None or time.monotonic() - self._last < self.seconds:
            return
        temporary = self.path.with_suffix(f".{os.getpid()}.writing")
        try:
            torch.save({"identity": self.identity, "state": state, "curve": self.curve.records}, temporary)
            sync(temporary)
            os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:
            # torch tells of a full disk by a RuntimeError.
            temporary.unlink(missing_ok=True)
            is_there = self.path.parent.is_dir()
            remedy = "free disk space and run again" if is_there else "its folder was removed; run again"
            raise StorageError(f"cannot write {self.path}: {str(error).splitlines()[0]}; {remedy}") from error
        self._last = time.monotonic()

    def clear(self) -> None:
        """Remove the state, and what runs left that were killed as they wrote one: the run has ended."""
        if self.path is None:
            return
        self.path.unlink(missing_ok=True)
        for left in self.path.parent.glob(f"{self.path.stem}.*.writing"):
            if not _is_running(left.suffixes[-2].removeprefix(".")):
                left.unlink(missing_ok=True)


def _is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass  # Somebody else's is one that runs.
    return True

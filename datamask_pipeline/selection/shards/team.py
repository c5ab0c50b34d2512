"""Processes that each hold a part of the documents, as one. Knows no step and no way to reach a process.

A carrier is a `Team` that says how a step reaches its members: in this process, local processes, Ray actors, ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import (
    ConfigurationError,
    DataMaskError,
    InputError,
    InternalError,
    StorageError,
)
from datamask_pipeline.selection.shards.member import Answer, Member

Sums = dict[str, NDArray[np.int64]]
Step = tuple[str, dict[str, Any]]
"""The name of a step, and its arguments."""

TOLD = {"configuration": ConfigurationError, "storage": StorageError}
"""Errors that keep their kind on the way; any other is one of the program itself."""


class Team(ABC):
    """Members in the order of their documents. A context manager: the members end with it."""

    num_members: int

    def __init__(self) -> None:
        self._waiting: list[Step] = []

    def later(self, step: str, **arguments: Any) -> None:
        """Every member does one step of which nothing is to be told, with the next one that is asked: one journey less."""
        self._waiting.append((step, arguments))

    def ask(self, step: str, **arguments: Any) -> tuple[Sums, list[dict[str, Any]]]:
        """Every member does one step.

        Returns:
            The sums over all of them, and what each one tells beside, in their order.
        """
        steps, self._waiting = [*self._waiting, (step, arguments)], []
        return self._send(steps)

    @abstractmethod
    def _send(self, steps: list[Step]) -> tuple[Sums, list[dict[str, Any]]]:
        """Every member does these steps, and answers the last one."""

    def sums(self, step: str, **arguments: Any) -> Sums:
        """The sums alone."""
        return self.ask(step, **arguments)[0]

    def parts(self, step: str, **arguments: Any) -> list[dict[str, Any]]:
        """What each tells beside sums."""
        return self.ask(step, **arguments)[1]

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *failure: object) -> None: ...


class Together(Team):
    """Members in this process, one after the other.

    Args:
        jobs: One for each member.
    """

    def __init__(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.num_members = len(jobs)
        self._members = [Member(job) for job in jobs]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for member in self._members:
            self._stack.enter_context(member)
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _send(self, steps: list[Step]) -> tuple[Sums, list[dict[str, Any]]]:
        return added(member.answer(steps) for member in self._members)


def added(answers: Iterable[Answer]) -> tuple[Sums, list[dict[str, Any]]]:
    """Answers as one: whole numbers added, the rest side by side."""
    total: Sums = {}
    parts = []
    for sums, told in answers:
        for name, numbers in sums.items():
            total[name] = total[name] + numbers if name in total else numbers
        parts.append(told)
    return total, parts


def told_error(error: DataMaskError) -> dict[str, Any]:
    """An error as plain values, for whoever asked."""
    if isinstance(error, InputError):
        named = {name: getattr(error, name) for name in ("problem", "file", "row", "field", "remedy")}
        return {"input": named | {"value": None if error.value is None else str(error.value)}}
    kind = next((name for name, kind in TOLD.items() if isinstance(error, kind)), "internal")
    return {"kind": kind, "message": str(error)}


def raise_told(told: Mapping[str, Any]) -> None:
    """Raise the error that a member told of."""
    if "input" in told:
        named = dict(told["input"])
        raise InputError(named.pop("problem"), **named)
    raise TOLD.get(told["kind"], InternalError)(told["message"])

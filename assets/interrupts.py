"""Lets a run that is terminated end: Dagster takes an interrupt of a step for a failure that is to be tried again.

Knows no stage.
"""

from collections.abc import Iterator
from typing import TypeVar

from dagster import DagsterError
from dagster._core import errors

Event = TypeVar("Event")


class DagsterExecutionInterruptedError(DagsterError, errors.DagsterExecutionInterruptedError):
    """The same, as an error of Dagster's, which no retry policy is asked about.

    Its name is the other's, by which the executor of several processes tells that a step was interrupted.
    """


def stoppable(events: Iterator[Event]) -> Iterator[Event]:
    """What a step tells; an interrupt ends it.

    Raises:
        DagsterExecutionInterruptedError: the run was terminated.
    """
    try:
        yield from events
    except errors.DagsterExecutionInterruptedError as interrupt:
        raise DagsterExecutionInterruptedError("the run was terminated; run again, it goes on") from interrupt

"""Several processes of this machine for one function, joined by torch.distributed. Knows no model and no data.

`transformers.Trainer` finds them by the variables that torchrun sets, which are set here for each: one command trains on
one device or on several.
"""

import multiprocessing
import multiprocessing.connection
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.interrupts import uninterrupted

Progress = Callable[[int, int], None]


def launch(
    function: Callable[..., None], arguments: tuple[Any, ...], *, processes: int, progress: Progress | None
) -> None:
    """Call `function(*arguments, progress)` in so many processes at once, and wait.

    Args:
        function: Of a module; the same in every process.
        arguments: What can be sent to another process.
        processes: How many.
        progress: Called here with what the first of them reports.

    Raises:
        DataMaskError: as one of them raised it, or with its traceback; the others are ended.
    """
    context, port = multiprocessing.get_context("spawn"), _free_port()
    members: list[tuple[BaseProcess, Connection]] = []
    try:
        for rank in range(processes):
            ours, theirs = context.Pipe()
            member = context.Process(
                target=_member, args=(function, arguments, rank, processes, port, theirs)
            )
            with uninterrupted():
                member.start()
            theirs.close()
            members.append((member, ours))
        _listen([pipe for _, pipe in members], progress)
    finally:
        for started, pipe in members:
            pipe.close()
            started.kill()
            started.join()


def _listen(pipes: list[Connection], progress: Progress | None) -> None:
    """Until each has told its end."""
    at_work = list(pipes)
    while at_work:
        for ready in multiprocessing.connection.wait(at_work):
            assert isinstance(ready, Connection)
            try:
                told = ready.recv()
            except EOFError:
                number = pipes.index(ready) + 1
                raise DataMaskError(
                    f"process {number} of {len(pipes)} of the training was killed, perhaps for want of memory; run again: "
                    "it goes on from the last checkpoint"
                ) from None
            if isinstance(told, DataMaskError):
                raise told
            if told is None:
                at_work.remove(ready)
            elif progress is not None:
                progress(*told)


def _member(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    rank: int,
    processes: int,
    port: int,
    pipe: Connection,
) -> None:
    Thread(target=_end_with, args=(pipe,), daemon=True).start()
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    end: DataMaskError | None = None
    try:
        function(*arguments, (lambda done, total: pipe.send((done, total))) if rank == 0 else None)
    except DataMaskError as error:
        end = error
    except Exception:
        end = DataMaskError(f"a process of the training failed:\n{traceback.format_exc()}")
    pipe.send(end)
    # The others may wait for this one in a collective operation, or this one for them: nothing here waits.
    os._exit(0)


def _end_with(pipe: Connection) -> None:
    """Nothing is ever sent to a member: what ends the wait is the end of the process that started it, however it comes."""
    multiprocessing.connection.wait([pipe])
    os._exit(1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

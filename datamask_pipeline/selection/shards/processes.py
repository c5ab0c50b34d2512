"""Members as processes of this machine, reached by a socket each. Knows no step.

A process that has one thread and no accelerator is forked: its members have imported what it has. Elsewhere members are
started anew, which takes a second: a fork of several threads may inherit a lock that nobody lets go.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import torch

from datamask_pipeline.errors import DataMaskError, LostMemberError
from datamask_pipeline.selection.shards.channel import Channel
from datamask_pipeline.selection.shards.member import Answer, Member
from datamask_pipeline.selection.shards.team import Step, Sums, Team, added, raise_told, told_error
from datamask_pipeline.selection.shards.wire import pack, unpack


class _Process(Protocol):
    """What is asked of a process, as of `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


class Processes(Team):
    """One process a member; each ends when its socket is closed, however this one ends.

    Args:
        jobs: One for each member.
    """

    def __init__(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.num_members = len(jobs)
        self._jobs = jobs

    def __enter__(self) -> Self:
        self._channels: list[Channel] = []
        self._processes: list[_Process] = []
        begin = _Forked if may_fork() else _begun
        try:
            for job in self._jobs:
                own, other = socket.socketpair()
                with other:
                    self._processes.append(begin(other, job["threads"]))
                self._channels.append(Channel(own))
                self._channels[-1].send(pack({"job": dict(job)}))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            try:
                process.wait(None if not any(failure) else 1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _send(self, steps: list[Step]) -> tuple[Sums, list[dict[str, Any]]]:
        message = pack({"steps": steps})
        for number, channel in enumerate(self._channels):
            try:
                channel.send(message)
            except OSError:
                self._lost(number)
        return added(self._answers())

    def _answers(self) -> Iterator[Answer]:
        for number, channel in enumerate(self._channels):
            try:
                answer = unpack(channel.receive())
            except (EOFError, OSError):
                self._lost(number)
            if "error" in answer:
                raise_told(answer["error"])
            yield answer["sums"], answer["parts"]

    def _lost(self, number: int) -> None:
        """
        Raises:
            LostMemberError: naming the process that ended.
        """
        status = self._processes[number].wait()
        raise LostMemberError(
            f"process {number} of {self.num_members} that held documents ended with status {status}"
        )


def may_fork() -> bool:
    """Whether a copy of this process is safe to go on: this is its only thread, and no accelerator is in use.

    Threads of torch and of the linear algebra below numpy do not count: members compute with one thread, or with such as
    they start themselves.
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return sys.platform == "linux" and threading.active_count() == 1 and not in_use


def _begun(end: socket.socket, threads: int) -> subprocess.Popen[bytes]:
    """A member in an interpreter of its own."""
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    command = [sys.executable, "-m", __name__, str(end.fileno())]
    return subprocess.Popen(command, pass_fds=[end.fileno()], env=environment)


class _Forked:
    """A member in a copy of this process, which keeps nothing open but its socket.

    Args:
        end: Its own.
        threads: Of the member; it makes them itself.
    """

    def __init__(self, end: socket.socket, threads: int) -> None:
        with warnings.catch_warnings():
            # Later Pythons count threads that never hold a lock of Python's.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        self.status: int | None = None
        if not self.pid:
            _be_member(end)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once there is one.

        Raises:
            subprocess.TimeoutExpired: there is none within so many seconds.
        """
        if self.status is None:
            ending = os.pidfd_open(self.pid)
            try:
                if not select.select([ending], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("member", timeout or 0.0)
            finally:
                os.close(ending)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)


def _be_member(end: socket.socket) -> None:
    """What a forked member does, to its end; never returns into the code of the process that it is a copy of."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # Sockets of other members would keep those alive, locks would stay taken when the leading process is gone.
        own = end.fileno()
        os.closerange(3, own)
        os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
        serve(Channel(end))
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def serve(channel: Channel) -> None:
    """Be one member until the socket is closed."""
    with Member(unpack(channel.receive())["job"]) as member:
        while True:
            try:
                message = unpack(channel.receive())
            except EOFError:
                return
            try:
                sums, parts = member.answer(message["steps"])
            except DataMaskError as error:
                answer = pack({"error": told_error(error)})
            else:
                answer = pack({"sums": sums, "parts": parts})
            try:
                channel.send(answer)
            except BrokenPipeError:  # nobody waits for it any more
                return


if __name__ == "__main__":
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
    os._exit(0)  # all is written; taking the interpreter down would take half a second

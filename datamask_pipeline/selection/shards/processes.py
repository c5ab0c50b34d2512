"""Members as processes of this machine, reached by a socket each. Knows no step."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from datamask_pipeline.errors import DataMaskError, InternalError, LostMemberError
from datamask_pipeline.interrupts import uninterrupted
from datamask_pipeline.selection.shards.channel import Channel
from datamask_pipeline.selection.shards.member import Answer, Member
from datamask_pipeline.selection.shards.team import Step, Sums, Team, added, raise_told, told_error
from datamask_pipeline.selection.shards.wire import pack, unpack


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
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for job in self._jobs:
                own, other = socket.socketpair()
                with other:
                    environment = {"OMP_NUM_THREADS": str(job["threads"]), **os.environ}
                    command = [sys.executable, "-m", __name__, str(other.fileno())]
                    with uninterrupted():
                        started = subprocess.Popen(command, pass_fds=[other.fileno()], env=environment)
                    self._processes.append(started)
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
                channel.send(pack({"error": told_error(error)}))
            except MemoryError:
                raise  # who leads sees that this one is lost
            except Exception as error:
                fault = InternalError(f"{type(error).__name__}: {error}; please report it")
                channel.send(pack({"error": told_error(fault)}))
            else:
                channel.send(pack({"sums": sums, "parts": parts}))


if __name__ == "__main__":
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))))
    os._exit(0)  # all is written; taking the interpreter down would take half a second

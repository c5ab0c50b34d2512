"""Messages of bytes over a socket, each with its length before it. Knows no message's content."""

from __future__ import annotations

import socket

import numpy as np

LENGTH_BYTES = 8
SOCKET_BYTES = 1 << 20
"""What the system is asked to hold of a message on its way: a matrix goes in fewer turns of the two processes."""


class Channel:
    """One end. What was received last is read where it lies, in memory that the next message is received into.

    Args:
        end: Of a stream; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end, self._room = end, np.empty(0, np.uint8)
        for side in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, side, SOCKET_BYTES)

    def send(self, data: bytes) -> None:
        """One message.

        Raises:
            OSError: the other end is closed.
        """
        self._end.sendall(len(data).to_bytes(LENGTH_BYTES, "big"))
        self._end.sendall(data)

    def receive(self) -> memoryview:
        """The next message, as long as none is received after it.

        Raises:
            EOFError: the other end is closed.
            OSError: it went away in the midst of a message.
        """
        length = int.from_bytes(self._filled(LENGTH_BYTES), "big")
        return self._filled(length)

    def _filled(self, length: int) -> memoryview:
        if len(self._room) < length:
            self._room = np.empty(length, np.uint8)
        room = self._room.data[:length]
        done = 0
        while done < length:
            received = self._end.recv_into(room[done:], length - done, socket.MSG_WAITALL)
            if not received:
                raise EOFError("the other end is closed")
            done += received
        return room

    def close(self) -> None:
        """End it; the other end receives no more."""
        self._end.close()

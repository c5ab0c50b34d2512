"""Messages over a socket: whole, whatever the system holds of them at a time, and an end that is told."""

import socket
import threading

import pytest

from datamask_pipeline.selection.shards.channel import SOCKET_BYTES, Channel


def test_messages_come_whole_and_in_order() -> None:
    own, other = (Channel(end) for end in socket.socketpair())
    sent = [bytes(range(256)) * (SOCKET_BYTES // 64), b"", b"short"]
    sender = threading.Thread(target=lambda: [other.send(one) for one in sent])
    sender.start()
    assert [bytes(own.receive()) for _ in sent] == sent
    sender.join()
    other.close()
    with pytest.raises(EOFError, match="the other end is closed"):
        own.receive()
    own.close()

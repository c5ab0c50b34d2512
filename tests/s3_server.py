"""A local server that speaks S3's protocol, and the keys it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KEYS: dict[str, Any] = {"key": "k", "secret": "s", "client_kwargs": {"region_name": "us-east-1"}}


@contextmanager
def s3_server() -> Iterator[str]:
    """Its URL, for as long as it runs."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()

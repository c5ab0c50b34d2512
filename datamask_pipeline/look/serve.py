"""Serves the browser on this machine alone, unless another address is asked for by name. Knows no page."""

import ipaddress
import socket
from collections.abc import Callable
from typing import Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.look.browser import browser
from datamask_pipeline.storage import Store

_LOOPBACK: Final = ("127.0.0.1", "localhost")


def serve(store: Store, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Answer until interrupted.

    Args:
        store: The record.
        host: Name or address to answer at.
        port: Port; 0 takes a free one.
        tell: Told where the browser is once it answers.

    Raises:
        ConfigurationError: the address stands for every one, is not this machine's, or the port is taken.
    """
    import uvicorn

    if host in ("", "*") or _is_unspecified(host):
        raise ConfigurationError(
            f"host {host!r} stands for every address of this machine: name the one to answer at, as requests have to name it"
        )
    store.keys("ingest")  # refuses what is no record before anything is served
    try:
        listening = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"cannot answer at {host}:{port}: {error}; name an address of this machine and a free port, or 0"
        ) from error
    with listening:
        tell(f"http://{host}:{listening.getsockname()[1]}/")
        app = browser(store, [*_LOOPBACK, host])
        # uvicorn's own log settings would close every handler of this process, and with some the stream they write to
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
        )
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can ask there."""
    return host in _LOOPBACK


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False

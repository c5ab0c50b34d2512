"""The Dagster UI for `make dev`: refuses a wrong configuration or a taken port before anything is started."""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.pipeline import load_config
from datamask_pipeline.printable import inert

HOST = "127.0.0.1"
WORKSPACE = Path(__file__).parents[1] / "workspace.yaml"


def serve(port: Annotated[int, typer.Option(min=1, max=65_535, help="Where the UI listens.")] = 3000) -> None:
    """Become `dagster dev`, once it can work."""
    load_config()  # Dagster would start all the same, and show an empty graph
    refuse_taken_port(port)
    # A shell's job in the background ignores it; Dagster ends its processes by it, whatever it was asked to end by itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = ["dev", "-w", str(WORKSPACE), "-h", HOST, "-p", str(port)]
    os.execv(Path(sys.executable).with_name("dagster"), ["dagster", *arguments])


def refuse_taken_port(port: int) -> None:
    """Dagster would notice a taken port only once its daemon runs, and leave that behind.

    Raises:
        ConfigurationError: another program listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} of {HOST} cannot be used ({error.strerror}); stop what listens there, or take another: "
                f"make dev PORT={port + 1}"
            ) from error


def main() -> None:
    """Entry point: a refusal becomes one line on standard error and exit status 1."""
    try:
        typer.run(serve)
    except DataMaskError as error:
        print(f"error: {inert(error)}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

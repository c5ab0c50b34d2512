"""Prints the page docs/commands.md: what `--help` says of every command."""

import html
import subprocess
import sys
from pathlib import Path

TYPER = Path(sys.executable).with_name("typer")


def page() -> str:
    """Typer's page; it escapes what stands in code, too, where nobody would read it back."""
    command = [TYPER, "datamask_pipeline.cli.app", "utils", "docs", "--name", "datamask"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [html.unescape(line) if line.startswith("    ") else line for line in told.splitlines()]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")

"""Python programs in processes of their own that need not import torch and its kin: each is forked from a server that has.

A process of a server knows nothing of the test that starts it, and `kill -9` ends it like any other. Where the environment
has to stand before libraries are imported, e.g. their number of threads, a test starts Python itself.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from chaos_tree import PRELOADED

#: Of processes that are forked from that server.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*PRELOADED, "datamask_pipeline.cli", "datamask_pipeline.cli.app"])


class Forked:
    """A program that has begun.

    Args:
        script: Its text.
        arguments: Of its command line.
        environment: Variables beside those of the server.
        given: What stands on its standard input.
    """

    def __init__(
        self, script: str, *arguments: str, environment: Mapping[str, str] | None = None, given: str = ""
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="forked"))
        self._files = [folder / name for name in ("stdin", "stdout", "stderr")]
        self._files[0].write_text(given, encoding="utf-8")
        self._process = CONTEXT.Process(
            target=_run,
            args=(script, arguments, [str(file) for file in self._files], dict(environment or {})),
        )
        self._process.start()
        self.pid = self._process.pid
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def returncode(self) -> int | None:
        """How it ended, as `subprocess` says it; ``None`` before."""
        return self._process.exitcode

    def communicate(self) -> tuple[str, str]:
        """What it wrote to standard output and standard error, once it has ended."""
        self._process.join()
        stdout, stderr = (file.read_text(encoding="utf-8") for file in self._files[1:])
        return stdout, stderr


def run(
    script: str, *arguments: str, environment: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; as `Forked`."""
    program = Forked(script, *arguments, environment=environment, given=given)
    stdout, stderr = program.communicate()
    assert program.returncode is not None
    return subprocess.CompletedProcess([*arguments], program.returncode, stdout, stderr)


def _run(script: str, arguments: tuple[str, ...], files: list[str], environment: dict[str, str]) -> None:
    """The program itself, in its own process."""
    for number, file in enumerate(files):
        descriptor = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.update(environment)
    tempfile.tempdir = None  # asked for before the environment was this one
    sys.argv = ["-c", *arguments]
    exec(compile(script, "<program>", "exec"), {"__name__": "__main__"})

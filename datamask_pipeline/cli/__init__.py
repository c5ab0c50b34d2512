"""The `datamask` command. Knows the chain, the audit and the engine's files; knows no Dagster."""

import errno
import os
import sys
from typing import Final

INTERRUPTED: Final = 130
#: What Python says, which may come up as early as a library is imported.
_NO_TEMPORARY_FOLDER: Final = "No usable temporary directory"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Entry point: the library's errors become one line on standard error and exit status 1, an interrupt one and 130."""
    try:  # the imports too, which take half a second
        from datamask_pipeline.cli.app import app
        from datamask_pipeline.errors import DataMaskError
        from datamask_pipeline.printable import inert

        try:
            app()
        except DataMaskError as error:
            print(f"error: {inert(error)}", file=sys.stderr)
            raise SystemExit(1) from None
        except FileNotFoundError as error:
            if _NO_TEMPORARY_FOLDER not in str(error):
                raise
            remedy = "make one of them writable, with free room, or name another in TMPDIR"
            print(f"error: {inert(error.strerror or error)}; {remedy}", file=sys.stderr)
            raise SystemExit(1) from None
        except OSError as error:  # what is written to the record is told by `DataMaskError`
            if error.errno not in _NO_ROOM:
                raise
            place = error.filename or "standard output or a temporary file"
            remedy = "free room there, or name another place"
            print(f"error: {error.strerror}, where {inert(place)} is written: {remedy}", file=sys.stderr)
            _drop_what_finds_no_room()
            raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as ended:  # Typer makes an exit of an interrupt
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        print("interrupted: call again, and it goes on where it was", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _drop_what_finds_no_room() -> None:
    """Of standard output: Python, from 3.13 on, would try it again as it ends, and exit with a status of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

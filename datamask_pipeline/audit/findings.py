"""What a proof finds: contradictions, and what it cannot tell. Knows no file format."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

from datamask_pipeline.storage.tombstones import Tombstone

#: A file says something else than what it was made from, or than its manifest; nothing says what it should be; or it is
#: gone, and a tombstone says by which request.
Kind = Literal["contradiction", "cannot tell", "purged"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a proof found.

    Attributes:
        kind: How bad it is.
        file: The file, as a path in the record or in the data set.
        problem: What is wrong, or what is not known.
        row: The row, counted from 0, where one can be named.
    """

    kind: Kind
    file: str
    problem: str
    row: int | None = None

    def line(self) -> str:
        """The finding as one line."""
        place = self.file if self.row is None else f"{self.file} row {self.row}"
        return f"{self.kind}: {place}: {self.problem}"


def contradiction(file: str, problem: str, row: int | None = None) -> Finding:
    """Something that cannot be so."""
    return Finding("contradiction", file, problem, row)


def unknown(file: str, problem: str) -> Finding:
    """Something that cannot be told."""
    return Finding("cannot tell", file, problem)


def purged(file: str, by: Tombstone, what: str = "") -> Finding:
    """Something that was removed on request, or that cannot be told as what begins the sentence was."""
    return Finding("purged", file, f"{what}purged by {by.title}")


def exit_status(findings: Iterable[Finding]) -> int:
    """0: all is as it says; 1: something contradicts; 2: something cannot be told; 3: the rest was purged by a request."""
    kinds = {finding.kind for finding in findings}
    return 1 if "contradiction" in kinds else 2 if "cannot tell" in kinds else 3 if kinds else 0

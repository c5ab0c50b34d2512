"""The errors of the pipeline, classed by what the reader should do about them.

Knows nothing of any stage. The tree::

    DataMaskError
    ├── ConfigurationError   change a setting
    │   └── UnknownNameError   choose one of the names listed
    ├── InputError           repair the data named
    ├── StorageError         make room, or try again
    │   ├── LostMemberError    a process that held a part has ended: run again
    │   └── TakenOverError     another run does this one's work: see how that ends
    ├── IntegrityError       an artefact contradicts its manifest: rebuild it
    ├── UnknownDocumentError no such document in the record
    └── InternalError        a fault of the program: report it
"""

import datetime
import difflib
from collections.abc import Iterable


class DataMaskError(Exception):
    """Anything the pipeline refuses, with the place, the value and the remedy in the message."""


class ConfigurationError(DataMaskError, ValueError):
    """A setting is wrong; nothing was computed."""


class UnknownNameError(ConfigurationError):
    """A name that no member of a family carries.

    Args:
        family: What was looked for, e.g. ``"diversity metric"``.
        name: The name given.
        known: The names there are.
        where: Path of the setting that gives the name, where there is one.
        remedy: What else the reader can do.
    """

    def __init__(
        self, family: str, name: str, known: Iterable[str], where: str = "", *, remedy: str = ""
    ) -> None:
        names = sorted(known)
        listed = f"choose one of: {', '.join(names)}" if names else "" if remedy else "there is none"
        place = f"{where}: " if where else ""
        super().__init__(
            "; ".join(
                filter(None, (f"{place}unknown {family} {name!r}{suggestion(name, names)}", listed, remedy))
            )
        )
        self.family, self.name = family, name


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that a wrong one is nearest to, in brackets; empty where none is near."""
    cases = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), cases, n=1)
    near = near or sorted(other for other in cases if name and other.startswith(name.lower()))
    return f" (did you mean {cases[near[0]]!r}?)" if near else ""


class InputError(DataMaskError, ValueError):
    """The data given cannot be used as it is.

    Args:
        problem: What is wrong, as a sentence without a full stop.
        file: The file it was found in.
        folder: The folder, where no single file is meant.
        row: The row, counted from 0.
        field: The column or field.
        value: The offending value.
        remedy: What the reader can do.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        folder: str | None = None,
        row: int | None = None,
        field: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        named = {"file": file, "folder": folder, "row": row, "field": field}
        named["value"] = None if value is None else _short(value)
        place = ", ".join(f"{name} {item}" for name, item in named.items() if item is not None)
        message = problem + (f" ({place})" if place else "") + (f"; {remedy}" if remedy else "")
        super().__init__(message)
        self.problem, self.file, self.folder, self.row, self.field = problem, file, folder, row, field
        self.value, self.remedy = value, remedy

    def within(self, what: str) -> "InputError":
        """The same, of what it came up for."""
        return InputError(
            f"{what}: {self.problem}",
            file=self.file,
            folder=self.folder,
            row=self.row,
            field=self.field,
            value=self.value,
            remedy=self.remedy,
        )


class StorageError(DataMaskError, OSError):
    """Bytes could not be written or read: a full disk, a lost connection, a refused request."""


class LostMemberError(StorageError):
    """A process that held a part of the documents has ended; the same work by others finds the same."""


class TakenOverError(StorageError):
    """Another run has taken this one's work over, as this one gave no sign of life."""


class IntegrityError(DataMaskError):
    """What is stored is not what its manifest says."""


class UnknownDocumentError(DataMaskError, LookupError):
    """No document of that id stands in the record."""


class InternalError(DataMaskError):
    """The program itself broke a promise: nothing that its user could change."""


def is_of_storage(error: DataMaskError) -> bool:
    """Whether storage itself fails, on which every other step would fail too."""
    return isinstance(error, StorageError) and not isinstance(error, TakenOverError)


def shown(value: object) -> str:
    """A value as a message gives it: null, true, false and dates as YAML has them, a NumPy number as the number it is."""
    if isinstance(value, datetime.date):
        return str(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value.item()) if hasattr(value, "item") and not getattr(value, "shape", None) else repr(value)


def first_line(error: BaseException) -> str:
    """What sort of error it is, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def _short(value: object) -> str:
    text = shown(value)
    return text if len(text) <= 120 else text[:117] + "..."

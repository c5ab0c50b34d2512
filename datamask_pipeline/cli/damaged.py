"""Tells an unexpected error as what explains it, where the record is damaged or its storage does not answer.

Knows no command.
"""

from contextvars import ContextVar
from typing import Any, Final

import typer
from typer.core import TyperGroup

from datamask_pipeline.errors import DataMaskError, IntegrityError, StorageError
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.reaching import is_raised_by, unreached
from datamask_pipeline.storage.ref import MANIFEST

#: The record that the command which is called now is about.
_RECORD: Final[ContextVar[Store | None]] = ContextVar("record", default=None)

#: What code raises that reads values which nobody wrote.
_OF_DAMAGE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class TellsDamage(TyperGroup):
    """Commands over a record. An error that nobody foresaw stays what it is, unless the record explains it.

    That is, unless the record's storage raised it, or a manifest is not as it was written.
    """

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # Typer's own context is one
        _RECORD.set(None)
        try:
            return super().invoke(ctx)
        except DataMaskError:
            raise
        except Exception as error:
            store = _RECORD.get()
            if store is None:
                raise
            if is_raised_by(store.fs, error):
                raise unreached(store.named, error) from error
            if isinstance(error, PermissionError) and str(error.filename).startswith(f"{store.root}/"):
                raise StorageError(
                    f"{error.filename} cannot be read: {error.strerror}; make it readable to who runs this"
                ) from error
            told = damage(store) if isinstance(error, _OF_DAMAGE) else None
            if told is None:
                raise
            raise IntegrityError(told) from error


def remember(store: Store) -> None:
    """Say which record the command is about."""
    _RECORD.set(store)


def damage(store: Store) -> str | None:
    """What is wrong with the first manifest of a record that was changed since it was written; ``None``: none was."""
    for path in sorted(store.fs.find(store.root)):
        location, _, name = path[len(store.root) + 1 :].rpartition("/")
        if name != MANIFEST or not location:
            continue
        try:
            store.manifest_at(location)
        except IntegrityError as error:
            return str(error)
    return None

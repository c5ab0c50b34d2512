"""Tells an unexpected error as the damage to the record that explains it, where there is such damage. Knows no command."""

from contextvars import ContextVar
from typing import Any, Final

import typer
from typer.core import TyperGroup

from datamask_pipeline.errors import DataMaskError, IntegrityError
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import MANIFEST, manifest_digest

#: The record that the command which is called now is about.
_RECORD: Final[ContextVar[Store | None]] = ContextVar("record", default=None)


class TellsDamage(TyperGroup):
    """Commands over a record. An error that nobody foresaw stays what it is, unless a manifest is not as it was written."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # Typer's own context is one
        _RECORD.set(None)
        try:
            return super().invoke(ctx)
        except DataMaskError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            store = _RECORD.get()
            told = None if store is None else damage(store)
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
            manifest = store.manifest_at(location)
        except IntegrityError as error:
            return str(error)
        if manifest.get("manifest_digest", digest := manifest_digest(manifest)) != digest:
            return (
                f"{path} is not as it was written: what it says has another digest than its `manifest_digest`; restore it, "
                "or delete its folder and run its stage, which makes it anew (`datamask audit prove` tells more)"
            )
    return None

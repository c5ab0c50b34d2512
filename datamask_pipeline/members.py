"""Finding the members of a family by name: files of a package, and entry points of others. Knows no family.

A family is a package with one member a file. The file names its member's class in an attribute of the module; the
class carries its own ``name``. Another installed package adds a member with an entry point ``name = "module:Class"``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules, resolve_name
from typing import Any, Generic, TypeVar

import pydantic

from datamask_pipeline.errors import ConfigurationError, UnknownNameError

Member = TypeVar("Member")


@dataclass(frozen=True)
class Family(Generic[Member]):
    """A family of members.

    Attributes:
        package: Where its files are, e.g. ``datamask_pipeline.quality``; also the group of its entry points.
        attribute: What a member's file calls its class, e.g. ``SCORER``; other files have none.
        base: The class that members derive from, as ``module:Class``.
        kind: What a message calls a member, e.g. ``quality scorer``.
    """

    package: str
    attribute: str
    base: str
    kind: str

    def classes(self) -> dict[str, type[Member]]:
        """Every member by name: those of the package's files, then those of entry points.

        Raises:
            ConfigurationError: a file or entry point gives no such class, or two members share a name.
        """
        return dict(_classes(self))

    def names(self) -> list[str]:
        """Names of the members, sorted."""
        return sorted(self.classes())

    def find(self, name: str) -> type[Member]:
        """The member of that name.

        Raises:
            UnknownNameError: there is none.
        """
        classes = self.classes()
        if name not in classes:
            raise UnknownNameError(self.kind, name, classes)
        return classes[name]

    def configured(self, name: str, options: Mapping[str, Any] | None) -> Any:
        """The member's ``Config`` from plain values.

        Raises:
            UnknownNameError: no member has that name.
            ConfigurationError: an option is missing, misspelt or out of range.
        """
        config: Any = self.find(name).Config  # type: ignore[attr-defined]
        try:
            return config(**dict(options or {}))
        except pydantic.ValidationError as error:
            lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ConfigurationError(f"options of {self.kind} {name!r}: {lines}") from error


@cache
def _classes(family: Family[Any]) -> dict[str, type[Any]]:
    # Asking for entry points reads the metadata of every installed package: once a process.
    found: dict[str, type[Any]] = {}
    for module in iter_modules(import_module(family.package).__path__):
        member = getattr(import_module(f"{family.package}.{module.name}"), family.attribute, None)
        if member is not None:
            _add(found, family, member, module.name)
    for point in entry_points(group=family.package):
        _add(found, family, point.load(), point.name)
    return found


def _add(found: dict[str, type[Any]], family: Family[Any], member: Any, origin: str) -> None:
    base: Any = resolve_name(family.base)
    if not (inspect.isclass(member) and issubclass(member, base)):
        raise ConfigurationError(
            f"{family.kind} file or entry point {origin!r} gives no {base.__name__} class, but {member!r}"
        )
    named: Any = member
    name = named.name
    if name in found:
        raise ConfigurationError(f"two of kind {family.kind} are called {name!r}; rename that of {origin!r}")
    found[name] = member

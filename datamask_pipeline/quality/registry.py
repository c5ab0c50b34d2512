"""Finds quality scorers by name. Knows no member: a new file with a ``SCORER`` is enough."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import pydantic

from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.quality.base import Scorer

#: Other packages add members under this entry-point group: name = "module:ScorerClass".
ENTRY_POINTS = "datamask_pipeline.quality_scorers"

LABEL = re.compile(r"[A-Za-z0-9_-]+")


@functools.cache
def _members() -> dict[str, type[Scorer]]:
    package = importlib.import_module("datamask_pipeline.quality")
    found: dict[str, type[Scorer]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        member = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "SCORER", None)
        if member is not None:
            found[member.name] = member
    for point in metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, point.load())
    return found


def scorer_names() -> list[str]:
    """Names of the scorers there are, sorted."""
    return sorted(_members())


def make_scorer(name: str, options: Mapping[str, Any] | None = None) -> Scorer:
    """Build a scorer.

    Args:
        name: A member's name, or ``member:label`` where one is used several times.
        options: Its settings as plain values.

    Raises:
        UnknownNameError: no member has that name.
        ConfigurationError: a setting is missing, misspelt or out of range, or the label is no word.
    """
    base, colon, label = name.partition(":")
    member = _members().get(base)
    if member is None:
        raise UnknownNameError("quality scorer", base, _members())
    if colon and not LABEL.fullmatch(label):
        raise ConfigurationError(
            f"label {label!r} of quality scorer {name!r} must be letters, digits, _ and -"
        )
    try:
        config = member.Config(**dict(options or {}))
    except pydantic.ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigurationError(f"options of quality scorer {name!r}: {lines}") from error
    scorer = member(config)  # type: ignore[call-arg]
    scorer.name = name
    return scorer

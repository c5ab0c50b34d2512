"""Finding a document source by its name. Knows no source: members are files here, or entry points elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datamask_pipeline.members import Family
from datamask_pipeline.sources.base import Source

SOURCES: Family[Source] = Family(
    package="datamask_pipeline.sources",
    attribute="SOURCE",
    base="datamask_pipeline.sources.base:Source",
    kind="document source",
)


def make_source(name: str, options: Mapping[str, Any] | None = None) -> Source:
    """Build a source.

    Args:
        name: A member's name.
        options: Its settings as plain values.

    Raises:
        UnknownNameError: no member has that name.
        ConfigurationError: a setting is missing, misspelt or out of range.
    """
    return SOURCES.find(name)(SOURCES.configured(name, options))  # type: ignore[call-arg]

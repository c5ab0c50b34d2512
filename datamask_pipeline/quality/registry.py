"""Finding a quality scorer by its name. Knows no scorer: members are files here, or entry points elsewhere."""

import re
from collections.abc import Mapping
from typing import Any

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.members import Family
from datamask_pipeline.quality.base import Scorer

SCORERS: Family[Scorer] = Family(
    package="datamask_pipeline.quality",
    attribute="SCORER",
    base="datamask_pipeline.quality.base:Scorer",
    kind="quality scorer",
)
LABEL = re.compile(r"[A-Za-z0-9_-]+")


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
    member = SCORERS.find(base)
    if colon and not LABEL.fullmatch(label):
        raise ConfigurationError(
            f"label {label!r} of quality scorer {name!r} must be letters, digits, _ and -"
        )
    scorer = member(SCORERS.configured(base, options))  # type: ignore[call-arg]
    scorer.name = name
    return scorer

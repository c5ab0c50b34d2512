"""``KEY=VALUE`` as given on the command line. Knows no setting."""

from collections.abc import Sequence
from typing import Any

import yaml

from datamask_pipeline.errors import ConfigurationError


def parse_pairs(pairs: Sequence[str] | None, *, example: str = "select.lamb=0.3") -> dict[str, Any]:
    """The pairs, their values read as YAML.

    Args:
        pairs: What ``--set`` was given, if anything.
        example: A right one, for the message.

    Raises:
        ConfigurationError: there is no ``=`` in one of them, or its value is not YAML.
    """
    values = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set {pair!r} is not KEY=VALUE, e.g. {example}")
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            first_line = str(error).splitlines()[0]
            raise ConfigurationError(f"--set {pair!r}: the value is not YAML ({first_line})") from error
    return values

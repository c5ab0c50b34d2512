"""``KEY=VALUE`` as given on the command line. Knows no setting."""

from collections.abc import Sequence
from typing import Any

import yaml

from datamask_pipeline.errors import ConfigurationError, shown
from datamask_pipeline.yaml_text import parse_yaml, what_is_wrong


def parse_pairs(pairs: Sequence[str] | None, *, example: str = "select.lamb=0.3") -> dict[str, Any]:
    """The pairs, their values read as YAML.

    Args:
        pairs: What ``--set`` was given, if anything.
        example: A right one, for the message.

    Raises:
        ConfigurationError: there is no ``=`` in one of them, its value is not YAML, or a key has two values.
    """
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set {pair!r} is not KEY=VALUE, e.g. {example}")
        try:
            read = parse_yaml(value)
        except yaml.YAMLError as error:
            raise ConfigurationError(
                f"--set {pair!r}: the value is not YAML {what_is_wrong(error)}"
            ) from error
        if key in values and values[key] != read:
            raise ConfigurationError(
                f"--set {key} is given twice: {shown(values[key])} and {shown(read)}; leave one of them"
            )
        values[key] = read
    return values

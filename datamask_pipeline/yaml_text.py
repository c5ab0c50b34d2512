"""YAML as its writer meant it: a name that stands twice in one mapping is an error, not the last one's victory."""

from typing import Any

import yaml
from yaml.constructor import ConstructorError


class _EachNameOnce(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._looked_at: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Called for a mapping, maybe again, before names out of ``<<`` are added, which may well be given twice."""
        if id(node) in self._looked_at:
            return super().flatten_mapping(node)
        self._looked_at.add(id(node))
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in seen:
                    raise ConstructorError(
                        "in a mapping", node.start_mark, f"{key.value!r} stands twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().flatten_mapping(node)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: it is no YAML, has a tag of a program's own, or a mapping has a name twice.
    """
    return yaml.load(text, _EachNameOnce)

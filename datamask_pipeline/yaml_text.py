"""YAML as its writer meant it: a name that stands twice in one mapping is an error, not the last one's victory,
and so are a date that is none and an alias of what it stands in.
"""

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError


class _EachNameOnce(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._looked_at: set[int] = set()
        self._begun: list[str | None] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node; an alias of one that has not ended, which would have no end, is refused with its place."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor, mark = getattr(event, "anchor", None), event.start_mark
        if isinstance(event, yaml.AliasEvent) and anchor in self._begun:
            problem = f"*{anchor} stands inside &{anchor}, so that it would have no end"
            raise ComposerError(None, None, problem, mark)
        self._begun.append(anchor)
        try:
            return super().compose_node(parent, index)
        finally:
            self._begun.pop()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; one that looks like a date or a number and is none is refused with its place."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            problem = f"{node.value!r} is read as a date or number and is none ({error}); put text in quotes"
            raise ConstructorError(None, None, problem, node.start_mark) from error

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
        yaml.YAMLError: it is no YAML, has a tag of a program's own, a date that is none, an alias of what it stands in or
            too many levels, or a mapping has a name twice.
    """
    try:
        return yaml.load(text, _EachNameOnce)
    except RecursionError:
        raise yaml.YAMLError("it has more levels of lists and mappings than can be read") from None


def what_is_wrong(error: yaml.YAMLError) -> str:
    """Where a text is not YAML and why, on one line, e.g. ``in line 3, column 1: 'a' stands twice``."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"in character {error.position + 1}: {error.reason}"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(f"({error})".split())
    mark, begun = error.problem_mark, error.context_mark
    since = ""
    if begun is not None and begun.line < mark.line:
        since = f", {error.context} that begins in line {begun.line + 1}"
    return " ".join(f"in line {mark.line + 1}, column {mark.column + 1}: {error.problem}{since}".split())

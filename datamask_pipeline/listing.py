"""Settings as YAML, each with its value, its default and what it means. Knows no stage and no family."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from datamask_pipeline.settings import Settings, section_of

#: The settings whose values may hold a secret: of these the names alone are told.
_MAY_HOLD_SECRETS = "storage_options"


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Fields with their values.

    Attributes:
        fields: Which, in order.
        values: A plain value is told on one line; settings, blocks, and mappings of these, on lines of their own.
    """

    fields: Mapping[str, FieldInfo]
    values: Mapping[str, Any]

    def without(self, *names: str) -> "Block":
        """The block but for some of its fields."""
        return Block({name: field for name, field in self.fields.items() if name not in names}, self.values)


def block(settings: Settings, **other: Any) -> Block:
    """The block of some settings, with other values for some of them."""
    return Block(type(settings).model_fields, {**dict(settings), **other})


def defaults(model: type[BaseModel]) -> Block:
    """The block of what the settings of a class are where nobody sets them."""
    return Block(model.model_fields, {name: default_of(field) for name, field in model.model_fields.items()})


def lines(of: Block) -> Iterator[str]:
    """The lines of a block."""
    for name, field in of.fields.items():
        value = of.values[name]
        if name == _MAY_HOLD_SECRETS and isinstance(value, Mapping):
            value = dict.fromkeys(value, "...")
        if isinstance(value, Settings | Block):
            yield f"{name}:" + (f"  # {field.description}" if field.description else "")
            yield from _indented(value)
        elif isinstance(value, Mapping) and any(isinstance(one, Settings | Block) for one in value.values()):
            yield f"{name}:  # {field.description}"
            for key, inner in value.items():
                yield f"  {_plain(key)}:"
                yield from (f"  {line}" for line in _indented(inner))
        else:
            default = "no default" if field.is_required() else f"default {_plain(default_of(field))}"
            shown = "" if value is PydanticUndefined else f" {_plain(value)}"
            yield f"{name}:{shown}  # {default}. {field.description or ''}".rstrip()
            if value is None and (section := section_of(field.annotation)) is not None:
                yield from (f"#   {line}" for line in lines(defaults(section)))


def default_of(field: FieldInfo) -> Any:
    """What a setting is where nobody sets it; undefined where it has to be set."""
    return field.get_default(call_default_factory=True)


def _indented(value: Settings | Block) -> Iterator[str]:
    return (f"  {line}" for line in lines(value if isinstance(value, Block) else block(value)))


def _plain(value: Any) -> str:
    """The value in YAML, on one line."""
    text = yaml.safe_dump(
        _values(value), default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _values(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _values(inner) for key, inner in value.items()}
    return [_values(inner) for inner in value] if isinstance(value, list | tuple) else value

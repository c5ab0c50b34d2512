"""What can be changed in the launchpad: a stage's settings, all optional, as Dagster configuration.

Knows pydantic models, no stage. The stage's own model stays the one definition: types, choices, bounds and
help are read from it, and it validates what was typed in.
"""

import types
import typing
from typing import Any, Literal

import dagster as dg
from pydantic.fields import FieldInfo

from datamask_pipeline import lineage
from datamask_pipeline.settings import Settings

SCALARS: dict[Any, Any] = {int: dg.Int, float: dg.Float, str: dg.String, bool: dg.Bool}


def launchpad(*configured: Settings, fixed: frozenset[str] = frozenset()) -> dict[str, dg.Field]:
    """Configuration schema of an asset.

    Args:
        configured: The settings as configured: one model, or one for each arm or run.
        fixed: Fields that the partition decides; they cannot be changed here.

    Returns:
        A field per setting; one left out stays as configured.
    """
    model = type(configured[0])
    fields = {name: field for settings in configured for name, field in type(settings).model_fields.items()}
    return {
        name: dg.Field(
            _config_type(f"{model.__name__}_{name}", field.annotation),
            is_required=False,
            description=_help(
                field, [getattr(settings, name) for settings in configured if hasattr(settings, name)]
            ),
        )
        for name, field in fields.items()
        if name not in fixed
    }


def code_version(stage_version: str, *configured: Settings) -> str:
    """A stage's version and its settings, so that a change of either marks what was made before as outdated."""
    # As written, not as a stage resolves it on this machine: resolving may cost the import of torch.
    values = [Settings.result_config(settings) for settings in configured]
    return f"{stage_version}-{lineage.sha256_text(lineage.canonical_json(values))[:8]}"


def _config_type(name: str, annotation: Any) -> Any:
    """The Dagster type of an annotation; anything of more than one shape is left to the stage's model."""
    members = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [member for member in members if member is not types.NoneType]
        if len(inner) == 1 and len(members) == 2:
            return dg.Noneable(_config_type(name, inner[0]))
        return dg.Any
    if typing.get_origin(annotation) is Literal and all(isinstance(member, str) for member in members):
        return dg.Enum(name, [dg.EnumValue(member) for member in members])
    if typing.get_origin(annotation) in (list, tuple) and members[0] in SCALARS:
        return dg.Array(SCALARS[members[0]])
    if typing.get_origin(annotation) is dict:
        return dict
    return SCALARS.get(annotation, dg.Any)


def _help(field: FieldInfo, values: list[Any]) -> str:
    distinct = list(dict.fromkeys(repr(value) for value in values))
    bounds = _bounds(field)
    return " ".join(
        [
            field.description or "",
            *([f"Bounds: {bounds}."] if bounds else []),
            f"Configured: {', '.join(distinct)}.",
        ]
    )


def _bounds(field: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return ", ".join(
        f"{sign} {getattr(constraint, name)}"
        for constraint in field.metadata
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    )

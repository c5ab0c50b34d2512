"""What every configuration model has in common, and how its errors are told. Knows no stage and no family."""

from __future__ import annotations

import datetime
import decimal
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import pydantic
import pydantic.fields

from datamask_pipeline.errors import ConfigurationError, shown, suggestion

Values = TypeVar("Values", bound=Sequence[Any] | None)
Model = TypeVar("Model", bound=pydantic.BaseModel)

#: What arrays and files count with.
LARGEST: Final = 2**63 - 1
#: What YAML may take a bare word for, where text is needed.
_TAKEN_FOR: Final = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    datetime.date: "a date",
}


class Settings(pydantic.BaseModel):
    """Frozen, strict about names and finite: a misspelt field is an error, not a silent default."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    members: ClassVar[Mapping[str, Any]] = {}
    """Fields that name a member, with the member's `families.Family`: its settings stand beside these."""

    one_of: ClassVar[tuple[str, ...]] = ()
    """Fields of which one may be given: it takes the place of another that was inherited."""

    without_members: ClassVar[type[pydantic.BaseModel] | None] = None
    """The class without its members' settings, where this one was made with them."""

    @pydantic.field_validator("*", mode="wrap")
    @classmethod
    def _is_the_number_meant(cls, value: Any, handler: pydantic.ValidatorFunctionWrapHandler) -> Any:
        taken = handler(value)
        if _became_a_number(value, taken):
            raise ValueError("a boolean stands where a number is needed")
        if isinstance(taken, int) and abs(taken) > LARGEST:
            raise ValueError(f"whole numbers lie within {LARGEST}, what 64 bits hold")
        return taken

    @classmethod
    def inherited(cls, base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """What of `base` stands beside `own`: what it neither sets itself nor gives in another way."""
        replaced = {*own}
        if any(own.get(name) is not None for name in cls.one_of):
            replaced |= {*cls.one_of}
        return {name: value for name, value in base.items() if name not in replaced}

    def result_config(self) -> dict[str, Any]:
        """The fields that affect results, as JSON values, of settings inside settings too: what a fingerprint holds."""
        execution = {name for name, field in type(self).model_fields.items() if is_execution(field)}
        dumped = self.model_dump(mode="json", exclude=execution)
        return {name: _result_value(getattr(self, name), value) for name, value in dumped.items()}


def each_once(values: Values) -> Values:
    """The validator of a list in which nothing may be repeated; null passes."""
    if values is not None:
        for value in values:
            if values.count(value) > 1:
                raise ValueError(f"{value!r} is repeated; name each once")
    return values


def execution_field(default: Any, *, description: str, **bounds: Any) -> Any:
    """A field that says how to compute, not what: it stays out of fingerprints. There is no other way out.

    Args:
        default: The default value.
        description: Help for the reader.
        bounds: ``ge``, ``le`` and the like, as pydantic takes them.
    """
    return pydantic.Field(default, description=description, json_schema_extra={"execution": True}, **bounds)


def is_execution(field: pydantic.fields.FieldInfo) -> bool:
    """Whether a field was declared by `execution_field`."""
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get("execution"))


def validated(
    model: type[Model], values: Mapping[str, Any], where: str = "", inherited: Mapping[str, str] | None = None
) -> Model:
    """The settings out of plain values.

    Args:
        model: Their class.
        values: By field name.
        where: Path of these settings in what the user wrote, e.g. ``source.options``.
        inherited: Path of those that were written elsewhere, by field.

    Raises:
        ConfigurationError: naming path, problem, value given and nearest known name of all that is wrong.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigurationError(explain(error, model, where, inherited)) from error


def explain(
    error: pydantic.ValidationError,
    model: type[pydantic.BaseModel],
    where: str = "",
    inherited: Mapping[str, str] | None = None,
) -> str:
    """All that is wrong: dotted path, problem, and the value given or the nearest known name.

    Args:
        error: What pydantic found.
        model: The class that was validated.
        where: Path of its settings in what the user wrote.
        inherited: Path of those that were written elsewhere, by field.
    """
    found: dict[str, list[str]] = {}
    items = error.errors()
    for item in items:
        if item["type"] == "too_short" and any(_is_inside(other["loc"], item["loc"]) for other in items):
            continue  # only as what is wrong inside it is left out
        steps, owner, kind = _followed(model, item["loc"])
        if item["loc"][-1:] == ("[key]",):
            steps[-1] = str(item["input"])
        stands = (inherited or {}).get(steps[0], where) if steps else where
        path = ".".join([*filter(None, [stands]), *steps])
        found.setdefault(path, []).append(_problem(item, owner, kind, is_secret="storage_options" in steps))
    return "; ".join(
        f"{path}: {', or '.join(dict.fromkeys(problems))}" if path else ", or ".join(problems)
        for path, problems in found.items()
    )


def _is_inside(loc: Sequence[int | str], outer: Sequence[int | str]) -> bool:
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _problem(item: Any, owner: type[pydantic.BaseModel] | None, kind: Any, *, is_secret: bool) -> str:
    if item["type"] == "extra_forbidden":
        known = sorted(owner.model_fields) if owner is not None else []
        near = suggestion(str(item["loc"][-1]), known)
        return f"unknown setting{near or '; choose one of: ' + (', '.join(known) or 'none')}"
    if item["type"] == "missing":
        return "is missing"
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in ("tuple_type", "list_type"):
        one = isinstance(item["input"], str | int | float) and not is_secret
        message = "must be a list" + (f", e.g. [{item['input']}]" if one else "")
    if item["type"] == "int_parsing" and (whole := _whole_number(item["input"])) is not None:
        message = f"must be a whole number, and YAML takes this for text; write {whole}"
    if item["type"] == "dict_type":
        message = "must be a mapping, e.g. {NAME: VALUE}"
    if item["type"] == "too_short":
        message = f"must have at least {item['ctx']['min_length']}"
    kinds = [taken for known, taken in _TAKEN_FOR.items() if isinstance(item["input"], known)]
    if (
        item["type"] == "string_type" and kinds and item["loc"][-1] != "str"
    ):  # there a union has other members
        message = f"must be text, but YAML takes it bare for {kinds[0]}; put it in quotes"
    section = section_of(kind)
    if item["type"] == "model_type" and section is not None:
        fields = section.model_fields
        has_defaults = not any(field.is_required() for field in fields.values())
        message = f"must be settings, of: {', '.join(fields)}" + (
            "; {} takes all defaults" if has_defaults else ""
        )
    # The validator of a whole model names the values it minds.
    is_whole = isinstance(item["input"], Mapping) and item["type"] == "value_error"
    return message if is_whole or is_secret else f"{message} (given: {shown(item['input']):.120})"


def _whole_number(text: Any) -> int | None:
    """The whole number that a text such as ``1e5`` means: YAML 1.1 takes an exponent without point and sign for text."""
    if not re.fullmatch(r"[+-]?\d{1,9}(\.\d{0,9})?[eE]\+?1?\d", str(text)):
        return None
    number = decimal.Decimal(str(text))
    return int(number) if number == number.to_integral_value() else None


def _followed(
    model: type[pydantic.BaseModel], loc: Sequence[int | str]
) -> tuple[list[str], type[pydantic.BaseModel] | None, Any]:
    """The path without pydantic's own marks for the members of a union, the model its last step stands in, its type."""
    steps: list[str] = []
    kind: Any = model
    owner: type[pydantic.BaseModel] | None = None
    for step in loc:
        if step == "[key]":
            continue
        kind = _bare(kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(iter(_models_in(kind)), Any)
            continue
        steps.append(str(step))
        owner = kind if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel) else None
        if owner is not None:
            kind = owner.model_fields[str(step)].annotation if step in owner.model_fields else Any
        else:
            kind = (typing.get_args(kind) or [Any])[-1 if typing.get_origin(kind) is dict else 0]
    return steps, owner, kind


def section_of(kind: Any) -> type[pydantic.BaseModel] | None:
    """The model of an annotation that takes settings, or null instead of them."""
    bare = _bare(kind)
    return bare if isinstance(bare, type) and issubclass(bare, pydantic.BaseModel) else None


def _bare(kind: Any) -> Any:
    """An annotation without bounds, and without the null that it may be."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        inner = [member for member in typing.get_args(kind) if member is not types.NoneType]
        return _bare(inner[0]) if len(inner) == 1 else kind
    return kind


def _models_in(kind: Any) -> Iterator[type[pydantic.BaseModel]]:
    for member in typing.get_args(kind):
        if isinstance(member, type) and issubclass(member, pydantic.BaseModel):
            yield member


def _became_a_number(given: Any, taken: Any) -> bool:
    """Whether a boolean was taken for a number, at any depth; settings inside settings look after their own."""
    if isinstance(given, Mapping) and isinstance(taken, Mapping):
        return any(_became_a_number(given[name], value) for name, value in taken.items() if name in given)
    if isinstance(given, list | tuple) and isinstance(taken, list | tuple):
        return any(map(_became_a_number, given, taken))
    return isinstance(given, bool) and not isinstance(taken, bool)


def _result_value(value: Any, dumped: Any) -> Any:
    if isinstance(value, Settings):
        return value.result_config()
    if isinstance(value, Mapping):
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: _result_value(inner, plain) for inner, (key, plain) in pairs}
    if isinstance(value, list | tuple):
        return [_result_value(inner, plain) for inner, plain in zip(value, dumped, strict=True)]
    return dumped

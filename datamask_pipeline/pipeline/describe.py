"""Every setting of a chain with its value, its default and what it means, as YAML. Knows the configuration and no data."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from datamask_pipeline.families import METRICS, SCORERS, SOURCES
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.settings import Settings


def described(config: PipelineConfig) -> Iterator[str]:
    """The lines, members' options and the settings of each arm and architecture filled in."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name in _EXPANDED:
            yield from _headed(name, field, _EXPANDED[name](config))
        elif isinstance(value, Settings):
            yield from _headed(name, field, _settings(value))
        else:
            yield _line(name, field, value)


def _source(config: PipelineConfig) -> Iterator[str]:
    fields = type(config.source).model_fields
    yield _line("name", fields["name"], config.source.name)
    options = SOURCES.config(config.source.name, config.source.options, "source.options")
    yield from _headed("options", fields["options"], _settings(options))


def _score(config: PipelineConfig) -> Iterator[str]:
    score: Settings = config.score
    given: Mapping[str, Any] = config.score.options
    members = {name: SCORERS.config(name, given.get(name)) for name in config.score.scorers}
    yield from _settings(score, options=members)


def _embed(config: PipelineConfig) -> Iterator[str]:
    embed: Settings = config.embed
    given: Mapping[str, Any] = config.embed.head_options
    yield from _settings(
        embed, head_options={name: SCORERS.config(name, given.get(name)) for name in config.embed.heads}
    )


def _select(config: PipelineConfig) -> Iterator[str]:
    """What every arm starts from: each setting that one of them reads."""
    arms = [config.select_config(arm) for arm in config.arms]
    fields = {name: field for settings in arms for name, field in type(settings).model_fields.items()}
    for name, field in fields.items():
        yield _line(name, field, config.select.get(name, _default(field)))


def _arms(config: PipelineConfig) -> Iterator[str]:
    for arm in config.arms:
        settings = config.select_config(arm)
        given = settings.diversity_options
        options = {name: METRICS.config(name, given.get(name)) for name in settings.diversity_weights}
        yield f"{arm}:"
        yield from _indented(_settings(settings, diversity_options=options))


def _pretrain(config: PipelineConfig) -> Iterator[str]:
    for name, field in PretrainConfig.model_fields.items():
        if name != "seed":  # which `seeds` says
            yield _line(name, field, config.pretrain.get(name, _default(field)))


def _architectures(config: PipelineConfig) -> Iterator[str]:
    for run_name in config.run_names():
        arm, architecture, seed = run_name.split(".")
        if arm == next(iter(config.arms)) and seed == f"seed{config.seeds[0]}":
            settings = config.pretrain_config(run_name)
            yield f"{architecture}:"
            yield from _indented(
                _line(name, field, getattr(settings, name))
                for name, field in PretrainConfig.model_fields.items()
                if name != "seed"
            )


_EXPANDED = {
    "source": _source,
    "embed": _embed,
    "score": _score,
    "select": _select,
    "arms": _arms,
    "pretrain": _pretrain,
    "architectures": _architectures,
}


def _settings(settings: Settings, **members: Mapping[str, Settings]) -> Iterator[str]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        optional = {m: options for m, options in members.get(name, {}).items() if type(options).model_fields}
        if optional:
            yield f"{name}:  # {field.description}"
            for member, options in optional.items():
                yield f"  {_plain(member)}:"
                yield from _indented(_indented(_settings(options)))
        elif isinstance(value, Settings):
            yield from _headed(name, field, _settings(value))
        else:
            yield _line(name, field, value)


def _headed(name: str, field: FieldInfo, lines: Iterator[str]) -> Iterator[str]:
    yield f"{name}:" + (f"  # {field.description}" if field.description else "")
    yield from _indented(lines)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _line(name: str, field: FieldInfo, value: Any) -> str:
    default = "no default" if field.is_required() else f"default {_plain(_default(field))}"
    return f"{name}: {_plain(value)}  # {default}. {field.description or ''}".rstrip()


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


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

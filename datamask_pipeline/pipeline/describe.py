"""Every setting of a chain, with those of members, arms and architectures. Knows the configuration and no data."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from datamask_pipeline.families import METRICS, SCORERS, SOURCES, Family
from datamask_pipeline.listing import Block, block, default_of, lines
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.settings import Settings
from datamask_pipeline.stages.select import SelectConfig


def described(config: PipelineConfig) -> Iterator[str]:
    """Every setting with its value, its default and what it means, as lines of YAML."""
    source, score, embed = config.source, config.score, config.embed
    arms = {arm: config.select_config(arm) for arm in config.arms}
    first = next(iter(arms))
    models = {
        name: config.pretrain_config(f"{first}.{name}.seed{config.seeds[0]}") for name in config.architectures
    }
    expanded = {
        "source": block(source, options=SOURCES.config(source.name, source.options, "source.options")),
        "embed": block(embed, head_options=_options(SCORERS, embed.heads, embed.head_options)),
        "score": block(score, options=_options(SCORERS, score.scorers, score.options)),
        "select": _base(config.select, arms.values(), fixed=_instead_of_ratio(config.select)),
        "arms": {arm: _of_arm(settings) for arm, settings in arms.items()},
        "pretrain": _base(config.pretrain, models.values(), fixed=("seed",)),  # which `seeds` says
        "architectures": {name: block(settings).without("seed") for name, settings in models.items()},
    }
    return lines(Block(type(config).model_fields, {**dict(config), **expanded}))


def _base(given: Mapping[str, Any], read_by: Collection[Settings], fixed: Collection[str] = ()) -> Block:
    """What every arm, or every model, starts from: each setting that one of them reads."""
    fields = {name: field for settings in read_by for name, field in type(settings).model_fields.items()}
    values = {name: given.get(name, default_of(field)) for name, field in fields.items()}
    return Block(fields, values).without(*fixed)


def _of_arm(settings: Any) -> Block:
    given = settings.diversity_options
    of_arm = block(settings, diversity_options=_options(METRICS, settings.diversity_weights, given))
    return of_arm.without(*_instead_of_ratio(dict(settings)))


def _instead_of_ratio(values: Mapping[str, Any]) -> Collection[str]:
    """The ratio, where another budget stands, beside which it would be refused."""
    others = [name for name in SelectConfig.one_of if name != "ratio"]
    return ("ratio",) if any(values.get(name) is not None for name in others) else ()


def _options(family: Family[Any], names: Collection[str], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of members that have some."""
    found = {name: family.config(name, given.get(name)) for name in names}
    return {name: options for name, options in found.items() if type(options).model_fields} or given

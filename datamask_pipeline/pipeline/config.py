"""The configuration of a whole chain, read from one YAML file. Knows the flow's settings and no data."""

import itertools
import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import pydantic
import yaml

from datamask_pipeline.errors import ConfigurationError, UnknownNameError, suggestion
from datamask_pipeline.families import readers, with_members
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.rolling import PREVIOUS
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.pretraining import presets
from datamask_pipeline.pretraining.config import READ_BY_MOE, PretrainConfig
from datamask_pipeline.settings import Settings, each_once, execution_field, validated
from datamask_pipeline.stages.select import SelectConfig
from datamask_pipeline.yaml_text import parse_yaml, what_is_wrong

#: Names become directories and partition keys; a run's name is ``<arm>.<architecture>.seed<n>``.
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
#: As of `pretrain`, which takes one.
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**32)]

Model = TypeVar("Model", bound=Settings)

#: Sections whose members the user names, what one is called, and the settings of which an override gives a new one some.
NAMED = {
    "releases": ("release", ("crawls", "given", "every")),
    "arms": ("arm", ("policy",)),
    "architectures": ("architecture", ("architecture",)),
}

#: Environment variables that the composition root and the commands read.
CONFIG_VARIABLE = "DATAMASK_CONFIG"
STORE_VARIABLE = "DATAMASK_STORE"
DEFAULT_CONFIG = "demo"


class SourceConfig(Settings):
    """Where documents come from."""

    name: str = pydantic.Field("installed", description="A document source: one file of sources/.")
    options: dict[str, Any] = pydantic.Field(default_factory=dict, description="The source's own settings.")
    license: str | None = execution_field(
        None, description="Licence of the source as the hub spells it, for `datamask release`."
    )


class ReleaseConfig(Settings):
    """A named, frozen set of crawls; with `every`, a template that makes such releases as crawls arrive."""

    crawls: tuple[str, ...] | None = pydantic.Field(
        None,
        min_length=1,
        description="Crawls in order of precedence; null means every crawl that the source has when the release is first "
        "asked for: later ones are never taken in (see `every`). Beside `given`, those that are added to that release's.",
    )
    given: Name | None = pydantic.Field(
        None,
        description="A release whose subsets are held in this one: each arm keeps what it selected there and selects "
        "from the added crawls alone, given that. Null selects from all crawls anew. Beside `every`, `previous` is the last "
        "release that was made so.",
    )
    every: Literal["crawl", "month"] | None = pydantic.Field(
        None,
        description="Makes a new release of all crawls with each new crawl, called NAME-CRAWL, or at most one a month, "
        "called NAME-2026-11, if a crawl is new. Null is one release, frozen when it is first asked for.",
    )
    max_age_days: int | None = execution_field(
        None,
        ge=1,
        le=36_500,
        description="After so many days without a new subset Dagster shows `fineweb_mask` as overdue, with a warning when "
        "four fifths of them are over. Null: never.",
    )

    @pydantic.model_validator(mode="after")
    def _template_or_frozen(self) -> Self:
        if self.every is not None and self.crawls is not None:
            raise ValueError("`every` takes in whatever crawls come; leave out `crawls`")
        if self.every is None and self.max_age_days is not None:
            raise ValueError("`max_age_days` is of releases that are made again and again; give `every` too")
        return self

    _crawls_once = pydantic.field_validator("crawls")(each_once)


class ComputeConfig(Settings):
    """Who works on a crawl's shards: one choice for every stage that goes shard by shard. It changes no result."""

    engine: Literal["processes", "ray"] = execution_field(
        "processes",
        description="Processes of this machine, or Ray tasks (`pip install 'datamask-pipeline[ray]'`).",
    )
    workers: int = execution_field(1, ge=1, description="How many work at a time, this process among them.")
    address: str | None = execution_field(
        None,
        description="Of a running Ray cluster, e.g. `auto` or ray://host:10001; else Ray starts on this machine.",
    )

    @pydantic.model_validator(mode="after")
    def _address_of_ray(self) -> Self:
        if self.address is not None and self.engine != "ray":
            raise ValueError("address is read by engine `ray` alone")
        return self


class PipelineConfig(Settings):
    """Every setting of a chain: these, and one section for each stage of the flow. Unknown keys are refused."""

    name: str = pydantic.Field(description="What this chain is called.")
    store: str = execution_field(
        ".datamask",
        description="Root of the record: a directory, a relative one from the working directory, or an fsspec URL.",
    )
    storage_options: dict[str, Any] = execution_field({}, description="Passed to the store's file system.")
    compute: ComputeConfig = ComputeConfig()
    source: SourceConfig = SourceConfig()
    releases: dict[Name, ReleaseConfig] = pydantic.Field(
        {"first": ReleaseConfig()}, min_length=1, description="Releases by name."
    )
    arms: dict[Name, dict[str, Any]] = pydantic.Field(
        {"random": {"policy": "random"}},
        min_length=1,
        description="Arms by name: what each changes in `select`.",
    )
    architectures: dict[Name, dict[str, Any]] = pydantic.Field(
        {"dense": {}}, min_length=1, description="Architectures by name: what each changes in `pretrain`."
    )
    seeds: tuple[Seed, ...] = pydantic.Field(
        (0,),
        min_length=1,
        description="Seeds of pretraining: each arm and architecture is trained once with each.",
    )

    _seeds_once = pydantic.field_validator("seeds")(each_once)

    @pydantic.field_validator("store")
    @classmethod
    def _some_place(cls, store: str) -> str:
        if not store.strip():
            raise ValueError("names no place; give a directory or an fsspec URL, e.g. record")
        if variable := re.search(r"\$\{?[A-Za-z_]", store):
            raise ValueError(
                f"no variables of the environment are read in it ({store[variable.start() :]!r}); write the place out, or "
                f"let {STORE_VARIABLE} in the environment name it"
            )
        return store

    if TYPE_CHECKING:

        def __getattr__(self, section: str) -> Any:
            """The settings of a stage, which `config_model` adds."""

    @pydantic.model_validator(mode="after")
    def _every_arm_and_run_is_sound(self) -> Self:
        self._refuse_seeds_of_their_own()
        for stage in FLOW:
            self.settings(stage)
        self._refuse_what_no_arm_reads()
        self._refuse_what_no_architecture_reads()
        self._refuse_going_round()
        return self

    def _refuse_going_round(self) -> None:
        for name in self.releases:
            chain, at = [name], self.releases[name].given
            if self.releases[name].every is not None and (at or "").startswith(f"{name}-"):
                raise ConfigurationError(
                    f"releases.{name}.given: {at!r} is one that it makes; say `previous`"
                )
            if self.releases[name].every is not None and at == PREVIOUS and PREVIOUS in self.releases:
                raise ConfigurationError(
                    f"releases.{name}.given: `previous` is the last that {name!r} made, and a release is called so too; "
                    "give that one another name"
                )
            while at is not None:
                if at in chain:
                    raise ConfigurationError(
                        f"releases.{name}.given: {' goes on from '.join([*chain, at])}; name an earlier release"
                    )
                if at in self.releases and self.releases[at].every is not None:
                    raise ConfigurationError(
                        f"releases.{name}.given: {at!r} makes releases and is none itself; name one that it has made"
                    )
                chain.append(at)
                at = self.releases[at].given if at in self.releases else None

    def _refuse_seeds_of_their_own(self) -> None:
        sections = {"pretrain": self.pretrain}
        sections |= {f"architectures.{name}": own for name, own in self.architectures.items()}
        for path, given in sections.items():
            for name in ("seed", "seeds"):
                if name in given:
                    raise ConfigurationError(
                        f"{path}.{name}: all models are trained with the same seeds, which stand in the list `seeds` "
                        f"beside `pretrain`, e.g. seeds: {_as_list(given[name])}"
                    )

    def _refuse_what_no_architecture_reads(self) -> None:
        name = self.pretrain.get("preset")
        if name is not None and name not in presets.PRESETS:
            raise UnknownNameError("preset", str(name), presets.PRESETS, "pretrain.preset")
        routed = [
            presets.joined(self.pretrain, own).get("architecture") == "moe"
            for own in self.architectures.values()
        ]
        owners = {f"architectures.{name}": own for name, own in self.architectures.items()}
        for (path, own), is_routed in zip(owners.items(), routed, strict=True):
            _refuse_unread(path, own, is_routed)
        _refuse_unread("pretrain", self.pretrain, any(routed))

    def _refuse_what_no_arm_reads(self) -> None:
        if "policy" in self.select and all("policy" in own for own in self.arms.values()):
            own = ", ".join(f"arms.{arm}.policy" for arm in self.arms)
            raise ConfigurationError(
                f"select.policy: no arm reads it, as each has its own ({own}); change these, or leave it out"
            )
        arms = [self.select_config(arm) for arm in self.arms]
        read = {name for settings in arms for name in type(settings).model_fields}
        for name in self.select:
            if name not in read:
                readable = ", ".join(readers(SelectConfig, name))
                remedy = f"; it is read by: {readable}" if readable else suggestion(name, read)
                raise ConfigurationError(f"select.{name}: no arm reads such a setting{remedy}")
        metrics = {name for settings in arms for name in settings.diversity_weights}
        for name in self.select.get("diversity_options", {}):
            if name not in metrics:
                used = ", ".join(sorted(metrics))
                raise ConfigurationError(
                    f"select.diversity_options.{name}: no arm uses such a metric{suggestion(name, metrics)}; used: {used}"
                )

    def stages(self, until: str | None = None) -> list[Stage]:
        """The flow's stages that are not off: every one, or a stage and all that it is made from.

        Raises:
            UnknownNameError: no stage has that name.
            ConfigurationError: that stage is off.
        """
        found = [stage for stage in FLOW.until(until) if not self.is_off(stage)]
        if until is not None and FLOW.stage(until) not in found:
            section = FLOW.stage(until).section
            raise ConfigurationError(f"stage {until!r} is off; give it settings in the section {section!r}")
        return found

    def reads(self, stage: Stage) -> dict[str, str]:
        """Argument -> asset of what a stage reads; nothing of a stage that is off."""
        return {
            argument: asset
            for argument, asset in stage.reads.items()
            if not self.is_off(FLOW.maker(asset)[0])
        }

    def is_off(self, stage: Stage) -> bool:
        """Whether these settings leave a stage out of the flow."""
        return not stage.varies and stage.is_off(getattr(self, stage.section))

    def settings(self, stage: Stage) -> dict[str | None, Settings]:
        """The settings of a stage: by arm or run where these vary them, else one for all under ``None``."""
        if not stage.varies:
            return {None: getattr(self, stage.section)}
        if stage.scope == "arm":
            return {arm: self.select_config(arm) for arm in self.arms}
        return {run_name: self.pretrain_config(run_name) for run_name in self.run_names()}

    def select_config(self, arm: str) -> SelectConfig:
        """The settings of one arm."""
        return SelectConfig.of_arm(self.select, self.arms[arm], f"arms.{arm}")

    def arm_path(self, arm: str, setting: str) -> str:
        """Where a setting of an arm is written, or would be."""
        return f"arms.{arm}.{setting}" if setting in self.arms[arm] else f"select.{setting}"

    def run_names(self) -> list[str]:
        """``<arm>.<architecture>.seed<n>`` of every model to pretrain."""
        product = itertools.product(self.arms, self.architectures, self.seeds)
        return [f"{arm}.{architecture}.seed{seed}" for arm, architecture, seed in product]

    def pretrain_config(self, run_name: str) -> PretrainConfig:
        """The settings of one model."""
        _, architecture, seed = split_run_name(run_name)
        own = self.architectures[architecture]
        values = {**presets.joined(self.pretrain, own), "seed": seed}
        inherited = {name: "pretrain" for name in self.pretrain if name not in own}
        return validated(PretrainConfig, values, f"architectures.{architecture}", inherited)


def _as_list(seeds: Any) -> list[Any]:
    return list(seeds) if isinstance(seeds, list | tuple) else [seeds]


def _refuse_unread(path: str, given: Iterable[str], is_routed: bool) -> None:
    for name in given:
        if name in READ_BY_MOE and not is_routed:
            raise ConfigurationError(
                f"{path}.{name}: no architecture reads it here; it is read by: architecture moe"
            )


def config_model() -> type[PipelineConfig]:
    """The configuration with a section for each stage of the flow."""
    sections: dict[str, Any] = {}
    for stage in FLOW:
        if stage.varies:
            help_text = f"Settings of `{stage.name}` that every {stage.scope} starts from."
            sections[stage.section] = (
                dict[str, Any],
                pydantic.Field(default_factory=dict, description=help_text),
            )
        else:
            sections[stage.section] = (stage.config, stage.config())
    return pydantic.create_model("Configuration", __base__=PipelineConfig, **sections)


def split_run_name(run_name: str) -> tuple[str, str, int]:
    """Arm, architecture and seed out of a run's name."""
    arm, architecture, seed = run_name.split(".")
    return arm, architecture, int(seed.removeprefix("seed"))


def packaged_configs() -> dict[str, str]:
    """The configurations that come with the package: name to YAML text."""
    folder = package_files.files("datamask_pipeline") / "configs"
    return {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def load_config(
    name_or_path: str | None = None, overrides: Mapping[str, Any] | None = None
) -> PipelineConfig:
    """Read a configuration.

    Args:
        name_or_path: A packaged configuration's name or a YAML file; by default what DATAMASK_CONFIG names,
            or else the embedded default.
        overrides: Values by dotted key, e.g. ``{"select.lamb": 0.3}``; they win over the file. Under a name that the
            file does not have, they add a new arm with its `policy`, a new architecture with its `architecture`, or
            a new release with its `crawls`, each as a whole.

    Raises:
        UnknownNameError: an override names another arm, architecture or release that the file does not have.
        ConfigurationError: no such file, broken YAML, or a setting that is unknown or out of bounds.
    """
    wanted = name_or_path or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
    packaged = packaged_configs()
    values = _parsed(packaged[wanted] if wanted in packaged else _text_of(wanted, packaged), wanted)
    values.setdefault("name", Path(wanted).stem)
    if os.environ.get(STORE_VARIABLE):
        values["store"] = os.environ[STORE_VARIABLE]
    for key, value in (overrides or {}).items():
        _make_room(values, key, value)
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    try:
        return validated(config_model(), values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{wanted}: {error}") from error


def changed(config: Model, overrides: Mapping[str, Any] | None) -> Model:
    """A configuration with some fields replaced, validated again."""
    if not overrides:
        return config
    before = config.inherited(config.model_dump(exclude_unset=True), overrides)
    # Another policy may read other settings than the one before.
    model = with_members(type(config), {**before, **overrides})
    kept = {name: value for name, value in before.items() if name in model.model_fields}
    return validated(model, {**kept, **overrides})


def _text_of(path: str, packaged: Iterable[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"no configuration {path!r}: neither a file nor one of the packaged ones ({', '.join(packaged)})"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 ({error}); save it as UTF-8 text") from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"configuration {path!r} cannot be read: {error}; name a YAML file"
        ) from error


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        values = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is not YAML {what_is_wrong(error)}; correct it there") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{name} holds no mapping of settings")
    for key in values:
        if not isinstance(key, str):
            raise ConfigurationError(
                f"{name}: {key!r} is the name of no setting; YAML takes a bare on, off, yes, no or number for a value, "
                "put it in quotes"
            )
    return values


def _make_room(values: dict[str, Any], key: str, value: Any) -> None:
    """Take out of the file what an override gives in another way: a budget of another kind."""
    *parents, leaf = key.split(".")
    if leaf in SelectConfig.one_of and parents[:1] in (["select"], ["arms"]):
        holder: Any = values
        for parent in parents:
            holder = holder.get(parent) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            kept = SelectConfig.inherited(holder, {leaf: value})
            holder.clear()
            holder.update(kept)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, leaf = key.split(".")
    if parents and parents[0] in NAMED:
        kind, required = NAMED[parents[0]]
        default = PipelineConfig.model_fields[parents[0]].default
        known = values.setdefault(parents[0], {name: dict(settings) for name, settings in default.items()})
        name = [*parents, leaf][1]
        is_new = len(parents) == 1 and isinstance(value, dict) and not value.keys().isdisjoint(required)
        if isinstance(known, dict) and name not in known and not is_new:
            given = " or ".join(f"`{setting}`" for setting in required)
            remedy = f"a new {kind} is added as a whole, in the file or with its {given}"
            raise UnknownNameError(kind, name, known, key, remedy=remedy)
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"{key}: {parent!r} holds a value, not settings")
    values[leaf] = value

"""What a flow is made of: stages in groups, what they read and make, and what needs what. Knows no stage by name."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Literal

from datamask_pipeline import schema
from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store

#: What an artefact belongs to: a crawl; a release; one arm, or one pretraining run, of a release.
Scope = Literal["crawl", "release", "arm", "run"]
#: What steps wait for each other to use: the machine's cores and memory, or the source (a hub counts requests).
Resource = Literal["compute", "source"]
#: What of an artefact a result depends on.
Identity = Callable[[Store, Ref], str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Stages that run together, one after the other, for one key.

    Attributes:
        name: The group of their assets.
        job: The job that runs them.
        scope: What one run of the job belongs to.
        description: What the job does.
    """

    name: str
    job: str
    scope: Scope
    description: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Output:
    """An artefact that a stage makes.

    Attributes:
        asset: What the flow and Dagster call it.
        artefact: Under which name the record keeps it.
        kinds: What Dagster shows it to be made of, with spaces between.
        description: What it is.
    """

    asset: str
    artefact: str
    kinds: str
    description: str

    @property
    def table(self) -> schema.Table | None:
        """Its columns; ``None`` where it is no table."""
        return schema.TABLES.get(self.artefact)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One stage.

    ``module.run`` takes the settings, then by keyword what it names of ``store``, ``source``, ``progress``, ``compute``,
    ``crawl``, ``release``, ``arm``, ``run_name`` and ``labels``, and each of ``reads``: one reference; or references by
    crawl, arm or run where the stage reads those of a whole release. ``module.check(settings)``, where there is one, refuses
    settings before any work; where ``module.is_off(settings)``, the flow goes without the stage and ``run`` of others
    without what it would make; ``module.amount(manifest)`` says how much was made, where that is not counted in rows;
    ``module.told(manifest)`` gives what else a log says of it, line by line; ``module.compared(settings, recorded)``
    gives settings as name, recorded and configured value, where a manifest states them otherwise than
    ``result_config``; ``module.asked(settings)`` gives the inputs that the configuration itself names, each with the
    settings that name it and its digest; ``module.beside(store, crawls)`` digests what else of the record the result of a
    release of these crawls depends on, or says ``None``. A stage that goes shard by shard has ``module.begin`` with the
    arguments of ``run``, which returns a `stages.shards.ShardWork`. One with ``held`` takes each of its arguments where the
    release goes on from another that has the artefact, and may name ``given``, that other.

    Attributes:
        module: The stage's module.
        group: The group it runs in, which fixes its scope.
        config: The model of its settings.
        reads: Argument of ``run`` -> asset.
        makes: What ``run`` returns, in that order.
        settings_of: Whose section of the configuration it shares, if it has none of its own.
        varies: Whether an arm, or a run, changes these settings by what the configuration says of it.
        named: Settings that the run's name says already.
        uses: What its steps wait for each other to use.
        seen_as: By argument, what the result depends on of an input, where that is not its content digest.
        held: Argument of ``run`` -> the stage's own asset of the release that this one goes on from, where it does.
    """

    module: ModuleType
    group: Group
    config: type[Settings]
    _: dataclasses.KW_ONLY
    reads: Mapping[str, str]
    makes: tuple[Output, ...]
    settings_of: str = ""
    varies: bool = False
    named: tuple[str, ...] = ()
    uses: Resource | None = None
    seen_as: Mapping[str, Identity] = dataclasses.field(default_factory=dict)
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The stage's name, as `--until` takes it."""
        return str(self.module.STAGE)

    @property
    def section(self) -> str:
        """Where the configuration keeps its settings."""
        return self.settings_of or self.name

    @property
    def version(self) -> str:
        """The version of its code."""
        return str(self.module.VERSION)

    @property
    def scope(self) -> Scope:
        """What one run of it belongs to."""
        return self.group.scope

    def is_off(self, settings: Settings) -> bool:
        """Whether the flow goes without it."""
        return hasattr(self.module, "is_off") and bool(self.module.is_off(settings))

    def amount(self, manifest: Mapping[str, Any]) -> str:
        """How much was made, in the stage's own unit."""
        return self.module.amount(manifest) if hasattr(self.module, "amount") else f"{manifest['rows']} rows"

    def told(self, manifest: Mapping[str, Any]) -> list[str]:
        """What else a log says of what was made, line by line."""
        return [*self.module.told(manifest)] if hasattr(self.module, "told") else []

    def identity(self, argument: str) -> Identity:
        """What the result depends on of an input."""
        return self.seen_as.get(argument, lambda _, ref: ref.content_digest)


class Flow:
    """The stages in an order in which each finds its inputs made.

    Args:
        stages: The stages.
    """

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    @property
    def groups(self) -> list[Group]:
        """The groups in the order of their first stages."""
        return list(dict.fromkeys(stage.group for stage in self.stages))

    def stage(self, name: str) -> Stage:
        """The stage of that name.

        Raises:
            UnknownNameError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise UnknownNameError("stage", name, [stage.name for stage in self.stages])

    def maker(self, asset: str) -> tuple[Stage, Output]:
        """The stage that makes an asset, and the asset.

        Raises:
            UnknownNameError: no stage makes it.
        """
        made = {output.asset: (stage, output) for stage in self.stages for output in stage.makes}
        if asset not in made:
            raise UnknownNameError("asset", asset, made)
        return made[asset]

    def keeper(self, artefact: str) -> Stage | None:
        """The stage that makes what the record keeps under that name; none for a probe."""
        return next(
            (stage for stage in self.stages for made in stage.makes if made.artefact == artefact), None
        )

    def until(self, name: str | None) -> list[Stage]:
        """A stage and all that it is made from, in order; every stage for ``None``.

        Raises:
            UnknownNameError: no stage has that name.
        """
        if name is None:
            return list(self.stages)
        needed = {self.stage(name)}
        for stage in reversed(self.stages):
            if stage in needed:
                needed |= {self.maker(asset)[0] for asset in stage.reads.values()}
        return [stage for stage in self.stages if stage in needed]

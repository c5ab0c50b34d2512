"""Runs stages of the flow: finds their inputs in the record, calls them, and returns references to what they made.

Both the plain runner and the Dagster assets call `Pipeline.run`, so both make the same artefacts.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.pipeline.check import check
from datamask_pipeline.pipeline.config import PipelineConfig, changed, split_run_name
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Scope, Stage
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store, releases, require
from datamask_pipeline.storage.ref import check_key

Progress = Callable[[str, int, int | None], None]
#: An artefact of the record: the name it is kept under, and its key.
Artefact = tuple[str, str]


class Pipeline:
    """A chain over one record.

    Args:
        config: Every setting.
        store: The record; by default the one the configuration names.
        progress: Told what is done of what, by name.
    """

    def __init__(
        self, config: PipelineConfig, *, store: Store | None = None, progress: Progress | None = None
    ) -> None:
        self.config = config
        self.store = store or Store(config.store, config.storage_options)
        self.progress = progress

    @functools.cached_property
    def source(self) -> Any:
        """The document source."""
        SOURCES.find(self.config.source.name, "source.name")
        return SOURCES.make(self.config.source.name, self.config.source.options, "source.options")

    def check(self, until: str | None = None, wanted: Collection[str] | None = None) -> None:
        """Refuse before any work what a stage would refuse later.

        Args:
            until: Only what this stage and those before it need; all stages by default.
            wanted: Only what these releases need; by default all that are configured.

        Raises:
            UnknownNameError: with the names there are.
            ConfigurationError: a crawl's name cannot be a key, an option of a member is wrong or of one that is
                not used, or the encoder is not there.
            InputError: a file that the settings name cannot be used.
            StorageError: the record cannot be reached.
        """
        self.store.reach()
        for crawl in self.crawls():
            check_key(FLOW.stages[0].name, crawl)
        names = self.config.releases if wanted is None else wanted
        stages = self.config.stages(until)
        check(self.config, self.source, {name: self.planned_crawls(name) for name in names}, stages)

    # -- crawls and releases -----------------------------------------------------------------------------

    def crawls(self) -> list[str]:
        """Every crawl of the source, sorted."""
        return list(self.source.crawls())

    def releases(self) -> list[str]:
        """Releases of the configuration and of the record, sorted."""
        return sorted(releases.names(self.store) | set(self.config.releases))

    def release_crawls(self, release: str) -> list[str]:
        """The crawls of a release, frozen when they are first asked for.

        Raises: as `planned_crawls`.
        """
        frozen = releases.frozen_crawls(self.store, release)
        planned = self._planned(release, frozen)
        return planned if frozen is not None else releases.freeze(self.store, release, planned)

    def planned_crawls(self, release: str) -> list[str]:
        """The crawls that a release froze, or would freeze now.

        Raises:
            UnknownNameError: neither the record nor the configuration knows the release, or the source knows no
                crawl of a name that would be frozen.
            ConfigurationError: the configuration now names other crawls than were frozen.
            IntegrityError: the record's file of the release is damaged.
        """
        return self._planned(release, releases.frozen_crawls(self.store, release))

    def left_out(self, release: str) -> list[str]:
        """The source's crawls that came after a release of every crawl was frozen."""
        configured = self.config.releases.get(release)
        if configured is None or configured.crawls is not None:
            return []
        frozen = releases.frozen_crawls(self.store, release)
        return [] if frozen is None else [crawl for crawl in self.crawls() if crawl not in frozen]

    def _planned(self, release: str, frozen: list[str] | None) -> list[str]:
        if release not in self.config.releases:
            if frozen is None:
                raise UnknownNameError("release", release, self.releases())
            return frozen
        named = self.config.releases[release].crawls
        if frozen is None:
            known = self.crawls()
            for crawl in named or ():
                if crawl not in known:
                    raise UnknownNameError(
                        f"crawl of release {release!r}", crawl, known, f"releases.{release}.crawls"
                    )
            return list(named or known)
        if named is not None and list(named) != frozen:
            raise ConfigurationError(
                f"releases.{release}.crawls: release {release!r} was frozen with crawls {frozen}, not {list(named)}; "
                "give the new set a new name"
            )
        return frozen

    def freeze_release(self, release: str, crawls: list[str]) -> list[str]:
        """Record the crawls of a new release, in order of precedence.

        Raises:
            ConfigurationError: no crawls, or the release exists already.
        """
        return releases.freeze(self.store, release, crawls)

    # -- stages ------------------------------------------------------------------------------------------

    def keys(self, scope: Scope, release: str) -> list[str]:
        """The keys, in the record, of everything of that scope in a release."""
        if scope == "crawl":
            return self.release_crawls(release)
        if scope == "release":
            return [release]
        members = self.config.arms if scope == "arm" else self.config.run_names()
        return [f"{release}/{member}" for member in members]

    def settings(self, stage: Stage, key: str, overrides: Mapping[str, Any] | None = None) -> Settings:
        """The settings of a stage for a key.

        Raises:
            ConfigurationError: an override is unknown or out of bounds.
        """
        configured = self.config.settings(stage)[key.partition("/")[2] if stage.varies else None]
        return changed(configured, overrides)

    def inputs(self, stage: Stage, key: str) -> dict[str, Artefact | dict[str, Artefact]]:
        """What a stage reads for a key, by argument: one artefact, or one for each crawl, arm or run."""
        release, _, member = key.partition("/")
        found: dict[str, Artefact | dict[str, Artefact]] = {}
        for argument, asset in self.config.reads(stage).items():
            maker, output = FLOW.maker(asset)
            if maker.scope == stage.scope:
                found[argument] = (output.artefact, key)
            elif maker.scope == "release":
                found[argument] = (output.artefact, release)
            elif (maker.scope, stage.scope) == ("arm", "run"):
                found[argument] = (output.artefact, f"{release}/{split_run_name(member)[0]}")
            else:
                keys = self.keys(maker.scope, release)
                found[argument] = {each.rpartition("/")[2]: (output.artefact, each) for each in keys}
        return found

    def run(self, stage: str, *names: str, overrides: Mapping[str, Any] | None = None) -> tuple[Ref, ...]:
        """Run one stage; what the record holds already is not computed again.

        Args:
            stage: The stage's name.
            names: The crawl, the release, or the release and its arm or run.
            overrides: Settings of the stage that win over the configured ones.

        Returns:
            What the stage makes, in the flow's order.

        Raises:
            UnknownNameError: no such stage, release, arm or run.
            ConfigurationError: a stage that it reads from has not run, or a setting is wrong.
        """
        found = FLOW.stage(stage)
        key = "/".join(names)
        context = self._context(found, key)
        settings = self.settings(found, key, overrides)
        # No two processes are at work on one stage and key: they would share its checkpoints.
        with self.store.exclusive(found.name, key):
            inputs = {argument: self._references(of) for argument, of in self.inputs(found, key).items()}
            wanted = inspect.signature(found.module.run).parameters
            given = {name: value for name, value in context.items() if name in wanted}
            made = found.module.run(settings, store=self.store, **given, **inputs)
        return made if isinstance(made, tuple) else (made,)

    def steps(
        self, release: str, until: str | None = None
    ) -> Iterator[tuple[str, str, Callable[[], tuple[Ref, ...]]]]:
        """Every step of a release in order, or those that one stage is made from: stage, key, and what does it."""
        for stage in self.config.stages(until):
            for key in self.keys(stage.scope, release):
                yield stage.name, key, functools.partial(self.run, stage.name, key)

    def _references(self, of: Artefact | dict[str, Artefact]) -> Ref | dict[str, Ref]:
        if isinstance(of, dict):
            return {name: require(self.store, *artefact) for name, artefact in of.items()}
        return require(self.store, *of)

    def _context(self, stage: Stage, key: str) -> dict[str, Any]:
        """What a stage may ask for beside its settings and inputs."""
        context: dict[str, Any] = {"progress": self.progress}
        release, _, member = key.partition("/")
        if (stage.scope in ("arm", "run")) != bool(member):
            raise ConfigurationError(f"stage {stage.name!r} runs for one {stage.scope}, not for {key!r}")
        if stage.scope == "crawl":
            return context | {"crawl": key, "source": self.source}
        context["release"] = release
        if stage.scope == "arm":
            if member not in self.config.arms:
                raise UnknownNameError("arm", member, self.config.arms)
            context["arm"] = member
        if stage.scope == "run":
            if member not in self.config.run_names():
                raise UnknownNameError("run", member, self.config.run_names())
            arm, architecture, seed = split_run_name(member)
            context |= {
                "run_name": member,
                "labels": {"arm": arm, "architecture": architecture, "seed": seed},
            }
        return context

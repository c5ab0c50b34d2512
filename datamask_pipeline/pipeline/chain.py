"""Runs stages of the flow: finds their inputs in the record, calls them, and returns references to what they made.

Both the plain runner and the Dagster assets call `Pipeline.run`, so both make the same artefacts.
"""

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from datamask_pipeline.errors import (
    ConfigurationError,
    DataMaskError,
    InputError,
    IntegrityError,
    TakenOverError,
    UnknownNameError,
    is_of_storage,
)
from datamask_pipeline.families import SOURCES
from datamask_pipeline.pipeline.check import check, refuse_missing_crawls
from datamask_pipeline.pipeline.config import PipelineConfig, ReleaseConfig, changed, split_run_name
from datamask_pipeline.pipeline.crew import Crew
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.order import refuse_without_masks, wanted_releases
from datamask_pipeline.pipeline.rolling import Member, planned_member
from datamask_pipeline.pipeline.stage import Scope, Stage
from datamask_pipeline.settings import Settings
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.storage import Ref, Store, releases, require
from datamask_pipeline.storage.forecast import Forecast, WouldComputeError
from datamask_pipeline.storage.ref import check_key
from datamask_pipeline.storage.refusals import writing
from datamask_pipeline.storage.releases import Frozen
from datamask_pipeline.storage.tombstones import num_purges, tombstones

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]
#: An artefact of the record: the name it is kept under, and its key.
Artefact = tuple[str, str]


class Pipeline:
    """A chain over one record.

    Args:
        config: Every setting.
        store: The record; by default the one the configuration names.
        progress: Told what is done of what, by name.
        start: Where in a list of shards, arms or runs to begin, as a share of its length: several runs that share the
            work meet less often if each begins elsewhere.
        made: What earlier steps of the same run made. Later ones read these, whatever a run with other settings makes
            current meanwhile; of all else they read what is current.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        store: Store | None = None,
        progress: Progress | None = None,
        start: float = 0.0,
        made: dict[Artefact, Ref] | None = None,
    ) -> None:
        self.config = config
        self.store = store or Store(config.store, config.storage_options)
        self.progress = progress
        self.start = start
        self.made: dict[Artefact, Ref] = {} if made is None else made

    @functools.cached_property
    def crew(self) -> Crew:
        """Who works on shards beside this process."""
        return Crew(self.config, self.start)

    @functools.cached_property
    def source(self) -> Any:
        """The document source."""
        SOURCES.find(self.config.source.name, "source.name")
        return SOURCES.make(self.config.source.name, self.config.source.options, "source.options")

    def check(self, until: str | None = None, wanted: Sequence[str] | None = None) -> None:
        """Refuse before any work what a stage would refuse later.

        Args:
            until: Only what this stage and those before it need; all stages by default.
            wanted: Only what these releases need, in the order in which they are made; by default all that are
                configured and do not wait for a crawl.

        Raises:
            UnknownNameError: with the names there are.
            ConfigurationError: a crawl's name cannot be a key, an option of a member is wrong or of one that is
                not used, the encoder is not there, or a release goes on from masks that are not there.
            InputError: a file that the settings name cannot be used.
            StorageError: the record cannot be reached.
        """
        self.store.reach()
        for crawl in self.crawls():
            check_key(FLOW.stages[0].name, crawl)
        names = wanted_releases(self) if wanted is None else wanted
        stages = self.config.stages(until)
        check(self.config, self.source, {name: self.planned_crawls(name) for name in names}, stages)
        refuse_without_masks(self, names, stages)

    def check_each(self, until: str | None, wanted: Sequence[str]) -> dict[str, DataMaskError]:
        """Check some releases as `check` does, one without the others where they cannot all be made.

        Args:
            until: As there.
            wanted: The releases, in the order in which they are made.

        Returns:
            What is refused, with the error of each; of one that goes on from it too. Every release may be among them.

        Raises:
            DataMaskError: as `check`, of what is wrong whatever the releases are.
        """
        refused: dict[str, DataMaskError] = {}
        try:
            self.check(until, wanted)
        except DataMaskError as error:
            if is_of_storage(error):
                raise
            self.check(until, ())
            passed: list[str] = []
            for name in wanted:  # those before it, as it may go on from one
                try:
                    self.check(until, [*passed, name])
                except DataMaskError as error:
                    if is_of_storage(error):
                        raise
                    refused[name] = error
                else:
                    passed.append(name)
        return refused

    def looked_at(self) -> "Pipeline":
        """The same chain over a record in which nothing is computed or written, and which need not be writable."""
        forecast = Forecast(self.store.root_url, self.config.storage_options)
        return Pipeline(self.config, store=forecast, made=dict(self.made))

    # -- crawls and releases -----------------------------------------------------------------------------

    def crawls(self) -> list[str]:
        """Every crawl of the source, sorted."""
        return list(self.source.crawls())

    def releases(self) -> list[str]:
        """Releases of the configuration and of the record, sorted; without those that are retired or not made yet."""
        named = {name for name, release in self.config.releases.items() if release.every is None}
        retired = {name for name in named if releases.is_retired(self.store, name)}
        return sorted((releases.names(self.store) | named) - retired)

    def refuse_retired(self, release: str) -> None:
        """Of a retired release nothing is made, also where it is asked for by its name.

        Raises:
            ConfigurationError: it is retired.
        """
        if releases.is_retired(self.store, release):
            raise ConfigurationError(
                f"release {release!r} is retired: nothing is made of it; `datamask retire {release} --undo` takes it back"
            )

    def configured(self, release: str) -> ReleaseConfig | None:
        """How the configuration describes a release, or one that a rolling release would make now; ``None`` for others."""
        found = self.config.releases.get(release)
        return found or self._configured(release, releases.frozen(self.store, release))

    def _configured(self, release: str, frozen: Frozen | None) -> ReleaseConfig | None:
        found = self.config.releases.get(release)
        if found is None and frozen is None:
            member = planned_member(self, release)
            if member is None:
                return None
            # Not checked as what a user writes: an earlier release may have the name of whatever crawl it had.
            return ReleaseConfig.model_construct(crawls=member.crawls, given=member.given)
        return found

    def release_crawls(self, release: str) -> list[str]:
        """The crawls of a release, frozen when they are first asked for, after those of the one that it goes on from.

        Raises: as `planned_crawls`.
        """
        frozen = releases.frozen(self.store, release)
        planned = self._planned(release, frozen)
        if frozen is not None:
            return planned
        if (given := self.given(release)) is not None:
            self.release_crawls(given)
        with self.store.exclusive("releases", release):  # several runs may come to a new release at once
            frozen = releases.frozen(self.store, release)
            planned = self._planned(release, frozen)
            if frozen is not None:
                return planned
            member = None if release in self.config.releases else planned_member(self, release)
            rolls = None if member is None else member.rolls
            return releases.freeze(self.store, release, planned, given, rolls)

    def given(self, release: str) -> str | None:
        """The release that this one goes on from; ``None`` where it selects from all its crawls.

        Raises:
            ConfigurationError: the configuration now names another than was frozen.
        """
        return self._given_to(release, releases.frozen(self.store, release))

    def _given_to(self, release: str, frozen: Frozen | None) -> str | None:
        configured = self._configured(release, frozen)
        wanted = None if configured is None else configured.given
        if frozen is None:
            return wanted
        if configured is not None and wanted != frozen.given:
            raise ConfigurationError(
                f"releases.{release}.given: release {release!r} was frozen "
                f"{'without' if frozen.given is None else f'with {frozen.given!r}'}, not "
                f"{'without' if wanted is None else f'with {wanted!r}'}; give the new one a new name"
            )
        return frozen.given

    def planned_crawls(self, release: str, setting: str = "") -> list[str]:
        """The crawls that a release froze, or would freeze now.

        Args:
            release: The release.
            setting: The path of the setting that names it, where one does.

        Raises:
            UnknownNameError: neither the record nor the configuration knows the release, or the source knows no
                crawl of a name that would be frozen.
            ConfigurationError: the configuration now names other crawls than were frozen.
            IntegrityError: the record's file of the release is damaged.
        """
        return self._planned(release, releases.frozen(self.store, release), setting)

    def left_out(self, release: str, others: Iterable[str]) -> list[str]:
        """The source's crawls that came after a release of every crawl was frozen, and that none of the others takes in."""
        configured = self.config.releases.get(release)
        if configured is None or configured.crawls is not None:
            return []
        frozen = releases.frozen_crawls(self.store, release)
        if frozen is None:
            return []
        taken = {*frozen}.union(*(self.planned_crawls(other) for other in others if other != release))
        return [crawl for crawl in self.crawls() if crawl not in taken]

    def _rolled_with(self, crawl: str) -> dict[str, list[str]]:
        """The releases that rolling ones made with a crawl, and that are not retired."""
        return {
            member: crawls
            for name, configured in self.config.releases.items()
            if configured.every is not None
            for member, crawls in releases.rolled(self.store, name)
            if crawl in crawls and not releases.is_retired(self.store, member)
        }

    def _planned(self, release: str, frozen: Frozen | None, setting: str = "") -> list[str]:
        configured = self._configured(release, frozen)
        if configured is not None and configured.every is not None:
            raise ConfigurationError(
                f"release {release!r} makes releases and is none itself; name one that it has made"
            )
        if configured is None:
            if frozen is None:
                others = [name for name in self.releases() if setting != f"releases.{name}.given"]
                raise UnknownNameError("release", release, others, setting)
            return frozen.crawls
        named, given = configured.crawls, self._given_to(release, frozen)
        held = [] if given is None else self.planned_crawls(given, f"releases.{release}.given")
        if frozen is None:
            known = self.crawls()
            for crawl in named or ():
                if crawl not in known:
                    if release not in self.config.releases:  # a rolling one goes on from what it made
                        refuse_missing_crawls(self.source, self._rolled_with(crawl))
                    raise UnknownNameError(
                        f"crawl of release {release!r}",
                        crawl,
                        known,
                        f"releases.{release}.crawls",
                        remedy=self.source.about_missing(crawl),
                    )
            added = [crawl for crawl in (named or known) if crawl not in held]
            if not added:
                raise ConfigurationError(
                    f"release {release!r} adds no crawl to those of {given!r}: {', '.join(named or known)}; name another "
                    "in `crawls`, or wait for one"
                )
            return [*held, *added]
        wanted = None if named is None else [*held, *(crawl for crawl in named if crawl not in held)]
        if wanted is not None and wanted != frozen.crawls:
            raise ConfigurationError(
                f"releases.{release}.crawls: release {release!r} was frozen with crawls {frozen.crawls}, not {wanted}; "
                "give the new set a new name"
            )
        return frozen.crawls

    def freeze(self, member: Member) -> None:
        """Record a release that a rolling one makes; one that is frozen already stays as it is."""
        with self.store.exclusive("releases", member.name):
            if releases.frozen_crawls(self.store, member.name) is None:
                releases.freeze(self.store, member.name, list(member.crawls), member.given, member.rolls)

    # -- stages ------------------------------------------------------------------------------------------

    def keys(self, scope: Scope, release: str) -> list[str]:
        """The keys, in the record, of everything of that scope in a release; asking freezes nothing."""
        if scope == "crawl":
            return self.planned_crawls(release)
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

    def held_inputs(self, stage: Stage, key: str) -> dict[str, Artefact]:
        """What a stage reads of the release that this one goes on from, by argument; nothing where there is none."""
        if not stage.held or (given := self.given(key.partition("/")[0])) is None:
            return {}
        _, _, member = key.partition("/")
        held_key = f"{given}/{member}" if member else given
        return {argument: (FLOW.maker(asset)[1].artefact, held_key) for argument, asset in stage.held.items()}

    def run(self, stage: str, *names: str, overrides: Mapping[str, Any] | None = None) -> tuple[Ref, ...]:
        """Run one stage; what the record holds already is not computed again.

        Afterwards the store's ``made`` and ``again`` tell what of it was done here, and what became current again.

        Args:
            stage: The stage's name.
            names: The crawl, the release, or the release and its arm or run.
            overrides: Settings of the stage that win over the configured ones.

        Returns:
            What the stage makes, in the flow's order; another run's, where that took the work over and has finished it.

        Raises:
            UnknownNameError: no such stage, release, arm or run.
            ConfigurationError: a stage that it reads from has not run, or a setting is wrong.
            TakenOverError: another run took the work over, and has not made this.
            StorageError: there is no room for what is written, or the disk is read-only.
        """
        made = self._run_or_find(stage, "/".join(names), overrides)
        self.made |= {(ref.stage, ref.key): ref for ref in made}
        return made

    def _run_or_find(self, stage: str, key: str, overrides: Mapping[str, Any] | None) -> tuple[Ref, ...]:
        self.store.forget_made()
        before = num_purges(self.store)
        try:
            with writing(f"a scratch file of stage {stage!r} of {key!r}"):
                return self._run(stage, key, overrides)
        except TakenOverError:
            self.store.forget_made()
            with contextlib.suppress(WouldComputeError):
                made = self.looked_at()._run(stage, key, overrides)
                logger.warning("another run took over the work on %s/%s, and made it", stage, key)
                return made
            raise
        except (InputError, IntegrityError) as error:
            if (by := self._purged_since(before, stage, key)) is None or by in str(error):
                raise
            raise IntegrityError(
                f"{stage} of {key} was at work when documents of its crawls were purged by {by}: {error}; "
                "`datamask run` makes it from what is left"
            ) from error

    def _purged_since(self, before: int, stage: str, key: str) -> str | None:
        """The purge of documents in a step's crawls that came after so many; ``None``: there was none."""
        later = tombstones(self.store)[before:] if num_purges(self.store) > before else []
        is_of_crawl = FLOW.stage(stage).scope == "crawl"
        crawls = [key] if is_of_crawl else self.release_crawls(key.partition("/")[0])
        return next((purge.title for purge in later if not set(crawls).isdisjoint(purge.documents)), None)

    def _run(self, stage: str, key: str, overrides: Mapping[str, Any] | None) -> tuple[Ref, ...]:
        found = FLOW.stage(stage)
        context = self._context(found, key)
        settings = self.settings(found, key, overrides)
        if not hasattr(found.module, "begin"):
            # No two processes are at work on one stage and key: they would share its checkpoints.
            with self.store.exclusive(found.name, key):
                made = found.module.run(settings, **self._given(found, key, context))
            return made if isinstance(made, tuple) else (made,)

        def begin() -> ShardWork[Any]:
            begun: ShardWork[Any] = found.module.begin(settings, **self._given(found, key, context))
            return begun

        work = begin()
        missing = () if work.finished() else work.names
        with self.crew.at(stage, key, overrides, missing):
            made = work.complete(self.start, begin)
        if missing:
            self.store.forget_shards(stage, key)  # who still looked when it was finished left leases behind
        return made if isinstance(made, tuple) else (made,)

    def help_with(self, stage: str, key: str, overrides: Mapping[str, Any] | None = None) -> None:
        """Work on a crawl's shards as long as some are missing; arguments and errors as of `run`."""
        found = FLOW.stage(stage)
        context = self._context(found, key)
        settings = self.settings(found, key, overrides)
        work: ShardWork[Any] = found.module.begin(settings, **self._given(found, key, context))
        if not work.finished():
            work.write_missing(self.start)

    def _given(self, stage: Stage, key: str, context: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a stage beside its settings: of the context what it asks for, and its inputs."""
        wanted = inspect.signature(stage.module.run).parameters
        inputs = {argument: self._references(of) for argument, of in self.inputs(stage, key).items()}
        inputs |= {
            argument: held
            for argument, (artefact, of) in self.held_inputs(stage, key).items()
            if (held := self.made.get((artefact, of)) or self.store.current(artefact, of)) is not None
        }
        given = {name: value for name, value in context.items() if name in wanted}
        return {"store": self.store, **given, **inputs}

    def steps(
        self, release: str, until: str | None = None
    ) -> Iterator[tuple[str, str, Callable[[], tuple[Ref, ...]]]]:
        """Every step of a release in order, or those that one stage is made from: stage, key, and what does it.

        Of a stage's steps, those come first that no other run is at.
        """
        self.release_crawls(release)
        for stage in self.config.stages(until):
            keys = self.keys(stage.scope, release)
            first = int(self.start * len(keys))
            left = keys[first:] + keys[:first]
            while left:
                idle = (key for key in left if not self.store.is_busy(stage.name, key))
                key = next(idle, left[0]) if len(left) > 1 else left[0]
                left.remove(key)
                yield stage.name, key, functools.partial(self.run, stage.name, key)

    def reference(self, artefact: Artefact) -> Ref:
        """What this run made, or else what is current.

        Raises:
            ConfigurationError: neither is there.
        """
        return self.made.get(artefact) or require(self.store, *artefact)

    def _references(self, of: Artefact | dict[str, Artefact]) -> Ref | dict[str, Ref]:
        if isinstance(of, dict):
            return {name: self.reference(artefact) for name, artefact in of.items()}
        return self.reference(of)

    def _context(self, stage: Stage, key: str) -> dict[str, Any]:
        """What a stage may ask for beside its settings and inputs."""
        context: dict[str, Any] = {"progress": self.progress, "compute": self.config.compute}
        release, _, member = key.partition("/")
        if (stage.scope in ("arm", "run")) != bool(member):
            raise ConfigurationError(f"stage {stage.name!r} runs for one {stage.scope}, not for {key!r}")
        if stage.scope == "crawl":
            return context | {"crawl": key, "source": self.source}
        self.release_crawls(release)  # what is made of a release fixes its crawls
        context |= {"release": release, "given": self.given(release)}
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

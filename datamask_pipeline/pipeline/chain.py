"""One method a stage: finds the inputs in the record, runs the stage, returns its reference.

Both the plain runner and the Dagster assets call these methods, so both make the same artefacts.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.pipeline.config import PipelineConfig, changed, split_run_name
from datamask_pipeline.stages import (
    compare,
    embed,
    evaluate,
    ingest,
    materialise,
    pool,
    pretrain,
    questions,
    score,
    select,
    tokenizer,
)
from datamask_pipeline.storage import Ref, Store, require
from datamask_pipeline.storage.ref import check_key, read_json

Progress = Callable[[str, int, int | None], None]
Overrides = Mapping[str, Any] | None
Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

#: The stages in the order of the flow.
STAGES = ("ingest", "embed", "score", "pool", "select", "materialise", "pretrain", "evaluate", "compare")


def _one_at_a_time(
    stage: str,
) -> "Callable[[Callable[Concatenate[Pipeline, Arguments], Made]], Callable[Concatenate[Pipeline, Arguments], Made]]":
    """Let no two processes be at work on one stage and key: they would share its checkpoints."""

    def decorate(
        method: "Callable[Concatenate[Pipeline, Arguments], Made]",
    ) -> "Callable[Concatenate[Pipeline, Arguments], Made]":
        @functools.wraps(method)
        def alone(self: "Pipeline", /, *args: Arguments.args, **options: Arguments.kwargs) -> Made:
            key = "/".join(word for word in args if isinstance(word, str))
            with self.store.exclusive(stage, key):
                return method(self, *args, **options)

        return alone

    return decorate


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
        from datamask_pipeline.sources import make_source

        return make_source(self.config.source.name, self.config.source.options)

    def check(self, until: str = STAGES[-1]) -> None:
        """Refuse wrong names and options before any work: crawls, encoder, scorers, policies, metrics and tasks.

        Args:
            until: Only what the stages up to this one need.

        Raises:
            UnknownNameError: with the names there are.
            ConfigurationError: a crawl's name cannot be a key, an option of a member is wrong or of one that is
                not used, or the encoder is not there.
            InputError: the file of imported vectors cannot be used.
            StorageError: the record cannot be reached.
        """
        self.store.reach()
        reached = STAGES[: STAGES.index(until) + 1]
        for crawl in self.crawls():
            check_key(ingest.STAGE, crawl)
        if embed.STAGE in reached:
            self._check_embedding()
        if score.STAGE in reached:
            self._check_scorers()
        if select.STAGE in reached:
            self._check_arms()
        if evaluate.STAGE in reached:
            from datamask_pipeline.evaluation.benchmarks import benchmarks_named

            benchmarks_named(self.config.evaluate.tasks)
        if compare.STAGE in reached and self.config.compare.baseline not in self.config.arms:
            raise UnknownNameError("arm to compare with", self.config.compare.baseline, self.config.arms)

    def _check_embedding(self) -> None:
        from datamask_pipeline.embedding.config import model_directory
        from datamask_pipeline.embedding.imported import ImportedVectors
        from datamask_pipeline.stages.heads import make_heads

        config = self.config.embed
        _refuse_unused("embed.head_options", config.head_options, "embed.heads", config.heads)
        make_heads(config.heads, config.head_options)
        if config.imported_file:
            ImportedVectors(config.imported_file, config.imported_id_column, config.imported_vector_column)
            return
        model = config.spec().model
        is_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
        if is_path and model_directory(config.spec()) is None:
            raise ConfigurationError(
                f"embed.encoder {model!r} is no directory; correct the path, or name a preset or a model of the hub"
            )

    def _check_scorers(self) -> None:
        from datamask_pipeline.quality import make_scorer

        config = self.config.score
        _refuse_unused("score.options", config.options, "score.scorers", config.scorers)
        for name in config.scorers:
            make_scorer(name, config.options.get(name))

    def _check_arms(self) -> None:
        from datamask_pipeline.diversity.registry import make_metric
        from datamask_pipeline.selection.policies.registry import make_policy

        for arm in self.config.arms:
            settings = self.config.select_config(arm)
            make_policy(settings.policy)
            for name in settings.diversity_weights:
                make_metric(name, settings.diversity_options.get(name))
            for name in settings.scorers:
                if name not in self.config.score.scorers:
                    raise UnknownNameError(f"scorer of arm {arm!r}", name, self.config.score.scorers)

    # -- per crawl ---------------------------------------------------------------------------------------

    def crawls(self) -> list[str]:
        """Every crawl of the source, sorted."""
        return list(self.source.crawls())

    @_one_at_a_time(ingest.STAGE)
    def ingest(self, crawl: str, overrides: Overrides = None) -> tuple[Ref, Ref]:
        """Documents and rejected rows of a crawl."""
        config = changed(self.config.ingest, overrides)
        return ingest.run(config, store=self.store, crawl=crawl, source=self.source, progress=self.progress)

    @_one_at_a_time(embed.STAGE)
    def embed(self, crawl: str, overrides: Overrides = None) -> Ref:
        """Embeddings of a crawl."""
        return embed.run(
            changed(self.config.embed, overrides),
            store=self.store,
            crawl=crawl,
            documents=require(self.store, ingest.STAGE, crawl),
            progress=self.progress,
        )

    @_one_at_a_time(score.STAGE)
    def score(self, crawl: str, overrides: Overrides = None) -> Ref:
        """Quality scores of a crawl."""
        return score.run(
            changed(self.config.score, overrides),
            store=self.store,
            crawl=crawl,
            documents=require(self.store, ingest.STAGE, crawl),
            embeddings=require(self.store, embed.STAGE, crawl),
            progress=self.progress,
        )

    # -- per release -------------------------------------------------------------------------------------

    def release_crawls(self, release: str) -> list[str]:
        """The crawls a release froze when it was first asked for.

        Raises:
            UnknownNameError: neither the record nor the configuration knows the release, or the source knows no
                crawl of a name that would be frozen.
            ConfigurationError: the configuration now names other crawls than were frozen.
            IntegrityError: the record's file of the release is damaged.
        """
        frozen = self._frozen_crawls(release)
        if release not in self.config.releases:
            if frozen is None:
                raise UnknownNameError("release", release, self.releases())
            return frozen
        named = self.config.releases[release].crawls
        if frozen is None:
            known = self.crawls()
            for crawl in named or ():
                if crawl not in known:
                    raise UnknownNameError(f"crawl of release {release!r}", crawl, known)
            return self.freeze_release(release, list(named or known))
        if named is not None and list(named) != frozen:
            raise ConfigurationError(
                f"release {release!r} was frozen with crawls {frozen}, not {list(named)}; give the new set a new name"
            )
        return frozen

    def _frozen_crawls(self, release: str) -> list[str] | None:
        path = f"{self.store.root}/releases/{release}.json"
        if not self.store.fs.exists(path):
            return None
        remedy = (
            'write {"crawls": [...]} into it again, the names in their order; `basis.config.crawls` of '
            f"{self.store.root}/{pool.STAGE}/{release}/*/manifest.json has them"
        )
        crawls = read_json(self.store.fs.cat_file(path), path, {"crawls": list}, remedy=remedy)["crawls"]
        if not crawls or not all(isinstance(crawl, str) for crawl in crawls):
            raise IntegrityError(f"{path} names no crawls; {remedy}")
        return list(crawls)

    def releases(self) -> list[str]:
        """Releases of the configuration and of the record, sorted."""
        base = f"{self.store.root}/releases"
        found = self.store.fs.ls(base, detail=False) if self.store.fs.exists(base) else []
        stored = {str(path).rsplit("/", 1)[1].removesuffix(".json") for path in found}
        return sorted(stored | set(self.config.releases))

    def freeze_release(self, release: str, crawls: list[str]) -> list[str]:
        """Record the crawls of a new release, in order of precedence.

        Raises:
            ConfigurationError: no crawls, or the release exists already.
        """
        if not crawls:
            raise ConfigurationError(f"release {release!r} needs at least one crawl")
        relative = f"releases/{release}.json"
        if self.store.fs.exists(f"{self.store.root}/{relative}"):
            raise ConfigurationError(f"release {release!r} exists and is frozen; choose another name")
        self.store.publish_bytes(relative, (json.dumps({"crawls": crawls}, indent=1) + "\n").encode())
        return crawls

    @_one_at_a_time(pool.STAGE)
    def pool(self, release: str, overrides: Overrides = None) -> Ref:
        """Candidates of a release."""
        return pool.run(
            changed(self.config.pool, overrides),
            store=self.store,
            release=release,
            documents=self._per_crawl(ingest.STAGE, release),
        )

    @_one_at_a_time(select.STAGE)
    def select(self, release: str, arm: str, overrides: Overrides = None) -> tuple[Ref, Ref]:
        """Mask and learning curve of one arm."""
        self._check_arm(arm)
        return select.run(
            changed(self.config.select_config(arm), overrides),
            store=self.store,
            release=release,
            arm=arm,
            candidates=require(self.store, pool.STAGE, release),
            embeddings=self._per_crawl(embed.STAGE, release),
            scores=self._per_crawl(score.STAGE, release),
            progress=self.progress,
        )

    @_one_at_a_time(materialise.STAGE)
    def materialise(self, release: str, arm: str, overrides: Overrides = None) -> Ref:
        """The subset of one arm."""
        self._check_arm(arm)
        return materialise.run(
            changed(self.config.materialise, overrides),
            store=self.store,
            release=release,
            arm=arm,
            documents=self._per_crawl(ingest.STAGE, release),
            candidates=require(self.store, pool.STAGE, release),
            scores=self._per_crawl(score.STAGE, release),
            selection=require(self.store, select.STAGE, f"{release}/{arm}"),
        )

    @_one_at_a_time(tokenizer.STAGE)
    def tokenizer(self, release: str, overrides: Overrides = None) -> Ref:
        """The tokenizer of a release's models."""
        return tokenizer.run(
            changed(self.config.tokenizer, overrides),
            store=self.store,
            release=release,
            candidates=require(self.store, pool.STAGE, release),
            documents=self._per_crawl(ingest.STAGE, release),
        )

    @_one_at_a_time(questions.STAGE)
    def questions(self, release: str, overrides: Overrides = None) -> Ref:
        """The question sets of a release's models."""
        return questions.run(
            changed(self.config.evaluate, overrides),
            store=self.store,
            release=release,
            candidates=require(self.store, pool.STAGE, release),
            documents=self._per_crawl(ingest.STAGE, release),
        )

    @_one_at_a_time(pretrain.STAGE)
    def pretrain(self, release: str, run_name: str, overrides: Overrides = None) -> Ref:
        """One model."""
        arm = self._check_run(run_name)
        return pretrain.run(
            changed(self.config.pretrain_config(run_name), overrides),
            store=self.store,
            release=release,
            run_name=run_name,
            subset=require(self.store, materialise.STAGE, f"{release}/{arm}"),
            tokenizer=require(self.store, tokenizer.STAGE, release),
            candidates=require(self.store, pool.STAGE, release),
            documents=self._per_crawl(ingest.STAGE, release),
            progress=self.progress,
        )

    @_one_at_a_time(evaluate.STAGE)
    def evaluate(self, release: str, run_name: str, overrides: Overrides = None) -> tuple[Ref, Ref]:
        """Benchmark results and answers of one model."""
        arm, architecture, seed = split_run_name(run_name)
        self._check_run(run_name)
        return evaluate.run(
            changed(self.config.evaluate, overrides),
            store=self.store,
            release=release,
            run_name=run_name,
            labels={"arm": arm, "architecture": architecture, "seed": seed},
            model=require(self.store, pretrain.STAGE, f"{release}/{run_name}"),
            tokenizer=require(self.store, tokenizer.STAGE, release),
            questions=require(self.store, questions.STAGE, release),
            progress=self.progress,
        )

    @_one_at_a_time(compare.STAGE)
    def compare(self, release: str, overrides: Overrides = None) -> Ref:
        """The table over all arms of a release."""

        def of_runs(stage: str) -> dict[str, Ref]:
            return {name: require(self.store, stage, f"{release}/{name}") for name in self.config.run_names()}

        def of_arms(stage: str) -> dict[str, Ref]:
            return {arm: require(self.store, stage, f"{release}/{arm}") for arm in self.config.arms}

        return compare.run(
            changed(self.config.compare, overrides),
            store=self.store,
            release=release,
            results=of_runs(evaluate.STAGE),
            answers=of_runs(evaluate.ANSWERS_STAGE),
            models=of_runs(pretrain.STAGE),
            subsets=of_arms(materialise.STAGE),
            selections=of_arms(select.STAGE),
        )

    # -- the whole chain ---------------------------------------------------------------------------------

    def steps(self, release: str) -> Iterator[tuple[str, str, Callable[[], Any]]]:
        """Every step of a release in order: stage, key, and the call that does it."""
        crawls = self.release_crawls(release)
        for stage in ("ingest", "embed", "score"):
            for crawl in crawls:
                yield stage, crawl, functools.partial(getattr(self, stage), crawl)
        for stage in ("pool", "tokenizer", "questions"):
            yield stage, release, functools.partial(getattr(self, stage), release)
        for stage in ("select", "materialise"):
            for arm in self.config.arms:
                yield stage, f"{release}/{arm}", functools.partial(getattr(self, stage), release, arm)
        for stage in ("pretrain", "evaluate"):
            for name in self.config.run_names():
                yield stage, f"{release}/{name}", functools.partial(getattr(self, stage), release, name)
        yield "compare", release, functools.partial(self.compare, release)

    def _per_crawl(self, stage: str, release: str) -> dict[str, Ref]:
        return {crawl: require(self.store, stage, crawl) for crawl in self.release_crawls(release)}

    def _check_arm(self, arm: str) -> None:
        if arm not in self.config.arms:
            raise UnknownNameError("arm", arm, self.config.arms)

    def _check_run(self, run_name: str) -> str:
        if run_name not in self.config.run_names():
            raise UnknownNameError("run", run_name, self.config.run_names())
        return split_run_name(run_name)[0]


def _refuse_unused(setting: str, options: Mapping[str, Any], users: str, used: Sequence[str]) -> None:
    """Options of a member that is not used would be a misspelt name, or a member forgotten."""
    unused = sorted(set(options) - set(used))
    if unused:
        raise ConfigurationError(
            f"{setting} are given for {unused}, which are not among {users}: {list(used)}"
        )

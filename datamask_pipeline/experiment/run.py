"""Runs an experiment: the chain's shared stages, every draw, the verdict of each pool. It goes on after a kill.

Draws need nothing of each other: several processes may measure them side by side, once `make_shared` is done.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.experiment.collection import (
    Inputs,
    first_tokens,
    read_documents,
    read_questions,
    read_ruler,
    refuse_long_answers,
)
from datamask_pipeline.experiment.config import ExperimentConfig
from datamask_pipeline.experiment.controlled import with_planted
from datamask_pipeline.experiment.judged import Verdict, judge, no_power_by_file
from datamask_pipeline.experiment.outside import Outside, read_outside
from datamask_pipeline.experiment.redraw import Drawn, draws_of
from datamask_pipeline.experiment.redraw import run as run_draw
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pretraining.tokenizer import encoder, load_tokenizer
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.storage import Ref
from datamask_pipeline.storage.places import unwritable

#: Told of what is at work, how much of it is done, and of how much.
Progress = Callable[[str, int, int | None], None]

#: What draws share: all that these are made from is made before. The index comes last, as it takes longest.
_SHARED = ("tokenizer", "questions", "gather")


def refuse_unwritable(**folders: Path | None) -> None:
    """Refuse, before any work, folders that cannot be made or written.

    Args:
        folders: By what they are called; ``None``: there is none.

    Raises:
        ConfigurationError: naming the folder and why.
    """
    for name, folder in folders.items():
        if folder is not None and (problem := unwritable(str(folder))) is not None:
            raise ConfigurationError(f"{name}: {folder} cannot be written: {problem}; name another folder")


def make_shared(
    config: ExperimentConfig, pipeline: Pipeline, progress: Progress, say: Callable[[str], None]
) -> None:
    """Run the stages of the collection's chain that all draws share, where they are not done.

    Args:
        config: The experiment.
        pipeline: The chain.
        progress: Told of stages.
        say: Given why nothing can be ranked, where the file says so already, and what there is to say of questions: rows
            that were refused, among others.

    Raises:
        DataMaskError: before any work, what one of these stages would refuse.
        ConfigurationError: before anything is embedded, networks' sequences without room for an answer.
    """
    (release,) = pipeline.config.releases
    for stage in _SHARED:
        pipeline.check(stage, [release])
    for reason in no_power_by_file(config):
        say(f"nothing will be ranked, the report will say NO POWER: {reason}")
    pipeline.store.sweep()  # of what killed runs left
    for stage in _SHARED:
        if stage == "gather" and pipeline.store.current(stage, release) is None:
            _refuse_short_sequences(config, pipeline, release)
        for name, key, call in pipeline.steps(release, stage):
            progress(f"{name} {key}", 0, None)
            refs = call()
            if name == "questions":
                for line in FLOW.stage(name).told(pipeline.store.manifest(refs[0])):
                    say(line)


def _refuse_short_sequences(config: ExperimentConfig, pipeline: Pipeline, release: str) -> None:
    """While there is work to spare; where there is none, the first draw does it."""
    lengths = {
        setting: size for pool in config.pools for setting, size in config.sequence_lengths(pool).items()
    }
    if not lengths:
        return
    tokenizer, questions = (pipeline.reference((stage, release)) for stage in ("tokenizer", "questions"))
    with tempfile.TemporaryDirectory() as scratch:
        tree = pipeline.store.local_copy(tokenizer, tokenizer_stage.TREE, Path(scratch))
        asked = read_questions(pipeline.store, questions, Path(scratch))
        refuse_long_answers(asked, encoder(load_tokenizer(tree)), lengths)


def run_experiment(
    config: ExperimentConfig, pipeline: Pipeline, progress: Progress, *, kept: Path | None = None
) -> dict[str, Verdict]:
    """Measure the draws that are not in the record yet, and judge every pool.

    Args:
        config: The experiment.
        pipeline: The chain of its collection, for which `make_shared` has run.
        progress: Told of draws.
        kept: Folder of files of what networks found; none is trained again whose file is there.

    Returns:
        The verdict of each pool by its name.

    Raises:
        ConfigurationError: `make_shared` has not run; networks' sequences have no room for an answer.
        InputError: an arm has too few tokens; a kept file is damaged.
    """
    return {
        pool: judge(
            config,
            pipeline.store,
            measure_draws(config, pipeline, pool, config.draws(()), progress, kept=kept),
        )
        for pool in config.pools
    }


def measure_draws(
    config: ExperimentConfig,
    pipeline: Pipeline,
    pool: str,
    numbers: Sequence[int],
    progress: Progress,
    *,
    kept: Path | None = None,
) -> list[Ref]:
    """Measure some draws of a pool, or find them measured; arguments and errors as of `run_experiment`."""
    (release,) = pipeline.config.releases
    inputs = _inputs(pipeline, release)
    draws = []
    with tempfile.TemporaryDirectory() as scratch:
        outside = {
            name: read_outside(Path(arm.subset))
            for name, arm in config.arms.items()
            if arm.subset is not None
        }
        read = _reader(config, pool, pipeline, inputs, Path(scratch), outside)
        for done, number in enumerate(numbers, start=1):
            tell = _teller(progress, f"{pool}: arms of draw {number}", len(config.arms) + config.num_random)
            draws.append(
                run_draw(
                    config,
                    pool,
                    number,
                    store=pipeline.store,
                    inputs=inputs,
                    drawn=read,
                    outside=outside,
                    kept=kept,
                    tell=tell,
                )
            )
            progress(f"{pool}: draws", done, len(numbers))
    return draws


def _inputs(pipeline: Pipeline, release: str) -> Inputs:
    """What `make_shared` made, whatever an experiment of another chain in the same record makes current meanwhile."""
    crawls = pipeline.release_crawls(release)

    def of(stage: str, key: str = release) -> Ref:
        return pipeline.reference((stage, key))

    return Inputs(
        of("gather"),
        of("pool"),
        of("tokenizer"),
        of("questions"),
        {crawl: of("ingest", crawl) for crawl in crawls},
        {crawl: of("embed", crawl) for crawl in crawls},
    )


def _reader(
    config: ExperimentConfig,
    pool: str,
    pipeline: Pipeline,
    inputs: Inputs,
    scratch: Path,
    outside: Mapping[str, Outside],
) -> Callable[[], Drawn]:
    """Reads what draws need when the first one needs it, and once."""
    kept: list[Drawn] = []

    def read() -> Drawn:
        if not kept:
            ruler = read_ruler(pipeline.store, inputs, scratch, config.sequence_lengths(pool))
            documents = read_documents(pipeline.store, inputs, ruler, outside)
            if (planting := config.pools[pool].planted) is not None:
                documents = with_planted(
                    documents,
                    planting,
                    pipeline.config,
                    config.pools[pool].first_tokens,
                    ruler.encode,
                    ruler.end,
                    draws_of(config, 0, "planted"),
                    scratch / "planted",
                )
            if (wanted := config.pools[pool].first_tokens) is not None:
                tree = pipeline.store.local_copy(inputs.tokenizer, tokenizer_stage.TREE, scratch)
                documents = first_tokens(documents, wanted, load_tokenizer(tree).batch_decode)
            kept.append(Drawn(documents, ruler))
        return kept[0]

    return read


def _teller(progress: Progress, what: str, total: int) -> Callable[[str], None]:
    counted: Iterator[int] = iter(range(1, total + 1))
    return lambda _: progress(what, next(counted), total)

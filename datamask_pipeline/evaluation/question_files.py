"""Which files each task reads: those of a folder or of the hub. Reads no row."""

from dataclasses import replace
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark, benchmarks_named
from datamask_pipeline.evaluation.config import HUB, LOCAL, QuestionsConfig
from datamask_pipeline.evaluation.hub_splits import hub_splits
from datamask_pipeline.evaluation.splits import Split, asked_split, examples_split


def splits_read(config: QuestionsConfig) -> dict[str, list[Split]]:
    """The splits that each task reads: what is asked, then the solved examples where it shows any.

    Raises:
        UnknownNameError: A task that does not exist.
        ConfigurationError: A commit is none.
        InputError: A folder, file or split is missing, or two sets could be meant.
        StorageError: The hub did not deliver.
    """
    return {
        benchmark.task: splits_of(config, benchmark)
        for benchmark in benchmarks_named(config.tasks, "evaluate.tasks")
    }


def splits_of(config: QuestionsConfig, benchmark: Benchmark) -> list[Split]:
    """The splits that one task reads, as `splits_read`.

    Raises:
        ConfigurationError: Solved examples are wanted of a task that cannot show any, or as `splits_read`.
    """
    task = benchmark.task
    pattern = config.demonstration_files.get(task)
    examples = bool(config.shots or pattern is not None)
    if examples and benchmark.no_examples is not None:
        raise ConfigurationError(
            f"task {task!r} cannot show solved examples: {benchmark.no_examples}; set shots to 0, or leave the task out"
        )
    if config.questions == HUB:
        return hub_splits(config, benchmark, examples=examples)
    folder = question_folder(config)
    splits = [asked_split(folder, benchmark, config.question_files.get(task))]
    if examples and (shown := examples_split(folder, benchmark, pattern, splits[0])) is not None:
        splits.append(shown)
    return [replace(split, root=folder, source=folder.name) for split in splits]


def question_folder(config: QuestionsConfig) -> Path:
    """The folder that holds the questions.

    Raises:
        InputError: There is none of that name.
    """
    folder = Path(config.questions)
    if not folder.is_dir():
        raise InputError(
            "the question directory does not exist",
            file=config.questions,
            field="questions",
            remedy=f"give a directory, {HUB!r} or {LOCAL!r}",
        )
    return folder

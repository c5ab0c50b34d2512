"""Refuses, before any work, question files and devices that are not there. Loads no model, reads first rows only."""

from itertools import islice
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark, all_benchmarks, benchmarks_named
from datamask_pipeline.evaluation.config import LOCAL, EvaluateConfig, QuestionsConfig
from datamask_pipeline.evaluation.layouts.base import BadRow
from datamask_pipeline.evaluation.reading import read_rows
from datamask_pipeline.evaluation.splits import Split, asked_split, examples_split
from datamask_pipeline.hardware import present_device

_FIRST_ROWS = 100


def check_device(config: EvaluateConfig) -> None:
    """Check that the device is there.

    Raises:
        ConfigurationError: It is not.
    """
    if config.device == "cpu":
        return  # sparing the import of torch
    try:
        present_device(config.device)
    except ConfigurationError as error:
        raise ConfigurationError(f"evaluate.device: {error}") from error


def check_questions(config: QuestionsConfig, section: str = "evaluate") -> None:
    """Check that every task exists and, where questions come from a folder, has files that begin with usable rows.

    Args:
        config: What is asked.
        section: Where the settings are, for messages.

    Raises:
        UnknownNameError: A task that does not exist.
        InputError: A folder, file or split is missing, two sets could be meant, or a file cannot be read or is not in its
            task's layout.
    """
    for setting in ("question_files", "demonstration_files"):
        benchmarks_named(getattr(config, setting), f"{section}.{setting}")
    benchmarks_named(config.tasks, f"{section}.tasks")
    if config.questions == LOCAL:
        return
    for task, splits in splits_read(config).items():
        for split in splits:
            for file in split.files:
                _check_first_rows(all_benchmarks()[task], file)


def splits_read(config: QuestionsConfig) -> dict[str, list[Split]]:
    """The splits that each task reads of a folder: what is asked, then the solved examples where it shows any.

    Raises:
        UnknownNameError: A task that does not exist.
        InputError: A folder, file or split is missing, or two sets could be meant.
    """
    folder, found = question_folder(config), {}
    for benchmark in benchmarks_named(config.tasks, "evaluate.tasks"):
        task = benchmark.task
        splits = [asked_split(folder, benchmark, config.question_files.get(task))]
        pattern = config.demonstration_files.get(task)
        if config.shots or pattern is not None:
            shown = examples_split(folder, benchmark, pattern, splits[0])
            splits += [] if shown is None else [shown]
        found[task] = splits
    return found


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
            remedy=f"give a directory, or {LOCAL!r}",
        )
    return folder


def _check_first_rows(benchmark: Benchmark, file: Path) -> None:
    reason = "the file is empty"
    for _, row in islice(read_rows(file), _FIRST_ROWS):
        try:
            if isinstance(row, str):
                raise BadRow(row)
            benchmark.make_layout().read(row)
            return
        except BadRow as bad:
            reason = str(bad)
    raise InputError(
        f"no usable question for task {benchmark.task!r} in the first {_FIRST_ROWS} rows: {reason}",
        file=str(file),
        remedy=f"bring it into the layout {benchmark.layout!r}, or leave the task out of `tasks`",
    )

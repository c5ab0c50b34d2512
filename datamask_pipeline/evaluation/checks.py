"""Refuses, before any work, question files and devices that are not there. Loads no model, reads first rows only."""

from itertools import islice
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark, benchmarks_named
from datamask_pipeline.evaluation.config import HUB, LOCAL, EvaluateConfig, QuestionsConfig
from datamask_pipeline.evaluation.curated import check_curated
from datamask_pipeline.evaluation.layouts.base import BadRow
from datamask_pipeline.evaluation.question_files import splits_read
from datamask_pipeline.evaluation.reading import read_rows
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


def check_room(config: EvaluateConfig) -> None:
    """Check that generated answers fit into `max_length`.

    Raises:
        UnknownNameError: A task that does not exist.
        ConfigurationError: An answer leaves no room for its prompt.
    """
    for benchmark in benchmarks_named(config.tasks, "evaluate.tasks"):
        if benchmark.max_generated >= config.max_length:
            raise ConfigurationError(
                f"task {benchmark.task!r} generates up to {benchmark.max_generated} tokens, evaluate.max_length is "
                f"{config.max_length}; raise it, so that prompts have room too, or leave the task out"
            )


def check_questions(config: QuestionsConfig, section: str = "evaluate") -> None:
    """Check that every task exists and, but for local questions, has files that begin with usable rows; and that curated
    documents are there.

    Files of the hub are fetched where they are not in the cache.

    Args:
        config: What is asked.
        section: Where the settings are, for messages.

    Raises:
        UnknownNameError: A task that does not exist.
        ConfigurationError: Commits are named, and the questions are not the hub's; or files, and the questions are local.
        InputError: A folder, file or split is missing, two sets could be meant, or a file cannot be read or is not in its
            task's layout.
        StorageError: The hub did not deliver.
    """
    if config.curated is not None:
        check_curated(config.curated, config.curated_column)
    for setting in ("question_files", "demonstration_files"):
        benchmarks_named(getattr(config, setting), f"{section}.{setting}")
    benchmarks_named(config.hub.revisions, f"{section}.hub.revisions")
    asked = benchmarks_named(config.tasks, f"{section}.tasks")
    if config.questions != HUB and config.hub.revisions:
        raise ConfigurationError(
            f"{section}.hub.revisions are for `questions: {HUB}`; the questions come from {config.questions}"
        )
    if config.questions == LOCAL:
        for setting in ("question_files", "demonstration_files"):
            if getattr(config, setting):
                raise ConfigurationError(
                    f"{section}.{setting} names files of published questions, and {section}.questions is `{LOCAL}`, which "
                    f"makes its own; let it be `{HUB}` or a directory, or leave {section}.{setting} out"
                )
        from datamask_pipeline.evaluation.local_questions import tasks_made

        for benchmark in asked:
            if benchmark.task not in tasks_made():
                raise ConfigurationError(
                    f"{section}.tasks: there are no questions of `{LOCAL}` for {benchmark.task!r}; let "
                    f"{section}.questions be `{HUB}` or a directory"
                )
        return
    for task, splits in splits_read(config).items():
        for split in splits:
            for file in split.files:
                _check_first_rows(benchmarks_named([task])[0], file)


def _check_first_rows(benchmark: Benchmark, file: Path) -> None:
    reason, read, layout = "the file is empty", 0, benchmark.make_layout()
    for _, row in islice(read_rows(file, hendrycks=layout.hendrycks), _FIRST_ROWS):
        read += 1
        try:
            if isinstance(row, str):
                raise BadRow(row)
            layout.read(row)
            return
        except BadRow as bad:
            reason = str(bad)
    rows = f"the first {_FIRST_ROWS} rows" if read == _FIRST_ROWS else f"any of its {read} rows"
    where = f" in {rows}" if read else ""
    raise InputError(
        f"no usable question for task {benchmark.task!r}{where}: {reason}",
        file=str(file),
        remedy=f"bring it into the layout {benchmark.layout!r}, or leave the task out of `tasks`",
    )

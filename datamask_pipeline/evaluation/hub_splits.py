"""The files of a task's splits on the Hugging Face hub, at a pinned commit, in the local cache.

Patterns in the task's definition say which files hold which split, for one commit of the repository; nothing is guessed.
"""

from fnmatch import fnmatch
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark
from datamask_pipeline.evaluation.config import QuestionsConfig
from datamask_pipeline.evaluation.reading import SUFFIXES
from datamask_pipeline.evaluation.splits import Split, check_shards, refusal, set_of_shards
from datamask_pipeline.hub import HubRepository


def hub_splits(config: QuestionsConfig, benchmark: Benchmark, *, examples: bool) -> list[Split]:
    """What is asked and, if wanted and the set has rows for them, the solved examples: fetched where not in the cache.

    Args:
        config: Which commit and files, where not the task's own.
        benchmark: The task.
        examples: Whether solved examples are shown.

    Raises:
        ConfigurationError: The commit is none, or the task has no data set on the hub.
        InputError: The hub knows no such repository or commit, or no file matches.
        StorageError: The hub did not deliver.
    """
    task, revision = benchmark.task, config.hub.revisions.get(benchmark.task, benchmark.revision)
    if benchmark.repository is None:
        raise ConfigurationError(
            f"task {task!r} has no data set on the hub; give a directory of question files"
        )
    if revision is None:
        raise ConfigurationError(
            f"task {task!r} needs the commit of its data set {benchmark.repository}: add {task}: <40 hexadecimal digits> to "
            "hub.revisions; the data set's page shows commits under Files, History"
        )
    patterns = {benchmark.split: config.question_files.get(task) or benchmark.hub_files.get(benchmark.split)}
    shown = benchmark.examples_split
    if examples and shown is not None and shown != benchmark.split:
        patterns[shown] = config.demonstration_files.get(task) or benchmark.hub_files.get(shown)
    for split, pattern in patterns.items():
        if pattern is None:
            raise ConfigurationError(f"task {task!r} names no file of its split {split!r} on the hub")
    repository = HubRepository(
        benchmark.repository,
        revision,
        kind="dataset",
        endpoint=config.hub.endpoint,
        cache_dir=config.hub.cache_dir,
    )
    folder = repository.download_matching([str(pattern) for pattern in patterns.values()])
    return [_split(benchmark, repository, folder, split, str(pattern)) for split, pattern in patterns.items()]


def _split(benchmark: Benchmark, repository: HubRepository, folder: Path, split: str, pattern: str) -> Split:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES
        and fnmatch(path.relative_to(folder).as_posix(), pattern)
        and path.is_file()
    ]
    source = f"{repository.name}@{repository.revision}"
    if not files:
        there = [file.path for file in repository.list_files() if file.path.endswith(SUFFIXES)]
        raise InputError(
            f"no question file of task {benchmark.task!r} matches {pattern!r} in {source}, which holds "
            + (", ".join(there[:12]) + (" and others" if there[12:] else "") or "none"),
            remedy=f"name the files of its split {split!r} in question_files (demonstration_files for solved examples)",
        )
    if len({set_of_shards(file) for file in files}) > 1 and not benchmark.make_layout().many_files:
        raise refusal(benchmark, folder, files, f"finds several sets that match {pattern!r} in {source}")
    check_shards(files)
    return Split(split, tuple(files), root=folder, source=source)

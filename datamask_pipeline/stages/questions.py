"""Questions: what each model of a release is asked, built once: a question set a benchmark, and curated documents."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import texts
from datamask_pipeline.evaluation.config import HUB, LOCAL, QuestionsConfig
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    from datamask_pipeline.evaluation.questions import QuestionSet

STAGE: Final = "questions"
VERSION: Final = "5"
TREE: Final = "questions"
#: Curated documents in that directory, as `evaluation.curated` writes them.
CURATED_FILE: Final = "curated.parquet"


def check(config: QuestionsConfig) -> None:
    """Refuse tasks and question files that are not there.

    Raises:
        UnknownNameError: a task that does not exist.
        InputError: a folder or file is missing, cannot be read, or is not in its task's layout.
    """
    from datamask_pipeline.evaluation.checks import check_questions

    check_questions(config)


def compared(config: QuestionsConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now: of files their names, not where they lie."""
    configured = config.model_dump(mode="json", include=set(QuestionsConfig.model_fields), exclude={"hub"})
    for name, value in configured.items():
        if name == "curated":
            yield name, recorded.get(name), value and Path(value).name
        elif name == "questions":
            yield name, recorded[name], Path(value).name
        elif name in recorded:
            yield name, recorded[name], value


def run(
    config: QuestionsConfig, *, store: Store, release: str, candidates: Ref, documents: Mapping[str, Ref]
) -> Ref:
    """Prepare the question sets of a release, and take in curated documents where some are named.

    Args:
        config: Where questions come from, and how many.
        store: The record.
        release: The release's name.
        candidates: The release's candidates; local sets are made of its validation documents.
        documents: Documents of each crawl.

    Raises:
        InputError: a task has no file or no usable row, or there is no curated document.
        UnknownNameError: a task that does not exist.
    """
    # Which commits: the digest of the files has them.
    settings = config.model_dump(mode="json", include=set(QuestionsConfig.model_fields), exclude={"hub"})
    inputs: dict[str, Ref | str] = {}
    if config.questions == LOCAL:
        inputs = {"candidates": candidates}
        inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    else:
        inputs = {"files": digest_of_files(config)}
        settings["questions"] = Path(config.questions).name  # where the files lie does not matter
    if config.curated is None:  # releases without any are what they were before there was such a setting
        del settings["curated"], settings["curated_column"]
    else:
        from datamask_pipeline.evaluation.curated import digest_of_curated

        inputs["curated"] = digest_of_curated(config.curated)
        settings["curated"] = Path(config.curated).name
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.evaluation.questions import prepare_questions

    directory = builder.scratch() / TREE
    held_out: Iterable[tuple[str, str]] = ()
    if config.questions == LOCAL:
        held_out = texts.pool_documents(store, candidates, documents, "validation")
    sets = prepare_questions(config, directory, held_out)
    read = sum(item.num_read + item.num_examples_read for item in sets)
    rejected = sum(item.num_rejected for item in sets)
    metadata: dict[str, Any] = {"sets": [_as_dict(s, directory) for s in sets]}
    if config.curated is not None:
        from datamask_pipeline.evaluation.curated import read_curated, write_documents

        curated = read_curated(config.curated, config.curated_column)
        write_documents(curated, directory / CURATED_FILE)
        read, rejected = read + curated.num_read, rejected + len(curated.rejected)
        about = dataclasses.asdict(dataclasses.replace(curated, documents=()))
        metadata["curated"] = {name: value for name, value in about.items() if name != "documents"}
    tree = builder.write_tree(TREE, directory)
    counts = {"rows_in": read, "kept": read - rejected, "dropped_rejected": rejected}
    return builder.commit([], trees=[tree], counts=counts, metadata=metadata)


def amount(manifest: Mapping[str, Any]) -> str:
    """How much was made."""
    return f"{sum(about['num_questions'] for about in manifest['metadata']['sets'])} questions"


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Rows that were refused, splits that lm-eval would not ask, and how many curated documents there are."""
    from datamask_pipeline.evaluation.benchmarks import benchmarks_named

    for about in manifest["metadata"]["sets"]:
        task = about["task"]
        (benchmark,) = benchmarks_named([task])
        if about["split"] not in (None, benchmark.split):
            yield f"{task}: asked is the split {about['split']!r}, where lm-eval asks {benchmark.split!r}"
        if about["rejected"]:
            read = about["num_read"] + about["num_examples_read"]
            yield f"{task}: {_refused(about['rejected'], read)}"
    if (about := manifest["metadata"].get("curated")) is not None:
        yield f"{about['num_documents']:,} curated documents of {about['source']}"
        if about["rejected"]:
            yield f"curated documents: {_refused(about['rejected'], about['num_read'])}"


def _refused(rejected: list[dict[str, Any]], read: int) -> str:
    first = rejected[0]
    return (
        f"{len(rejected):,} of {read:,} rows refused; the first is row {first['row']}, counted from 0, of {first['file']}: "
        f"{first['reason']}; all stand in the manifest"
    )


def load(store: Store, questions: Ref, scratch: Path) -> "list[QuestionSet]":
    """The question sets of an artefact, their files on local disk."""
    from datamask_pipeline.evaluation.benchmarks import benchmarks_named
    from datamask_pipeline.evaluation.questions import QuestionSet, RejectedRow, SourceFile

    folder = store.local_copy(questions, TREE, scratch)
    sets = []
    for item in store.manifest(questions)["metadata"]["sets"]:
        values: dict[str, Any] = dict(item)
        (values["benchmark"],) = benchmarks_named([values.pop("task")])
        values["file"] = folder / values["file"]
        values["demonstrations"] = folder / values["demonstrations"] if values["demonstrations"] else None
        values["files"] = tuple(SourceFile(**file) for file in values["files"])
        values["files_beside"] = tuple(values["files_beside"])
        values["rejected"] = tuple(RejectedRow(**row) for row in values["rejected"])
        sets.append(QuestionSet(**values))
    return sets


def load_curated(store: Store, questions: Ref, scratch: Path) -> list[tuple[str, str]]:
    """Id and text of an artefact's curated documents, in order; none where none were named."""
    if "curated" not in store.manifest(questions)["metadata"]:
        return []
    from datamask_pipeline.evaluation.curated import read_documents

    return read_documents(store.local_copy(questions, TREE, scratch) / CURATED_FILE)


def _as_dict(item: "QuestionSet", directory: Path) -> dict[str, Any]:
    values = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    values["task"] = values.pop("benchmark").task
    values["file"] = item.file.relative_to(directory).as_posix()
    values["demonstrations"] = item.demonstrations and item.demonstrations.relative_to(directory).as_posix()
    values["files"] = [dataclasses.asdict(file) for file in item.files]
    values["files_beside"] = list(item.files_beside)
    values["rejected"] = [dataclasses.asdict(row) for row in item.rejected]
    return values


def digest_of_files(config: QuestionsConfig) -> str:
    """Of the files that will be read, and of the names of those beside them."""
    from datamask_pipeline.evaluation.question_files import splits_read

    digest = hashlib.sha256()
    for task, splits in splits_read(config).items():
        for split in splits:
            # Where a folder lies, and what it is called, does not matter; which commit of a repository does.
            source = f"{split.source} " if config.questions == HUB else ""
            for path in split.files:
                digest.update(f"{source}{task} {split.name} {split.name_of(path)}".encode() + b"\0")
                with path.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
            for path in split.others:
                digest.update(f"beside {split.name_of(path)}".encode() + b"\0")
    return digest.hexdigest()

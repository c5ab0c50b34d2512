"""Evaluate: a model's checkpoints on the release's question sets, through lm-eval, and on documents that no arm holds.

Two artefacts: the results, one row a checkpoint, task and metric; and the answers, one row a question or document, so that
two models can be compared in pairs. Documents have bits alone, and no result.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import pyarrow as pa
import pydantic

from datamask_pipeline import schema, texts
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.report.comparison import final_rows
from datamask_pipeline.stages import pretrain as pretrain_stage
from datamask_pipeline.stages import questions as questions_stage
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "evaluate"
ANSWERS_STAGE: Final = "answers"
VERSION: Final = "9"
#: Share of the training that a checkpoint needs behind it to count for the model's result.
_NEAR_THE_END: Final = 0.8
_TAKEN_OVER: Final = ("task", "source", "chance", "digest")


class EvaluateStageConfig(EvaluateConfig):
    """What is asked, how, and of which checkpoints."""

    checkpoints: Literal["final", "all"] = pydantic.Field(
        "final",
        description="Evaluate the checkpoints that a model's result is the mean of, or all that were kept.",
    )
    final_checkpoints: int = pydantic.Field(
        3,
        ge=1,
        description="A model's result is the mean over so many of its last checkpoints, of those after four fifths of its "
        "training; the very last always counts. `pretrain.checkpoint_every_steps` says how many there are.",
    )


def check(config: EvaluateStageConfig) -> None:
    """Refuse a device that is not there, and tasks whose generated answers leave no room for a prompt.

    Raises:
        ConfigurationError: it is not there, or they leave none.
    """
    from datamask_pipeline.evaluation.checks import check_device, check_room

    check_device(config)
    check_room(config)


def run(
    config: EvaluateStageConfig,
    *,
    store: Store,
    release: str,
    run_name: str,
    labels: Mapping[str, Any],
    model: Ref,
    tokenizer: Ref,
    questions: Ref,
    candidates: Ref,
    documents: Mapping[str, Ref],
    progress: Callable[[str, int, int | None], None] | None = None,
) -> tuple[Ref, Ref]:
    """Evaluate one model.

    Args:
        config: Shots, lengths, seeds and checkpoints.
        store: The record.
        release: The release's name.
        run_name: The model's name.
        labels: ``arm``, ``architecture`` and ``seed``, written into every row.
        model: The pretrained model.
        tokenizer: The release's tokenizer.
        questions: The release's question sets and curated documents.
        candidates: The release's candidates, which name the held-out documents.
        documents: Documents of each crawl, which hold the held-out documents' texts.
        progress: Told of checkpoints done.

    Returns:
        The results and the answers.

    Raises:
        DataMaskError: lm-eval left out a task.
    """
    settings = config.result_config()
    for name in ("questions", "curated", "curated_column"):
        del settings[name]  # where they lie does not matter; their artefact says what they are
    inputs: dict[str, Ref | str] = {
        "model": model,
        "tokenizer": tokenizer,
        "questions": questions,
        "candidates": candidates,
    }
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    # What results take over from the questions' manifest, which no content digest covers.
    about = [[item[name] for name in _TAKEN_OVER] for item in store.manifest(questions)["metadata"]["sets"]]
    inputs["question_sets"] = sha256_text(canonical_json(about))
    key = f"{release}/{run_name}"
    builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs)
    answers_builder = store.begin(ANSWERS_STAGE, key, version=VERSION, config=settings, inputs=inputs)
    done, answers_done = builder.finished(), answers_builder.finished()
    if done is not None and answers_done is not None:
        return done, answers_done
    from datamask_pipeline.evaluation.harness import evaluate
    from datamask_pipeline.pretraining.tokenizer import load_tokenizer
    from datamask_pipeline.pretraining.validate import checkpoint_bits

    scratch = builder.scratch()
    directories = pretrain_stage.checkpoint_directories(store, model, scratch)
    final = final_steps(directories, config.final_checkpoints)
    steps = sorted(directories) if config.checkpoints == "all" else final
    loaded = load_tokenizer(store.local_copy(tokenizer, tokenizer_stage.TREE, scratch))
    sets = questions_stage.load(store, questions, scratch)
    asked: list[tuple[str, str]] = []

    def asked_texts() -> Iterator[str]:
        """Of held-out and curated documents, read anew for each checkpoint; `asked` tells which they are."""
        asked.clear()
        for task, found in (
            (schema.HELD_OUT, texts.pool_documents(store, candidates, documents, "validation")),
            (schema.CURATED, questions_stage.load_curated(store, questions, scratch)),
        ):
            for name, text in found:
                asked.append((task, name))
                yield text

    # By its content, which is what is hashed: another version that trains the same weights gives the same rows.
    model_id = model.content_digest[:16]
    common = {"release": release, "run": run_name, **labels, "model_digest": model_id}
    results: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        evaluation = evaluate(directories[step], loaded, sets, scratch / "lm-eval", config)
        weights = common | {"checkpoint": step, "final": step in final}
        results += [dataclasses.asdict(row) | weights for row in evaluation.results]
        answers += [dataclasses.asdict(row) | weights for row in evaluation.answers]
        measured = checkpoint_bits(
            directories[step],
            loaded,
            asked_texts(),
            device=config.device,
            threads=config.threads,
        )
        answers += [
            {"task": task, "question_id": name, "gold_bits": bits, "gold_bytes": size} | weights
            for (task, name), bits, size in zip(
                asked, measured.document_bits, measured.document_bytes, strict=True
            )
        ]
        if progress is not None:
            progress(f"evaluate {run_name}", number + 1, len(steps))
    answers_ref = answers_builder.commit([_write(answers_builder, answers, schema.ANSWERS)])
    headline = {row["task"]: row["value"] for row in final_rows(results) if row["headline"]}
    metadata = {"release": release, "run": run_name, "headline": headline, "final_checkpoints": final}
    return builder.commit([_write(builder, results, schema.RESULTS)], metadata=metadata), answers_ref


def final_steps(steps: Iterable[int], number: int) -> list[int]:
    """The last steps whose checkpoints a model's result is the mean of, at most so many."""
    found = sorted(steps)
    return [step for step in found if step >= _NEAR_THE_END * found[-1]][-number:]


def _write(builder: Any, rows: list[dict[str, Any]], row_schema: pa.Schema) -> dict[str, Any]:
    kept = [{name: row.get(name) for name in row_schema.names} for row in rows]
    table = pa.Table.from_pylist(kept, schema=row_schema)
    record: dict[str, Any] = builder.write_part("00000", table.to_batches(), row_schema)
    return record

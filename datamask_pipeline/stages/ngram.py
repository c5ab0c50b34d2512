"""N-gram: how well a trigram model of an arm's documents predicts the right answers, and texts that no arm holds.

A ruler without training noise: no seed and no architecture. Knows the subset, the tokenizer and the question sets; knows
no neural model.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import duck, schema, texts
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.ngram.asked import AskedQuestions, Encode, encoded
from datamask_pipeline.ngram.trigram import Asked, Texts, TrigramModel
from datamask_pipeline.report.bits import bits_per_byte
from datamask_pipeline.stages import materialise as materialise_stage
from datamask_pipeline.stages import questions as questions_stage
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "ngram"
VERSION: Final = "3"
#: Texts that are sorted at a time, about.
_SORTED_TEXTS: Final = 16_384
#: Held-out documents that are asked at a time.
_ASKED_DOCUMENTS: Final = 256


class NgramConfig(duck.QuerySettings):
    """Whether an n-gram model measures each arm, and on how many tokens it learns."""

    enabled: bool = pydantic.Field(True, description="Whether arms are measured by an n-gram model.")
    max_tokens: int = pydantic.Field(
        3_000_000,
        ge=1,
        description="Tokens that each arm's model learns from at most: documents in the order of their content's hash, the "
        "last one cut. An arm with fewer is at a disadvantage, and the report says so.",
    )


def is_off(config: NgramConfig) -> bool:
    """Whether the flow goes without this stage."""
    return not config.enabled


def run(
    config: NgramConfig,
    *,
    store: Store,
    release: str,
    arm: str,
    subset: Ref,
    tokenizer: Ref,
    questions: Ref,
    candidates: Ref,
    documents: Mapping[str, Ref],
) -> Ref:
    """Measure one arm.

    Args:
        config: How many tokens are learnt from.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        subset: The arm's documents.
        tokenizer: The release's tokenizer.
        questions: The release's question sets.
        candidates: The release's candidates, which name the held-out documents.
        documents: Documents of each crawl, which hold the held-out documents' texts.

    Returns:
        A row for each question, each held-out and each curated document.

    Raises:
        ConfigurationError: the release holds out no document.
    """
    inputs: dict[str, Ref | str] = {
        "subset": subset,
        "tokenizer": tokenizer,
        "questions": questions,
        "candidates": candidates,
    }
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    asked_with = store.manifest(questions)["basis"]["config"]
    prompts = {name: asked_with[name] for name in ("shots", "fewshot_seed")}
    builder = store.begin(
        STAGE,
        f"{release}/{arm}",
        version=VERSION,
        config=config.result_config() | prompts,
        inputs=inputs,
        digests={"subset": materialise_stage.documents_digest(store, subset)},
    )
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.evaluation.config import QuestionsConfig
    from datamask_pipeline.evaluation.gold import scored_questions
    from datamask_pipeline.pretraining.tokenizer import encoder, load_tokenizer

    held_out = texts.pool_documents(store, candidates, documents, "validation")
    if (first_held_out := next(held_out, None)) is None:
        raise ConfigurationError(
            f"release {release!r} holds out no document to measure on; raise pool.validation_share "
            "or give more documents"
        )
    scratch = builder.scratch()
    loaded = load_tokenizer(store.local_copy(tokenizer, tokenizer_stage.TREE, scratch))
    encode, end = encoder(loaded), int(loaded.eos_token_id)
    subset_texts = _subset_texts(config, store, subset, scratch)
    learnt = first_tokens(encoded(subset_texts, encode, end), config.max_tokens)
    model = TrigramModel(learnt, vocabulary=len(loaded), before=end)
    sets = questions_stage.load(store, questions, scratch)
    questions_Q = scored_questions(sets, scratch / "lm-eval", QuestionsConfig(**prompts))
    asked = AskedQuestions.of(questions_Q, encode, end)
    answers = asked.answers(model)
    curated = questions_stage.load_curated(store, questions, scratch)
    of_questions = {
        "task": [each.task for each in questions_Q],
        "question_id": [each.question_id for each in questions_Q],
        "gold_bits": answers.gold_bits_Q,
        "gold_bytes": asked.gold_bytes_Q,
        "gold_probability": pa.array(answers.gold_probability_Q, from_pandas=True),
    }
    of_documents = (
        {"task": [task] * len(names), "question_id": names, "gold_bits": bits, "gold_bytes": sizes}
        for task, named in (
            (schema.HELD_OUT, itertools.chain([first_held_out], held_out)),
            (schema.CURATED, curated),
        )
        for names, bits, sizes in _document_bits(model, named, encode, end)
    )
    table = pa.Table.from_batches(
        _batch({"release": release, "arm": arm}, columns)
        for columns in itertools.chain([of_questions], of_documents)
    )
    part = builder.write_part("00000", table.combine_chunks().to_batches(), schema.NGRAM)
    metadata = {
        "release": release,
        "arm": arm,
        "documents": len(learnt.offsets_D) - 1,
        "tokens": model.num_tokens,
        "trigrams": model.num_trigrams,
        "bits_per_byte": bits_per_byte(row for batch in table.to_batches() for row in batch.to_pylist()),
    }
    return builder.commit([part], metadata=metadata)


def _document_bits(
    model: TrigramModel, named: Iterable[tuple[str, str]], encode: Encode, end: int
) -> Iterator[tuple[Sequence[str], NDArray[np.float64], list[int]]]:
    """Names, bits and UTF-8 bytes of so many documents at a time."""
    waiting = iter(named)
    while group := list(itertools.islice(waiting, _ASKED_DOCUMENTS)):
        names, contents = zip(*group, strict=True)
        bits_D = model.bits(Asked.of(Texts.of(list(encoded(contents, encode, end))), end))
        yield names, bits_D, [len(text.encode()) for text in contents]


def _batch(names: Mapping[str, str], columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows of the table, of which all share some names; a column that is not given is null."""
    size = len(columns["task"])
    given = {name: [value] * size for name, value in names.items()} | dict(columns)
    return pa.record_batch(
        [pa.array(given.get(field.name, [None] * size), field.type) for field in schema.NGRAM],
        schema=schema.NGRAM,
    )


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The figures in one line."""
    row = manifest["metadata"]
    bits = row["bits_per_byte"][schema.HELD_OUT]
    yield (
        f"{row['arm']}: a trigram model of {row['tokens']:,} tokens has {bits:.4f} bits per byte on held-out documents"
    )


def _subset_texts(config: NgramConfig, store: Store, subset: Ref, scratch: Path) -> Iterator[str]:
    """The subset's texts in the order of their content's hash: the first ones are a sample that no crawl leads.

    They are sorted range by range of hashes, so that only as many are read as somebody asks for.
    """
    texts_sql = duck.parts_sql(store, [subset], "text, content_hash")
    num_ranges = -(-subset.rows // _SORTED_TEXTS)
    edges = [f"content_hash >= '{(number << 32) // num_ranges:08x}'" for number in range(1, num_ranges)]
    with duck.connect(store, scratch, memory_limit=config.memory_limit) as connection:
        for above, below in itertools.pairwise(["true", *edges, "false"]):
            sql = f"SELECT text FROM {texts_sql} WHERE {above} AND NOT ({below}) ORDER BY content_hash, artefact_row"
            for batch in connection.sql(sql).to_arrow_reader(1_024):
                yield from batch.column(0).to_pylist()


def first_tokens(texts_tokens: Iterator[NDArray[np.int64]], max_tokens: int) -> Texts:
    """Texts up to so many tokens, the last one cut."""
    taken, number = [], 0
    for tokens in texts_tokens:
        taken.append(tokens)
        number += len(tokens)
        if number >= max_tokens:
            break
    return Texts.of(taken).cut(max_tokens)

"""Every asset check goes red on the fault it is there for, and passes on the real artefact."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets import (
    checks,
    compare,
    embed,
    evaluate,
    gather,
    ingest,
    materialise,
    ngram,
    pool,
    pretrain,
    questions,
    redundancy,
    score,
    select,
    tokenizer,
)
from assets.checks import Artefact, Check
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
from datamask_pipeline.schema import HELD_OUT
from datamask_pipeline.stages.tokenizer import TokenizerConfig
from datamask_pipeline.storage import array_files

CRAWL, RELEASE, ARM, RUN = "tiny-2024-10", "first", "first/datamask", "first/datamask.dense.seed0"


def columns_of(asset: str) -> Check:
    _, output = FLOW.maker(asset)
    assert output.table is not None
    return checks.columns_of(output.table)


def artefact_of(pipeline: Pipeline, stage: str, key: str) -> Artefact:
    ref = pipeline.store.current(stage, key)
    assert ref is not None
    return Artefact(pipeline, ref, pipeline.store.manifest(ref))


@pytest.fixture(scope="module")
def copied(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The tiny chain over a copy of its record, which the tests may spoil."""
    import shutil

    root = tmp_path_factory.mktemp("spoilt") / "record"
    shutil.copytree(tiny_run.store.root, root)
    return Pipeline(tiny_run.config.model_copy(update={"store": str(root)}))


def spoilt(pipeline: Pipeline, artefact: Artefact, change: Callable[[pa.Table], pa.Table]) -> Artefact:
    """The artefact with other rows: one part, the manifest otherwise as it was."""
    store = pipeline.store
    table = change(store.read_table(artefact.ref))
    builder = store.begin(artefact.ref.stage, "spoilt", version="spoilt", config={}, inputs={})
    location = f"{artefact.ref.stage}/spoilt/{len(list(store.all_manifests(artefact.ref.stage)))}"
    builder.location = location
    part = builder.write_part("00000", table.to_batches(), table.schema)
    ref = dataclasses.replace(builder.commit([part]), key=artefact.ref.key)
    return Artefact(pipeline, ref, {**artefact.manifest, "parts": [part]})


def set_column(name: str, values: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        made = values(table.column(name))
        array = made if isinstance(made, pa.Array | pa.ChunkedArray) else pa.array(made, field.type)
        return table.set_column(index, field, array)

    return change


def first_as(value: object) -> Callable[[pa.ChunkedArray], list[object]]:
    return lambda column: [value, *column.to_pylist()[1:]]


def drop_first(table: pa.Table) -> pa.Table:
    return table.slice(1)


def repeat_first(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def repeat_last(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(len(table) - 1)])


def without(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([name])


def swap_first_two(table: pa.Table) -> pa.Table:
    return table.take([1, 0, *range(2, table.num_rows)])


def deselect_first(column: pa.ChunkedArray) -> list[bool]:
    values = column.to_pylist()
    values[values.index(True)] = False
    return values


def unknown_threshold(table: pa.Table) -> pa.Table:
    """As a metric without marginals leaves it, under reasons that compare with it all the same."""
    for name in ("threshold", "diversity_marginal"):
        table = set_column(name, lambda column: [None] * len(column))(table)
    return table


def select_ineligible(table: pa.Table) -> pa.Table:
    return set_column("id", first_as("<urn:uuid:nobody>"))(table)


def eligible_everywhere(table: pa.Table) -> pa.Table:
    return set_column("eligible", lambda column: [True] * len(column))(table)


CASES: list[tuple[Any, str, str, Callable[[pa.Table], pa.Table]]] = [
    (columns_of("crawl_documents"), "ingest", CRAWL, without("row")),
    (ingest.ids_are_unique, "ingest", CRAWL, repeat_first),
    (ingest.every_text_says_something, "ingest", CRAWL, set_column("text", first_as("  "))),
    (checks.rows_in_are_kept_plus_dropped, "ingest", CRAWL, drop_first),
    (columns_of("rejected_documents"), "rejected", CRAWL, without("detail")),
    (ingest.every_rejection_has_a_reason, "rejected", CRAWL, set_column("reason", first_as(None))),
    (ingest.rejected_rows_are_the_dropped_ones, "rejected", CRAWL, drop_first),
    (embed.columns, "embed", CRAWL, without("content_hash")),
    (embed.columns, "embed", CRAWL, lambda table: table.append_column("score_unasked", pa.array([0.5] * len(table)))),
    (embed.one_row_per_document, "embed", CRAWL, swap_first_two),
    (embed.one_row_per_document, "embed", CRAWL, drop_first),
    (columns_of("quality_scores"), "score", CRAWL, without("reason")),
    (score.every_scorer_judges_every_document, "score", CRAWL, drop_first),
    (score.every_scorer_judges_every_document, "score", CRAWL, set_column("id", first_as("nobody"))),
    (score.scores_are_finite_and_within_scale, "score", CRAWL, set_column("score", first_as(float("nan")))),
    (score.scores_are_finite_and_within_scale, "score", CRAWL, set_column("score", first_as(1e6))),
    (score.scores_are_finite_and_within_scale, "score", CRAWL, set_column("score", first_as(None))),
    (
        score.means_stay_near_other_crawls,
        "score",
        CRAWL,
        set_column("score", lambda column: pc.multiply(column, 0.0)),
    ),
    (columns_of("candidate_documents"), "pool", RELEASE, without("domain")),
    (pool.every_document_stands_once, "pool", RELEASE, drop_first),
    (pool.eligible_contents_are_distinct, "pool", RELEASE, eligible_everywhere),
    (pool.ineligible_documents_have_a_reason, "pool", RELEASE, eligible_everywhere),
    (columns_of("release_index"), "gather", RELEASE, without("domain")),
    (gather.every_eligible_document_stands_once, "gather", RELEASE, drop_first),
    (gather.every_eligible_document_stands_once, "gather", RELEASE, repeat_first),
    (gather.every_row_leads_to_its_vector, "gather", RELEASE, set_column("row", lambda column: pc.add(column, 1))),
    (gather.every_row_leads_to_its_vector, "gather", RELEASE, set_column("shard", first_as("nowhere"))),
    (columns_of("selection_mask"), "select", ARM, without("reason")),
    (select.budget_is_exact, "select", ARM, set_column("selected", deselect_first)),
    (select.every_document_stands_once, "select", ARM, repeat_first),
    (select.only_candidates_are_judged, "select", ARM, select_ineligible),
    (select.numbers_are_finite, "select", ARM, set_column("logit", first_as(float("inf")))),
    (select.numbers_are_finite, "select", ARM, set_column("probability", first_as(1.5))),
    (select.numbers_are_finite, "select", ARM, set_column("logit", first_as(None))),
    (select.numbers_are_finite, "select", ARM, set_column("quality_marginal", first_as(None))),
    (select.numbers_are_finite, "select", ARM, set_column("diversity_marginal", first_as(None))),
    (select.numbers_are_finite, "select", ARM, set_column("threshold", first_as(None))),
    (select.numbers_are_finite, "select", ARM, unknown_threshold),
    (select.numbers_are_finite, "select", ARM, set_column("reason", first_as("pruned by quality"))),
    (columns_of("learning_curve"), "learning_curve", ARM, without("objective")),
    (select.objectives_are_finite, "learning_curve", ARM, set_column("objective", first_as(float("nan")))),
    (select.objectives_are_finite, "learning_curve", ARM, lambda table: table.slice(0, 0)),
    (select.objectives_are_finite, "learning_curve", ARM, set_column("objective", lambda c: [*c.to_pylist()[:-1], None])),
    (columns_of("fineweb_mask"), "materialise", ARM, without("selection_id")),
    (materialise.ids_and_contents_are_distinct, "materialise", ARM, repeat_first),
    (materialise.subset_is_the_mask, "materialise", ARM, drop_first),
    (materialise.subset_is_the_mask, "materialise", ARM, select_ineligible),
    (materialise.subset_is_the_mask, "materialise", ARM, set_column("selection_id", first_as("another"))),
    (columns_of("subset_redundancy"), "redundancy", ARM, without("coverage")),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, set_column("documents", lambda c: pc.add(c, 1))),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, set_column("near_copies", lambda c: pc.add(c, 1_000))),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, set_column("exact_copies", first_as(-1))),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, set_column("coverage", first_as(float("nan")))),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, set_column("quality_rank", first_as(None))),
    (redundancy.figures_are_of_the_mask, "redundancy", ARM, drop_first),
    (columns_of("ngram_answers"), "ngram", ARM, without("gold_bits")),
    (ngram.bits_are_of_the_arm, "ngram", ARM, set_column("arm", first_as("random"))),
    (ngram.bits_are_of_the_arm, "ngram", ARM, set_column("gold_bits", first_as(float("nan")))),
    (ngram.bits_are_of_the_arm, "ngram", ARM, set_column("gold_bits", first_as(0.0))),
    (ngram.bits_are_of_the_arm, "ngram", ARM, set_column("gold_probability", first_as(1.5))),
    (ngram.bits_are_of_the_arm, "ngram", ARM, repeat_first),
    (columns_of("pretrained_model"), "pretrain", RUN, without("loss")),
    (pretrain.losses_are_finite, "pretrain", RUN, set_column("loss", first_as(float("nan")))),
    (columns_of("benchmark_results"), "evaluate", RUN, without("stderr")),
    (evaluate.every_task_was_asked, "evaluate", RUN, lambda table: table.filter(pc.field("task") != "mmlu")),
    (evaluate.every_task_was_asked, "evaluate", RUN, set_column("n", lambda column: [0] * len(column))),
    (evaluate.values_are_finite, "evaluate", RUN, set_column("value", first_as(float("nan")))),
    (columns_of("benchmark_answers"), "answers", RUN, without("value")),
    (evaluate.every_question_was_answered_once, "answers", RUN, lambda table: table.filter(pc.field("task") != "mmlu")),
    (evaluate.every_document_was_read_once, "answers", RUN, lambda table: table.filter(pc.field("task") != HELD_OUT)),
    (evaluate.every_document_was_read_once, "answers", RUN, repeat_last),
    (evaluate.every_document_was_read_once, "answers", RUN, set_column("value", lambda column: pc.fill_null(column, 0.5))),
    (columns_of("comparison_report"), "compare", RELEASE, without("headline")),
    (compare.every_run_is_in_it, "compare", RELEASE, lambda table: table.filter(pc.field("arm") == "random")),
    (
        compare.arms_answered_the_same_questions,
        "compare",
        RELEASE,
        set_column("questions_digest", lambda column: [str(row) for row in range(len(column))]),
    ),
]  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("check", "stage", "key", "change"),
    CASES,
    ids=[f"{stage}-{check.__name__}-{number}" for number, (check, stage, _, _) in enumerate(CASES)],
)
def test_rows_that_are_wrong_are_found(
    copied: Pipeline, check: Any, stage: str, key: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    artefact = artefact_of(copied, stage, key)
    assert check(artefact).passed
    assert not check(spoilt(copied, artefact, change)).passed


MANIFEST_CASES: list[tuple[Any, str, str, dict[str, Any]]] = [
    (checks.rows_in_are_kept_plus_dropped, "pool", RELEASE, {"counts": {"rows_in": 9, "kept": 3}}),
    (checks.rows_in_are_kept_plus_dropped, "embed", CRAWL, {"counts": {}}),
    (ingest.some_rows_became_documents, "ingest", CRAWL, {"counts": {"rows_in": 9, "kept": 0, "dropped_wrong_type": 9}}),
    (select.objective_beats_random, "select", ARM, {"metadata": {"objective": -1.0, "objective_random": 0.0}}),
    (select.objective_beats_random, "select", ARM, {"metadata": {"objective": None, "objective_random": 0.0}}),
    (pretrain.bits_per_byte_are_finite, "pretrain", RUN, {"metadata": {"bits_per_byte": None}}),
    (pretrain.budget_was_trained, "pretrain", RUN, {"metadata": {"tokens_seen": 1, "checkpoints": {"1": "a"}}}),
    (tokenizer.vocabulary_within_bounds, "tokenizer", RELEASE, {"metadata": {"entries": 9_999}}),
    (questions.every_task_has_questions, "questions", RELEASE, {"metadata": {"sets": []}}),
]  # fmt: skip


@pytest.mark.parametrize(("check", "stage", "key", "changed"), MANIFEST_CASES)
def test_manifests_that_are_wrong_are_found(
    copied: Pipeline, check: Any, stage: str, key: str, changed: dict[str, Any]
) -> None:
    artefact = artefact_of(copied, stage, key)
    assert check(artefact).passed
    assert not check(dataclasses.replace(artefact, manifest={**artefact.manifest, **changed})).passed


def test_a_tokenizer_that_loses_text_is_found(copied: Pipeline) -> None:
    artefact = artefact_of(copied, "tokenizer", RELEASE)
    assert tokenizer.texts_survive_the_round_trip(artefact).passed
    path = Path(copied.store.file_path(artefact.ref, "tokenizer")) / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('"normalizer": null', '"normalizer": {"type": "Lowercase"}'), encoding="utf-8"
    )
    assert not tokenizer.texts_survive_the_round_trip(artefact).passed
    path.write_text(text, encoding="utf-8")


def test_another_models_tokenizer_may_lose_capitals_and_stops_nothing(
    copied: Pipeline, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    train_tokenizer(["the tokenizer of somebody else"], folder, vocab_size=300, sequence_length=64)
    path = folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('"normalizer": null', '"normalizer": {"type": "Lowercase"}'), encoding="utf-8"
    )
    tokenized = {"name": str(folder), "sequence_length": 64}
    learnt = artefact_of(copied, "tokenizer", RELEASE).ref
    settings = copied.config.model_copy(update={"tokenizer": TokenizerConfig.model_validate(tokenized)})
    Pipeline(settings).run("tokenizer", RELEASE)
    artefact = artefact_of(copied, "tokenizer", RELEASE)
    verdict = tokenizer.vocabulary_within_bounds(artefact)
    assert verdict.passed
    assert verdict.measured["entries"] > 0
    empty = {**artefact.manifest, "metadata": {**artefact.manifest["metadata"], "entries": 0}}
    assert not tokenizer.vocabulary_within_bounds(dataclasses.replace(artefact, manifest=empty)).passed
    verdict = tokenizer.texts_survive_the_round_trip(artefact)
    assert verdict.passed
    assert verdict.measured["changed"] == verdict.measured["documents"] > 0
    copied.store.point_to(learnt)


@pytest.mark.parametrize("number", [0.5, 0.0, float("nan"), float("inf")])
def test_a_vector_of_another_length_is_found(copied: Pipeline, number: float) -> None:
    artefact = artefact_of(copied, "embed", CRAWL)
    assert embed.unit_norm(artefact).passed
    (path, *_) = array_files(copied.store, artefact.ref).values()
    whole = path.read_bytes()
    vectors = np.load(path)
    vectors[-1] = number
    np.save(path, vectors)
    assert not embed.unit_norm(artefact).passed
    path.write_bytes(whole)


def test_every_check_of_the_graph_is_among_these(tiny_defs: Any) -> None:
    tried = {check.__name__ for check, *_ in [*CASES, *MANIFEST_CASES]}
    tried |= {"texts_survive_the_round_trip", "unit_norm", "files_are_as_the_manifest_says"}
    assert {key.name for key in tiny_defs.resolve_asset_graph().asset_check_keys} == tried

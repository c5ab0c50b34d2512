"""The flow: every stage, what it reads, by which settings, and what it makes. Knows no data, no store and no Dagster.

The plain runner, ``--until``, the configuration's sections, assets, partitions, jobs and the plan of runs all follow
from this table. A new stage is a module in ``stages`` with ``STAGE``, ``VERSION``, a configuration and ``run``, its
columns in ``schema``, and one entry here.
"""

from typing import Final

from datamask_pipeline.pipeline.stage import Flow, Group, Output, Stage
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.stages import (
    compare,
    copies,
    decontaminate,
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
    takedown,
    tokenizer,
)
from datamask_pipeline.storage import Ref, Store


def _fingerprint(_: Store, ref: Ref) -> str:
    return ref.fingerprint


# fmt: off
CRAWLS: Final = Group("crawls", "crawl_job", "crawl", "Ingest, embed and score one crawl.")
RELEASES: Final = Group("releases", "release_job", "release", "Decide which documents of a release may be selected.")
SELECTION: Final = Group("selection", "arm_job", "arm", "Learn the mask of one arm and write what it selects.")
COMMON: Final = Group("common", "common_job", "release",
                      "Make what all models of a release share: the tokenizer and the question sets.")
RULERS: Final = Group("rulers", "ruler_job", "arm",
                      "Measure an arm's documents by a model that is counted, not trained.")
MODELS: Final = Group("models", "run_job", "run", "Pretrain one model on an arm's subset and evaluate it.")
REPORT: Final = Group("report", "report_job", "release", "Put all results of a release side by side.")

FLOW: Final = Flow(
    Stage(ingest, CRAWLS, ingest.IngestConfig, uses="source", reads={}, makes=(
        Output("crawl_documents", "ingest", "parquet",
               "A crawl's documents in FineWeb's schema, with where each came from."),
        Output("rejected_documents", "rejected", "parquet",
               "Rows of a crawl that did not become a document, each with its reason."),
    )),
    Stage(embed, CRAWLS, embed.EmbedConfig, uses="compute", reads={"documents": "crawl_documents"}, makes=(
        Output("document_embeddings", "embed", "pytorch parquet",
               "A unit vector of 768 numbers for every document of a crawl, in the documents' order."),
    )),
    Stage(score, CRAWLS, score.ScoreConfig, uses="compute", reads={
        "documents": "crawl_documents",
        "embeddings": "document_embeddings",
    }, makes=(
        Output("quality_scores", "score", "scikitlearn parquet",
               "The score of every document by every quality scorer; null with a reason where there is none."),
    )),
    Stage(takedown, RELEASES, pool.PoolConfig, settings_of="pool", reads={"documents": "crawl_documents"}, makes=(
        Output("takedown_requests", "takedown", "parquet",
               "What is asked to be withdrawn from a release: ids, contents, URL prefixes, domains, robots.txt files."),
    )),
    Stage(decontaminate, RELEASES, pool.PoolConfig, settings_of="pool", reads={}, makes=(
        Output("question_texts", "decontaminate", "parquet",
               "Texts of evaluation questions, and curated documents, that a release's documents are held against."),
    )),
    Stage(pool, RELEASES, pool.PoolConfig, held={"held": "candidate_documents"}, reads={
        "documents": "crawl_documents",
        "takedown": "takedown_requests",
        "question_texts": "question_texts",
    }, makes=(
        Output("candidate_documents", "pool", "duckdb parquet",
               "Every document of a release's crawls: whether it may be selected, or why not, and its first copy."),
    )),
    Stage(copies, RELEASES, copies.CopiesConfig, uses="compute", held={"held": "near_copies"}, reads={
        "candidates": "candidate_documents",
        "embeddings": "document_embeddings",
    }, makes=(
        Output("near_copies", "copies", "duckdb parquet",
               "Every eligible document of a release: which earlier one it is a near-copy of, and how near."),
    )),
    Stage(gather, RELEASES, gather.GatherConfig, held={"held": "release_index"}, reads={
        "candidates": "candidate_documents",
        "copies": "near_copies",
        "embeddings": "document_embeddings",
        "scores": "quality_scores",
    }, makes=(
        Output("release_index", "gather", "duckdb parquet",
               "Every eligible document of a release: where its vector lies, and its score by every quality scorer."),
    )),
    Stage(select, SELECTION, select.SelectConfig, varies=True, uses="compute", held={"held": "selection_mask"}, reads={
        "index": "release_index",
        "embeddings": "document_embeddings",
    }, makes=(
        Output("selection_mask", "select", "pytorch parquet",
               "Every eligible document of a release under one arm: selected or not, and why."),
        Output("learning_curve", "learning_curve", "parquet",
               "The learner's objective and bound, step by step."),
    )),
    Stage(materialise, SELECTION, materialise.MaterialiseConfig, reads={
        "documents": "crawl_documents",
        "candidates": "candidate_documents",
        "index": "release_index",
        "selection": "selection_mask",
    }, makes=(
        Output("fineweb_mask", "materialise", "duckdb parquet",
               "The selected documents of one arm with text, provenance, scores and the selection's id."),
    )),
    Stage(redundancy, SELECTION, redundancy.RedundancyConfig, uses="compute", reads={
        "candidates": "candidate_documents",
        "index": "release_index",
        "embeddings": "document_embeddings",
        "selection": "selection_mask",
    }, makes=(
        Output("subset_redundancy", "redundancy", "duckdb parquet",
               "Copies and near-copies among an arm's documents, their quality rank, and what they cover of the pool."),
    )),
    Stage(tokenizer, COMMON, tokenizer.TokenizerConfig, reads={
        "candidates": "candidate_documents",
        "documents": "crawl_documents",
    }, makes=(
        Output("tokenizer", "tokenizer", "huggingface",
               "One for all of a release: a byte-level BPE learnt from a sample of its whole pool, or another model's."),
    )),
    Stage(questions, COMMON, evaluate.EvaluateStageConfig, settings_of="evaluate", reads={
        "candidates": "candidate_documents",
        "documents": "crawl_documents",
    }, makes=(
        Output("benchmark_questions", "questions", "huggingface",
               "What all models of a release are asked: the benchmarks' question sets, and curated documents."),
    )),
    Stage(ngram, RULERS, ngram.NgramConfig, uses="compute", seen_as={
        "subset": materialise.documents_digest,
    }, reads={
        "subset": "fineweb_mask",
        "tokenizer": "tokenizer",
        "questions": "benchmark_questions",
        "candidates": "candidate_documents",
        "documents": "crawl_documents",
    }, makes=(
        Output("ngram_answers", "ngram", "duckdb parquet",
               "Bits of each right answer, held-out and curated document by an n-gram model of an arm's documents."),
    )),
    Stage(pretrain, MODELS, PretrainConfig, varies=True, named=("architecture", "seed"), uses="compute", seen_as={
        "subset": materialise.documents_digest,
    }, reads={
        "subset": "fineweb_mask",
        "tokenizer": "tokenizer",
        "candidates": "candidate_documents",
        "documents": "crawl_documents",
    }, makes=(
        Output("pretrained_model", "pretrain", "pytorch huggingface",
               "A language model pretrained from scratch on one arm's subset: checkpoints and loss curve."),
    )),
    Stage(evaluate, MODELS, evaluate.EvaluateStageConfig, uses="compute", reads={
        "model": "pretrained_model",
        "tokenizer": "tokenizer",
        "questions": "benchmark_questions",
        "candidates": "candidate_documents",
        "documents": "crawl_documents",
    }, makes=(
        Output("benchmark_results", "evaluate", "huggingface parquet",
               "Arm, architecture, seed, checkpoint, task, metric, value, stderr and n of a model."),
        Output("benchmark_answers", "answers", "huggingface parquet",
               "A model's score on every question, and bits of every document: two models are compared in pairs."),
    )),
    Stage(compare, REPORT, compare.CompareConfig, seen_as={
        "models": _fingerprint,  # it reads figures from the manifests of these three
        "subsets": _fingerprint,
        "selections": _fingerprint,
    }, reads={
        "results": "benchmark_results",
        "answers": "benchmark_answers",
        "models": "pretrained_model",
        "subsets": "fineweb_mask",
        "selections": "selection_mask",
    }, makes=(
        Output("comparison_report", "compare", "parquet matplotlib",
               "All benchmark results of a release, with each arm's difference from the baseline."),
    )),
)
# fmt: on

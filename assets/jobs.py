"""The jobs: one a level of the chain, as one job has one kind of partition. Knows assets by name."""

import dagster as dg

CRAWL_JOB = dg.define_asset_job(
    "crawl_job",
    selection=["crawl_documents", "rejected_documents", "document_embeddings", "quality_scores"],
    description="Ingest, embed and score one crawl.",
)
RELEASE_JOB = dg.define_asset_job(
    "release_job",
    selection=["candidate_documents", "tokenizer", "benchmark_questions"],
    description="Pool a release's crawls; learn the tokenizer and make the question sets all models share.",
)
ARM_JOB = dg.define_asset_job(
    "arm_job",
    selection=["selection_mask", "learning_curve", "fineweb_mask"],
    description="Learn the mask of one arm and write its subset.",
)
RUN_JOB = dg.define_asset_job(
    "run_job",
    selection=["pretrained_model", "benchmark_results", "benchmark_answers"],
    description="Pretrain one model on an arm's subset and evaluate it on the benchmarks.",
)
REPORT_JOB = dg.define_asset_job(
    "report_job",
    selection=["comparison_report"],
    description="Put all results of a release side by side.",
)

#: In the order of the flow. The sensor `advance` runs them one after the other: the whole chain.
JOBS = (CRAWL_JOB, RELEASE_JOB, ARM_JOB, RUN_JOB, REPORT_JOB)

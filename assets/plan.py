"""Which runs make up a release, level by level. Knows the record and the jobs' names; starts nothing.

A run is identified by its basis: a hash of what it would compute from what. Equal basis, same result; so the
basis is the run's key, and a run that was seen is not asked for again.
"""

import dataclasses
from collections.abc import Iterator

from assets import partitions
from assets.jobs import ARM_JOB, CRAWL_JOB, RELEASE_JOB, REPORT_JOB, RUN_JOB
from assets.launchpad import code_version
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.config import split_run_name
from datamask_pipeline.stages import (
    compare,
    embed,
    evaluate,
    ingest,
    materialise,
    pool,
    pretrain,
    questions,
    score,
    select,
    tokenizer,
)

#: Tag of a run: what it computes from what.
BASIS_TAG = "datamask/basis"


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A run of one job for one partition.

    Attributes:
        job: The job's name.
        partition_key: The partition.
        basis: Hash of the stages' versions, their settings and the content digests of their inputs.
    """

    job: str
    partition_key: str
    basis: str

    @property
    def tags(self) -> dict[str, str]:
        """What marks the run as this one."""
        return {BASIS_TAG: self.basis}


def crawl_run(pipeline: Pipeline, crawl: str) -> Wanted:
    """The run of a crawl. Its files count as unchanging: a crawl is published once."""
    config = pipeline.config
    versions = [
        code_version(ingest.VERSION, config.ingest, config.source),
        code_version(embed.VERSION, config.embed),
        code_version(score.VERSION, config.score),
    ]
    return Wanted(CRAWL_JOB.name, crawl, _basis(CRAWL_JOB.name, crawl, versions, {}))


def levels(pipeline: Pipeline, release: str) -> Iterator[list[Wanted]]:
    """The runs of a release in order; a level's runs do not depend on each other.

    A level is computed when it is drawn: draw it only after all runs of the one before have succeeded, as its
    bases are made of what those left in the record.
    """
    config = pipeline.config
    crawls = pipeline.release_crawls(release)
    yield [crawl_run(pipeline, crawl) for crawl in crawls]

    documents = [(ingest.STAGE, crawl) for crawl in crawls]
    vectors_and_scores = [(stage, crawl) for stage in (embed.STAGE, score.STAGE) for crawl in crawls]
    versions = [
        code_version(pool.VERSION, config.pool),
        code_version(tokenizer.VERSION, config.tokenizer),
        code_version(questions.VERSION, config.evaluate),
    ]
    yield [_wanted(pipeline, RELEASE_JOB.name, release, versions, documents)]

    shared = [(pool.STAGE, release), *documents, *vectors_and_scores]
    yield [
        _wanted(
            pipeline,
            ARM_JOB.name,
            partitions.partition_key(release=release, arm=arm),
            [
                code_version(select.VERSION, config.select_config(arm)),
                code_version(materialise.VERSION, config.materialise),
            ],
            shared,
        )
        for arm in config.arms
    ]

    shared = [(stage, release) for stage in (pool.STAGE, tokenizer.STAGE, questions.STAGE)]
    yield [
        _wanted(
            pipeline,
            RUN_JOB.name,
            partitions.partition_key(release=release, run=run_name),
            [
                code_version(pretrain.VERSION, config.pretrain_config(run_name)),
                code_version(evaluate.VERSION, config.evaluate),
            ],
            [*shared, *documents, (materialise.STAGE, f"{release}/{split_run_name(run_name)[0]}")],
        )
        for run_name in config.run_names()
    ]

    made = [
        (stage, f"{release}/{run_name}")
        for stage in (pretrain.STAGE, evaluate.STAGE, evaluate.ANSWERS_STAGE)
        for run_name in config.run_names()
    ]
    made += [
        (stage, f"{release}/{arm}") for stage in (select.STAGE, materialise.STAGE) for arm in config.arms
    ]
    # The report reads manifests too, which content digests do not cover, and keeps the order of the runs.
    versions = [code_version(compare.VERSION, config.compare), *config.run_names()]
    versions += [ref.fingerprint for ref in (pipeline.store.current(*of) for of in made) if ref]
    yield [_wanted(pipeline, REPORT_JOB.name, release, versions, made)]


def _wanted(
    pipeline: Pipeline, job: str, key: str, versions: list[str], inputs: list[tuple[str, str]]
) -> Wanted:
    digests = {}
    for stage, input_key in inputs:
        ref = pipeline.store.current(stage, input_key)
        digests[f"{stage}/{input_key}"] = ref.content_digest if ref else "missing"
    return Wanted(job, key, _basis(job, key, versions, digests))


def _basis(job: str, key: str, versions: list[str], digests: dict[str, str]) -> str:
    return sha256_text(canonical_json([job, str(key), versions, digests]))[:16]

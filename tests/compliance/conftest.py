"""The tiny chain, run once as it is and once more without some of its documents."""

import shutil
from pathlib import Path

import pytest

from datamask_pipeline.pipeline import Pipeline

#: A domain of both crawls, one document by its id, and an entry that names nobody.
TAKEDOWN = ("domain:site1.example", "<urn:uuid:tiny-2024-10-00002>", "nobody")


def run_all_but_models(pipeline: Pipeline) -> None:
    """Everything that is made from documents without training."""
    for stage in ("materialise", "redundancy", "tokenizer", "questions", "ngram"):
        for _, _, call in pipeline.steps("first", stage):
            call()


@pytest.fixture(scope="session")
def withdrawn(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The whole chain before a withdrawal, and after it all but its models, in one record; treat it as read-only."""
    record = tmp_path_factory.mktemp("withdrawn") / "record"
    shutil.copytree(tiny_run.store.root, record)
    pool = tiny_run.config.pool.model_copy(update={"takedown": TAKEDOWN})
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(record), "pool": pool}))
    run_all_but_models(pipeline)
    return pipeline


@pytest.fixture
def copied(withdrawn: Pipeline, tmp_path: Path) -> Pipeline:
    """That record, to be changed."""
    shutil.copytree(withdrawn.store.root, tmp_path / "record")
    return Pipeline(withdrawn.config.model_copy(update={"store": str(tmp_path / "record")}))

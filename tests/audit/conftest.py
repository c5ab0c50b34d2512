"""A record with an arm for every kind of metric, policy and budget, for whoever asks what a record says of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from many_arms import ARMS

from datamask_pipeline.pipeline import Pipeline, load_config


@pytest.fixture(scope="session")
def many_arms(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pipeline]:
    """The tiny record with many arms, each as far as its subset once it is asked for; treat it as read-only."""
    record = tmp_path_factory.mktemp("arms") / "record"
    shutil.copytree(tiny_run.store.root, record)
    arms = {f"arms.{arm}": {"policy": "datamask", **own} for arm, own in ARMS.items()}
    config = str(Path(tiny_run.store.root).parent / "tiny.yaml")
    pipeline = Pipeline(load_config(config, {"store": str(record), **arms}))

    def with_arms(*asked: str) -> Pipeline:
        for arm in asked:
            for stage in ("select", "materialise"):
                pipeline.run(stage, "first", arm)
        return pipeline

    return with_arms

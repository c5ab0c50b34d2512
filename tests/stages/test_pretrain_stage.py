"""A model depends on the documents it reads, in their order, and not on what the mask says of them."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from datamask_pipeline.audit.why import document_story
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.stages import materialise, pretrain
from datamask_pipeline.storage import Ref, require

RELEASE, RUN = "first", "random.dense.seed0"


@pytest.fixture
def other_mask(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> Pipeline:
    """A copy of the tiny chain in which the random arm was selected again: same documents, other logits."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    changes = {"store": str(tmp_path / "record"), "select.lamb": 0.25}
    pipeline = Pipeline(load_config(str(tiny_config_file), changes))
    pipeline.run("select", RELEASE, "random")
    pipeline.run("materialise", RELEASE, "random")
    return pipeline


def subset_of(pipeline: Pipeline, arm: str = "random") -> Ref:
    return require(pipeline.store, materialise.STAGE, f"{RELEASE}/{arm}")


def ids(pipeline: Pipeline) -> list[str]:
    return [row["id"] for row in pipeline.store.read_table(subset_of(pipeline)).to_pylist()]


def test_another_mask_of_the_same_documents_trains_nothing_again(
    tiny_run: Pipeline, other_mask: Pipeline
) -> None:
    assert ids(other_mask) == ids(tiny_run)
    assert subset_of(other_mask).content_digest != subset_of(tiny_run).content_digest
    trained = tiny_run.store.current(pretrain.STAGE, f"{RELEASE}/{RUN}")
    assert other_mask.run("pretrain", RELEASE, RUN) == (trained,)
    asked = tiny_run.store.current("evaluate", f"{RELEASE}/{RUN}")
    assert other_mask.run("evaluate", RELEASE, RUN)[0] == asked


def test_its_manifest_names_the_subset_and_the_documents(tiny_run: Pipeline) -> None:
    subset, model = subset_of(tiny_run), tiny_run.store.current(pretrain.STAGE, f"{RELEASE}/{RUN}")
    assert model is not None
    manifest = tiny_run.store.manifest(model)
    assert manifest["inputs"]["subset"] == dataclasses.asdict(subset)
    digest = materialise.documents_digest(tiny_run.store, subset)
    assert manifest["metadata"]["documents_digest"] == manifest["basis"]["inputs"]["subset"] == digest


def test_a_documents_story_still_tells_of_the_model(other_mask: Pipeline) -> None:
    story = document_story(other_mask.store, ids(other_mask)[0])
    (verdict,) = [arm for arm in story["releases"][0]["arms"] if arm["arm"] == "random"]
    assert [model["run"] for model in verdict["models"]] == [RUN]


def test_other_documents_are_another_model(other_mask: Pipeline) -> None:
    subsets = [subset_of(other_mask, arm) for arm in ("random", "datamask")]
    assert len({materialise.documents_digest(other_mask.store, subset) for subset in subsets}) == 2

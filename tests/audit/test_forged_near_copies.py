"""A near-copy that the vectors do not bear out is found, though every digest fits."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import Forger

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store


@pytest.fixture(scope="module")
def pipeline(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A record whose near-copies are collapsed."""
    folder = tmp_path_factory.mktemp("collapsed")
    for artefact in ("ingest", "rejected", "embed", "score", "pool", "releases"):
        shutil.copytree(Path(tiny_run.store.root) / artefact, folder / artefact)
    shutil.copy(Path(tiny_run.store.root) / "record.json", folder)
    copies = tiny_run.config.copies.model_copy(update={"threshold": 0.9})
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(folder), "copies": copies}))
    for _, _, call in pipeline.steps("first", "gather"):
        call()
    return pipeline


@pytest.fixture
def record(pipeline: Pipeline, tmp_path: Path) -> Path:
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    return tmp_path / "record"


@pytest.mark.slow
def test_a_forged_near_copy_is_found_out(pipeline: Pipeline, record: Path) -> None:
    assert list(prove_record(pipeline.store, "first")) == []

    def forge(rows: list[dict[str, Any]]) -> None:
        copy = next(row for row in rows if row["near_copy_of"] is not None)
        copy["cosine"] -= 0.001

    Forger(record).change_rows("copies", forge, part=1)
    (told,) = (finding for finding in prove_record(Store(record), "first") if finding.kind == "contradiction")
    assert told.file.startswith("copies/first/")
    assert "`cosine`" in told.problem


@pytest.mark.slow
def test_an_index_by_which_a_later_release_would_miss_near_copies_is_found_out(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bands = next((record / "copies").rglob("bands.npy"))
    keys = np.load(bands)
    keys[...] = np.arange(keys.size).reshape(keys.shape)
    np.save(bands, keys)
    forger = Forger(record)
    monkeypatch.setattr(forger, "index_again", forger.state_index)
    forger.settle()
    (told,) = (finding for finding in prove_record(Store(record), "first") if finding.kind == "contradiction")
    assert told.file.startswith("copies/first/")
    assert told.file.endswith("/index/00000/bands.npy")

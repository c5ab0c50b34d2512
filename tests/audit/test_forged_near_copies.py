"""A near-copy that the vectors do not bear out is found, though every digest fits."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from forger import Forger

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline


@pytest.mark.slow
def test_a_forged_near_copy_is_found_out(tiny_run: Pipeline, tmp_path: Path) -> None:
    for artefact in ("ingest", "rejected", "embed", "score", "pool", "releases"):
        shutil.copytree(Path(tiny_run.store.root) / artefact, tmp_path / artefact)
    shutil.copy(Path(tiny_run.store.root) / "record.json", tmp_path)
    copies = tiny_run.config.copies.model_copy(update={"threshold": 0.9})
    pipeline = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path), "copies": copies}))
    for _, _, call in pipeline.steps("first", "gather"):
        call()
    assert list(prove_record(pipeline.store, "first")) == []

    def forge(rows: list[dict[str, Any]]) -> None:
        copy = next(row for row in rows if row["near_copy_of"] is not None)
        copy["cosine"] -= 0.001

    Forger(tmp_path).change_rows("copies", forge, part=1)
    (told,) = (
        finding for finding in prove_record(pipeline.store, "first") if finding.kind == "contradiction"
    )
    assert told.file.startswith("copies/first/")
    assert "`cosine`" in told.problem

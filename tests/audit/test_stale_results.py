"""What is stale, and what is not though something before it was made again."""

import shutil
from pathlib import Path

from datamask_pipeline.audit.stale import stale
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import require


def test_a_model_of_the_same_documents_is_not_stale(tiny_run: Pipeline, tmp_path: Path) -> None:
    """Another lambda gives a random mask other figures and the same documents; another seed gives it others."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    record = {"store": str(tmp_path / "record")}
    for changes, is_stale in (({"lamb": 0.3}, False), ({"lamb": 0.3, "seed": 7}, True)):
        select = {**tiny_run.config.select, **changes}
        pipeline = Pipeline(tiny_run.config.model_copy(update=record | {"select": select}))
        store = pipeline.store
        model = next(key for key in store.keys("pretrain") if key.startswith("first/random."))
        before = require(store, "select", "first/random")
        for stage in ("select", "materialise"):
            pipeline.run(stage, "first/random")
        assert require(store, "select", "first/random") != before
        assert bool(stale(store, require(store, "pretrain", model))) is is_stale

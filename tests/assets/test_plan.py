"""A release is asked for again whenever its report would be another one."""

import json
import shutil
from pathlib import Path

from assets.plan import release_run
from datamask_pipeline.pipeline import Pipeline


def test_a_release_is_wanted_again_in_another_order_of_arms(tiny_run: Pipeline) -> None:
    arms = dict(reversed(tiny_run.config.arms.items()))
    swapped = Pipeline(tiny_run.config.model_copy(update={"arms": arms}))
    assert release_run(tiny_run, "first") == release_run(Pipeline(tiny_run.config), "first")
    assert release_run(swapped, "first") != release_run(tiny_run, "first")


def test_a_release_is_wanted_again_when_a_crawl_was_made_again_and_not_by_what_it_makes_itself(
    tiny_run: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    before = release_run(copied, "first")
    for stage, key, again in (
        ("pretrain", "first/random.dense.seed0", False),
        ("ingest", "tiny-2024-10", True),
        ("embed", "tiny-2024-18", True),
        ("score", "tiny-2024-18", True),
    ):
        pointer = tmp_path / "record" / stage / key / "current.json"
        ref = json.loads(pointer.read_text())
        pointer.write_text(json.dumps(ref | {"content_digest": "later"}))
        assert (release_run(copied, "first") != before) is again, stage
        before = release_run(copied, "first")


def test_a_release_that_withdraws_is_wanted_again_when_a_crawl_outside_it_comes(
    tiny_run: Pipeline, tmp_path: Path
) -> None:
    """What is asked may name a text in it that the release has too."""
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    plain = Pipeline(tiny_run.config.model_copy(update={"store": str(record)}))
    pool = tiny_run.config.pool.model_copy(update={"takedown": ("nobody",)})
    asking = Pipeline(plain.config.model_copy(update={"pool": pool}))
    before = release_run(plain, "first"), release_run(asking, "first")
    shutil.copytree(record / "ingest" / "tiny-2024-10", record / "ingest" / "later")
    assert release_run(plain, "first") == before[0]
    assert release_run(asking, "first") != before[1]

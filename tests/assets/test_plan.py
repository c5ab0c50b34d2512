"""The report is asked for again whenever it would be another one."""

import json
import shutil
from pathlib import Path

from assets.plan import Wanted, runs
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.flow import REPORT


def report_of(pipeline: Pipeline) -> Wanted:
    (report,) = runs(pipeline, REPORT, "first")
    return report


def test_a_report_is_wanted_again_in_another_order_of_arms(tiny_run: Pipeline) -> None:
    arms = dict(reversed(tiny_run.config.arms.items()))
    swapped = Pipeline(tiny_run.config.model_copy(update={"arms": arms}))
    assert report_of(tiny_run) == report_of(Pipeline(tiny_run.config))
    assert report_of(swapped) != report_of(tiny_run)


def test_a_report_is_wanted_again_when_a_model_or_subset_was_made_again(
    tiny_run: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    copied = Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))
    reports = {report_of(copied)}
    for stage, key in (("pretrain", "first/random.dense.seed0"), ("materialise", "first/random")):
        pointer = tmp_path / "record" / stage / key / "current.json"
        ref = json.loads(pointer.read_text())
        pointer.write_text(json.dumps(ref | {"fingerprint": "later"}))
        reports.add(report_of(copied))
    assert len(reports) == 3

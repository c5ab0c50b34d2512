"""A subset that is not its mask's, or a mask that does not cover its documents, is not released."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from forger import Forger

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.storage import Store


def one_left_out(rows: list[dict[str, Any]]) -> None:
    rows.remove(next(row for row in rows if row.get("selected", True)))


def one_elsewhere(rows: list[dict[str, Any]]) -> None:
    next(row for row in rows if row["selected"])["position"] += 100_000


@pytest.mark.parametrize(
    ("stage", "change"),
    [("materialise", one_left_out), ("select", one_left_out), ("select", one_elsewhere)],
)
def test_it_is_refused_with_both_numbers(tiny_run: Pipeline, tmp_path: Path, stage: str, change: Any) -> None:
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    for made in ("select", "materialise"):
        shutil.rmtree(record / made / "first" / "random")
    Forger(record).change_rows(stage, change)
    config = PublishConfig(licence="odc-by", source_licence="odc-by")
    with pytest.raises(IntegrityError, match=r"documents.*mask selects.*datamask audit prove first/datamask"):
        publish(Store(record), "first", "datamask", str(tmp_path / "mask"), config)
    assert [path.name for path in tmp_path.iterdir()] == ["record"]

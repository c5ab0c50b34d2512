"""The asset publishes what the command publishes, and refuses what it refuses."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from s3_server import KEYS, s3_server

from assets.data_set import ASSET, CHECK
from assets.partitions import partition_key
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.storage import Store


def job(defs: dg.Definitions, **config: object) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("releases", ["first"])
        return defs.resolve_job_def("publish_job").execute_in_process(
            instance=instance,
            partition_key=partition_key("arm", "first/datamask"),
            run_config={"ops": {ASSET: {"config": config}}},
            raise_on_error=False,
        )


def test_the_asset_publishes_the_subset(
    tiny_defs: dg.Definitions, tiny_run: Pipeline, tmp_path: Path
) -> None:
    to = str(tmp_path / "mask")
    result = job(tiny_defs, to=to, license="odc-by", source_license="odc-by", max_documents=9)
    assert result.success
    (made,) = result.asset_materializations_for_node(ASSET)
    root = json.loads((tmp_path / "mask" / "manifest.json").read_text())["root"]
    assert made.metadata["root digest"].value == root
    (check,) = result.get_asset_check_evaluations()
    assert check.check_name == CHECK
    assert check.passed
    settings = PublishConfig(licence="odc-by", source_licence="odc-by", max_documents=9)
    assert publish(tiny_run.store, "first", "datamask", str(tmp_path / "again"), settings).root == root


@pytest.fixture
def bucket() -> Iterator[dict[str, Any]]:
    """Options of an object store that lets nobody in who does not give them."""
    import s3fs

    with s3_server() as url:
        s3fs.S3FileSystem(endpoint_url=url, **KEYS).call_s3("create_bucket", Bucket="published")
        yield {"endpoint_url": url, **KEYS}


@pytest.mark.slow
def test_it_goes_to_an_object_store_by_the_records_options(
    tiny_run: Pipeline, tiny_config_file: Path, bucket: dict[str, Any]
) -> None:
    store = Store("s3://published/record", bucket)
    store.fs.put(tiny_run.store.root, store.root, recursive=True)
    settings = {"store": store.root_url, "storage_options": bucket}
    defs = build_defs(config=str(tiny_config_file), settings=settings)
    result = job(defs, to="s3://published/mask", license="odc-by", source_license="odc-by")
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    assert store.fs.exists("published/mask/manifest.json")


@pytest.mark.usefixtures("tiny_run")
def test_a_forbidden_licence_fails_with_its_reason(tiny_defs: dg.Definitions, tmp_path: Path) -> None:
    to = str(tmp_path / "mask")
    result = job(tiny_defs, to=to, license="apache-2.0", source_license="odc-by")
    assert not result.success
    (failure,) = result.get_step_failure_events()
    reason = failure.step_failure_data.user_failure_data
    assert reason is not None
    assert "'apache-2.0' is forbidden by 'odc-by'" in str(reason.description)
    assert list(tmp_path.iterdir()) == []


def test_a_stale_subset_fails_with_its_reason(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.1}
    Pipeline(load_config(str(tiny_config_file), settings)).run("select", "first/datamask")
    defs = build_defs(config=str(tiny_config_file), settings=settings)
    options = {"to": str(tmp_path / "mask"), "license": "odc-by", "source_license": "odc-by"}
    (failure,) = job(defs, **options).get_step_failure_events()
    reason = failure.step_failure_data.user_failure_data
    assert reason is not None
    assert "subset first/datamask is stale" in str(reason.description)
    assert not (tmp_path / "mask").exists()
    assert job(defs, **options, stale=True).success
    assert "was stale when it was published" in (tmp_path / "mask" / "README.md").read_text()

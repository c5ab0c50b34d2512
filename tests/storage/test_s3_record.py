"""The whole record on object storage: a local server that speaks S3's protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import s3fs
import yaml
from s3_server import KEYS, s3_server
from tiny_chain import write_tiny_config
from typer.testing import CliRunner

from assets.metadata import artefact_metadata
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import StorageError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.config import ReleaseConfig
from datamask_pipeline.storage import Store, releases, require

#: Nobody listens there.
SILENT: dict[str, Any] = {
    "endpoint_url": "http://127.0.0.1:9",
    "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1},
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Any:
    """Another client than the store's."""
    fs = s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True, **KEYS)
    fs.call_s3("create_bucket", Bucket="record")
    return fs


@pytest.fixture
def config_file(endpoint: str, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny chain with its record on S3; what stays on this disk goes below ``tmp_path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_tiny_config(tmp_path)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values |= {"store": "s3://record/tiny", "storage_options": {"endpoint_url": endpoint, **KEYS}}
    values["arms"] = {"datamask": values["arms"]["datamask"]}
    values["compare"] = {"baseline": "datamask"}
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_the_chain_runs_on_s3_as_on_a_disk(
    config_file: Path, bucket: Any, tiny_run: Pipeline, tmp_path: Path
) -> None:
    run = ("run", "-c", str(config_file), "--until", "materialise")
    assert "10 steps computed, 0 unchanged" in invoke(*run)
    assert "0 steps computed, 10 unchanged" in invoke(*run)
    store = Pipeline(load_config(str(config_file))).store
    embedded = [ref for crawl in store.keys("embed") if (ref := store.current("embed", crawl))]
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    vectors = [path for path in left if path.suffix == ".npy"]
    assert len(vectors) == sum(len(store.part_names(ref)) for ref in embedded), (
        "one copy of each shard's vectors"
    )
    locks = [path for path in left if path not in vectors]
    assert all(path.suffix == ".lock" and path.stat().st_size == 0 for path in locks), "no checkpoint stays"
    for stage in ("ingest", "rejected", "embed", "score", "pool", "gather", "select", "materialise"):
        for key in store.keys(stage):
            assert store.current(stage, key) == tiny_run.store.current(stage, key)

    subset = store.current("materialise", "first/datamask")
    assert subset is not None
    document = store.read_table(subset, ["id"]).column("id")[0].as_py()
    story = json.loads(invoke("audit", "why", document, "-c", str(config_file), "--json"))
    assert [arm["selected"] for arm in story["releases"][0]["arms"]] == [True]

    (part, *_) = bucket.glob(f"record/tiny/{subset.location}/*.parquet")
    bucket.rm(part)
    assert "1 steps computed, 9 unchanged" in invoke(*run)
    assert bucket.exists(part)


def test_dagster_tells_where_a_version_lies_by_its_url(endpoint: str, bucket: Any) -> None:
    store = Store("s3://record/told", {"endpoint_url": endpoint, **KEYS})
    builder = store.begin("ingest", "a", version="1", config={}, inputs={})
    table = pa.table({"id": ["x"]})
    ref = builder.commit([builder.write_part("000", table.to_batches(), table.schema)])
    location = artefact_metadata(store, ref, store.manifest(ref))["location"].value
    assert location == f"s3://record/told/{ref.location}"
    assert bucket.exists(f"{location}/000.parquet")


def test_what_is_small_is_read_by_one_request(
    endpoint: str, bucket: Any, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes some hundredths of a second on object storage, and a run reads hundreds of such files."""
    store = Store("s3://record/few", {"endpoint_url": endpoint, **KEYS})
    builder = store.begin("ingest", "a", version="1", config={}, inputs={})
    table = pa.table({"id": ["x"]})
    part = builder.write_part("000", table.to_batches(), table.schema)
    ref = builder.commit([part])
    releases.freeze(store, "first", ["a"])
    config = load_config(str(config_file))
    pipeline = Pipeline(
        config.model_copy(update={"releases": {"first": ReleaseConfig(crawls=["a"])}}), store=store
    )
    asked, ask = list[str](), s3fs.S3FileSystem._call_s3

    async def noted(fs: s3fs.S3FileSystem, method: str, *arguments: Any, **more: Any) -> Any:
        asked.append(method)
        return await ask(fs, method, *arguments, **more)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", noted)
    for read in (store.manifest, lambda ref: store.current(ref.stage, ref.key)):
        asked.clear()
        assert read(ref)
        assert asked[-1:] == ["get_object"]
        assert "head_object" not in asked
    asked.clear()
    assert pipeline.planned_crawls("first") == ["a"]
    assert asked == ["get_object"]
    asked.clear()
    assert store.part_file(ref, "000").read().num_rows == 1
    assert asked == ["head_object", "get_object"]


@pytest.mark.slow
def test_a_release_goes_on_from_another_one_as_on_a_disk(
    config_file: Path, bucket: Any, tmp_path: Path
) -> None:
    """What it carries over is copied by the server: no file of the earlier index of near-copies is sent again."""
    settings = {
        "copies.threshold": 0.98,
        "pool.validation_share": 0,
        "releases": {"first": {"crawls": ["tiny-2024-10"]}, "second": {"given": "first"}},
    }
    remote, local = (
        Pipeline(load_config(str(config_file), settings | places))
        for places in (
            {"store": "s3://record/going-on"},
            {"store": str(tmp_path / "record"), "storage_options": {}},
        )
    )
    for pipeline in (remote, local):
        for release in ("first", "second"):
            for _, _, call in pipeline.steps(release, "materialise"):
                call()
    for stage in ("pool", "copies", "gather", "select", "materialise"):
        for key in local.store.keys(stage):
            assert remote.store.current(stage, key) == local.store.current(stage, key)
    first, second = (require(remote.store, "copies", release) for release in ("first", "second"))
    for name in ("bands", "sketches", "rows", "representatives", "cosines"):
        paths = [f"record/going-on/{ref.location}/index/00000/{name}.npy" for ref in (first, second)]
        assert bucket.cat_file(paths[0]) == bucket.cat_file(paths[1])
    found = [finding.line() for finding in prove_record(remote.store, "second")]
    assert found
    assert all("on this machine's disks alone" in line for line in found)


@pytest.mark.slow
def test_a_data_set_beside_the_record_is_written_and_proved_with_the_records_options(
    config_file: Path, bucket: Any, tiny_run: Pipeline
) -> None:
    bucket.put(f"{tiny_run.store.root}/", "record/released/", recursive=True)
    place = ("-c", str(config_file), "-s", "store=s3://record/released")
    licence = ("--license", "odc-by", "--source-license", "odc-by")
    to = "s3://record/mask"
    *_, root = invoke("release", "first", "--arm", "datamask", "--to", to, *licence, *place).split()
    assert json.loads(bucket.cat_file("record/mask/manifest.json"))["root"] == root
    assert "proved: all is as it says" in invoke("audit", "prove", to, "--root", root, *place)
    result = CliRunner().invoke(app, ["audit", "prove", "s3://nowhere/mask", *place])
    assert result.exit_code == 1, "no data set and no release"


@pytest.mark.parametrize("command", ["release first --arm datamask", "audit prove"])
def test_a_data_set_that_cannot_be_reached_is_named(
    command: str, tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs.S3FileSystem.clear_instance_cache()  # one may have read the environment as it was
    monkeypatch.setenv("AWS_ENDPOINT_URL", SILENT["endpoint_url"])
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    to = "s3://record/silent"
    licence = ["--license", "odc-by", "--source-license", "odc-by", "--to"]
    options = [*licence, to] if command.startswith("release") else [to]
    result = CliRunner().invoke(app, [*command.split(), *options, "-s", f"store={tiny_run.store.root}"])
    assert isinstance(result.exception, StorageError), result.exception
    assert str(result.exception).startswith(f"{to} cannot be reached: EndpointConnectionError")


def test_what_another_process_writes_is_seen(endpoint: str, bucket: Any) -> None:
    store = Store("s3://record/shared", {"endpoint_url": endpoint, **KEYS})
    first = store.begin("ingest", "a", version="1", config={}, inputs={}).commit([])
    assert store.keys("ingest") == ["a"]
    pointer = json.dumps(first.as_dict() | {"content_digest": "other"})
    bucket.pipe("record/shared/ingest/b/current.json", pointer.encode())
    bucket.pipe("record/shared/ingest/a/note.json", b"{}")
    assert store.keys("ingest") == ["a", "b"]
    assert store.fs.exists("record/shared/ingest/a/note.json")
    current = store.current("ingest", "b")
    assert current is not None
    assert current.content_digest == "other"


def test_a_record_that_does_not_answer_is_named_before_any_work(tiny_config_file: Path) -> None:
    settings = {"store": "s3://record/tiny", "storage_options": KEYS | SILENT}
    with pytest.raises(StorageError, match=r"store 's3://record/tiny' cannot be reached.*storage_options"):
        Pipeline(load_config(str(tiny_config_file), settings)).check("ingest")


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "report",
        "metrics",
        "sweep",
        "audit status",
        "audit why x",
        "audit prove first",
        "release first --license odc-by --to elsewhere",
    ],
)
@pytest.mark.parametrize("keys", [KEYS, {}], ids=["no answer", "no credentials"])
def test_every_command_says_in_one_line_that_the_record_cannot_be_reached(
    keys: dict[str, Any], command: str, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not keys:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    options = json.dumps(keys | SILENT)
    place = ("-s", "store=s3://record/tiny", "-s", f"storage_options={options}")
    result = CliRunner().invoke(app, [*command.split(), "-c", str(tiny_config_file), *place])
    assert isinstance(result.exception, StorageError), result.exception
    told = str(result.exception)
    assert told.startswith("store 's3://record/tiny' cannot be reached: "), told
    assert told.endswith("check the address, the credentials and `storage_options`")
    assert ("NoCredentialsError" in told) == (not keys)
    assert "\n" not in told


@pytest.mark.slow
def test_an_error_that_the_storage_did_not_raise_stays_what_it_is(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise RuntimeError("ours")

    invoke("run", "-c", str(config_file), "--until", "ingest")
    monkeypatch.setattr("datamask_pipeline.cli.metrics.metrics_lines", interrupted)
    result = CliRunner().invoke(app, ["metrics", "-c", str(config_file)])
    assert isinstance(result.exception, RuntimeError)

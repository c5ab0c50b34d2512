"""What the code must not do: load what runs code, hand a command to a shell, or let a secret into record, log or page."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from tiny_chain import write_tiny_config

from assets.partitions import CRAWLS
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.pipeline import Pipeline, load_config

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for name in ("datamask_pipeline", "assets", "resources")
    for path in sorted((ROOT / name).rglob("*.py"))
]
SECRET = "hunter2-of-the-bucket"
#: Their formats run code when they are read.
RUN_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def faults(source: str) -> Iterator[str]:
    """What a file must not hold."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            )
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in RUN_CODE)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {each.arg: ast.unparse(each.value) for each in node.keywords}
            if called in ("eval", "exec", "os.system", "os.popen", "yaml.unsafe_load"):
                yield f"calls {called}"
            if (
                called == "yaml.load" and len(node.args) < 2
            ):  # without a loader of its own, which is a SafeLoader here
                yield "calls yaml.load"
            if called == "torch.load" and given.get("weights_only") != "True":
                yield "loads tensors that may hold code"
            yield from (
                f"{called}({name}=True)"
                for name in ("shell", "allow_pickle", "trust_remote_code")
                if given.get(name, "False") != "False"
            )


@pytest.mark.parametrize(
    "harm",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "subprocess.run(command, shell=True)",
        "yaml.load(text)",
        "eval(text)",
    ],
)
def test_harm_is_found(harm: str) -> None:
    assert [*faults(harm)]


def test_no_file_of_the_packages_does_harm() -> None:
    found = {str(path.relative_to(ROOT)): [*faults(path.read_text(encoding="utf-8"))] for path in FILES}
    assert {name: each for name, each in found.items() if each} == {}


def holding(folder: Path, secret: str) -> list[str]:
    """The files in which a secret stands."""
    return [
        str(path) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]


@pytest.fixture
def keyed(tmp_path: Path) -> Any:
    """Settings with a secret for the record's file system and for the source's, as those of a bucket have them."""
    config = write_tiny_config(tmp_path)
    settings = {
        "store": str(tmp_path / "record"),
        "storage_options": {"secret": SECRET},
        "source.options.storage_options": {"secret": SECRET},
    }
    return str(config), settings


def test_a_secret_stays_out_of_the_record_and_of_what_dagster_keeps(
    keyed: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config, settings = keyed
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        crawl = Pipeline(load_config(config, settings)).crawls()[0]
        instance.add_dynamic_partitions(str(CRAWLS.name), [crawl])
        job = build_defs(config=config, settings=settings).resolve_job_def("crawl_job")
        wanted = [dg.AssetKey("crawl_documents"), dg.AssetKey("rejected_documents")]
        result = job.execute_in_process(
            instance=instance, partition_key=crawl, raise_on_error=False, asset_selection=wanted
        )
    assert result.success
    assert holding(tmp_path, SECRET) == []
    assert SECRET not in "".join(capfd.readouterr())
    manifests = [*(tmp_path / "record").rglob("manifest.json")]
    assert manifests
    other = Pipeline(load_config(config, {**settings, "storage_options": {"secret": "another"}}))
    fingerprints = {json.loads(path.read_bytes())["fingerprint"] for path in manifests}
    assert {other.store.current("ingest", crawl).fingerprint} <= fingerprints
    (again,) = [ref.fingerprint for ref in other.run("ingest", crawl)[:1]]
    assert again in fingerprints, "a new key computes nothing again"


def test_a_refusal_names_no_secret(keyed: Any) -> None:
    config, settings = keyed
    with pytest.raises(DataMaskError) as refused:
        load_config(config, {**settings, "storage_options": {"secret": SECRET}, "select.ratio": 7})
    assert SECRET not in str(refused.value)
    with pytest.raises(DataMaskError, match="storage_options") as refused:
        load_config(config, {**settings, "storage_options": SECRET})
    assert SECRET not in str(refused.value)
    with pytest.raises(DataMaskError) as refused:
        Pipeline(load_config(config, {**settings, "store": "nowhere://bucket/record"}))
    assert SECRET not in str(refused.value)
    with pytest.raises(DataMaskError, match="password") as refused:
        Pipeline(load_config(config, {**settings, "store": f"ftp://me:{SECRET}@host/record"}))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["../outside", "/etc", "a/../../b", "..", ".hidden/../../x"])
def test_a_name_leads_out_of_no_record(tmp_path: Path, name: str) -> None:
    from datamask_pipeline.storage import Store

    store = Store(tmp_path / "record")
    with pytest.raises(DataMaskError), store.exclusive("ingest", name):
        pass
    with pytest.raises(DataMaskError):
        store.begin("ingest", name, version="1", config={}, inputs={})
    assert [*tmp_path.iterdir()] in ([], [tmp_path / "record"])


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("parts", {"name": "../../outside"}),
        ("files", {"name": "/etc/passwd"}),
        ("trees", {"name": "model", "files": ["../../../outside"]}),
    ],
)
def test_a_name_that_is_read_leads_out_of_no_record(kind: str, item: dict[str, object]) -> None:
    from datamask_pipeline.errors import IntegrityError
    from datamask_pipeline.storage.ref import manifest_digest, read_manifest, ref_of

    named = {"stage": "ingest", "key": "a", "fingerprint": "f" * 64, "content_digest": "", "rows": 0}
    lists = {"parts": [], "files": [], "trees": []}
    rest = {"basis": {}, "inputs": {}, "counts": {}, "metadata": {}, "written_at_ns": 0}
    whole = {**named, **rest, **lists, "location": f"ingest/a/{'f' * 16}"}

    def read(**changed: object) -> dict[str, object]:
        said = {**whole, **changed}
        data = json.dumps(said | {"manifest_digest": manifest_digest(said)}).encode()
        return read_manifest(data, "manifest.json", remedy="run it again")

    assert ref_of(read()).location == whole["location"]
    with pytest.raises(IntegrityError, match="leads out of its directory"):
        read(**{kind: [item]})
    for wrong in ({"location": "../../outside"}, {"key": "../a"}, {"stage": ".."}):
        with pytest.raises(IntegrityError, match=r"cannot be read|is said to lie at"):
            ref_of(read(**wrong))

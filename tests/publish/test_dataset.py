"""A published data set holds the subset's rows, opens everywhere, and appears whole or not at all."""

import dataclasses
import datetime
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import forked
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from tiny_chain import write_tiny_config
from typer.testing import CliRunner

from datamask_pipeline.audit.prove_data_set import prove_data_set
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError, StorageError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish import dataset
from datamask_pipeline.publish.card import _selection
from datamask_pipeline.publish.columns import Column, _model_url
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.croissant import croissant
from datamask_pipeline.publish.dataset import Published, publish
from datamask_pipeline.publish.facts import facts_of, subset_of
from datamask_pipeline.publish.manifest import manifest_bytes, root_digest
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.leases import machine_label

ODC: dict[str, Any] = {"licence": "odc-by", "source_licence": "odc-by"}


def published(store: Store, to: Path, **settings: Any) -> Published:
    return publish(store, "first", "datamask", str(to), PublishConfig(**{**ODC, **settings}))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((folder / "data").iterdir()) for row in pq.read_table(path).to_pylist()]


def subset_rows(store: Store) -> list[dict[str, Any]]:
    return store.read_table(require(store, "materialise", "first/datamask")).to_pylist()


def test_it_opens_everywhere_with_the_same_rows(licensed: Store, tmp_path: Path) -> None:
    import datasets
    import mlcroissant
    from huggingface_hub import DatasetCard

    folder = tmp_path / "mask"
    published(licensed, folder, max_documents=10, columns=("rank",))
    expected = rows_of(folder)
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.to_list() == expected
    assert len(pd.read_parquet(folder / "data")) == len(expected)
    assert duckdb.sql(f"SELECT count(*) FROM '{folder}/data/*.parquet'").fetchall() == [(len(expected),)]
    found = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert found.metadata.issues.errors == set()
    ids = [record["documents/id"].decode() for record in found.records("documents")]
    assert sorted(ids) == sorted(row["id"] for row in expected)
    card = DatasetCard.load(folder / "README.md")
    assert card.data.license == "odc-by"
    assert card.data.dataset_info["splits"][0]["num_examples"] == len(expected)


def test_croissant_takes_names_with_blanks(tmp_path: Path) -> None:
    """As of a scorer `column:own score`, which states no revision, and of a column of the source."""
    import mlcroissant

    fields = {name: pa.field(name, pa.string()) for name in ("text", "my note", "100% {x}")}
    model = _model_url("column own score", "")
    columns = [Column(field, "the source", ["file:///a folder/of mine", model]) for field in fields.values()]
    files = {"data/train-00000-of-00001.parquet": {"bytes": 1, "sha256": "0" * 64}}
    found = croissant(
        name="n", about="a", licence="mit", files=files, columns=columns, derived_from=["file:///a folder"]
    )
    (tmp_path / "croissant.json").write_text(json.dumps(found))
    assert mlcroissant.Dataset(str(tmp_path / "croissant.json")).metadata.issues.errors == set()
    assert "@" not in model


def test_croissant_reads_times_of_the_day_and_names_lengths_of_time(tmp_path: Path) -> None:
    import mlcroissant

    kinds = {"at": pa.time64("us"), "on": pa.date32(), "when": pa.timestamp("us"), "took": pa.duration("s")}
    name = "data/train-00000-of-00001.parquet"
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({each: pa.array([1], kind) for each, kind in kinds.items()}), tmp_path / name)
    columns = [Column(pa.field(each, kind), "the source", ["urn:x"]) for each, kind in kinds.items()]
    files = {name: {"bytes": (tmp_path / name).stat().st_size, "sha256": sha256_file(tmp_path / name)}}
    found = croissant(
        name="n", about="a", licence="mit", files=files, columns=columns, derived_from=["urn:x"]
    )
    assert found["recordSet"][0]["description"].endswith("cannot type: took.")
    (tmp_path / "croissant.json").write_text(json.dumps(found))
    (row,) = mlcroissant.Dataset(str(tmp_path / "croissant.json")).records("documents")
    assert row["documents/at"] == datetime.time(microsecond=1)
    assert {*row} == {f"documents/{each}" for each in kinds if each != "took"}


def test_every_field_of_croissant_says_what_it_was_derived_from(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "mask")
    (records,) = json.loads((tmp_path / "mask" / "croissant.json").read_text())["recordSet"]
    derived = {field["name"]: field["prov:wasDerivedFrom"] for field in records["field"]}
    assert all(derived.values())
    assert derived["score_rules"] == [{"@id": "urn:datamask:model:gopher-c4-fineweb-rules@1"}]


def test_rows_stand_in_canonical_order_with_columns_of_the_source(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "mask", columns=("rank", "license"))
    source = {
        row["id"]: row
        for crawl in licensed.keys("ingest")
        for row in licensed.read_table(require(licensed, "ingest", crawl)).to_pylist()
    }
    expected = [
        row | {name: source[row["id"]][name] for name in ("rank", "license")} for row in subset_rows(licensed)
    ]
    assert rows_of(tmp_path / "mask") == expected
    first = next((tmp_path / "mask" / "data").iterdir())
    assert all(b"description" in field.metadata for field in pq.read_schema(first))


@pytest.mark.slow
def test_a_stale_subset_is_refused_unless_it_is_asked_for(licensed: Store, tmp_path: Path) -> None:
    shutil.copytree(Path(licensed.root).parent, tmp_path / "chain")
    config = ["-c", str(tmp_path / "chain" / "tiny.yaml"), "-s", f"store={tmp_path / 'chain' / 'record'}"]
    again = CliRunner().invoke(app, ["run", "--until", "select", "-s", "select.seed=7", *config])
    assert again.exit_code == 0, again.output
    to = tmp_path / "mask"
    licences = ["--license", "odc-by", "--source-license", "odc-by"]
    command = ["release", "first", "--arm", "random", *licences, "--to", str(to), *config]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    told = str(refused.exception)
    assert "subset first/random is stale: select of first/random was made again since" in told
    assert "`datamask run --until materialise`" in told
    assert not to.exists()
    done = CliRunner().invoke(app, [*command, "--stale"])
    assert done.exit_code == 0, done.output
    assert (
        "stale when it was published: `select of first/random was made again"
        in (to / "README.md").read_text()
    )
    proved = CliRunner().invoke(app, ["audit", "prove", str(to), "--with-record", *config])
    assert proved.exit_code == 0, proved.output
    assert (
        CliRunner().invoke(app, ["run", "--until", "materialise", "-s", "select.seed=7", *config]).exit_code
        == 0
    )
    current = CliRunner().invoke(
        app, [*command[:-5], str(tmp_path / "current"), *config, "-s", "select.seed=7", "--stale"]
    )
    assert current.exit_code == 0, current.output
    assert "stale" not in (tmp_path / "current" / "README.md").read_text()
    assert "stale" not in (tmp_path / "current" / "manifest.json").read_text()


@pytest.mark.parametrize("limits", [{"max_documents": 4}, {"max_bytes": 9_000}])
def test_shards_are_bounded(licensed: Store, tmp_path: Path, limits: dict[str, int]) -> None:
    done = published(licensed, tmp_path / "mask", **limits)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "mask" / "data").iterdir())]
    assert len(tables) == done.shards > 2
    assert max(table.num_rows for table in tables) <= limits.get("max_documents", 10**9)
    assert max(table.nbytes for table in tables) <= limits.get("max_bytes", 10**9) * 1.01
    assert pa.concat_tables(tables).to_pylist() == subset_rows(licensed)
    last = f"train-{done.shards - 1:05d}-of-{done.shards:05d}.parquet"
    assert (tmp_path / "mask" / "data" / last).exists()


def test_a_document_larger_than_a_shard_stands_alone(licensed: Store, tmp_path: Path) -> None:
    done = published(licensed, tmp_path / "mask", max_bytes=1)
    assert done.shards == done.documents


def test_seeded_order_is_a_permutation_by_the_seed_alone(
    licensed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        published(licensed, tmp_path / name, seed=seed)
    one, two = rows_of(tmp_path / "one"), rows_of(tmp_path / "two")
    key = {row["id"]: row for row in subset_rows(licensed)}
    assert {row["id"]: row for row in one} == {row["id"]: row for row in two} == key
    assert [row["id"] for row in one] != [row["id"] for row in two] != list(key)
    defaults = publish.__globals__["shuffled"].__kwdefaults__
    monkeypatch.setitem(defaults, "bucket_bytes", 1_000)
    published(licensed, tmp_path / "pieces", seed=1)
    assert rows_of(tmp_path / "pieces") == one


def test_ids_only(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "mask", ids_only=True)
    wanted = ("crawl", "id", "content_hash")
    assert rows_of(tmp_path / "mask") == [
        {name: row[name] for name in wanted} for row in subset_rows(licensed)
    ]
    card = (tmp_path / "mask/README.md").read_text()
    assert "Texts are as they came" not in card
    assert "removed from any text" not in card
    left_out = card.partition("which was left out")[2].partition("## Limits")[0]
    assert all(f"| `{name}` |" in left_out for name in ("text", "url", "token_count", "license"))
    assert "`id`" not in left_out


def test_a_card_of_ids_alone_promises_no_column_of_licences(licensed: Store, tmp_path: Path) -> None:
    settings = {"licence": "other", "source_licence": None, "licence_column": "license"}
    for ids_only in (False, True):
        folder = tmp_path / f"mask {ids_only}"
        published(licensed, folder, ids_only=ids_only, **settings)
        assert ("license" in rows_of(folder)[0]) is not ids_only
        card = (folder / "README.md").read_text()
        assert ("Column `license` holds each document's." in card) is not ids_only
        assert ("Column `license` of the source, which is not in here, holds" in card) is ids_only


def test_the_manifest_names_every_file_and_its_root_every_byte(licensed: Store, tmp_path: Path) -> None:
    done = published(licensed, tmp_path / "mask", max_documents=10)
    manifest = json.loads((tmp_path / "mask" / "manifest.json").read_text())
    there = {
        path.relative_to(tmp_path / "mask").as_posix(): sha256_file(path)
        for path in (tmp_path / "mask").rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert {name: file["sha256"] for name, file in manifest["files"].items()} == there
    assert sum(file.get("rows", 0) for file in manifest["files"].values()) == done.documents
    assert root_digest(manifest) == manifest["root"] == done.root
    assert {location.split("/")[0] for location in manifest["lineage"]} == {
        "ingest",
        "embed",
        "score",
        "pool",
        "gather",
        "select",
        "materialise",
    }


@pytest.mark.parametrize(
    "card", ["---\nlicense: [odc-by\n---\n", "---\nupdated: 2024-02-30\n---\n", "# no YAML\n"]
)
def test_a_card_that_cannot_be_read_hides_no_other_finding(
    licensed: Store, tmp_path: Path, card: str
) -> None:
    """Nor is it one that a manifest was made for again."""
    published(licensed, tmp_path / "mask")
    (tmp_path / "mask" / "README.md").write_text(card)
    (tmp_path / "mask" / "mine").write_text("")
    path = tmp_path / "mask" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["README.md"] |= {
        "bytes": len(card),
        "sha256": hashlib.sha256(card.encode()).hexdigest(),
    }
    path.write_bytes(manifest_bytes(manifest | {"root": root_digest(manifest)}))
    first, second = (finding.line() for finding in prove_data_set(LocalFileSystem(), str(tmp_path / "mask")))
    assert "no manifest names this file" in first
    assert "states the licence that nobody can read, and manifest.json odc-by" in second


def test_a_manifest_that_says_nothing_of_a_file_is_told(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "mask")
    path = tmp_path / "mask" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["README.md"] = None
    path.write_text(json.dumps(manifest))
    (found,) = prove_data_set(LocalFileSystem(), str(tmp_path / "mask"))
    assert "cannot be read: ValueError: `files` of README.md says nothing" in found.line()


def test_the_same_again_changes_nothing_and_another_is_refused(licensed: Store, tmp_path: Path) -> None:
    first = published(licensed, tmp_path / "mask")
    assert published(licensed, tmp_path / "mask") == first
    with pytest.raises(StorageError, match="another data set stands"):
        published(licensed, tmp_path / "mask", max_documents=3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("")
    with pytest.raises(StorageError, match="no data set of this program"):
        published(licensed, tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mask", "mine"]


@pytest.mark.parametrize("place", ["mask", "memory://altered/mask"])
@pytest.mark.parametrize("name", ["croissant.json", "data/train-00000-of-00001.parquet"])
def test_what_stands_there_is_not_said_to_be_published_where_a_file_of_it_was_altered(
    licensed: Store, tmp_path: Path, place: str, name: str
) -> None:
    fs, to = (
        (MemoryFileSystem(), place)
        if place.startswith("memory:")
        else (LocalFileSystem(), str(tmp_path / place))
    )
    done = publish(licensed, "first", "datamask", to, PublishConfig(**ODC))
    data = fs.cat_file(f"{to}/{name}")
    fs.pipe_file(f"{to}/{name}", data[:-1] + b"?")
    with pytest.raises(StorageError, match=f"{name} was altered or removed since; remove that folder"):
        publish(licensed, "first", "datamask", to, PublishConfig(**ODC))
    fs.rm_file(f"{to}/{name}")
    with pytest.raises(StorageError, match=f"{name} was altered or removed since; remove that folder"):
        publish(licensed, "first", "datamask", to, PublishConfig(**ODC))
    fs.pipe_file(f"{to}/{name}", data)
    assert publish(licensed, "first", "datamask", to, PublishConfig(**ODC)) == done


@pytest.mark.parametrize("is_there", [False, True])
def test_a_link_is_followed(licensed: Store, tmp_path: Path, is_there: bool) -> None:
    """To a folder that is empty, or does not exist yet."""
    there, link = tmp_path / "disk" / "mask", tmp_path / "mask"
    (there if is_there else there.parent).mkdir(parents=True)
    link.symlink_to(there)
    done = published(licensed, link)
    assert link.is_symlink()
    assert list(prove_data_set(LocalFileSystem(), str(there), done.root)) == []
    assert [each.name for each in there.parent.iterdir()] == ["mask"]
    assert published(licensed, link) == done


def test_a_scorer_without_a_revision_is_said_to_have_none(licensed: Store, tmp_path: Path) -> None:
    facts = facts_of(licensed, subset_of(licensed, "first", "datamask"), tmp_path)
    assert "not stated" not in _selection(facts)
    facts = dataclasses.replace(facts, scorers=[scorer | {"revision": ""} for scorer in facts.scorers])
    assert "| not stated |" in _selection(facts)
    bare = [scorer | {"revision": "1", "scale_min": None, "scale_max": None} for scorer in facts.scorers]
    assert "| not stated |" in _selection(dataclasses.replace(facts, scorers=bare))


def test_imported_vectors_whose_model_nobody_named_are_said_to_have_none(
    licensed: Store, tmp_path: Path
) -> None:
    facts = facts_of(licensed, subset_of(licensed, "first", "datamask"), tmp_path)
    told = _selection(dataclasses.replace(facts, embedding={"model": "mine", "revision": ""}))
    assert "| embedding | `mine`, revision not stated |" in told
    told = _selection(dataclasses.replace(facts, embedding={"model": "", "revision": ""}))
    assert "| embedding | not stated, revision not stated |" in told


def test_the_card_tells_the_budget_that_counts_quotas_and_what_an_earlier_release_holds(
    licensed: Store, tmp_path: Path
) -> None:
    facts = facts_of(licensed, subset_of(licensed, "first", "datamask"), tmp_path)
    assert "quotas" not in _selection(facts)
    assert "added" not in _selection(facts)
    in_tokens = {"basis": {"config": facts.selection["basis"]["config"] | {"num_tokens": 3000}}}
    told = _selection(dataclasses.replace(facts, selection={**facts.selection, **in_tokens}))
    assert "| budget | num_tokens 3000 |" in told, "the ratio beside it is a default that is not read"
    settings = facts.selection["basis"]["config"] | {"quotas": {"a|b": 0.25, "*": 0.75}, "quota_by": "domain"}
    selection = dict(facts.selection) | {
        "basis": {"config": settings},
        "metadata": facts.selection["metadata"] | {"given": {"release": "zeroth", "held": 7}},
    }
    told = _selection(dataclasses.replace(facts, selection=selection))
    (row,) = (line for line in told.splitlines() if line.startswith("| quotas by domain"))
    assert "`*` 0.75 |" in row
    assert "a|b" not in row
    assert "| held from release `zeroth` | 7 documents |" in told
    assert ", of the added documents alone |" in told


def test_names_and_addresses_of_documents_are_inert_in_the_card(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "mask")
    card = (tmp_path / "mask" / "README.md").read_text()
    assert "onerror" in card, "the hostile domain is told"
    assert "<img" not in card
    assert "|.example" not in card


def test_each_document_its_own_licence(licensed: Store, tmp_path: Path) -> None:
    done = published(
        licensed, tmp_path / "mask", licence="other", source_licence=None, licence_column="license"
    )
    manifest = json.loads((tmp_path / "mask" / "manifest.json").read_text())
    licences = manifest["data_set"]["licences"]
    assert set(licences) == {"cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0"}
    assert sum(licences.values()) == done.documents
    card = (tmp_path / "mask" / "README.md").read_text()
    assert all(f"| `{name}` | {count} |" in card for name, count in licences.items())


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        (
            {"licence": "apache-2.0"},
            ConfigurationError,
            "'apache-2.0' is forbidden by 'odc-by'.*allowed: odc-by",
        ),
        ({"licence": "mine"}, ConfigurationError, "unknown licence 'mine'"),
        ({"source_licence": None}, InputError, "the licence of crawl 'tiny-2024-10' is not known"),
        ({"source_licence": "secret"}, InputError, "terms are not known here.*secret"),
        (
            {"licence": "cc-by-4.0", "source_licence": None, "licence_column": "license"},
            ConfigurationError,
            "forbidden by 'cc-by-sa-4.0'",
        ),
        ({"columns": ("licence",)}, UnknownNameError, "unknown column of the source 'licence'.*'license'"),
        (
            {"licence_column": "licence"},
            UnknownNameError,
            "^licence_column: .*`extra_columns` in `source.options`",
        ),
    ],
)
def test_what_may_not_be_published_is_refused(
    licensed: Store, tmp_path: Path, settings: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        published(licensed, tmp_path / "mask", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "settings", "match"),
    [
        (
            pa.map_(pa.string(), pa.int64()),
            {"columns": ("odd",)},
            "columns: `datasets.load_dataset` cannot.* map<",
        ),
        (pa.list_(pa.string()), {"licence_column": "odd"}, "licence_column: holds list<.*column of strings"),
    ],
)
def test_a_column_of_a_type_that_a_data_set_cannot_have_is_refused(
    tmp_path: Path, kind: pa.DataType, settings: dict[str, Any], match: str
) -> None:
    path = write_tiny_config(tmp_path)
    for shard in sorted((tmp_path / "crawls").rglob("*.jsonl")):
        table = pa.Table.from_pylist([json.loads(line) for line in shard.read_text().splitlines()])
        pq.write_table(table.append_column("odd", pa.nulls(len(table), kind)), shard.with_suffix(".parquet"))
        shard.unlink()
    pipeline = Pipeline(load_config(str(path)))
    for _, _, call in pipeline.steps("first", until="materialise"):
        call()
    with pytest.raises(InputError, match=match):
        published(pipeline.store, tmp_path / "mask", **settings)
    assert not (tmp_path / "mask").exists()


@pytest.mark.slow
def test_a_column_that_two_crawls_have_in_two_types_is_in_the_way_of_nobody_who_leaves_it_out(
    tmp_path: Path,
) -> None:
    path = write_tiny_config(tmp_path)
    crawls = sorted((tmp_path / "crawls").iterdir())
    for crawl, kind in zip(crawls, (pa.int64(), pa.string()), strict=True):
        for shard in sorted(crawl.rglob("*.jsonl")):
            table = pa.Table.from_pylist([json.loads(line) for line in shard.read_text().splitlines()])
            table = table.append_column("odd", pa.nulls(len(table), kind))
            table = table.append_column("rank", pa.array(range(len(table))))
            pq.write_table(table, shard.with_suffix(".parquet"))
            shard.unlink()
    pipeline = Pipeline(load_config(str(path)))
    for _, _, call in pipeline.steps("first", until="materialise"):
        call()
    with pytest.raises(
        InputError, match=r"holds it as string, an earlier one as int64.*odd.*leave the column"
    ):
        published(pipeline.store, tmp_path / "mask", columns=("rank", "odd"))
    published(pipeline.store, tmp_path / "mask", columns=("rank",))
    card = (tmp_path / "mask" / "README.md").read_text()
    assert all(f"| `odd` | `{kind}` | A column of the source" in card for kind in ("int64", "string"))


def _publish_on_a_small_disk(root: str, to: str, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        publish(Store(root), "first", "datamask", to, PublishConfig(**ODC))
    except StorageError as error:
        os._exit(3 if "File too large" in str(error) else 4)
    os._exit(0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [2_000, 16_000])
def test_where_no_file_can_grow_nothing_is_published(licensed: Store, tmp_path: Path, limit: int) -> None:
    process = forked.CONTEXT.Process(
        target=_publish_on_a_small_disk, args=(licensed.root, str(tmp_path / "mask"), limit)
    )
    process.start()
    process.join()
    assert process.exitcode == 3
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(
    licensed: Store, tmp_path: Path
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        (tmp_path / f".mask.{machine_label()}.{pid}.0").mkdir()
    published(licensed, tmp_path / "mask")
    assert {path.name for path in tmp_path.iterdir()} == {
        "mask",
        f".mask.{machine_label()}.{os.getpid()}.0",
    }


def test_an_object_store_takes_it_with_the_manifest_last(
    licensed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []
    real = MemoryFileSystem.put_file
    monkeypatch.setattr(
        MemoryFileSystem,
        "put_file",
        lambda fs, local, path, **more: put.append(path) or real(fs, local, path, **more),
    )
    to = "memory://bucket/mask"
    done = publish(licensed, "first", "datamask", to, PublishConfig(**ODC, max_documents=9))
    assert put[-1].endswith("/manifest.json")
    assert len(put) == done.shards + 3
    assert publish(licensed, "first", "datamask", to, PublishConfig(**ODC, max_documents=9)) == done
    assert list(prove_data_set(MemoryFileSystem(), "/bucket/mask", done.root)) == []
    MemoryFileSystem().pipe_file("/bucket/mask/README.md", b"# mine")
    assert {finding.file for finding in prove_data_set(MemoryFileSystem(), "/bucket/mask")} == {"README.md"}


@pytest.mark.parametrize("files_before_the_end", [0, 1, 3])
def test_an_upload_that_was_cut_off_is_done_again(
    licensed: Store, monkeypatch: pytest.MonkeyPatch, files_before_the_end: int
) -> None:
    """Its files were taken for somebody else's, and the place was refused for good."""
    put, left = MemoryFileSystem.put_file, [files_before_the_end]

    def put_some(fs: MemoryFileSystem, local: str, path: str, **more: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        put(fs, local, path, **more)

    fs, to = MemoryFileSystem(), f"memory://cut{files_before_the_end}/mask"
    larger, smaller = (PublishConfig(**ODC, max_documents=number) for number in (9, 5))
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "put_file", put_some)
        with pytest.raises(KeyboardInterrupt):
            publish(licensed, "first", "datamask", to, larger)
    # Whatever is published there then, nothing of the first stays.
    done = publish(licensed, "first", "datamask", to, smaller)
    assert list(prove_data_set(fs, to.removeprefix("memory:/"), done.root)) == []
    assert not fs.glob(f"/cut{files_before_the_end}/.datamask-leases/*.uploading")
    # A file of somebody else's beside them is no part of an upload.
    with monkeypatch.context() as patched:
        left[0] = 2
        patched.setattr(MemoryFileSystem, "put_file", put_some)
        with pytest.raises(KeyboardInterrupt):
            publish(licensed, "first", "datamask", f"{to}2", larger)
    fs.pipe_file(f"{to.removeprefix('memory:/')}2/mine.txt", b"mine")
    with pytest.raises(StorageError, match="is no data set of this program"):
        publish(licensed, "first", "datamask", f"{to}2", larger)


def test_of_two_writers_at_one_place_of_an_object_store_the_first_one_stands(
    licensed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_built, built = threading.Barrier(2), dataset.build
    put = MemoryFileSystem.put_file

    def build_and_wait(*arguments: Any) -> dict[str, Any]:
        manifest = built(*arguments)
        both_built.wait(60)
        return manifest

    def put_slowly(fs: MemoryFileSystem, local: str, path: str, **more: Any) -> None:
        time.sleep(0.02)
        put(fs, local, path, **more)

    monkeypatch.setattr(dataset, "build", build_and_wait)
    monkeypatch.setattr(MemoryFileSystem, "put_file", put_slowly)
    configs = [PublishConfig(**ODC, max_documents=number) for number in (5, 9)]
    with ThreadPoolExecutor(2) as threads:
        ends = [
            threads.submit(publish, licensed, "first", "datamask", "memory://two/mask", each)
            for each in configs
        ]
    (refused,) = [end.exception() for end in ends if end.exception() is not None]
    (done,) = [end.result() for end in ends if end.exception() is None]
    assert isinstance(refused, StorageError)
    assert "another data set stands at memory://two/mask" in str(refused)
    assert list(prove_data_set(MemoryFileSystem(), "/two/mask", done.root)) == []


def _publish_once(root: str, to: str, max_documents: int) -> None:
    try:
        publish(Store(root), "first", "datamask", to, PublishConfig(**ODC, max_documents=max_documents))
    except StorageError as error:
        os._exit(3 if "another data set stands" in str(error) else 4)


READER = """
import hashlib, json, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
folder, stop, reads = Path(sys.argv[1]), Path(sys.argv[2]), 0
print("reading", flush=True)
while not stop.exists():
    if folder.exists():
        files = json.loads((folder / "manifest.json").read_text())["files"]
        for name, file in files.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == file["sha256"], name
        reads += 1
    time.sleep(0.005)
assert reads, "it saw nothing"
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("shards", "ends"), [((1, 1), [0, 0]), ((1, 2), [0, 3])], ids=["the same", "others"])
def test_two_writers_and_five_readers_see_one_whole_data_set(
    licensed: Store, tmp_path: Path, shards: tuple[int, int], ends: list[int]
) -> None:
    """Readers look from before the first writer until after the last; of two different data sets one is refused."""
    folder, stop = tmp_path / "mask", tmp_path / "stop"
    command = [sys.executable, "-S", "-c", READER, str(folder), str(stop)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(5)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
    writers = [
        forked.CONTEXT.Process(target=_publish_once, args=(licensed.root, str(folder), number))
        for number in shards
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.touch()
    assert [reader.wait() for reader in readers] == [0] * 5
    assert sorted(writer.exitcode or 0 for writer in writers) == ends
    stop.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["mask"]
    assert list(prove_data_set(LocalFileSystem(), str(folder))) == []


def test_a_subset_of_other_settings_than_the_configurations_is_refused(
    licensed: Store, tmp_path: Path
) -> None:
    config = ["-c", str(Path(licensed.root).parent / "tiny.yaml")]
    command = ["release", "first", "--arm", "datamask", "--license", "odc-by", "--source-license", "odc-by"]
    command += ["--to", str(tmp_path / "mask"), *config]
    others = ["-s", "select.ratio=0.2", "-s", "ingest.min_chars=3"]
    told = str(CliRunner().invoke(app, [*command, *others]).exception)
    assert "subset first/datamask was made with other settings than the configuration's: " in told
    assert "select.ratio: record 0.3, configuration 0.2 (datamask)" in told
    assert "ingest.min_chars: record 0, configuration 3 (tiny-2024-10, tiny-2024-18)" in told
    assert "; make it anew (`datamask run --until materialise`), or publish it with the settings" in told
    assert not (tmp_path / "mask").exists()
    done = CliRunner().invoke(app, [*command, "-s", "ingest.batch_rows=9"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("pool.takedown=[ID]", "stage takedown: only in the configuration (first/datamask)"),
        ("copies.threshold=0.9", "stage copies: only in the configuration (first/datamask)"),
        ("pool.decontaminate={curated: good.jsonl}", "stage decontaminate: only in the configuration"),
    ],
)
def test_a_stage_that_was_switched_on_since_is_no_less_another_setting(
    licensed: Store, tmp_path: Path, given: str, line: str
) -> None:
    subset = require(licensed, "materialise", "first/datamask")
    given = given.replace("ID", f"'{licensed.read_table(subset)['id'][0].as_py()}'")
    command = ["release", "first", "--arm", "datamask", "--license", "odc-by", "--source-license", "odc-by"]
    command += ["--to", str(tmp_path / "mask"), "-c", str(Path(licensed.root).parent / "tiny.yaml")]
    told = str(CliRunner().invoke(app, [*command, "-s", given]).exception)
    assert line in told
    assert not (tmp_path / "mask").exists()


def test_the_command(licensed: Store, tmp_path: Path) -> None:
    store = ["-s", f"store={licensed.root}", "--license", "odc-by", "--source-license", "odc-by"]
    to = ["--to", f"{tmp_path / 'mask'}/"]
    result = CliRunner().invoke(app, ["release", "first", "--arm", "datamask", *to, *store])
    assert result.exit_code == 0, result.output
    root = json.loads((tmp_path / "mask" / "manifest.json").read_text())["root"]
    assert result.output.splitlines()[-1] == f"root {root}"
    assert f"'{tmp_path}/mask/data/*.parquet'" in result.output
    inside = ["--to", f"{licensed.root}/published"]
    for arguments, message in (
        (["release", "second", *to], "unknown release 'second'"),
        (["release", "first", *to], "several arms; name one by --arm: datamask, random"),
        (["release", "first", "--arm", "none", *to], "unknown arm 'none'"),
        (["release", "first"], "give --to"),
        (["release", "first", "--arm", "datamask", *inside], "lies in the record"),
        (
            ["release", "first", "--push", "mask"],
            "--push: 'mask' is no data set of the hub; write owner/name",
        ),
    ):
        result = CliRunner().invoke(app, [*arguments, *store])
        assert message in str(result.exception)


def test_the_card_says_what_of_the_source_was_left_out(licensed: Store, tmp_path: Path) -> None:
    published(licensed, tmp_path / "few")
    published(licensed, tmp_path / "more", columns=("rank", "extra_json"))
    few, more = ((tmp_path / name / "README.md").read_text() for name in ("few", "more"))
    about = "| `extra_json` | `string` | The line's undeclared fields, as one JSON object; null: none. |"
    head = "Of the documents there is more, which was left out:"
    assert about in few.partition(head)[2]
    assert "| `rank` | `int64` | A column of the source, as it came. |" in few.partition(head)[2]
    assert about in more.partition(head)[0]
    assert "`license`" in more.partition(head)[2]
    assert "`extra_json`" not in more.partition(head)[2]

"""What unfinished work and versions of purged pools hold goes with a purge too."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from compliance.conftest import TAKEDOWN, run_all_but_models
from typer.testing import CliRunner

from datamask_pipeline.audit.diff import compare_selections
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.selections import paired
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.erase import erase_crawl
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.compliance.purge_plan import plan
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.leases import machine_label
from datamask_pipeline.storage.tombstones import tombstones

CRAWL = "tiny-2024-10"


def holding(store: Store, words: set[str]) -> set[str]:
    """Files of the record, private ones too, in whose bytes or columns one of these words stands."""
    anywhere = re.compile("|".join(f"{re.escape(word)}(?![0-9])" for word in sorted(words)))
    in_bytes = re.compile(anywhere.pattern.encode())
    found = set()
    for path in sorted(Path(store.root).rglob("*")):
        if not path.is_file():
            continue
        table = store.open_parquet(str(path)).read().to_pylist() if path.suffix == ".parquet" else []
        if in_bytes.search(path.read_bytes()) or any(anywhere.search(str(row)) for row in table):
            found.add(path.relative_to(store.root).as_posix())
    return found


def withdrawn_rows(store: Store) -> list[dict[str, Any]]:
    """Documents that the current pool withdraws, as ingested."""
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    gone = {(row["crawl"], row["id"]) for row in pool if row["exclusion"] == "takedown"}
    crawls = dict.fromkeys(row["crawl"] for row in pool)
    rows = [row for crawl in crawls for row in store.read_table(require(store, "ingest", crawl)).to_pylist()]
    return [row for row in rows if (row["crawl"], row["id"]) in gone]


def asking_also(pipeline: Pipeline, *entries: str) -> Pipeline:
    pool = pipeline.config.pool.model_copy(update={"takedown": (*TAKEDOWN, *entries)})
    return Pipeline(pipeline.config.model_copy(update={"pool": pool}))


def begin_shard_by_shard(pipeline: Pipeline, crawl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest a crawl, and end before its last shard."""

    class Killed(BaseException):
        pass

    from datamask_pipeline.stages.ingest_shards import CrawlWriter

    write, done = CrawlWriter.write_shard, []

    def write_one(self: CrawlWriter, shard: Any) -> None:
        if done:
            raise Killed
        done.append(shard)
        write(self, shard)

    with monkeypatch.context() as patch:
        patch.setattr(CrawlWriter, "write_shard", write_one)
        with pytest.raises(Killed):
            pipeline.run("ingest", crawl)


def test_unfinished_work_that_holds_a_purged_text_goes_and_other_unfinished_work_stays(
    copied: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied.store
    rows = withdrawn_rows(store)
    crawls = tmp_path / "crawls"
    shutil.copytree(copied.config.source.options["root"], crawls)
    for name, texts in (("copying", [rows[0]["text"], "other"]), ("plain", ["some text", "other"])):
        (crawls / name).mkdir()
        for shard in (0, 1):
            row = {"id": f"{name}{shard}", "text": texts[shard]}
            (crawls / name / f"{shard}.jsonl").write_text(json.dumps(row) + "\n")
    settings = {"ingest.min_chars": 2, "source.options.root": str(crawls), "store": store.root}
    base = copied.config.model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(json.dumps(base))
    other = Pipeline(load_config(str(tmp_path / "config.yaml"), settings))
    for crawl in (CRAWL, "copying", "plain"):  # one under other settings, two that are new
        begin_shard_by_shard(other, crawl, monkeypatch)
    half = store.begin("pool", "first", version="0", config={}, inputs={})
    half.write_file("left", rows[0]["text"].encode())
    (half.scratch() / "spilled").write_text(rows[0]["text"])
    (Path(store.root) / ".staging").mkdir(exist_ok=True)
    dead = Path(store.root) / ".staging" / f"{machine_label()}.4194303.x.json"
    dead.write_text(rows[0]["text"])
    texts = {row["text"] for row in rows}
    before = holding(store, texts)
    assert {path.split("/")[0] for path in before} >= {"ingest", "pool", ".scratch", ".staging"}
    assert any(path.startswith("ingest/copying/") for path in before)
    planned = plan(store)
    told = CliRunner().invoke(app, ["purge", "--request", "x", "--dry-run", "-s", f"store={store.root}"])
    tombstone = purge(store, "x")
    assert tombstone is not None
    assert not holding(store, texts)
    assert {location.rpartition("/")[0] for location in planned.unfinished} == {
        f"ingest/{CRAWL}",
        "ingest/copying",
        "pool/first",
    }
    assert list(planned.unfinished) == tombstone.unfinished
    assert all(f"would remove unfinished {location}" in told.output for location in planned.unfinished)
    assert any(path.startswith("ingest/plain/") for path in holding(store, {"some text"}))
    assert purge(store, "y") is None


def test_what_a_run_finishes_during_a_purge_stays(copied: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copied.store
    made = require(store, "redundancy", "first/datamask")
    manifest, pointer = (
        Path(store.root) / made.location / "manifest.json",
        "redundancy/first/datamask/current.json",
    )
    files = {path: path.read_bytes() for path in (manifest, Path(store.root) / pointer)}
    for path in files:
        path.unlink()
    assert made.location in plan(store).unfinished

    def erase_and_finish(store: Store, crawl: str) -> None:
        erase_crawl(store, crawl)
        for path, data in files.items():
            path.write_bytes(data)

    monkeypatch.setattr("datamask_pipeline.compliance.purge.erase_crawl", erase_and_finish)
    tombstone = purge(store, "x")
    assert tombstone is not None
    assert made.location not in tombstone.unfinished
    assert store.read_table(require(store, "redundancy", "first/datamask")).num_rows == 1
    assert not [each for each in prove_record(store, "first") if each.kind == "contradiction"]


def test_a_run_at_work_during_a_purge_publishes_nothing_of_what_is_purged(
    copied: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied.store
    texts = {row["text"] for row in withdrawn_rows(store)}
    (tmp_path / "config.yaml").write_text(json.dumps(copied.config.model_dump(mode="json")))
    other = Pipeline(load_config(str(tmp_path / "config.yaml"), {"ingest.min_chars": 2, "store": store.root}))
    try_to_write, seen = ShardWork._try_to_write, []

    def purge_after_one(self: ShardWork[Any], name: str, *, wait: bool) -> bool:
        done = try_to_write(self, name, wait=wait)
        if not seen:
            seen.append(holding(store, texts))
            assert purge(store, "x") is not None
        return done

    monkeypatch.setattr(ShardWork, "_try_to_write", purge_after_one)
    documents, _ = other.run("ingest", CRAWL)
    assert any(path.startswith("ingest/") for path in seen[0])
    assert not holding(store, texts)
    assert "erased" in store.manifest(documents)["basis"]["inputs"]
    assert purge(store, "y") is None


def check_what_is_told_of_the_mask_before(store: Store, arm: str) -> None:
    """The purge superseded what both masks read, and took away none that the one before had chosen: it is no reason."""
    ((old, new),), _ = paired(store, f"first/{arm}@previous", f"first/{arm}")
    found = compare_selections(store, old, new)
    chosen = [
        {row["id"] for row in store.read_table(each, ["id", "selected"]).to_pylist() if row["selected"]}
        for each in (old, new)
    ]
    assert (found["went"]["documents"], found["came"]["documents"]) == (
        len(chosen[0] - chosen[1]),
        len(chosen[1] - chosen[0]),
    )


@pytest.mark.slow
def test_what_a_purged_pool_had_made_goes_with_a_later_withdrawal(copied: Pipeline) -> None:
    """The questions hold texts of documents that a later request withdraws; only the pool said whose they are."""
    store = copied.store
    purge(store, "first")
    for _, _, call in copied.steps("first", "materialise"):
        call()
    for arm in ("random", "datamask"):
        check_what_is_told_of_the_mask_before(store, arm)
    old = {stage: require(store, stage, "first").location for stage in ("tokenizer", "questions")}
    assert purge(store, "first, the rest") is not None  # removes the pool behind these two, which stay
    assert all(Path(store.root, location).exists() for location in old.values())
    with pytest.raises(IntegrityError, match=r"not known any more: pool/first/.* was purged by request 2"):
        compare_selections(store, *paired(store, "first/datamask@previous", "first/datamask")[0][0])
    rows = store.read_table(require(store, "pool", "first")).to_pylist()
    held_out = [row for row in rows if row["exclusion"] == "validation"]
    again = asking_also(copied, *(f"id:{row['id']}" for row in held_out[::3]))
    for _, _, call in again.steps("first", "materialise"):
        call()
    with pytest.raises(ConfigurationError, match=r"still use a withdrawn document"):
        purge(store, "second")  # the tokenizer and the questions are current, and hold these texts
    for stage in ("redundancy", "tokenizer", "questions"):
        for _, _, call in again.steps("first", stage):
            call()
    with pytest.raises(ConfigurationError, match=r"2 current versions .* e\.g\. ngram/first/datamask/"):
        plan(store)
    assert plan(store, ["ngram"]).removed.keys() >= {require(store, "ngram", "first/random").location}
    gone = withdrawn_rows(store)
    assert {row["id"] for row in gone} >= {row["id"] for row in held_out[::3]}
    second = purge(store, "second", ["ngram"])  # as of a configuration in which that stage is off
    assert store.keys("ngram") == []
    assert second is not None
    assert {*old.values()} <= {*second.removed, *second.kept}
    assert old["questions"] in second.removed
    run_all_but_models(again)
    purge(store, "second, the rest")
    standing = {f"{location}/" for each in tombstones(store) for location in (*each.standing, *each.kept)}
    left = holding(store, {row["text"] for row in gone} | {row["id"] for row in gone})
    assert not {path for path in left if not any(path.startswith(location) for location in standing)}

"""A purge leaves nothing of a withdrawn document but its tombstone, tells what stands, and can be killed anywhere."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compliance.conftest import TAKEDOWN, run_all_but_models
from typer.testing import CliRunner

from datamask_pipeline import schema
from datamask_pipeline.audit.findings import exit_status
from datamask_pipeline.audit.funnel import funnel
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance import purge as purging
from datamask_pipeline.compliance.impact import impact
from datamask_pipeline.compliance.purge import purge, unfinished
from datamask_pipeline.compliance.purge_plan import plan
from datamask_pipeline.compliance.purged import purged_story
from datamask_pipeline.compliance.takedown import takedown_report
from datamask_pipeline.compliance.touched import documents_in
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.storage import Store, open_array, require
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.releases import retire
from datamask_pipeline.storage.tombstones import hashed, tombstones

CRAWLS = ("tiny-2024-10", "tiny-2024-18")


def withdrawn_rows(store: Store) -> list[dict[str, Any]]:
    """Documents that the current pool withdraws, with their texts."""
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    gone = {(row["crawl"], row["id"]) for row in pool if row["exclusion"] == "takedown"}
    rows = [row for crawl in CRAWLS for row in store.read_table(require(store, "ingest", crawl)).to_pylist()]
    return [row for row in rows if (row["crawl"], row["id"]) in gone]


def values(store: Store) -> Iterator[tuple[str, Any]]:
    """Every file of the record, with every string of its tables, or its bytes."""
    for path in sorted(Path(store.root).rglob("*")):
        if path.is_file() and path.suffix == ".parquet":
            table = store.open_parquet(str(path)).read()
            for row in table.to_pylist():
                yield str(path), {value for value in row.values() if isinstance(value, str)}
        elif path.is_file() and path.suffix in (".json", ".jsonl"):
            yield str(path), path.read_text(encoding="utf-8", errors="replace")


def mentions(store: Store, words: set[str]) -> set[str]:
    """Files of the record, without the models' own, in which an id or a text stands."""
    found = set()
    for path, value in values(store):
        if value & words if isinstance(value, set) else any(word in value for word in words):
            found.add(path.removeprefix(f"{store.root}/"))
    return found


def tree(store: Store) -> dict[str, bytes]:
    root = Path(store.root)
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.relative_to(root).as_posix().startswith(".")
    }


def test_nothing_is_left_after_purge_run_and_purge(copied: Pipeline) -> None:
    store = copied.store
    rows = withdrawn_rows(store)
    words = (
        {row["id"] for row in rows} | {row["text"] for row in rows} | {row["content_hash"] for row in rows}
    )
    words -= {*TAKEDOWN}  # what is asked stays as long as it is asked
    assert len(rows) > 10
    before = {crawl: store.read_table(require(store, "ingest", crawl)) for crawl in CRAWLS}
    subset = store.read_table(require(store, "materialise", "first/datamask"), ["id"])
    first = purge(store, "letter 17")
    assert first.state == "done"
    assert sum(map(len, first.documents.values())) == len(rows)
    for crawl in CRAWLS:
        documents = require(store, "ingest", crawl)
        left = store.read_table(documents)
        assert left.num_rows == before[crawl].num_rows - len(first.documents[crawl])
        counts = store.manifest(documents)["counts"]
        assert counts["dropped_erased"] >= len(first.documents[crawl])
        assert require(store, "embed", crawl).rows == require(store, "score", crawl).rows == left.num_rows
        assert store.read_table(require(store, "embed", crawl), ["id"]).column("id") == left.column("id")
    run_all_but_models(copied)
    second = purge(store, "letter 17, the rest")
    assert (second.number, second.documents) == (2, {})
    current = store.read_table(require(store, "materialise", "first/datamask"), ["id"])
    assert set(current.column("id").to_pylist()) == set(subset.column("id").to_pylist())
    standing = {f"{location}/" for location in second.standing or first.standing}
    left_in = mentions(store, words)
    assert not {path for path in left_in if not any(path.startswith(location) for location in standing)}
    findings = list(prove_record(store, "first", "datamask", files_only=False))
    assert findings == []


def test_vectors_and_scores_stay_those_of_their_documents(copied: Pipeline) -> None:
    store = copied.store

    def by_id() -> dict[str, tuple[Any, Any]]:
        found = {}
        for crawl in CRAWLS:
            embedded, scored = require(store, "embed", crawl), require(store, "score", crawl)
            scores = {row["id"]: row["score"] for row in store.read_table(scored).to_pylist()}
            for name in store.part_names(embedded):
                with store.part_file(embedded, name) as part:
                    ids = part.read(["id"]).column("id").to_pylist()
                found |= {
                    each: (vector.tobytes(), scores[each])
                    for each, vector in zip(ids, np.array(open_array(store, embedded, name)), strict=True)
                }
        return found

    before = by_id()
    gone = {row["id"] for row in withdrawn_rows(store)}
    purge(store, "x")
    assert by_id() == {name: of for name, of in before.items() if name not in gone}


@pytest.mark.slow
def test_what_held_a_text_under_another_id_is_told_after_the_purge_too(copied: Pipeline) -> None:
    store = copied.store
    names = [row["id"] for row in withdrawn_rows(store)]

    def held(name: str) -> dict[str, tuple[str, int]]:
        return {
            each["artefact"]: (kind, each.get("documents_held", 0))
            for kind, found in impact(store, name, "document").items()
            if kind not in ("target", "kind", "purged")
            for each in found
        }

    before = {name: held(name) for name in names}
    subsets = {name for name in names if any(number for _, number in before[name].values())}
    own = {row["id"] for each in store.all_manifests("materialise") for row in _rows_of(store, each)}
    assert subsets - own, "some were in a subset under the id of a copy alone"
    purge(store, "letter 17")
    assert {name: held(name) for name in names} == before


def _rows_of(store: Store, manifest: Any) -> list[dict[str, Any]]:
    return store.read_table(ref_of(manifest), ["id"]).to_pylist()


def test_the_next_run_takes_what_the_purge_left_and_ingests_nothing_again(copied: Pipeline) -> None:
    store = copied.store
    purge(store, "x")
    left = {
        (stage, crawl): require(store, stage, crawl)
        for stage in ("ingest", "embed", "score")
        for crawl in CRAWLS
    }
    for (stage, crawl), ref in left.items():
        assert copied.run(stage, crawl)[0] == ref
    crawl = CRAWLS[0]
    ref = left["ingest", crawl]
    shutil.rmtree(f"{store.root}/{ref.location}")
    shutil.rmtree(f"{store.root}/{require(store, 'rejected', crawl).location}")
    again = copied.run("ingest", crawl)[0]
    assert again.fingerprint == ref.fingerprint
    assert again.content_digest == ref.content_digest
    assert (
        not withdrawn_rows(store)
        or {row["id"] for row in withdrawn_rows(store) if row["crawl"] == crawl} == set()
    )


def test_standing_models_are_named_and_stay_and_prove_says_what_was_purged(copied: Pipeline) -> None:
    store = copied.store
    models = {require(store, "pretrain", key).location for key in store.keys("pretrain")}
    held = [
        manifest["location"]
        for manifest in store.all_manifests("materialise")
        if {row["id"] for row in withdrawn_rows(store)}
        & set(
            store.open_parquet(f"{store.root}/{manifest['location']}/00000.parquet")
            .read(["id"])
            .column("id")
            .to_pylist()
        )
    ]
    assert held
    planned = plan(store)
    tombstone = purge(store, "letter 17")
    assert [*tombstone.removed] == [*planned.removed]
    touched = {location for location in tombstone.standing if location.startswith("pretrain/")}
    assert touched
    assert touched <= models
    assert {*held} <= {*tombstone.removed}
    for location in models:
        assert store.manifest_at(location)
    findings = list(prove_record(store, "first", files_only=True))
    assert exit_status(findings) == 3
    assert {finding.kind for finding in findings} == {"purged"}
    assert all("purged by request 1 (letter 17)" in finding.problem for finding in findings)
    (path, *_) = [f"{store.root}/{location}" for location in models]
    (Path(path) / "manifest.json").write_text("{}")
    assert exit_status(prove_record(store, "first", files_only=True)) == 1


@pytest.mark.slow
def test_a_purge_killed_anywhere_ends_the_same_when_it_is_called_again(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = copied.store
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 32)
    shutil.copytree(store.root, tmp_path / "whole")
    whole = Store(tmp_path / "whole")
    purge(whole, "r")
    names = set(tree(whole))
    real_remove, real_erase = purging._remove, purging.erase_crawl

    class Killed(BaseException):
        pass

    for function, real in (("_remove", real_remove), ("erase_crawl", real_erase)):
        for after in (0, 3) if function == "_remove" else (1,):
            shutil.rmtree(tmp_path / "half", ignore_errors=True)
            shutil.copytree(store.root, tmp_path / "half")
            half, calls = Store(tmp_path / "half"), []

            def killed(
                *arguments: Any, calls: list[Any] = calls, after: int = after, real: Any = real
            ) -> None:
                if len(calls) == after:
                    raise Killed
                calls.append(arguments)
                real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(purging, function, killed)
                with pytest.raises(Killed):
                    purge(half, "r")
            assert unfinished(half) is not None
            ended = purge(half, "another request")
            assert (ended.number, ended.request, ended.state) == (1, "r", "done")
            assert set(tree(half)) == names
            assert len(tombstones(half)) == 1


def test_what_is_current_and_uses_a_withdrawn_document_is_in_the_way(
    tiny_run: Pipeline, copied: Pipeline, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"no current pool .* withdraws a document"):
        purge(tiny_run.store, "x")
    with pytest.raises(ConfigurationError, match=r"holds no pool.*name another record in `store`"):
        purge(Store(tmp_path / "misspelt"), "x")
    assert not (tmp_path / "misspelt").exists()
    shutil.copytree(tiny_run.store.root, tmp_path / "early")
    early = Pipeline(copied.config.model_copy(update={"store": str(tmp_path / "early")}))
    for _, _, call in early.steps("first", "pool"):
        call()
    before = tree(early.store)
    with pytest.raises(ConfigurationError, match=r"still use a withdrawn document, e\.g\. .*datamask run"):
        purge(early.store, "x")
    assert tree(early.store) == before
    retire(early.store, "first")
    with pytest.raises(ConfigurationError, match=r"`datamask retire first --undo`, run all releases"):
        purge(early.store, "x")


@pytest.mark.parametrize("request_", ["", " ", "\u200b -"])
def test_nothing_is_erased_for_no_request(copied: Pipeline, request_: str) -> None:
    """An unset variable of a script is enough to call it so."""
    before = tree(copied.store)
    with pytest.raises(ConfigurationError, match=r"--request: .* names no request; say what asks"):
        purge(copied.store, request_)
    for dry in ([], ["--dry-run"]):
        arguments = ["purge", "--request", request_, *dry, "-s", f"store={copied.store.root}"]
        assert "names no request" in str(CliRunner().invoke(app, arguments).exception)
    assert tree(copied.store) == before


def test_an_experiment_on_a_withdrawn_document_stands(copied: Pipeline) -> None:
    """No run of a release supersedes it, so it must not be in the way."""
    store, current = copied.store, require(copied.store, "gather", "first")
    (old,) = (each for each in store.all_manifests("gather") if each["location"] != current.location)
    builder = store.begin(
        "experiment", "small/whole/000", version="1", config={}, inputs={"index": ref_of(old)}
    )
    measured = builder.commit([builder.write_part("00000", [], schema.EXPERIMENT)])
    tombstone = purge(store, "x")
    assert tombstone is not None
    assert measured.location in tombstone.standing
    assert store.current("experiment", "small/whole/000") == measured


def test_notes_of_an_unfinished_ingest_in_an_object_store_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(f"memory://{tmp_path.name}-notes")
    for crawl in ("one", "other"):
        builder = store.begin("ingest", crawl, version="1", config={}, inputs={})
        note = builder.scratch() / "private"
        note.write_text("a withdrawn id")
        builder.write_note("000.rejected.arrow", note)
    purging._remove(store, "ingest/one/0123456789abcdef", "ingest", "one")
    left = [path for path in store.fs.find(store.root) if path.endswith(".arrow")]
    assert [path.split("/")[-3] for path in left] == ["other"]


@pytest.mark.parametrize("stage", ["pool", "takedown"])
def test_nothing_is_erased_by_an_altered_table(copied: Pipeline, stage: str) -> None:
    """The only command that cannot be undone: a row of the pool turned to `takedown` erased a document for good."""
    store = copied.store
    path = store.part_paths(require(store, stage, "first"))[0]
    table = pq.read_table(path)
    name = "exclusion" if stage == "pool" else "entry"
    place = table.schema.get_field_index(name)
    other = pa.array(["takedown"] * len(table), table.schema.field(name).type)
    pq.write_table(table.set_column(place, table.schema.field(name), other), path)
    before = tree(store)
    told = re.escape(path) + " holds other bytes than were written"
    with pytest.raises(IntegrityError, match=told):
        purge(store, "letter 17")
    with pytest.raises(IntegrityError, match=told):
        takedown_report(store, "first")
    assert tree(store) == before


@pytest.mark.slow
def test_the_commands(copied: Pipeline) -> None:
    store, record = copied.store, ["-s", f"store={copied.store.root}"]
    name = withdrawn_rows(store)[0]["id"]
    before = tree(store)
    planned = CliRunner().invoke(app, ["purge", "--request", "letter 17", "--dry-run", *record])
    assert planned.exit_code == 0, planned.output
    assert "would erase" in planned.output
    lost = r"without these versions of masks \([1-9]\d*\) and candidates \([1-9]\d*\) `datamask audit diff` cannot tell"
    assert re.search(lost, planned.output)
    assert "stands, and was made from withdrawn documents: pretrain/" in planned.output
    assert tree(store) == before
    done = CliRunner().invoke(app, ["purge", "--request", "letter 17", *record])
    assert done.exit_code == 0, done.output
    assert "purged by request 1 (letter 17)" in done.output
    assert re.search(lost, done.output)
    proved = CliRunner().invoke(app, ["audit", "prove", "first", "--files-only", *record])
    assert proved.exit_code == 3, proved.output
    (told,) = purged_story(store, name)
    assert told["request"] == "letter 17"
    why = CliRunner().invoke(app, ["audit", "why", name, *record])
    assert why.exit_code == 0, why.output
    assert "purged by request 1 (letter 17)" in why.output
    assert f"was held by ingest of {told['crawls'][0]}" in why.output
    assert CliRunner().invoke(app, ["audit", "why", "nobody at all", *record]).exit_code == 1
    assert "release first reads these crawls" in planned.output
    assert "release first reads these crawls" in done.output
    after = tree(store)
    for dry in ([], ["--dry-run"]):
        again = CliRunner().invoke(app, ["purge", "--request", "letter 18", *dry, *record])
        assert again.exit_code == 0, again.output
        assert "nothing to purge now; nothing was written" in again.output
        stands = f"stands, and names withdrawn documents: {require(store, 'pool', 'first').location}; `datamask run`"
        assert stands in again.output
        assert "stands, and was made from withdrawn documents: pretrain/" in again.output
    assert tree(store) == after
    run_all_but_models(copied)
    assert CliRunner().invoke(app, ["purge", "--request", "letter 18", *record]).exit_code == 0
    again = CliRunner().invoke(app, ["purge", "--request", "letter 19", *record])
    assert "nothing to purge now" in again.output
    assert "names withdrawn documents" not in again.output
    for stage in ("pretrain", "evaluate", "answers", "compare"):
        for pointer in Path(store.root, stage).rglob("current.json"):
            pointer.unlink()
    assert CliRunner().invoke(app, ["purge", "--request", "letter 20", *record]).exit_code == 0
    again = CliRunner().invoke(app, ["purge", "--request", "letter 21", *record])
    assert "nothing to purge: the record holds nothing more of the documents" in again.output


def test_a_purged_text_does_not_come_back_under_another_id(
    copied: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Nor does the tombstone say in plain words what was withdrawn."""
    store = copied.store
    gone = {row["id"] for row in withdrawn_rows(store)}
    rows = [row for crawl in CRAWLS for row in store.read_table(require(store, "ingest", crawl)).to_pylist()]
    purge(store, "x")
    told = "".join(path.read_text() for path in Path(store.root, "purged").iterdir())
    assert not [name for name in gone if name in told]
    lines = [
        json.dumps({"id": f"{'new' if row['id'] in gone else 'other'} {row['id']}", "text": row["text"]})
        for row in rows
    ]
    crawl = tmp_path / "crawls" / "tiny-2024-22"
    crawl.mkdir(parents=True)
    (crawl / "0.jsonl").write_text("\n".join(lines) + "\n")
    later = Pipeline(
        load_config(
            str(tiny_config_file),
            {
                "store": store.root,
                "source.options.root": str(tmp_path / "crawls"),
                "releases": {"second": {"crawls": ["tiny-2024-22"]}},
            },
        )
    )
    later.run("ingest", "tiny-2024-22")
    later.run("pool", "second")
    found = store.read_table(require(store, "pool", "second")).to_pylist()
    withdrawn = {row["id"] for row in found if row["exclusion"] == "takedown"}
    ingested = store.read_table(require(store, "ingest", "tiny-2024-22"), ["id"]).column("id").to_pylist()
    assert withdrawn == {name for name in ingested if name.startswith("new ")} != set()
    report = takedown_report(store, "second")
    (entry,) = report["entries"]
    told = next(iter(tombstones(store))).title
    assert entry["asked"] == f"the texts purged by {told}"
    assert (entry["named"], entry["withdrawn"]) == (len(withdrawn), len(withdrawn))
    assert {example["id"] for example in entry["examples"]} < withdrawn
    assert "domain:site1.example" in entry["asked_then"]
    assert (report["totals"]["entries"], report["totals"]["documents_named"]) == (0, len(withdrawn))
    (release,) = document_story(store, min(withdrawn))["releases"]
    assert release["left_out_by"] == [{"entry": entry["asked"]}]
    said = CliRunner().invoke(app, ["audit", "takedown", "second", "-s", f"store={store.root}"]).output
    assert "    asked then: domain:site1.example" in said
    assert (
        f"in all {len(withdrawn)} documents by 0 of 0 entries, 0 robots.txt and the texts of 1 purges" in said
    )


@pytest.mark.slow
def test_a_funnel_balances_where_documents_were_withdrawn_and_purged(copied: Pipeline) -> None:
    """Each level is held to balance where it is made."""
    number = len(withdrawn_rows(copied.store))
    (arm, *_) = funnel(copied.store, "first")["arms"]
    pool = next(level for level in arm["levels"] if level["stage"] == "pool")
    assert {drop["rule"]: drop["documents"] for drop in pool["dropped"]}["takedown"] == number
    purge(copied.store, "x")
    run_all_but_models(copied)
    (arm, *_) = funnel(copied.store, "first")["arms"]
    erased = [
        drop["documents"] for level in arm["levels"] for drop in level["dropped"] if drop["rule"] == "erased"
    ]
    assert sum(erased) >= number


def test_a_published_data_set_is_told_to_hold_what_was_purged(copied: Pipeline, tmp_path: Path) -> None:
    store, folder = copied.store, tmp_path / "data set"
    settings = PublishConfig(licence="odc-by", source_licence="odc-by", ids_only=True)
    old = min(
        (each for each in store.all_manifests("materialise") if each["key"] == "first/random"),
        key=lambda each: each["written_at_ns"],
    )
    store.point_to(ref_of(old))
    publish(store, "first", "random", str(folder), settings)
    gone = {row["content_hash"] for row in withdrawn_rows(store)}
    rows = store.read_table(ref_of(old), ["content_hash"]).column("content_hash").to_pylist()
    number = sum(each in gone for each in rows)
    assert number
    run_all_but_models(copied)
    arguments = ["purge", "--request", "x", "--data-set", str(folder), "-s", f"store={store.root}"]
    for dry in (["--dry-run"], []):
        told = CliRunner().invoke(app, [*arguments, *dry])
        assert told.exit_code == 0, told.output
        assert f"{number} of its documents are withdrawn; publish it again" in " ".join(told.output.split())


@pytest.mark.parametrize("damage", ["no folder", "cut", "missing"])
def test_nothing_is_erased_where_a_data_set_cannot_be_read(
    copied: Pipeline, tmp_path: Path, damage: str
) -> None:
    """A purge cannot be undone: that one was done is never told by an error about something else."""
    store, folder = copied.store, tmp_path / "data set"
    settings = PublishConfig(licence="odc-by", source_licence="odc-by", max_documents=9)
    publish(store, "first", "random", str(folder), settings)
    shard = min((folder / "data").iterdir())
    if damage == "no folder":
        shutil.rmtree(folder)
    elif damage == "cut":
        shard.write_bytes(shard.read_bytes()[:3000])
    else:
        shard.unlink()
    before = tree(store)
    arguments = ["--request", "x", "--data-set", str(folder), "-s", f"store={store.root}"]
    refused = CliRunner().invoke(app, ["purge", *arguments])
    assert isinstance(refused.exception, InputError)
    assert str(folder) in str(refused.exception)
    assert tree(store) == before


@pytest.mark.parametrize(("name", "beside"), [("set[1]", "set1"), ("set*", "set2"), ("set?", "set2")])
def test_a_data_set_is_its_own_folder_whatever_that_is_called(tmp_path: Path, name: str, beside: str) -> None:
    salt, row = "salt", {"crawl": "c", "id": "a", "content_hash": "h"}
    for folder, names in ((name, ["a", "b"]), (beside, ["a", "a", "a", "c"])):
        (tmp_path / folder / "data").mkdir(parents=True)
        shard = "data/train-00000-of-00001.parquet"
        (tmp_path / folder / "manifest.json").write_text(json.dumps({"files": {shard: {}}}))
        rows = pa.Table.from_pylist([{**row, "id": each} for each in names])
        pq.write_table(rows, tmp_path / folder / shard)
    gone = {"c": [hashed(salt, "a")]}
    found = [documents_in(tmp_path / folder, salt, gone, []) for folder in (name, beside)]
    assert found == [1, 3]


@pytest.mark.slow
def test_a_later_purge_knows_models_whose_subset_was_purged_and_removes_them_once_superseded(
    copied: Pipeline,
) -> None:
    store = copied.store
    first = purge(store, "x")
    assert first is not None
    models = {location for location in first.standing if location.startswith("pretrain/")}
    assert models
    tokenizers = {store.manifest_at(each)["inputs"]["tokenizer"]["location"] for each in models}
    run_all_but_models(copied)
    planned = plan(store)
    assert models <= {*planned.standing}
    assert tokenizers == {*planned.kept}
    for stage in ("pretrain", "evaluate", "answers", "compare"):
        for pointer in Path(store.root, stage).rglob("current.json"):
            pointer.unlink()
    second = purge(store, "y")
    assert second is not None
    assert models | tokenizers <= {*second.removed}
    assert not any(Path(store.root, location).exists() for location in models | tokenizers)
    assert purge(store, "z") is None

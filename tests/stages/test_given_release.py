"""A release that goes on from another one: holds its subsets, adds to them from new crawls, and proves it."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from restated import restate
from tiny_chain import write_crawl
from typer.testing import CliRunner

from assets.checks import Artefact
from assets.select import SHOWN
from datamask_pipeline import Given, select_documents
from datamask_pipeline.audit.funnel import funnel
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.prove_behind import prove_behind
from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish as publish_data_set
from datamask_pipeline.selection.reasons import HELD, PASSED_OVER
from datamask_pipeline.stages.release_rows import read_rows
from datamask_pipeline.stages.select import told
from datamask_pipeline.storage import Store, array_files, require
from datamask_pipeline.storage.releases import frozen
from datamask_pipeline.storage.tombstones import Tombstone, publish

OLD, NEW = ("tiny-2024-10", "tiny-2024-18"), "tiny-2024-22"
ARM = "second/datamask"


def rows_of(pipeline: Pipeline, artefact: str, key: str) -> list[dict[str, Any]]:
    return pipeline.store.read_table(require(pipeline.store, artefact, key)).to_pylist()


def run_until(pipeline: Pipeline, release: str, *stages: str) -> Pipeline:
    for stage in stages:
        for _, _, call in pipeline.steps(release, stage):
            call()
    return pipeline


def reserve_of(pipeline: Pipeline, release: str) -> list[dict[str, Any]]:
    """The mask's rows of the runners-up that a release keeps, by what stands beside its mask."""
    ref = require(pipeline.store, "select", f"{release}/datamask")
    positions = np.load(Path(pipeline.store.root) / ref.location / "reserve" / "positions.npy")
    rows = {row["position"]: row for row in rows_of(pipeline, "select", f"{release}/datamask")}
    return [rows[position] for position in positions.tolist()]


def vector_of(store: Store, row: dict[str, Any]) -> bytes:
    """The bytes of a document's vector."""
    embedded = require(store, "embed", row["crawl"])
    for name, path in array_files(store, embedded).items():
        with store.part_file(embedded, name) as part:
            ids = part.read(["id"]).column("id").to_pylist()
        if row["id"] in ids:
            return bytes(np.load(path)[ids.index(row["id"])].tobytes())
    raise AssertionError(row)


def holding(record: Path, data: bytes) -> set[str]:
    """The stages whose artefacts, or work, hold these bytes in an array."""
    return {path.relative_to(record).parts[0] for path in record.rglob("*.npy") if data in path.read_bytes()}


def findings(pipeline: Pipeline, release: str) -> list[str]:
    return [finding.line() for finding in prove_record(pipeline.store, release)]


@pytest.fixture(scope="module")
def chain(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny record and a third crawl, with exact and near copies of what the first release selected in it."""
    folder = tmp_path_factory.mktemp("given")
    crawls = Path(tiny_run.config.source.options["root"])
    shutil.copytree(crawls, folder / "crawls")
    shutil.copytree(tiny_run.store.root, folder / "record")
    write_crawl(folder / "crawls", NEW, 50, seed=7)
    settings = {
        "store": str(folder / "record"),
        "source.options.root": str(folder / "crawls"),
        "copies.threshold": 0.98,
        "pool.validation_share": 0.0,
        "releases": {
            "first": {"crawls": list(OLD)},
            "second": {"given": "first"},
            "whole": {"crawls": [*OLD, NEW]},
        },
        "arms.best": {"policy": "quality_topk"},
    }
    config = crawls.parent / "tiny.yaml"
    before = run_until(Pipeline(load_config(str(config), settings)), "first", "materialise")
    held = rows_of(before, "materialise", "first/datamask")[:6]
    planted = []
    for number, row in enumerate(held):
        text = row["text"] if number < 3 else row["text"] + " Nothing that anybody reads follows here." * 3
        planted.append({**row, "id": f"<urn:uuid:planted-{number}>", "text": text, "dump": NEW})
    shard = folder / "crawls" / NEW / "001.jsonl"
    kept = list(json.loads(shard.read_text().splitlines()[0]))
    lines = [json.dumps({name: row.get(name) for name in kept}) + "\n" for row in planted]
    shard.write_text(shard.read_text() + "".join(lines))
    pipeline = run_until(Pipeline(load_config(str(config), settings)), "second", "materialise", "redundancy")
    run_until(pipeline, "whole", "select")
    return pipeline, str(config), settings


def test_the_subset_is_the_union(chain: Any) -> None:
    pipeline, _, _ = chain
    assert pipeline.release_crawls("second") == [*OLD, NEW]
    assert (file := frozen(pipeline.store, "second"))
    assert file.given == "first"
    for arm in ("datamask", "random", "best"):
        before = {row["id"] for row in rows_of(pipeline, "materialise", f"first/{arm}")}
        after = rows_of(pipeline, "materialise", f"second/{arm}")
        assert before < {row["id"] for row in after}
        reserve = {row["id"] for row in reserve_of(pipeline, "first")} if arm == "datamask" else set()
        came = [row for row in after if row["id"] not in before]
        assert {row["crawl"] for row in came if row["id"] not in reserve} == {NEW}
    mask = rows_of(pipeline, "select", ARM)
    reasons = {
        row["reason"]: {other["selected"] for other in mask if other["reason"] == row["reason"]}
        for row in mask
    }
    assert reasons[HELD] == {True}
    assert reasons[PASSED_OVER] == {False}
    assert {row["crawl"] for row in mask if row["reason"] in (HELD, PASSED_OVER)} == set(OLD)
    manifest = pipeline.store.manifest(require(pipeline.store, "select", ARM))
    given, counts = manifest["metadata"]["given"], manifest["counts"]
    assert given["release"] == "first"
    assert (given["gone"], given["vectors_read"]) == (0, False)
    assert counts["kept"] - given["held"] == round(0.3 * sum(row["crawl"] == NEW for row in mask))
    assert counts["dropped_passed_over"] == given["passed_over"] > 0
    lines = list(told(manifest))
    added = counts["kept"] - given["held"]
    again = f", {given['from_reserve']} of them from its reserve" if given["from_reserve"] else ""
    assert lines == [
        f"datamask holds {given['held']} documents of first and adds {added}, given those{again}"
    ]


def test_copies_of_what_is_held_are_not_taken_again(chain: Any) -> None:
    pipeline, _, _ = chain
    found = {row["id"]: row for row in rows_of(pipeline, "pool", "second") if "planted" in row["id"]}
    exact = [found[f"<urn:uuid:planted-{number}>"]["exclusion"] for number in range(3)]
    assert exact == ["duplicate_content"] * 3
    near = {row["id"]: row for row in rows_of(pipeline, "copies", "second") if "planted" in row["id"]}
    held = {row["id"] for row in rows_of(pipeline, "select", "first/datamask") if row["selected"]}
    assert len(near) == 3
    assert {row["near_copy_of"] for row in near.values()} <= held
    assert not any("planted" in row["id"] for row in rows_of(pipeline, "select", ARM))


@pytest.mark.slow
def test_the_card_says_of_which_release_its_near_copies_are(chain: Any, tmp_path: Path) -> None:
    """Two sentences with two numbers, and nothing else, contradicted each other."""
    store = chain[0].store
    config = PublishConfig(licence="odc-by", source_licence="odc-by")
    publish_data_set(store, "second", "datamask", str(tmp_path / "set"), config)
    lines = (tmp_path / "set" / "README.md").read_text().splitlines()
    own, before = (
        store.manifest(require(store, "copies", release))["counts"]["dropped_near_copy"]
        for release in ("second", "first")
    )
    of_before = " in release `first`, which this one goes on from,"
    assert [
        line.partition(" were left out as near-copies")[0] for line in lines if "as near-copies" in line
    ] == [
        f"- {before} of those that could be selected{of_before}",
        f"- {own} of those that could be selected",
    ]
    assert list(prove_behind(store, store.fs, str(tmp_path / "set"))) == []


def test_the_index_goes_on_from_release_to_release(chain: Any) -> None:
    """The same rows as from nothing, and the earlier vectors are not taken in again.

    The size of a group is that of when its document's crawl came in.
    """
    pipeline, _, _ = chain
    first, second, whole = (rows_of(pipeline, "copies", each) for each in ("first", "second", "whole"))
    assert second[: len(first)] == first
    assert second[len(first) :] == whole[len(first) :]
    size = "num_near_copies"
    assert [{**row, size: 0} for row in second] == [{**row, size: 0} for row in whole]
    assert any(row[size] < other[size] for row, other in zip(second, whole, strict=True))
    went_on = pipeline.store.manifest(require(pipeline.store, "copies", "second"))["metadata"]
    assert went_on["held"] == require(pipeline.store, "copies", "first").rows
    assert "held" not in pipeline.store.manifest(require(pipeline.store, "copies", "whole"))["metadata"]


def test_of_the_held_index_no_byte_is_written_again(chain: Any) -> None:
    """Its segments are the same files under a second name; what is written anew leaves the earlier files as they were."""
    pipeline, _, _ = chain
    before, after = (require(pipeline.store, "copies", each) for each in ("first", "second"))
    folders = [Path(pipeline.store.root, ref.location, "index") for ref in (before, after)]
    segments = [path.relative_to(folders[0]) for path in folders[0].glob("*/*.npy")]
    assert segments
    for name in [*segments, Path("rows.npy"), Path("index.json")]:
        assert (folders[0] / name).samefile(folders[1] / name) == (name in segments), name
    for ref, folder in zip((before, after), folders, strict=True):
        files = {file["name"]: file["sha256"] for file in pipeline.store.manifest(ref)["files"]}
        there = {path for path in folder.rglob("*") if path.is_file()}
        assert {f"index/{path.relative_to(folder).as_posix()}" for path in there} <= {*files}
        for path in there:
            name = f"index/{path.relative_to(folder).as_posix()}"
            assert files[name] == hashlib.sha256(path.read_bytes()).hexdigest(), name


def test_an_index_that_an_earlier_version_made_is_made_anew(chain: Any, tmp_path: Path) -> None:
    """As of all crawls at once: the earlier release may be one that nobody makes again."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    later = Pipeline(load_config(config, settings | {"store": str(tmp_path / "record")}))
    first, second = (require(later.store, "copies", release) for release in ("first", "second"))
    folder = tmp_path / "record" / first.location
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["basis"]["version"] = "2"
    restate(folder / "manifest.json", manifest)
    (folder / "index" / "index.json").write_text('{"format": 1}')
    shutil.rmtree(tmp_path / "record" / second.location)
    (made,) = later.run("copies", "second")
    assert made.content_digest == require(later.store, "copies", "whole").content_digest
    assert later.store.manifest(made)["metadata"]["held"] == 0


def test_the_mask_is_that_of_the_engine_beside_the_vectors_held(chain: Any) -> None:
    """Stored sums give what the held vectors themselves give, on the scale of the earlier release."""
    pipeline, _, _ = chain
    crawls = pipeline.release_crawls("second")
    embeddings = {crawl: require(pipeline.store, "embed", crawl) for crawl in crawls}
    index = require(pipeline.store, "gather", "second")
    rows = read_rows(pipeline.store, index, embeddings, {}, "rank", None)
    mask = pipeline.store.read_table(require(pipeline.store, "select", ARM)).to_pandas()
    first = pipeline.store.manifest(require(pipeline.store, "select", "first/datamask"))["metadata"][
        "blocks"
    ][0]
    held, new = (
        np.flatnonzero(found) for found in (mask["reason"] == HELD, ~mask["reason"].isin([HELD, PASSED_OVER]))
    )
    assert rows.vectors is not None
    result = select_documents(
        rows.vectors[new],
        rows.quality_N[new],
        given=Given.of(rows.vectors[held], rows.quality_N[held]),
        num_documents=round(0.3 * int((mask["crawl"] == NEW).sum())),
        normalisation_constants=first["normalisation"],
    )
    assert (mask["selected"].to_numpy()[new] == result.mask).all()
    block = pipeline.store.manifest(require(pipeline.store, "select", ARM))["metadata"]["blocks"][0]
    assert block["normalisation"] == first["normalisation"]
    assert block["objective"]["value"] == pytest.approx(result.objective.value, abs=1e-6)
    assert block["record"]["given"]["documents"] == len(held)


def test_what_is_told_of_several_blocks_is_of_all_that_the_mask_holds(chain: Any, tmp_path: Path) -> None:
    """In tokens one block adds more documents than another, beside equal parts of what is held."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    arm = {"policy": "quality_topk", "num_tokens": 1_700, "block_rows": 30}
    changed = {**settings, "arms": {"words": arm}, "store": str(tmp_path / "record")}
    again = Pipeline(load_config(config, changed))
    for name in ("first", "second"):
        run_until(again, name, "select")
    metadata = again.store.manifest(require(again.store, "select", "second/words"))["metadata"]
    assert len({block["record"]["selected"] for block in metadata["blocks"]}) > 1
    selected = [row for row in rows_of(again, "select", "second/words") if row["selected"]]
    zero, one = metadata["blocks"][0]["normalisation"]["quality"]
    mean = np.mean([row["quality"] for row in selected])
    assert metadata["quality_term"] == pytest.approx((mean - zero) / (one - zero), abs=1e-9)
    assert findings(again, "second") == []


def test_runners_up_are_judged_again_and_nobody_else(chain: Any) -> None:
    """The reserve is the largest total marginals of those that are out, with their vectors, as many as were chosen."""
    pipeline, _, _ = chain
    first = rows_of(pipeline, "select", "first/datamask")
    out = [row for row in first if not row["selected"] and row["quality_marginal"] is not None]
    total = {row["id"]: row["quality_marginal"] + row["diversity_marginal"] for row in out}
    kept = {row["id"] for row in reserve_of(pipeline, "first")}
    assert len(kept) == min(len(out), sum(row["selected"] for row in first)) > 0
    assert min(total[name] for name in kept) >= max((total[name] for name in {*total} - kept), default=-9)
    mask = rows_of(pipeline, "select", ARM)
    judged = {row["id"] for row in mask if row["crawl"] != NEW and row["reason"] not in (HELD, PASSED_OVER)}
    assert judged == kept
    given = pipeline.store.manifest(require(pipeline.store, "select", ARM))["metadata"]["given"]
    assert given["reserve"] == len(kept)
    assert given["from_reserve"] == sum(row["selected"] for row in mask if row["id"] in kept)


@pytest.mark.slow
def test_tables_of_the_earlier_crawls_are_carried_over(chain: Any, tmp_path: Path) -> None:
    """They are the earlier release's, byte for byte; the indexes beside them are those that would be made anew."""
    pipeline, _, _ = chain
    for stage in ("pool", "copies", "gather"):
        before, after = (
            pipeline.store.manifest(require(pipeline.store, stage, each)) for each in ("first", "second")
        )
        assert [part["sha256"] for part in after["parts"][:2]] == [part["sha256"] for part in before["parts"]]
        assert "held" in after["inputs"]
    assert findings(pipeline, "first") == []
    same = [
        {row["id"]: row for row in rows_of(pipeline, "gather", each) if row["crawl"] == NEW}
        for each in ("second", "whole")
    ]
    assert same[0] == same[1]


@pytest.mark.slow
def test_a_third_release_goes_on_from_the_second(chain: Any, tmp_path: Path) -> None:
    """Nobody is held twice, budgets are met, and all of it is proved; the same bytes from two processes."""
    pipeline, config, settings = chain
    digests = []
    for workers in (1, 2):
        folder = tmp_path / f"{workers}"
        shutil.copytree(pipeline.store.root, folder / "record")
        shutil.copytree(settings["source.options.root"], folder / "crawls")
        write_crawl(folder / "crawls", "tiny-2024-26", 40, seed=9)
        changed = settings | {
            "store": str(folder / "record"),
            "source.options.root": str(folder / "crawls"),
            "compute.workers": workers,
            "releases": settings["releases"] | {"third": {"given": "second"}},
        }
        third = run_until(Pipeline(load_config(config, changed)), "third", "materialise")
        digests.append([require(third.store, "select", f"third/{arm}") for arm in ("datamask", "best")])
        held = {(row["crawl"], row["id"]) for row in rows_of(third, "materialise", ARM)}
        rows = [(row["crawl"], row["id"]) for row in rows_of(third, "materialise", "third/datamask")]
        assert len(rows) == len({*rows})
        assert held < {*rows}
        given = third.store.manifest(digests[-1][0])["metadata"]["given"]
        new = sum(row["crawl"] == "tiny-2024-26" for row in rows_of(third, "select", "third/datamask"))
        assert len(rows) - len(held) == round(0.3 * new)
        assert given["held"] == len(held)
        assert given["reserve"] > 0
        assert not given["vectors_read"]
        assert findings(third, "third") == []
        first_held = next(row for row in rows_of(third, "select", "first/datamask") if row["selected"])
        story = "\n".join(story_lines(document_story(third.store, first_held["id"])))
        assert "in by release first" in story
    assert [ref.content_digest for ref in digests[0]] == [ref.content_digest for ref in digests[1]]


@pytest.mark.slow
def test_an_earlier_crawl_that_was_repaired_is_taken_in_by_its_ids(chain: Any, tmp_path: Path) -> None:
    """Nothing is carried over, and no reserve is taken, whose places are others now; what is held is found by id."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    shutil.copytree(settings["source.options.root"], tmp_path / "crawls")
    shard = tmp_path / "crawls" / OLD[0] / "000.jsonl"
    held = {row["id"] for row in rows_of(pipeline, "select", "first/datamask") if row["selected"]}
    lines = shard.read_text().splitlines()
    gone = next(number for number, line in enumerate(lines) if json.loads(line)["id"] not in held)
    shard.write_text("".join(f"{line}\n" for number, line in enumerate(lines) if number != gone))
    changed = settings | {
        "store": str(tmp_path / "record"),
        "source.options.root": str(tmp_path / "crawls"),
    }
    repaired = Pipeline(load_config(config, changed))
    for stage in ("ingest", "embed", "score"):
        repaired.run(stage, OLD[0])
    again = run_until(repaired, "second", "materialise")
    before = require(pipeline.store, "select", ARM)
    given = again.store.manifest(require(again.store, "select", ARM))["metadata"]["given"]
    assert require(again.store, "select", ARM) != before
    assert (given["gone"], given["vectors_read"], given["reserve"]) == (0, True, 0)
    assert held < {row["id"] for row in rows_of(again, "materialise", ARM)}
    assert findings(again, "second") == []


@pytest.mark.slow
def test_a_held_document_with_another_text_is_judged_anew_and_so_is_one_that_came_later(
    chain: Any, tmp_path: Path
) -> None:
    """The earlier release is not made again: what it chose was the text that was there then."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    shutil.copytree(settings["source.options.root"], tmp_path / "crawls")
    shard = tmp_path / "crawls" / OLD[0] / "000.jsonl"
    held = {row["id"] for row in rows_of(pipeline, "select", "first/datamask") if row["selected"]}
    lines = [json.loads(line) for line in shard.read_text().splitlines()]
    changed = next(line for line in lines if line["id"] in held)
    changed["text"] = (
        "Quite another text stands here today, of which nobody thought when this one was chosen. " * 4
    )
    text = (
        "A document that came into its crawl when the first release had long been made, and was read by nobody. "
        * 4
    )
    lines.append({**lines[-1], "id": "<urn:uuid:late>", "text": text})
    shard.write_text("".join(json.dumps(line) + "\n" for line in lines))
    moved = {"store": str(tmp_path / "record"), "source.options.root": str(tmp_path / "crawls")}
    later = Pipeline(load_config(config, {**settings, **moved}))
    for stage in ("ingest", "embed", "score"):
        later.run(stage, OLD[0])
    again = run_until(later, "second", "materialise")
    mask = {row["id"]: row["reason"] for row in rows_of(again, "select", ARM)}
    assert {mask[name] for name in held - {changed["id"]} if name in mask} == {HELD}
    for name in (changed["id"], "<urn:uuid:late>"):
        assert mask[name] not in (HELD, PASSED_OVER)
    manifest = again.store.manifest(require(again.store, "select", ARM))
    assert manifest["metadata"]["given"]["gone"] == 1
    assert any("have another text" in line for line in told(manifest))
    assert findings(again, "second") == []


@pytest.mark.slow
def test_a_runner_up_that_was_purged_is_in_no_reserve(chain: Any, tmp_path: Path) -> None:
    """Its vector stands in no file of the record, and the releases go on from each other as before."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    runner_up = reserve_of(pipeline, "first")[0]
    changed = settings | {"store": str(tmp_path / "record"), "pool.takedown": [runner_up["id"]]}
    again = Pipeline(load_config(config, changed))

    def run_all() -> None:
        run_until(again, "first", "materialise", "redundancy")
        run_until(again, "second", "materialise", "redundancy")
        run_until(again, "whole", "select")

    vector = vector_of(again.store, runner_up)
    assert holding(tmp_path / "record", vector) == {"embed", "select"}
    run_all()
    off = ("tokenizer", "questions", "ngram", "pretrain", "evaluate", "answers", "compare")
    assert purge(again.store, "letter 17", off) is not None
    run_all()
    purge(again.store, "letter 17, the rest", off)
    assert not holding(tmp_path / "record", vector)
    given = again.store.manifest(require(again.store, "select", ARM))["metadata"]["given"]
    assert given["reserve"] > 0
    assert findings(again, "second") == []


@pytest.mark.slow
def test_it_is_proved_and_a_forged_sum_is_found(chain: Any, tmp_path: Path) -> None:
    pipeline, config, settings = chain
    assert findings(pipeline, "second") == []
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    forged = Pipeline(load_config(config, settings | {"store": str(tmp_path / "record")}))
    ref = require(forged.store, "select", "first/datamask")
    path = tmp_path / "record" / ref.location / "held.npy"
    sums = np.load(path)
    sums[0, 0] += 5
    np.save(path, sums)
    vectors = tmp_path / "record" / ref.location / "reserve" / "vectors.npy"
    kept = np.load(vectors)
    kept[0] = -kept[0]
    np.save(vectors, kept)
    found = findings(forged, "second")
    assert any("held.npy" in line for line in found)
    assert any("reserve/vectors.npy" in line for line in found)


def test_why_says_which_release_brought_a_document_in(chain: Any) -> None:
    pipeline, _, _ = chain
    held = next(row for row in rows_of(pipeline, "select", ARM) if row["reason"] == HELD)
    story = document_story(pipeline.store, held["id"])
    lines = "\n".join(story_lines(story))
    assert (
        "brought in by release first: above threshold" in lines or "in by release first: exception" in lines
    )
    passed = next(row for row in rows_of(pipeline, "select", ARM) if row["reason"] == PASSED_OVER)
    assert "decided in release first" in "\n".join(story_lines(document_story(pipeline.store, passed["id"])))


def test_why_ends_where_the_earlier_mask_was_purged(chain: Any, tmp_path: Path) -> None:
    pipeline, _, _ = chain
    held = next(row for row in rows_of(pipeline, "select", ARM) if row["reason"] == HELD)
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    store = Store(tmp_path / "record")
    old = require(store, "select", "first/datamask").location
    removed = {old: store.manifest_at(old) | {"held": {}}}
    publish(store, Tombstone(1, "letter 17", "2026-11-22T20:38:10Z", "done", "salt", {}, [], removed, []))
    shutil.rmtree(tmp_path / "record" / old)
    (tmp_path / "record" / "select" / "first/datamask" / "current.json").unlink()
    lines = "\n".join(story_lines(document_story(store, held["id"])))
    assert "decided before, in release first: its mask was purged by request 1 (letter 17)" in lines


def test_other_commands_take_it(chain: Any) -> None:
    pipeline, _, settings = chain
    arms = {arm["arm"]: arm for arm in funnel(pipeline.store, "second")["arms"]}
    rules = {drop["rule"] for level in arms["datamask"]["levels"] for drop in level["dropped"]}
    assert {PASSED_OVER, "near_copy", "duplicate_content"} <= rules
    held = next(row for row in rows_of(pipeline, "select", ARM) if row["reason"] == HELD)
    options = ["-s", f"store={settings['store']}"]
    told = CliRunner().invoke(app, ["audit", "flip", held["id"], *options])
    assert "decided by an earlier release" in told.output
    diff = CliRunner().invoke(app, ["audit", "diff", "first/datamask", ARM, *options])
    assert diff.exit_code == 0, diff.output
    assert "goes on from" not in diff.output, "from what it is compared with"
    for pair, said in (
        ((ARM, "whole/datamask"), "first -> nothing"),
        (("whole/datamask", ARM), "nothing -> first"),
    ):
        told = CliRunner().invoke(app, ["audit", "diff", *pair, *options])
        assert f"  differs: select: goes on from {said}" in told.output.splitlines()
        listed = CliRunner().invoke(app, ["audit", "diff", *pair, "--json", *options])
        changes = json.loads(listed.stdout)
        reasons = [{row["name"] for row in changes[side]["reasons"]} for side in ("came", "went")]
        assert all("displaced" not in names for names in reasons)
        assert "earlier_release" in reasons[0] | reasons[1], changes


@pytest.mark.slow
def test_what_was_withdrawn_is_not_held(chain: Any, tmp_path: Path) -> None:
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    held = next(row for row in rows_of(pipeline, "select", ARM) if row["reason"] == HELD)
    changed = settings | {"store": str(tmp_path / "record"), "pool.takedown": [held["id"]]}
    again = run_until(Pipeline(load_config(config, changed)), "second", "materialise")
    assert held["id"] not in {row["id"] for row in rows_of(again, "materialise", ARM)}
    given = again.store.manifest(require(again.store, "select", ARM))["metadata"]["given"]
    assert (given["gone"], given["vectors_read"]) == (1, True)
    assert findings(again, "second") == []


def test_a_mask_that_goes_on_from_one_that_was_made_again_is_stale(chain: Any, tmp_path: Path) -> None:
    pipeline, config, settings = chain
    assert stale(pipeline.store, require(pipeline.store, "select", "second/random")) == []
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    changed = settings | {"store": str(tmp_path / "record"), "select.seed": 7}
    again = Pipeline(load_config(config, changed))
    again.run("select", "first", "random")
    (why,) = stale(again.store, require(again.store, "select", "second/random"))
    assert why.startswith("select of first/random was made again since")


def test_settings_that_cannot_be_are_refused(chain: Any, tmp_path: Path) -> None:
    _, config, settings = chain
    fresh = settings | {"store": str(tmp_path / "record")}
    circle = {"releases": {"a": {"given": "b"}, "b": {"given": "a"}}}
    with pytest.raises(ConfigurationError, match=r"releases\.a\.given: a goes on from b goes on from a"):
        load_config(config, fresh | circle)
    nothing = {"releases": {"first": {}, "second": {"given": "first", "crawls": [*OLD, NEW]}}}
    with pytest.raises(ConfigurationError, match="'second' adds no crawl to those of 'first'"):
        Pipeline(load_config(config, fresh | nothing)).check()
    _, _, same = chain
    with pytest.raises(ConfigurationError, match=r"frozen with 'first', not without"):
        Pipeline(
            load_config(config, same | {"releases": {"second": {"crawls": [*OLD, NEW]}}})
        ).release_crawls("second")
    later = Pipeline(load_config(config, same | {"arms.later": {"policy": "random"}}))
    with pytest.raises(ConfigurationError, match="has no mask of arm 'later'"):
        later.run("select", "second", "later")


def test_the_configuration_is_yaml(tmp_path: Path, tiny_config_file: Path) -> None:
    values = yaml.safe_load(tiny_config_file.read_text())
    values["releases"] = {"first": {"crawls": ["tiny-2024-10"]}, "second": {"given": "first"}}
    values["store"] = str(tmp_path / "record")
    path = tmp_path / "given.yaml"
    path.write_text(yaml.safe_dump(values))
    pipeline = Pipeline(load_config(str(path)))
    assert pipeline.planned_crawls("second") == list(OLD)
    refused = Pipeline(load_config(str(path), {"arms.paper": {"policy": "policy_gradient"}}))
    with pytest.raises(
        ConfigurationError, match=r"arms\.paper\.policy: .* beside what release 'second' holds of 'first'"
    ):
        refused.check("select")
    refused = Pipeline(
        load_config(str(path), {"arms.cover": {"policy": "datamask", "diversity": "Facility"}})
    )
    with pytest.raises(
        ConfigurationError,
        match=r"arms\.cover\.diversity: .*'Facility' is none of moments.* release 'second'",
    ):
        refused.check("select")
    dry = CliRunner().invoke(app, ["run", "-c", str(path), "--dry-run", "--until", "select"])
    assert dry.exit_code == 0, dry.output


@pytest.mark.slow
@pytest.mark.parametrize("longer", [0, 1])
def test_a_crawl_of_which_nothing_is_new_adds_nothing_and_holds_nobody_up(
    chain: Any, tmp_path: Path, longer: int
) -> None:
    """A mirror of an earlier crawl, with at most one document of its own."""
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    shutil.copytree(pipeline.config.source.options["root"], tmp_path / "crawls")
    mirror, after = "tiny-2024-26", "tiny-2024-30"
    shutil.copytree(tmp_path / "crawls" / OLD[0], tmp_path / "crawls" / mirror)
    for path in (tmp_path / "crawls" / mirror).iterdir():
        path.write_text(path.read_text().replace("urn:uuid:", "urn:uuid:mirror-"))
    if longer:
        path = sorted((tmp_path / "crawls" / mirror).iterdir())[0]
        first, *others = path.read_text().splitlines(keepends=True)
        row = json.loads(first)
        path.write_text(
            json.dumps(row | {"text": row["text"] + " This was never there before."}) + "\n" + "".join(others)
        )
    write_crawl(tmp_path / "crawls", after, 40, seed=11)
    release = {
        "first": {"crawls": list(OLD)},
        "second": {"given": "first", "crawls": [mirror]},
        "third": {"given": "second", "crawls": [after]},
    }
    changed = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(tmp_path / "crawls"),
        "releases": release,
        "copies.threshold": None,
    }
    shutil.rmtree(tmp_path / "record" / "releases", ignore_errors=True)
    again = Pipeline(load_config(config, {**settings, **changed}))
    for name in release:
        run_until(again, name, "materialise")
    for arm in ("datamask", "random", "best"):
        first, second, third = (
            {row["id"] for row in rows_of(again, "materialise", f"{name}/{arm}")} for name in release
        )
        assert first == second < third
        mask = rows_of(again, "select", f"second/{arm}")
        assert {row["reason"] for row in mask} == {HELD, PASSED_OVER}
    held = again.store.manifest(require(again.store, "select", "second/datamask"))
    before = again.store.manifest(require(again.store, "select", "first/datamask"))
    assert held["metadata"]["objective"] == before["metadata"]["objective"]
    assert list(told(held)) == [
        f"datamask holds {held['counts']['kept']} documents of first and adds none: the added crawls have too few eligible "
        "documents of their own"
    ]
    assert [findings(again, name) for name in release] == [[], [], []]
    for arm in ("datamask", "random", "best"):
        assert all(not failing_checks(again, f"{name}/{arm}") for name in release)


def failing_checks(pipeline: Pipeline, key: str) -> list[str]:
    """Dagster's blocking checks of a mask and its learning curve that fail; what else its page shows is made, too."""
    failing = []
    for asset, stage in (("selection_mask", "select"), ("learning_curve", "learning_curve")):
        ref, shown = require(pipeline.store, stage, key), SHOWN[asset]
        artefact = Artefact(pipeline, ref, pipeline.store.manifest(ref))
        failing += [check.__name__ for check in shown.blocking if not check(artefact).passed]
        assert shown.headline is not None
        shown.headline(artefact)
    return failing


@pytest.mark.slow
def test_a_budget_larger_than_what_was_added_takes_all_of_it(chain: Any, tmp_path: Path) -> None:
    pipeline, config, settings = chain
    shutil.copytree(pipeline.store.root, tmp_path / "record")
    budgets = {
        "arms.few": {"policy": "datamask", "num_documents": 60},
        "arms.words": {"policy": "datamask", "num_tokens": 9_000},
    }
    again = Pipeline(load_config(config, {**settings, **budgets, "store": str(tmp_path / "record")}))
    for name in ("first", "second"):
        run_until(again, name, "select")
    for arm in ("few", "words"):
        mask = rows_of(again, "select", f"second/{arm}")
        manifest = again.store.manifest(require(again.store, "select", f"second/{arm}"))
        held, kept = manifest["metadata"]["given"]["held"], manifest["counts"]["kept"]
        if arm == "few":
            assert (held, kept) == (60, 120)
        else:  # fewer tokens than asked for are there
            assert held < kept == len([row for row in mask if row["reason"] != PASSED_OVER])
        assert findings(again, "second") == []
        assert not failing_checks(again, f"second/{arm}")

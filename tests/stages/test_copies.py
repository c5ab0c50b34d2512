"""Near-copies by embedding are left out of a release, each with its representative; off, the flow is what it was."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_programs import DAGSTER, PLAIN
from tiny_chain import write_tiny_config
from typer.testing import CliRunner

from datamask_pipeline import schema
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.stages import windows
from datamask_pipeline.stages.copies import told as told_of_copies
from datamask_pipeline.stages.release_rows import read_rows
from datamask_pipeline.storage import require

CRAWLS = ("tiny-2024-10", "tiny-2024-18")
THRESHOLD = 0.98
#: (crawl, number of the document whose text is repeated with other words behind what the encoder reads, copies)
PLANTED = (("tiny-2024-10", 3, 2), ("tiny-2024-18", 8, 1))


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny chain with near-copies planted in its later crawl."""
    path = write_tiny_config(tmp_path_factory.mktemp("copies"))
    later = path.parent / "crawls" / CRAWLS[1] / "001.jsonl"
    rows = []
    for crawl, number, copies in PLANTED:
        shard = path.parent / "crawls" / crawl / f"{number % 2:03d}.jsonl"
        row = json.loads(shard.read_text().splitlines()[number // 2])
        for copy in range(copies):
            text = f"{row['text']} {'Nothing that anybody reads follows here. ' * 4}{copy}"
            name = f"<urn:uuid:copy-{crawl}-{number}-{copy}>"
            rows.append({**row, "dump": CRAWLS[1], "id": name, "text": text})
    later.write_text(later.read_text() + "".join(json.dumps(row) + "\n" for row in rows))
    return path


def chain(config_file: Path, record: Path, **settings: Any) -> Pipeline:
    fixed = {"store": str(record), "pool.validation_share": 0, "releases.first.crawls": list(CRAWLS)}
    return Pipeline(load_config(str(config_file), fixed | settings))


def run_until(pipeline: Pipeline, stage: str) -> Pipeline:
    for _, _, call in pipeline.steps("first", stage):
        call()
    return pipeline


@pytest.fixture(scope="module")
def off(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The chain as it is by default."""
    return run_until(chain(config_file, tmp_path_factory.mktemp("off")), "materialise")


@pytest.fixture(scope="module")
def on(config_file: Path, off: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The same record, then with near-copies collapsed."""
    record = tmp_path_factory.mktemp("on") / "record"
    shutil.copytree(off.store.root, record)
    return run_until(chain(config_file, record, **{"copies.threshold": THRESHOLD}), "materialise")


def rows_of(pipeline: Pipeline, artefact: str, key: str = "first") -> list[dict[str, Any]]:
    return pipeline.store.read_table(require(pipeline.store, artefact, key)).to_pylist()


def by_all_pairs(pipeline: Pipeline) -> dict[str, tuple[str, float]]:
    """Near-copy -> what stands for it and their cosine, out of all pairs of the eligible documents' vectors."""
    embeddings = {crawl: require(pipeline.store, "embed", crawl) for crawl in CRAWLS}
    index = require(pipeline.store, "gather", "first")
    rows = read_rows(pipeline.store, index, embeddings, {}, "rank", None)
    assert rows.vectors is not None
    assert rows.scored_R.all()
    vectors_ND = rows.vectors[np.arange(len(rows))].astype(np.float64)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    ids = [row["id"] for row in rows_of(pipeline, "gather")]
    found: dict[str, tuple[str, float]] = {}
    standing: list[int] = []
    for place, vector_D in enumerate(vectors_ND):
        near = [other for other in standing if vectors_ND[other] @ vector_D >= THRESHOLD]
        if near:
            found[ids[place]] = (ids[near[0]], float(vectors_ND[near[0]] @ vector_D))
        else:
            standing.append(place)
    return found


@pytest.mark.slow
def test_rows_are_the_same_in_windows_of_any_size(
    config_file: Path, on: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(on.store.root, tmp_path / "record")
    shutil.rmtree(tmp_path / "record" / "copies")
    monkeypatch.setattr(windows, "ROWS", 5)
    again = chain(config_file, tmp_path / "record", **{"copies.threshold": THRESHOLD})
    (made,) = again.run("copies", "first")
    assert made.content_digest == require(on.store, "copies", "first").content_digest


def test_each_near_copy_names_the_first_that_stands_for_it(on: Pipeline, off: Pipeline) -> None:
    expected = by_all_pairs(off)
    copies = rows_of(on, "copies")
    found = {
        row["id"]: (row["near_copy_of"], row["cosine"]) for row in copies if row["near_copy_of"] is not None
    }
    assert {name: of for name, (of, _) in found.items()} == {name: of for name, (of, _) in expected.items()}
    for name, (_, cosine) in found.items():
        assert cosine == pytest.approx(expected[name][1], abs=1e-6)
    for crawl, number, planted in PLANTED:
        for copy in range(planted):
            of = found[f"<urn:uuid:copy-{crawl}-{number}-{copy}>"][0]
            original = f"<urn:uuid:{crawl}-{number:05d}>"
            assert of in (original, found.get(original, ("",))[0])
    sizes: dict[str, int] = {}
    for row in copies:
        representative = row["near_copy_of"] or row["id"]
        sizes[representative] = sizes.get(representative, 0) + 1
    assert all(row["num_near_copies"] == sizes[row["near_copy_of"] or row["id"]] for row in copies)


def test_rows_balance_and_the_representatives_carry_their_count_to_the_subset(
    on: Pipeline, off: Pipeline
) -> None:
    num_copies, eligible = len(by_all_pairs(off)), len(rows_of(off, "gather"))
    counts = {
        name: on.store.manifest(require(on.store, name, "first"))["counts"] for name in ("copies", "gather")
    }
    assert num_copies >= 3
    assert counts["copies"] == {
        "rows_in": eligible,
        "kept": eligible - num_copies,
        "dropped_near_copy": num_copies,
    }
    assert counts["gather"]["dropped_near_copy"] == num_copies
    assert counts["gather"]["kept"] == eligible - num_copies
    sizes = {
        row["id"]: row["num_near_copies"] for row in rows_of(on, "copies") if row["near_copy_of"] is None
    }
    assert {row["id"]: row["num_near_copies"] for row in rows_of(on, "gather")} == sizes
    for arm in ("random", "datamask"):
        subset = rows_of(on, "materialise", f"first/{arm}")
        assert subset
        assert all(row["num_near_copies"] == sizes[row["id"]] for row in subset)
    assert sum(sizes.values()) == eligible


def test_the_audit_names_representative_cosine_and_count(on: Pipeline) -> None:
    copy = next(row for row in rows_of(on, "copies") if row["near_copy_of"] is not None)
    told = "\n".join(story_lines(document_story(on.store, copy["id"])))
    of = f"near-copy of {copy['near_copy_of']} of {copy['near_copy_of_crawl']}: cosine {copy['cosine']:.6g}"
    assert of in told
    assert f"its representative {copy['near_copy_of']} of {copy['near_copy_of_crawl']} is" in told
    told = "\n".join(story_lines(document_story(on.store, copy["near_copy_of"])))
    assert f"stands for a group of {copy['num_near_copies']} near-copies" in told


def test_columns_are_described_and_the_data_card_tells_of_near_copies(on: Pipeline, tmp_path: Path) -> None:
    near_copies = require(on.store, "copies", "first")
    with on.store.part_file(near_copies, on.store.part_names(near_copies)[0]) as part:
        assert part.schema_arrow.equals(schema.NEAR_COPIES, check_metadata=True)
    config = PublishConfig(licence="odc-by", source_licence="odc-by")
    publish(on.store, "first", "datamask", str(tmp_path / "mask"), config)
    card = (tmp_path / "mask" / "README.md").read_text()
    num_copies = on.store.manifest(near_copies)["counts"]["dropped_near_copy"]
    assert f"{num_copies} of those that could be selected were left out as near-copies" in card
    (row,) = (line for line in card.splitlines() if line.startswith("| `num_near_copies`"))
    assert "stage `copies`" in row
    assert "document; `num_near_copies` counts them." in card
    assert "documents that are nearly the same were not" not in card
    assert "with nearly the same words were not, but for those that follow" in card
    ids_only = config.model_copy(update={"ids_only": True})
    publish(on.store, "first", "datamask", str(tmp_path / "ids"), ids_only)
    assert "num_near_copies" not in (tmp_path / "ids" / "README.md").read_text()


def test_the_record_is_proved(on: Pipeline) -> None:
    assert [finding for finding in prove_record(on.store, "first") if finding.kind == "contradiction"] == []


def test_off_there_is_no_trace_and_turned_off_again_all_is_as_before(
    on: Pipeline, off: Pipeline, config_file: Path, tmp_path: Path
) -> None:
    assert off.store.keys("copies") == []
    assert "copies" not in off.store.manifest(require(off.store, "gather", "first"))["inputs"]
    assert "num_near_copies" not in rows_of(off, "gather")[0]
    assert "near_copies" not in {output.asset for stage in off.config.stages() for output in stage.makes}
    shutil.copytree(on.store.root, tmp_path / "record")
    again = run_until(chain(config_file, tmp_path / "record"), "materialise")
    for stage in FLOW.until("materialise"):
        for output in stage.makes:
            for key in off.store.keys(output.artefact):
                assert again.store.current(output.artefact, key) == off.store.current(output.artefact, key)
    copy = next(row["id"] for row in rows_of(on, "copies") if row["near_copy_of"] is not None)
    assert "near-copy" not in "\n".join(story_lines(document_story(again.store, copy)))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("program", "number"), [(PLAIN, 1), (DAGSTER, 2)], ids=["plain", "dagster"])
def test_any_number_of_threads_makes_the_same_plain_and_through_dagster(
    program: str, number: int, on: Pipeline, off: Pipeline, config_file: Path, tmp_path: Path
) -> None:
    for artefact in ("ingest", "rejected", "embed", "score", "pool", "releases"):
        shutil.copytree(Path(off.store.root) / artefact, tmp_path / artefact)
    settings = {
        "store": str(tmp_path),
        "pool.validation_share": 0,
        "releases.first.crawls": list(CRAWLS),
        "copies.threshold": THRESHOLD,
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(number))
    done = subprocess.run(
        [sys.executable, "-c", program, str(config_file), json.dumps(settings)],
        env=os.environ | threads,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = chain(config_file, tmp_path)
    for artefact, key in (("copies", "first"), ("gather", "first"), ("materialise", "first/datamask")):
        assert made.store.current(artefact, key) == on.store.current(artefact, key)


@pytest.mark.parametrize("threshold", [0.5, 1.0, -1, "high"])
def test_a_wrong_threshold_is_refused_before_any_work(threshold: object, config_file: Path) -> None:
    settings = ["-s", f"copies.threshold={threshold}"]
    done = CliRunner().invoke(app, ["config", "check", "-c", str(config_file), *settings])
    assert isinstance(done.exception, ConfigurationError)
    assert re.search(rf"copies\.threshold: .*given: '?{threshold}", str(done.exception))


def test_a_stage_that_is_off_cannot_be_asked_for(off: Pipeline) -> None:
    with pytest.raises(ConfigurationError, match=r"'copies' is off"):
        list(off.steps("first", "copies"))
    with pytest.raises(ConfigurationError, match=r"copies\.threshold"):
        off.run("copies", "first")


def test_near_copies_of_other_candidates_are_refused(on: Pipeline, config_file: Path, tmp_path: Path) -> None:
    shutil.copytree(on.store.root, tmp_path / "record")
    takedown = [rows_of(on, "pool")[0]["id"]]
    settings = {"copies.threshold": THRESHOLD, "pool.takedown": takedown}
    pipeline = chain(config_file, tmp_path / "record", **settings)
    pipeline.run("takedown", "first")
    pipeline.run("pool", "first")
    with pytest.raises(IntegrityError, match=r"sought with other candidates.*'copies'"):
        pipeline.run("gather", "first")


def test_a_threshold_at_which_few_are_found_is_told() -> None:
    counts = {"rows_in": 10, "dropped_near_copy": 2}
    about = {"threshold": 0.9, "largest_group": 3}

    def lines(recall: float) -> list[str]:
        return [*told_of_copies({"counts": counts, "metadata": about | {"expected_recall": recall}})]

    assert len(lines(0.998)) == 1
    assert lines(0.26)[1].startswith("of pairs at that cosine 26% are expected to be found")

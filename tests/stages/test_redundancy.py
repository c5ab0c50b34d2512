"""What is measured of an arm's documents, against plain loops over the record; it changes no mask, subset or model."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stages.test_select_stage import Inputs

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.audit.prove_behind import prove_behind
from datamask_pipeline.cli.summary import _about_redundancy
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import publish
from datamask_pipeline.stages import redundancy
from datamask_pipeline.storage import Store, array_files, require

RELEASE = "first"
ARMS = ["random", "datamask"]


def measured(pipeline: Pipeline, arm: str) -> dict[str, Any]:
    ref = require(pipeline.store, "redundancy", f"{RELEASE}/{arm}")
    (row,) = pipeline.store.read_table(ref).to_pylist()
    metadata = pipeline.store.manifest(ref)["metadata"]
    assert metadata == {"release": RELEASE, "arm": arm, **row}
    return row


def vectors_of(pipeline: Pipeline) -> dict[tuple[str, str], NDArray[np.float64]]:
    found = {}
    for crawl in pipeline.release_crawls(RELEASE):
        ref = require(pipeline.store, "embed", crawl)
        ids = pipeline.store.read_table(ref, ["id"]).column(0).to_pylist()
        stored = np.concatenate([np.load(path) for path in array_files(pipeline.store, ref).values()])
        unit = stored.astype(np.float64) / np.linalg.norm(stored.astype(np.float64), axis=1, keepdims=True)
        found |= {(crawl, name): vector for name, vector in zip(ids, unit, strict=True)}
    return found


@pytest.mark.parametrize("arm", ARMS)
def test_the_figures_are_those_of_plain_loops(tiny_run: Pipeline, arm: str) -> None:
    row, vectors = measured(tiny_run, arm), vectors_of(tiny_run)
    mask = tiny_run.store.read_table(require(tiny_run.store, "select", f"{RELEASE}/{arm}")).to_pylist()
    subset = tiny_run.store.read_table(require(tiny_run.store, "materialise", f"{RELEASE}/{arm}")).to_pylist()
    chosen = np.array([vectors[each["crawl"], each["id"]] for each in mask if each["selected"]])
    pool = np.array([vectors[each["crawl"], each["id"]] for each in mask])
    standing: list[int] = []
    for place in range(len(chosen)):
        if not any(chosen[place] @ chosen[other] >= 0.98 for other in standing):
            standing.append(place)
    below = [sum(other["quality"] < each["quality"] for other in mask) for each in mask]
    equal = [sum(other["quality"] == each["quality"] for other in mask) for each in mask]
    ranks = [(low + (same - 1) / 2) / (len(mask) - 1) for low, same in zip(below, equal, strict=True)]
    assert row["documents"] == len(subset) == len(chosen)
    assert row["pool_documents"] == row["coverage_documents"] == len(mask)
    assert row["tokens"] == sum(each["token_count"] for each in subset)
    assert row["exact_copies"] == len(subset) - len({each["content_hash"] for each in subset})
    assert row["near_copies"] == len(chosen) - len(standing)
    assert row["quality_rank"] == pytest.approx(
        np.mean([rank for rank, each in zip(ranks, mask, strict=True) if each["selected"]])
    )
    assert row["coverage"] == pytest.approx((pool @ chosen.T).max(1).mean(), abs=1e-4)
    assert row["coverage_error"] == 0.0


#: Row -> the row it is near to, and how near.
NEAR = {30: (20, 0.99), 31: (20, 0.985), 40: (21, 0.999), 50: (22, 0.95), 60: (23, 0.9805), 61: (60, 0.9999)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A release in which some vectors are near to others, one of which states no tokens, two without a score."""
    return Inputs(Store(tmp_path_factory.mktemp("made")), near=NEAR, unscored=2, uncounted=3)


def measure(made: Inputs, ratio: float = 0.9, **settings: Any) -> dict[str, Any]:
    selection, _ = made.select(policy="random", ratio=ratio)
    ref = redundancy.run(
        redundancy.RedundancyConfig(**settings),
        store=made.store,
        release="r",
        arm="a",
        candidates=made.candidates,
        index=made.index,
        embeddings=made.embeddings,
        selection=selection,
    )
    (row,) = made.store.read_table(ref).to_pylist()
    return row


@pytest.mark.parametrize("threshold", [0.94, 0.98])
def test_near_copies_are_those_at_the_threshold_or_above(made: Inputs, threshold: float) -> None:
    _, mask = made.select(policy="random", ratio=0.9)
    chosen = {row["id"] for row in mask if row["selected"]}
    vectors = np.load(next(iter(array_files(made.store, made.embeddings["one"]).values()))).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    standing: list[int] = []
    for row in range(len(vectors)):
        if f"d{row:03d}" in chosen and not any(
            vectors[row] @ vectors[other] >= threshold for other in standing
        ):
            standing.append(row)
    row = measure(made, threshold=threshold)
    assert (row["documents"], row["near_copy_cosine"]) == (len(chosen), threshold)
    assert row["near_copies"] == len(chosen) - len(standing) > 0
    assert row["exact_copies"] == 0
    tokens = [10 + int(name[1:]) for name in chosen if name != "d002"]  # that one states none
    assert (row["tokens"], row["without_tokens"]) == (sum(tokens), len(chosen) - len(tokens))
    assert row["near_copy_recall"] > 0.99


def test_coverage_is_measured_on_as_many_documents_as_are_asked_for(made: Inputs) -> None:
    row, other = (measure(made, ratio=0.1, coverage_documents=25, seed=seed) for seed in (0, 1))
    assert (row["coverage_documents"], row["pool_documents"]) == (25, 118)
    assert row["coverage_error"] > 0
    assert row["coverage"] != other["coverage"]


def test_a_mask_of_another_index_is_refused(made: Inputs, tmp_path: Path) -> None:
    other = Inputs(Store(tmp_path), unscored=7)
    selection, _ = other.select(policy="random", ratio=0.9)
    made_from = {"candidates": made.candidates, "index": made.index, "embeddings": made.embeddings}
    (tmp_path / "gather").rename(tmp_path / "their_gather")
    for name in ("pool", "gather", "embed"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        (tmp_path / name).symlink_to(Path(made.store.root) / name)
    config = redundancy.RedundancyConfig()
    with pytest.raises(IntegrityError, match=r"has 113 rows where the index has 118"):
        redundancy.run(config, store=other.store, release="r", arm="a", selection=selection, **made_from)


def test_the_card_tells_the_figures_and_the_proof_covers_them(tiny_run: Pipeline, tmp_path: Path) -> None:
    store, row, folder = tiny_run.store, measured(tiny_run, "random"), tmp_path / "set"
    publish(store, RELEASE, "random", str(folder), PublishConfig(licence="odc-by", source_licence="odc-by"))
    card = (folder / "README.md").read_text()
    assert f"| {row['near_copies']} ({100 * row['near_copies'] / row['documents']:.3g} %) |" in card
    assert f"| {row['coverage']:.6g} |" in card
    assert "Facility alone seeks coverage" in card
    assert f"| {row['quality_rank']:.6g} |" in card
    behind = json.loads((folder / "manifest.json").read_text())["lineage"]
    assert require(store, "redundancy", f"{RELEASE}/random").location in behind
    assert list(prove_behind(store, store.fs, str(folder))) == []


def test_the_proof_of_a_release_measures_again(tiny_run: Pipeline) -> None:
    assert [
        finding for finding in prove_record(tiny_run.store, RELEASE) if "redundancy" in finding.file
    ] == []


def test_where_few_near_copies_are_found_that_is_told_beside_their_number(tiny_run: Pipeline) -> None:
    manifest = tiny_run.store.manifest(require(tiny_run.store, "redundancy", f"{RELEASE}/random"))
    (line,) = redundancy.told(manifest)
    assert "expected to be found" not in line, "every pair of so few was compared"
    few = {**manifest, "metadata": {**manifest["metadata"], "near_copy_recall": 0.31}}
    (line,) = redundancy.told(few)
    assert (
        "(cosine from 0.98; of pairs at that cosine 31% are expected to be found, more of nearer ones)"
        in line
    )
    (line, *_) = _about_redundancy({"random": few["metadata"], "datamask": manifest["metadata"]})
    assert line.endswith("31% are expected to be found, more of nearer ones")

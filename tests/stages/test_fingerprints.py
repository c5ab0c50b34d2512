"""Equal fingerprints mean equal results: all that a stage reads is hashed, and nothing that is not hashed is written."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restated import restate

from assets import materialise as materialise_asset
from assets.checks import Artefact
from datamask_pipeline.pipeline import FLOW, Pipeline, chain
from datamask_pipeline.stages import questions, select, tokenizer
from datamask_pipeline.stages.compare import CompareConfig
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, require

RELEASE = "first"
STAGES = [
    stage.name for stage in FLOW if stage.reads and stage.name not in ("copies", "takedown")
]  # which are off; see their own tests


class Hashed(Exception):
    """A stage came to the point where it knows its fingerprint."""


@pytest.fixture
def basis_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], dict[str, Any]]:
    """What a call of a stage hashes; nothing is computed."""

    def stop(self: ArtefactBuilder) -> None:
        raise Hashed(json.dumps(self._basis))

    def basis(call: Callable[[], Any]) -> dict[str, Any]:
        monkeypatch.setattr(ArtefactBuilder, "finished", stop)
        with pytest.raises(Hashed) as hashed:
            call()
        found: dict[str, Any] = json.loads(str(hashed.value))
        return found

    return basis


@pytest.fixture
def copied(tiny_run: Pipeline, tmp_path: Path) -> Pipeline:
    """The tiny chain over a copy of its record."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    return Pipeline(tiny_run.config.model_copy(update={"store": str(tmp_path / "record")}))


def change_manifest(
    pipeline: Pipeline, stage: str, key: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """Metadata as another version of the stage would leave it beside the same content."""
    path = Path(pipeline.store.file_path(require(pipeline.store, stage, key), "manifest.json"))
    manifest = json.loads(path.read_text())
    change(manifest["metadata"])
    restate(path, manifest)


@pytest.mark.parametrize("stage", STAGES)
def test_every_artefact_that_a_stage_reads_is_hashed(
    stage: str, tiny_run: Pipeline, basis_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, str]] = []
    changed: tuple[str, str] | None = None

    def recorded(store: Store, other: str, key: str) -> Ref:
        read.append((other, key))
        ref = require(store, other, key)
        return dataclasses.replace(ref, content_digest="changed") if (other, key) == changed else ref

    monkeypatch.setattr(chain, "require", recorded)
    anew = Pipeline(tiny_run.config)  # which has made nothing, and takes what is current
    call = next(call for name, _, call in anew.steps(RELEASE) if name == stage)
    before = basis_of(call)
    for item in tuple(read):
        changed = item
        if (stage, item[0]) in (("score", "embed"), ("pretrain", "materialise"), ("ngram", "materialise")):
            assert (
                basis_of(call) == before
            )  # the rules read no vectors; a model reads its subset's documents alone
        else:
            assert basis_of(call) != before, item
    assert read


def test_a_crawl_may_be_called_as_another_input(tiny_run: Pipeline, basis_of: Any) -> None:
    pool, documents = (
        tiny_run.store.current("pool", RELEASE),
        tiny_run.store.current("ingest", "tiny-2024-10"),
    )
    for stage, config in ((tokenizer, tiny_run.config.tokenizer), (questions, tiny_run.config.evaluate)):
        given = {"store": tiny_run.store, "release": RELEASE, "candidates": pool}
        found = basis_of(lambda: stage.run(config, **given, documents={"candidates": documents}))  # noqa: B023
        assert sorted(found["inputs"].values()) == sorted([pool.content_digest, documents.content_digest])


def test_a_comparison_in_another_order_is_another_comparison(copied: Pipeline) -> None:
    before = copied.store.current("compare", RELEASE)
    arms = dict(reversed(copied.config.arms.items()))
    swapped = Pipeline(copied.config.model_copy(update={"arms": arms}))
    (after,) = swapped.run("compare", RELEASE)
    assert after.fingerprint != before.fingerprint
    assert [row["arm"] for row in copied.store.manifest(after)["metadata"]["arms"]] == list(arms)
    assert after.content_digest != before.content_digest
    assert copied.run("compare", RELEASE) == (before,)


def test_a_baseline_that_is_not_named_is_hashed_as_the_arm_that_it_is(copied: Pipeline) -> None:
    before = require(copied.store, "compare", RELEASE)
    assert copied.store.manifest(before)["basis"]["config"]["baseline"] == "random"
    named = copied.config.model_copy(update={"compare": CompareConfig(baseline="random")})
    assert Pipeline(named).run("compare", RELEASE) == (before,)


@pytest.mark.parametrize(("stage", "figure"), [("pretrain", "subset_tokens"), ("select", "objective")])
def test_a_comparison_follows_the_figures_that_it_reads_from_manifests(
    copied: Pipeline, stage: str, figure: str
) -> None:
    """How tokens are counted may change, and the certificate's rule, while weights and mask stay as they are."""
    before = copied.store.current("compare", RELEASE)
    key = copied.store.keys(stage)[0]
    change_manifest(copied, stage, key, lambda metadata: metadata.update({figure: metadata[figure] + 1.0}))
    (after,) = copied.run("compare", RELEASE)
    assert after.fingerprint != before.fingerprint


def test_a_model_follows_its_subsets_documents(copied: Pipeline, basis_of: Any) -> None:
    run_name = copied.config.run_names()[0]
    before = basis_of(lambda: copied.run("pretrain", RELEASE, run_name))
    key = f"{RELEASE}/{run_name.split('.')[0]}"
    change_manifest(copied, "materialise", key, lambda metadata: metadata.update(documents_digest="others"))
    assert basis_of(lambda: copied.run("pretrain", RELEASE, run_name)) != before


def test_a_selection_made_again_with_the_same_mask_leaves_the_subset(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"{RELEASE}/datamask"
    mask, subset = copied.store.current("select", key), copied.store.current("materialise", key)
    monkeypatch.setattr(select, "VERSION", "later")
    again, _ = copied.run("select", RELEASE, "datamask")
    assert again.fingerprint != mask.fingerprint
    assert again.content_digest == mask.content_digest
    assert copied.run("materialise", RELEASE, "datamask") == (subset,)
    artefact = Artefact(copied, subset, copied.store.manifest(subset))
    assert materialise_asset.subset_is_the_mask(artefact).passed
    shutil.rmtree(Path(copied.store.root) / "materialise")
    assert copied.run("materialise", RELEASE, "datamask") == (subset,)


def test_results_name_their_model_by_what_is_hashed(tiny_run: Pipeline) -> None:
    for key in tiny_run.store.keys("evaluate"):
        rows = tiny_run.store.read_table(require(tiny_run.store, "evaluate", key)).to_pylist()
        model = require(tiny_run.store, "pretrain", key)
        assert {row["model_digest"] for row in rows} == {model.content_digest[:16]}


def test_an_evaluation_hashes_what_was_asked_and_not_where_it_lay(copied: Pipeline, basis_of: Any) -> None:
    run_name = copied.config.run_names()[0]

    def basis(folder: str) -> dict[str, Any]:
        given = {"questions": folder}
        found: dict[str, Any] = basis_of(lambda: copied.run("evaluate", RELEASE, run_name, overrides=given))
        return found

    before = basis("/one/place/questions")
    assert basis("another/questions") == before
    change_manifest(copied, "questions", RELEASE, lambda metadata: metadata["sets"][0].update(chance=0.125))
    assert basis("another/questions") != before

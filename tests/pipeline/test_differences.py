"""What is asked to be withdrawn, or to be held against, is told as settings are."""

import json
import shutil
from pathlib import Path

import pytest

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.differences import other_settings_of_masks, other_settings_of_subset
from datamask_pipeline.stages import pool
from datamask_pipeline.storage import Store, require

WITHDRAWN = (
    "what pool.takedown and pool.robots ask to be withdrawn: other in the record than in the configuration"
)
CURATED = "documents of pool.decontaminate.curated: other in the record than in the configuration"
WORDS = "never a word of this stands in a document of the chain"


@pytest.fixture(scope="module")
def record(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The tiny chain with a list of withdrawals and curated documents in files, as far as its subsets."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "asked.txt").write_text("one\ntwo\n")
    (folder / "curated.jsonl").write_text(json.dumps({"id": "c", "text": WORDS}) + "\n")
    settings = {
        "takedown": (f"file:{folder / 'asked.txt'}",),
        "decontaminate": {"curated": str(folder / "curated.jsonl")},
    }
    values = tiny_run.config.pool.model_dump() | settings
    update = {"store": str(folder / "record"), "pool": pool.PoolConfig.model_validate(values)}
    pipeline = Pipeline(tiny_run.config.model_copy(update=update))
    for _, _, call in pipeline.steps("first", until="materialise"):
        call()
    return pipeline


def of_subset(pipeline: Pipeline) -> dict[str, list[str]]:
    store: Store = pipeline.store
    return other_settings_of_subset(pipeline, store.manifest(require(store, "materialise", "first/datamask")))


def asking(record: Pipeline, **update: object) -> Pipeline:
    settings = record.config.pool.model_copy(update=update)
    return Pipeline(record.config.model_copy(update={"pool": settings}))


@pytest.mark.slow
def test_what_the_record_was_made_by_differs_in_nothing(record: Pipeline) -> None:
    assert of_subset(record) == {}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("entries", [("one",), ("one", "two", "three"), ("one", "other")])
def test_other_withdrawals_are_told(record: Pipeline, entries: tuple[str, ...]) -> None:
    assert of_subset(asking(record, takedown=entries)) == {WITHDRAWN: ["first"]}
    store = record.store
    masks = [store.manifest(require(store, "select", f"first/{arm}")) for arm in record.config.arms]
    assert other_settings_of_masks(asking(record, takedown=entries), masks) == {WITHDRAWN: ["first"]}


def test_withdrawals_that_no_run_would_take_are_told(record: Pipeline) -> None:
    for entries in (("",), ("file:/nowhere",)):
        (line,) = of_subset(asking(record, takedown=entries))
        assert line.startswith("stage takedown: ")


def test_nothing_asked_is_another_flow(record: Pipeline) -> None:
    assert of_subset(asking(record, takedown=())) == {
        "stage takedown: only in the record": ["first/datamask"]
    }


def test_a_list_that_grew_and_curated_documents_that_changed_are_told(record: Pipeline) -> None:
    folder = Path(record.store.root).parent
    before = {name: (folder / name).read_text() for name in ("asked.txt", "curated.jsonl")}
    try:
        (folder / "asked.txt").write_text("one\ntwo\nthree\n")
        (folder / "curated.jsonl").write_text(json.dumps({"id": "c", "text": f"other, {WORDS}"}) + "\n")
        assert of_subset(record) == {WITHDRAWN: ["first"], CURATED: ["first"]}
    finally:
        for name, text in before.items():
            (folder / name).write_text(text)


def test_a_withdrawal_that_a_run_applied_and_that_took_nothing_is_no_difference(
    record: Pipeline, tmp_path: Path
) -> None:
    """The pool came out the same, so that no run makes the subset anew; it was refused for publication all the same."""
    shutil.copytree(record.store.root, tmp_path / "record")
    copied = Pipeline(record.config.model_copy(update={"store": str(tmp_path / "record")}))
    for entries in (("nobody",), ()):
        asked = asking(copied, takedown=entries)
        assert of_subset(asked) != {}
        before = require(asked.store, "materialise", "first/datamask")
        for _, _, call in asked.steps("first", until="materialise"):
            call()
        assert require(asked.store, "materialise", "first/datamask") == before
        assert of_subset(asked) == {}

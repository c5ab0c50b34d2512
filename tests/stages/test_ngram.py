"""The n-gram ruler on a record: against the plain formula over its texts, off, cut, and refused without held-out texts."""

import math
import shutil
from collections import Counter
from pathlib import Path

import pytest

from datamask_pipeline import texts
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pretraining.tokenizer import load_tokenizer
from datamask_pipeline.schema import HELD_OUT
from datamask_pipeline.stages import ngram
from datamask_pipeline.storage import require

RELEASE, ARM = "first", "datamask"


def rows_of(pipeline: Pipeline, arm: str = ARM) -> list[dict[str, object]]:
    return pipeline.store.read_table(require(pipeline.store, "ngram", f"{RELEASE}/{arm}")).to_pylist()


def test_bits_of_held_out_documents_are_those_of_the_formula(tiny_run: Pipeline, tmp_path: Path) -> None:
    store = tiny_run.store
    tree = store.local_copy(require(store, "tokenizer", RELEASE), "tokenizer", tmp_path)
    tokenizer = load_tokenizer(tree)
    end = tokenizer.eos_token_id
    counts: dict[tuple[int, ...], Counter[int]] = {}

    def padded(text: str) -> list[int]:
        return [end, end, *tokenizer.encode(text, add_special_tokens=False), end]

    for row in store.read_table(require(store, "materialise", f"{RELEASE}/{ARM}")).to_pylist():
        ids = padded(row["text"])
        for place in range(2, len(ids)):
            for order in range(3):
                counts.setdefault(tuple(ids[place - order : place]), Counter())[ids[place]] += 1

    def probability(token: int, context: tuple[int, ...]) -> float:
        lower = probability(token, context[1:]) if context else 1 / len(tokenizer)
        if not (seen := counts.get(context)):
            return lower
        return (seen[token] + len(seen) * lower) / (sum(seen.values()) + len(seen))

    crawls = {crawl: require(store, "ingest", crawl) for crawl in tiny_run.release_crawls(RELEASE)}
    held_out = dict(texts.pool_documents(store, require(store, "pool", RELEASE), crawls, "validation"))
    found = {row["question_id"]: row for row in rows_of(tiny_run) if row["task"] == HELD_OUT}
    assert found.keys() == held_out.keys()
    for name, text in list(held_out.items())[:5]:
        ids = padded(text)
        bits = -sum(
            math.log2(probability(ids[place], tuple(ids[place - 2 : place]))) for place in range(2, len(ids))
        )
        assert found[name]["gold_bits"] == pytest.approx(bits, rel=1e-9)
        assert found[name]["gold_bytes"] == len(text.encode())


def test_every_question_has_its_row_and_shares_where_there_are_choices(tiny_run: Pipeline) -> None:
    sets = tiny_run.store.manifest(require(tiny_run.store, "questions", RELEASE))["metadata"]["sets"]
    found = Counter(row["task"] for row in rows_of(tiny_run))
    assert {task: number for task, number in found.items() if task != HELD_OUT} == {
        item["task"]: item["num_questions"] for item in sets
    }
    for row in rows_of(tiny_run):
        no_choices = row["task"] in (HELD_OUT, "nq_open", "triviaqa")
        assert (row["gold_probability"] is None) == no_choices
        assert no_choices or 0 < float(str(row["gold_probability"])) < 1


def test_equal_tokens_for_every_arm(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    cut = Pipeline(
        load_config(str(tiny_config_file), {"store": str(tmp_path / "record"), "ngram.max_tokens": 500})
    )
    for arm in tiny_run.config.arms:
        before = require(tiny_run.store, "ngram", f"{RELEASE}/{arm}")
        (made,) = cut.run("ngram", RELEASE, arm)
        assert cut.store.manifest(made)["metadata"]["tokens"] == 500
        assert tiny_run.store.manifest(before)["metadata"]["tokens"] > 500


def test_it_can_be_switched_off(tiny_run: Pipeline, tiny_config_file: Path) -> None:
    config = load_config(str(tiny_config_file), {"store": tiny_run.store.root, "ngram.enabled": False})
    assert "ngram" not in [name for name, _, _ in Pipeline(config).steps(RELEASE)]
    with pytest.raises(ConfigurationError, match="stage 'ngram' is off"):
        config.stages("ngram")


def test_without_a_held_out_document_it_is_refused(
    tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram.texts, "pool_documents", lambda *_, **__: iter(()))
    with pytest.raises(
        ConfigurationError, match=r"holds out no document to measure on; raise pool\.validation_share"
    ):
        tiny_run.run("ngram", RELEASE, ARM, overrides={"max_tokens": 77})

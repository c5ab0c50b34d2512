"""Documents that hold so many words of a question are found, others are not, and a list leaves them out of every arm."""

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.contamination import contamination
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require


def words(text: str) -> str:
    return " " + " ".join("".join(c if c.isalnum() or c == "_" else " " for c in text.lower()).split()) + " "


def test_hits_are_those_that_a_plain_search_finds(withdrawn: Pipeline) -> None:
    store = withdrawn.store
    found, hit = contamination(store, "first", ngram=8)
    (folder,) = store.manifest(require(store, "questions", "first"))["trees"]
    place = f"{store.root}/{require(store, 'questions', 'first').location}/{folder['name']}"
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    eligible = [row["id"] for row in pool if row["eligible"]]
    texts = {
        row["id"]: words(row["text"])
        for crawl in store.keys("ingest")
        for row in store.read_table(require(store, "ingest", crawl)).to_pylist()
    }
    contexts = [
        words(row["sentence"]).split() for row in pq.read_table(f"{place}/winogrande.parquet").to_pylist()
    ]
    grams = {" ".join(each[n : n + 8]) for each in contexts for n in range(len(each) - 7)}
    wanted = {name for name in eligible if any(f" {gram} " in texts[name] for gram in grams)}
    assert found["documents"] == len(eligible)
    assert found["documents_hit"] == len(hit) >= found["tasks"]["winogrande"]["documents_hit"] > 0
    assert wanted <= {name for name, _ in hit}
    assert f"{store.root}/{found['tasks']['winogrande']['file']}" == f"{place}/winogrande.parquet"
    asked = pq.read_table(f"{place}/winogrande.parquet").to_pylist()
    for example in found["tasks"]["winogrande"]["examples"]:
        question = asked[example["row"]]  # counted from 0
        assert example["question_id"] == question["question_id"]
        filled = [question["sentence"].replace("_", question[f"option{n}"]) for n in (1, 2)]
        said = [*filled, *map(str, question.values())]
        assert any(f" {example['words']} " in words(text) for text in said)
        assert f" {example['words']} " in texts[example["document"]]
        assert len(example["words"].split()) == 8
    more, _ = contamination(store, "first", ngram=60)
    assert more["documents_hit"] == 0
    assert all(of["too_short"] <= of["questions"] for of in more["tasks"].values())


def test_its_list_leaves_them_out(copied: Pipeline) -> None:
    store = copied.store
    list_file = f"{store.root}/../hit.txt"
    arguments = [
        "audit",
        "contamination",
        "first",
        "--ngram",
        "13",
        "--list",
        list_file,
        "-s",
        f"store={store.root}",
    ]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    found, hit = contamination(store, "first")
    assert hit
    assert "rows of its questions are counted from 0" in told.output
    assert f"{len(hit):,} of {found['documents']:,} eligible documents share 13 words" in told.output
    entries = (*copied.config.pool.takedown, f"file:{list_file}")
    copied.run("takedown", "first", overrides={"takedown": entries})
    ref = copied.run("pool", "first", overrides={"takedown": entries})[0]
    excluded = {row["id"]: row["exclusion"] for row in store.read_table(ref).to_pylist()}
    assert {excluded[name] for name, _ in hit} == {"takedown"}


def test_a_release_without_questions_is_refused(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="questions"):
        contamination(Store(str(tmp_path)), "first")

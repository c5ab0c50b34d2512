"""A document that is named by its copy in another crawl goes from every release, and can be purged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_chain import write_crawl
from typer.testing import CliRunner

from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.compliance.takedown import takedown_report
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import require

OLD, NEW, COPY = "tiny-2024-10", "tiny-2024-22", "<urn:uuid:a-copy>"


def made(pipeline: Pipeline) -> Pipeline:
    """Both releases, to their subsets."""
    for release in ("one", "two"):
        for _, _, call in pipeline.steps(release, "materialise"):
            call()
    return pipeline


@pytest.fixture
def chain(tiny_config_file: Path, tmp_path: Path) -> tuple[Pipeline, dict[str, Any], str]:
    """Two releases, each with a crawl, of which the later holds a copy of what the earlier selected; settings; its text."""
    crawls = tiny_config_file.parent / "crawls"
    shutil.copytree(crawls / OLD, tmp_path / "crawls" / OLD)
    write_crawl(tmp_path / "crawls", NEW, 40, seed=5)
    settings = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(tmp_path / "crawls"),
        "releases": {"one": {"crawls": [OLD]}, "two": {"given": "one", "crawls": [NEW]}},
        "arms": {"random": {"policy": "random"}},
        "pool.validation_share": 0.0,
        "redundancy": {},
    }
    before = Pipeline(load_config(str(tiny_config_file), settings))
    for _, _, call in before.steps("one", "materialise"):
        call()
    row = before.store.read_table(require(before.store, "materialise", "one/random")).to_pylist()[0]
    shard = tmp_path / "crawls" / NEW / "001.jsonl"
    line = json.loads(shard.read_text().splitlines()[0]) | {"id": COPY, "text": row["text"]}
    shard.write_text(shard.read_text() + json.dumps(line) + "\n")
    pipeline = made(Pipeline(load_config(str(tiny_config_file), settings)))
    assert holds(pipeline, "one", row["text"])
    return pipeline, settings, row["text"]


def holds(pipeline: Pipeline, release: str, text: str) -> bool:
    """Whether a subset has a text."""
    subset = require(pipeline.store, "materialise", f"{release}/random")
    return text in pipeline.store.read_table(subset, ["text"]).column("text").to_pylist()


@pytest.mark.slow
def test_it_goes_from_every_release_and_is_purged(
    chain: tuple[Pipeline, dict[str, Any], str], tiny_config_file: Path
) -> None:
    _, settings, text = chain
    asking = Pipeline(load_config(str(tiny_config_file), settings | {"pool.takedown": [f"id:{COPY}"]}))
    made(asking)
    store = asking.store
    assert not holds(asking, "one", text)
    assert not holds(asking, "two", text)
    documents = store.read_table(require(store, "ingest", OLD), ["text"]).column("text").to_pylist()
    number = documents.count(text)
    (entry,) = takedown_report(store, "one")["entries"]
    assert [entry[name] for name in ("asked", "named", "by_text", "withdrawn")] == [
        f"id:{COPY}",
        *[number] * 3,
    ]
    told = CliRunner().invoke(app, ["audit", "takedown", "one", "-s", f"store={store.root}"])
    assert f"names {number} ({number} by the text of what it names in other crawls)" in told.output
    assert purge(store, "x") is not None
    made(asking)
    purge(store, "the rest")
    for release in ("one", "two"):
        assert list(prove_record(store, release)) == []
        assert {row["kind"] for row in store.read_table(require(store, "takedown", release)).to_pylist()} == {
            "hidden"
        }
    left = [
        path
        for path in Path(store.root).rglob("*.parquet")
        if text in str(store.open_parquet(str(path)).read())
    ]
    assert left == []


def test_one_run_withdraws_it_where_the_crawl_of_the_copy_is_new(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    row = json.loads((tiny_config_file.parent / "crawls" / OLD / "000.jsonl").read_text().splitlines()[0])
    for crawl, name in ((OLD, row["id"]), (NEW, COPY)):
        (tmp_path / "crawls" / crawl).mkdir(parents=True)
        others = [
            row | {"id": f"{crawl} {number}", "text": f"{row['text']} {crawl} {number}"}
            for number in range(9)
        ]
        lines = [json.dumps(each) + "\n" for each in (row | {"id": name}, *others)]
        (tmp_path / "crawls" / crawl / "0.jsonl").write_text("".join(lines))
    config = tmp_path / "config.yaml"
    values = {
        "store": str(tmp_path / "record"),
        "source": {"name": "local", "options": {"root": str(tmp_path / "crawls")}},
        "releases": {"one": {"crawls": [OLD]}, "two": {"given": "one", "crawls": [NEW]}},
        "pool": {"takedown": [COPY], "validation_share": 0.0},
    }
    config.write_text(json.dumps(values))
    done = CliRunner().invoke(app, ["run", "-c", str(config), "--until", "pool"])
    assert done.exit_code == 0, done.output
    pipeline = Pipeline(load_config(str(config)))
    for release in ("one", "two"):
        pool = require(pipeline.store, "pool", release)
        assert pipeline.store.manifest(pool)["counts"]["dropped_takedown"] == (1 if release == "one" else 2)


@pytest.mark.slow
def test_what_is_in_the_way_of_a_purge_is_named_with_its_entry_and_what_reaches_it(
    chain: tuple[Pipeline, dict[str, Any], str], tiny_config_file: Path
) -> None:
    settings = chain[1]
    asking = Pipeline(load_config(str(tiny_config_file), settings | {"pool.takedown": [f"id:{COPY}"]}))
    for _, _, call in asking.steps("two", "materialise"):
        call()
    pool = asking.store.read_table(require(asking.store, "pool", "two")).to_pylist()
    (copy,) = (row for row in pool if row["id"] == COPY)
    first = copy["representative_id"]
    expected = (
        rf"which holds {first} of {OLD}; release two withdraws it by pool\.takedown's id:{COPY}, and "
        rf"content:{copy['content_hash']} reaches its text in every release; they are of "
        r"one, one/random, two/random: run all releases"
    )
    with pytest.raises(ConfigurationError, match=expected):
        purge(asking.store, "x")

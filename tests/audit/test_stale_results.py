"""What is stale, and what is not though something before it was made again."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from datamask_pipeline.audit.flip import flips
from datamask_pipeline.audit.publishable import publishable
from datamask_pipeline.audit.stale import retired_behind, stale, superseded
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.releases import retire


def test_a_model_of_the_same_documents_is_not_stale(tiny_run: Pipeline, tmp_path: Path) -> None:
    """Another lambda gives a random mask other figures and the same documents; another seed gives it others."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    record = {"store": str(tmp_path / "record")}
    for changes, is_stale in (({"lamb": 0.3}, False), ({"lamb": 0.3, "seed": 7}, True)):
        select = {**tiny_run.config.select, **changes}
        pipeline = Pipeline(tiny_run.config.model_copy(update=record | {"select": select}))
        store = pipeline.store
        model = next(key for key in store.keys("pretrain") if key.startswith("first/random."))
        before = require(store, "select", "first/random")
        for stage in ("select", "materialise"):
            pipeline.run(stage, "first/random")
        assert require(store, "select", "first/random") != before
        assert bool(stale(store, require(store, "pretrain", model))) is is_stale


def test_what_is_current_again_was_not_made_again_since(tiny_run: Pipeline, tmp_path: Path) -> None:
    """After a run with other settings and one back the mask is the first one, older than the subset of the second."""
    record = {"store": str(shutil.copytree(tiny_run.store.root, tmp_path / "record"))}
    first = Pipeline(tiny_run.config.model_copy(update=record))
    lower = {**tiny_run.config.select, "lamb": 0.1}
    second = Pipeline(tiny_run.config.model_copy(update=record | {"select": lower}))
    for stage in ("select", "materialise"):
        second.run(stage, "first/datamask")
    first.run("select", "first/datamask")
    mask = require(first.store, "select", "first/datamask")
    assert mask == require(tiny_run.store, "select", "first/datamask")
    (line,) = stale(first.store, require(first.store, "materialise", "first/datamask"))
    made = first.store.manifest(mask)["written_at"]
    assert (
        line == f"select of first/datamask is another one by now, made at {made} (fingerprint {mask.short})"
    )


def test_what_a_document_s_side_or_a_release_s_funnel_tells_says_that_it_is_stale(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")
    mask = require(tiny_run.store, "select", "first/datamask")
    document = tiny_run.store.read_table(mask, ["id"])["id"][0].as_py()
    assert flips(Store(record), document, "first", "datamask")[0].stale == ()
    settings = {"store": str(record), "pool.validation_share": 0.4}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    for stage in ("pool", "gather"):
        pipeline.run(stage, "first")
    (told,) = flips(pipeline.store, document, "first", "datamask")
    (line,) = told.stale
    assert line.startswith("gather of first was made again since")
    command = ["audit", "flip", document, "--arm", "datamask", "-s", f"store={record}"]
    assert f"    STALE: {line}\n" in CliRunner().invoke(app, command).stdout
    funnel = CliRunner().invoke(app, ["audit", "funnel", "first", "-s", f"store={record}"]).stdout
    assert [each for each in funnel.splitlines() if "STALE" in each] == [
        f"  STALE: {arm}: {line}" for arm in ("datamask", "random")
    ]


@pytest.mark.slow
def test_what_is_stale_by_a_retired_release_is_said_to_be(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Such a release is not run, so the one that goes on from it stays stale however often that is."""
    shutil.copytree(tiny_run.config.source.options["root"], tmp_path / "crawls")
    crawls = sorted(path.name for path in (tmp_path / "crawls").iterdir())
    settings = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(tmp_path / "crawls"),
        "releases": {"first": {"crawls": crawls[:1]}, "second": {"given": "first", "crawls": crawls[1:]}},
        "arms": {"random": {"policy": "random"}},
    }
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))

    def made(*releases: str) -> None:
        for release in releases:
            for _, _, call in pipeline.steps(release, "materialise"):
                call()

    def refusal() -> str:
        with pytest.raises(ConfigurationError) as caught:
            publishable(pipeline.store, "second", None, wanted, even_stale=False)
        return str(caught.value)

    wanted = PublishConfig(licence="odc-by")
    made("first", "second")
    subset = require(pipeline.store, "materialise", "second/random")
    assert publishable(pipeline.store, "second", None, wanted, even_stale=False) == wanted
    retire(pipeline.store, "first")
    shard = tmp_path / "crawls" / crawls[0] / "001.jsonl"
    line = json.loads(shard.read_text().splitlines()[0]) | {
        "id": "later",
        "text": "A text that came later. " * 20,
    }
    shard.write_text(shard.read_text() + json.dumps(line) + "\n")
    pipeline = Pipeline(pipeline.config)
    made("second")
    subset = require(pipeline.store, "materialise", "second/random")
    assert retired_behind(pipeline.store, subset) == ["first"]
    told = refusal()
    begins = "it goes on from first, retired (`datamask retire first --undo`): "
    lines = [line for each in superseded(pipeline.store) for line in each["why"] if "second" in each["key"]]
    assert lines
    assert all(line.startswith(begins) for line in lines)
    assert (
        "it rests on first, retired, of which no run makes anything: `datamask retire first --undo`, then make it"
        in told
    )
    retire(pipeline.store, "first", retired=False)
    assert "retire" not in refusal()
    made("first", "second")
    assert publishable(pipeline.store, "second", None, wanted, even_stale=False) == wanted

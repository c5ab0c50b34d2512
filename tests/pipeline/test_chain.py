"""Releases are frozen; names and their order mean something."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.errors import ConfigurationError, StorageError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.config import split_run_name
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import releases


@pytest.fixture
def pipeline(tiny_config_file: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))


def test_a_release_is_frozen_when_first_asked_for(pipeline: Pipeline, tiny_config_file: Path) -> None:
    crawls = pipeline.release_crawls("first")
    assert crawls == ["tiny-2024-10", "tiny-2024-18"]
    fewer = {"store": pipeline.config.store, "releases.first": {"crawls": crawls[:1]}}
    other = Pipeline(load_config(str(tiny_config_file), fewer))
    with pytest.raises(ConfigurationError, match="was frozen with crawls"):
        other.release_crawls("first")
    with pytest.raises(ConfigurationError, match="exists and is frozen"):
        releases.freeze(pipeline.store, "first", crawls)


def test_a_release_can_be_named_later(pipeline: Pipeline) -> None:
    with pytest.raises(UnknownNameError, match=r"'second'.*first"):
        pipeline.release_crawls("second")
    releases.freeze(pipeline.store, "second", ["tiny-2024-18"])
    assert pipeline.release_crawls("second") == ["tiny-2024-18"]
    assert pipeline.releases() == ["first", "second"]


def test_a_missing_input_names_the_stage_to_run(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigurationError, match="'ingest' has no artefact for 'tiny-2024-10'"):
        pipeline.run("embed", "tiny-2024-10")


def test_unknown_arms_and_runs_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(UnknownNameError, match="arm 'nobody'"):
        pipeline.run("select", "first", "nobody")
    for stage in ("pretrain", "evaluate"):
        for name in ("nobody.dense.seed0", "nobody"):
            with pytest.raises(UnknownNameError, match=f"run '{name}'"):
                pipeline.run(stage, "first", name)
    with pytest.raises(UnknownNameError, match=r"release 'nowhere'.*first"):
        pipeline.run("pool", "nowhere")
    with pytest.raises(UnknownNameError, match=r"stage 'nothing'.*materialise"):
        pipeline.run("nothing", "first")


@pytest.mark.parametrize("names", [("first",), ("first", "datamask", "more"), ("tiny-2024-10", "")])
def test_a_stage_is_run_for_what_it_belongs_to(names: tuple[str, ...], pipeline: Pipeline) -> None:
    with pytest.raises(ConfigurationError, match=r"'select'|arm 'datamask/more'"):
        pipeline.run("select", *names)
    with pytest.raises(ConfigurationError, match="'pool' runs for one release"):
        pipeline.run("pool", "first", "datamask")


@pytest.mark.parametrize(
    ("setting", "stage", "before"),
    [
        ({"score.scorers": ["nobody"]}, "score", "embed"),
        ({"select.diversity": "nobody"}, "select", "pool"),
        ({"evaluate.tasks": ["nobody"]}, "evaluate", "pretrain"),
    ],
)
def test_only_what_will_run_is_checked(
    setting: dict[str, object], stage: str, before: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    changed = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path), **setting}))
    changed.check(before)
    for until in (stage, "compare"):
        with pytest.raises(UnknownNameError, match="nobody"):
            changed.check(until)


def test_a_run_name_says_arm_architecture_and_seed(pipeline: Pipeline) -> None:
    for name in pipeline.config.run_names():
        arm, architecture, seed = split_run_name(name)
        assert (arm in pipeline.config.arms, architecture, seed) == (True, "dense", 0)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "would be larger than a file may be here"),
        (errno.ENOSPC, "no room left"),
        (errno.EROFS, "Read-only file system.*check `store`"),
    ],
)
def test_a_step_that_cannot_write_its_scratch_says_so(
    number: int, told: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ingest, "begin", full)
    with pytest.raises(StorageError, match=told) as caught:
        pipeline.run("ingest", "tiny-2024-10")
    assert "a scratch file of stage 'ingest' of 'tiny-2024-10'" in str(caught.value)

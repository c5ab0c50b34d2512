"""What names a release's crawls is never lost: not by a misspelt name, not by a damaged file."""

import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline, load_config


def chain(config: Path, record: Path, crawls: list[str]) -> Pipeline:
    return Pipeline(
        load_config(str(config), {"store": str(record), "releases": {"second": {"crawls": crawls}}})
    )


def test_a_misspelt_crawl_does_not_use_up_the_release_name(tiny_config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"crawl of release 'second' 'nope'; .*tiny-2024-10"):
        list(chain(tiny_config_file, tmp_path, ["tiny-2024-18", "nope"]).steps("second"))
    corrected = chain(tiny_config_file, tmp_path, ["tiny-2024-18", "tiny-2024-10"])
    assert corrected.release_crawls("second") == ["tiny-2024-18", "tiny-2024-10"]


def test_a_release_of_no_crawls_is_refused(tiny_config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"releases\.second\.crawls.*at least 1"):
        chain(tiny_config_file, tmp_path, [])


def test_a_crawl_that_came_later_is_told_and_not_taken_in(tiny_config_file: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(tiny_config_file.read_text())
    root = tmp_path / "crawls"
    shutil.copytree(Path(values["source"]["options"]["root"]) / "tiny-2024-10", root / "t1")
    options = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "--until", "ingest"]
    options += ["-s", f"source.options.root={root}"]
    first = CliRunner().invoke(app, ["run", *options])
    assert first.exception is None, first.output
    assert "is not in release" not in first.output
    shutil.copytree(root / "t1", root / "t3")
    second = CliRunner().invoke(app, ["run", *options])
    told = "crawl t3 is not in release first, which was frozen with t1; name a new release to take it in"
    assert told in second.output.splitlines()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"crawls": []}', '{"crawls": [1]}'])
def test_a_damaged_release_is_named_and_kept(content: str, tiny_config_file: Path, tmp_path: Path) -> None:
    pipeline = chain(tiny_config_file, tmp_path, ["tiny-2024-18"])
    pipeline.release_crawls("second")
    path = tmp_path / "releases" / "second.json"
    path.write_text(content)
    with pytest.raises(IntegrityError, match=r'releases/second\.json .*write \{"crawls"'):
        pipeline.release_crawls("second")
    assert path.read_text() == content

"""What names a release's crawls is never lost: not by a misspelt name, not by a damaged file."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"crawls": []}', '{"crawls": [1]}'])
def test_a_damaged_release_is_named_and_kept(content: str, tiny_config_file: Path, tmp_path: Path) -> None:
    pipeline = chain(tiny_config_file, tmp_path, ["tiny-2024-18"])
    pipeline.release_crawls("second")
    path = tmp_path / "releases" / "second.json"
    path.write_text(content)
    with pytest.raises(IntegrityError, match=r'releases/second\.json .*write \{"crawls"'):
        pipeline.release_crawls("second")
    assert path.read_text() == content

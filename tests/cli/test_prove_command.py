"""`datamask audit prove`, as a user calls it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline


def prove(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", "prove", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_data_set_whose_manifest_was_removed_is_said_to_lack_it(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    code, output = prove(tmp_path, "-c", tiny_config_file)
    assert code == 1
    assert "manifest.json: is missing" in output


def test_what_is_no_root_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        prove(tmp_path, "--root", "4ad1")


def test_what_is_neither_a_folder_nor_a_release_is_said_to_be_neither(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no folder furst, .* unknown release 'furst'.*first"
    ):
        prove("furst", "-c", tiny_config_file)


def test_a_file_is_said_to_be_one(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("a key")
    with pytest.raises(
        ConfigurationError, match=r"key\.pem is a file; name the folder of a data set, a release"
    ):
        prove(tmp_path / "key.pem", "-c", tiny_config_file)

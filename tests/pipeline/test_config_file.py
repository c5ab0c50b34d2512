"""Files of settings that cannot be read are one clear line."""

from pathlib import Path

import pytest

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import load_config


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"on: 1\n", r"mine\.yaml: True is the name of no setting.*quotes"),
        (b"1: 2\n", r"mine\.yaml: 1 is the name of no setting"),
        (b"name: caf\xe9\n", r"mine\.yaml is not UTF-8"),
        (b"name: \x00\n", r"mine\.yaml is not YAML in character 7: special"),
        (
            b"a: b: c\n",
            r"mine\.yaml is not YAML in line 1, column 5: mapping values are not allowed here; correct",
        ),
        (b"name: x\nname: y\n", r"mine\.yaml is not YAML in line 2, column 1: 'name' stands twice"),
        (
            b"a: [1\n\nb: 2\n",
            r"in line 3, column 2: expected .*, while parsing a flow sequence that begins in line 1",
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=words) as refused:
        load_config(str(path))
    assert "\n" not in str(refused.value)
    assert "<unicode string>" not in str(refused.value)


@pytest.mark.parametrize("path", ["{tmp}", "{tmp}/none.yaml", "{tmp}/" + "x" * 300, "a\0b"])
def test_what_is_no_file_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="configuration"):
        load_config(path.format(tmp=tmp_path))

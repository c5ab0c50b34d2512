"""YAML of settings: a name that stands twice is refused with its line, in every file that a person writes."""

from pathlib import Path

import pytest
import yaml

from datamask_pipeline.cli.pairs import parse_pairs
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.experiment.config import load_experiment
from datamask_pipeline.pipeline import load_config
from datamask_pipeline.yaml_text import parse_yaml


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", 3),
        ("a:\n  b: 1\n  'b': {}\n", 3),
        ("- {a: 1, a: 1}\n", 1),
        ("base: &base {a: 1}\nother:\n  <<: *base\n  b: 1\n  b: 2\n", 5),
    ],
)
def test_a_name_that_stands_twice_is_refused(text: str, line: int) -> None:
    with pytest.raises(yaml.YAMLError, match=f"stands twice\n.*line {line},"):
        parse_yaml(text)


@pytest.mark.parametrize("value", ["2024-13-45", "2024-01-01 25:00:00", "0b_"])
def test_a_date_or_number_that_is_none_is_refused_with_its_line(value: str, tmp_path: Path) -> None:
    path = tmp_path / "no_date.yaml"
    path.write_text(f"name: a\nseeds: [{value}]\n")
    with pytest.raises(
        ConfigurationError, match=rf"no_date\.yaml .* line 2, column 9: '{value}' is read as a date or"
    ):
        load_config(str(path))
    with pytest.raises(ConfigurationError, match=rf"--set 'name={value}': .*put text in quotes"):
        parse_pairs([f"name={value}"])


def test_what_is_no_repetition_is_read_as_ever() -> None:
    text = """
base: &base {a: 1, b: 2}
again: &again {<<: *base, a: 3}
third: {<<: *again, b: 4}
many: [{a: 1}, {a: 2}]
1: one
"1": another
"""
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_yaml(text)["third"] == {"a": 3, "b": 4}


def test_objects_of_programs_are_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        parse_yaml("a: !!python/object/apply:os.system [true]")


def test_an_alias_of_what_it_stands_in_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "endless.yaml"
    path.write_text("name: a\narms:\n  random: &r {policy: random, again: *r}\n")
    with pytest.raises(ConfigurationError, match=r"line 3, column 38: \*r stands inside &r"):
        load_config(str(path))
    assert parse_yaml("a: &r {b: 1}\nc: [*r, *r]\n") == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}]}


def test_too_many_levels_are_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="more levels"):
        parse_yaml("[" * 2_000 + "]" * 2_000)


def test_both_kinds_of_files_refuse_it(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("name: a\narms:\n  random: {}\n  joint: {}\n  joint: {select: {policy: random}}\n")
    for read in (lambda: load_experiment(path, tmp_path), lambda: load_config(str(path))):
        with pytest.raises(ConfigurationError, match="'joint' stands twice"):
            read()

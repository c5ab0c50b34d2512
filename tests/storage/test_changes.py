"""What is computed again is told with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.changes import current_manifest, reasons, settings_that_differ

BASE: dict[str, Any] = {
    "version": "1",
    "config": {"lamb": 0.5, "of": {"a": 1}},
    "inputs": {"documents/c": "d"},
}


def make(store: Store, version: str, config: dict[str, Any], inputs: dict[str, str]) -> Ref:
    builder = store.begin("select", "first/arm", version=version, config=config, inputs=dict(inputs))
    return builder.finished() or builder.commit([])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"lamb": 0.3, "of": {"a": 1}}}, ["setting lamb 0.5 -> 0.3"]),
        ({"config": {"lamb": 0.5, "of": {"a": 2}}}, ["setting of.a 1 -> 2"]),
        ({"config": {"lamb": 0.5}}, ["setting of, which was {'a': 1}, is not read any more"]),
        ({"config": {**BASE["config"], "new": "x"}}, ["setting new x was not read before"]),
        ({"version": "2"}, ["new version of the stage: 1 -> 2"]),
        ({"inputs": {"documents/c": "e"}}, ["input documents/c changed"]),
        ({"inputs": {"documents/e": "d"}}, ["input documents/c is no longer read", "new input documents/e"]),
    ],
)
def test_what_changed_is_named(change: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert reasons(store, current_manifest(store, "select", "first/arm"), make(store, **BASE)) == []
    before = current_manifest(store, "select", "first/arm")
    assert reasons(store, before, make(store, **{**BASE, **change})) == said


RULES = {"model": "a-model-of-rules-with-a-long-name", "name": "rules", "revision": "1", "scale": [0.0, 1.0]}
PROBE = {**RULES, "name": "probe"}
LONG = "x" * 100


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ([RULES], [RULES, PROBE], [f"setting of: {PROBE} was added"]),
        ([RULES, PROBE], [PROBE], [f"setting of: {RULES} was taken away"]),
        ([PROBE, RULES], [PROBE, {**RULES, "revision": "2"}], ["setting of[1].revision 1 -> 2"]),
        ([RULES, PROBE], [PROBE, RULES], ["setting of: the same values in another order"]),
        ([1, 2], [1, 3], ["setting of: 2 was taken away", "setting of: 3 was added"]),
        ([1, 1], [1], ["setting of: 1 was taken away"]),
        (f"{LONG}a", f"{LONG}b", [f"setting of ...{'x' * 20}a -> ...{'x' * 20}b"]),
        ("a", LONG, [f"setting of a -> {'x' * 60}..."]),
    ],
)
def test_what_changed_inside_a_value_is_named(old: Any, new: Any, said: list[str]) -> None:
    assert list(settings_that_differ({"of": old}, {"of": new})) == said


def test_a_damaged_artefact_is_told_as_such(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = make(store, **BASE)
    before = current_manifest(store, "select", "first/arm")
    assert reasons(store, before, made) == ["a file of it was missing or damaged"]
    (tmp_path / "select/first/arm/current.json").write_text(json.dumps([]))
    assert current_manifest(store, "select", "first/arm") is None

"""What a damaged, newer or missing record makes of a question: one line that names the file and what to do."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require

QUESTIONS = (
    ["audit", "funnel", "first"],
    ["audit", "diff", "first/random", "first/datamask"],
    ["audit", "impact", "tiny-2024-10"],
    ["audit", "training-content", "first", "--arm", "datamask"],
    ["audit", "contamination", "first"],
    ["audit", "sql"],
    ["purge", "--request", "x"],
)


@pytest.fixture(scope="module")
def record(tiny_run: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A copy; whoever damages a file puts it back."""
    root = tmp_path_factory.mktemp("damaged") / "record"
    shutil.copytree(tiny_run.store.root, root)
    return Store(root)


def asked(command: list[str], store: Store) -> tuple[int, str]:
    """Exit status and the error; one that is none of ours is raised."""
    found = CliRunner().invoke(app, [*command, "-s", f"store={store.root}"])
    if found.exception is not None and not isinstance(found.exception, DataMaskError | SystemExit):
        raise found.exception
    return found.exit_code, str(found.exception or "")


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """A change of a manifest: it lacks something."""

    def change(manifest: dict[str, Any]) -> None:
        for name in names[:-1]:
            manifest = manifest[name]
        del manifest[names[-1]]

    return change


def no_places(manifest: dict[str, Any]) -> None:
    manifest["inputs"] = dict.fromkeys(manifest["inputs"], 5)


def no_parts(manifest: dict[str, Any]) -> None:
    manifest["parts"] = [5]


def test_a_file_of_the_record_that_may_not_be_read_is_named(
    record: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = f"{record.root}/select/first/datamask/current.json"
    opened = open

    def refused(path: object, *arguments: object, **options: object) -> object:
        if str(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed)
        return opened(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", refused)
    status, said = asked(["audit", "funnel", "first"], record)
    assert status == 1
    assert said == f"{closed} cannot be read: Permission denied; make it readable to who runs this"


@pytest.mark.parametrize(
    ("stage", "key", "change"),
    [
        ("pool", "first", without("basis", "config", "crawls")),
        ("select", "first/datamask", without("metadata", "objective")),
        ("select", "first/datamask", no_places),
        ("select", "first/datamask", no_parts),
    ],
    ids=["no crawls", "no objective", "no places", "no parts"],
)
def test_a_manifest_that_was_changed_is_named(
    record: Store, stage: str, key: str, change: Callable[[dict[str, Any]], None]
) -> None:
    path = Path(record.root, require(record, stage, key).location, "manifest.json")
    before = path.read_text()
    manifest = json.loads(before)
    change(manifest)
    path.write_text(json.dumps(manifest))
    found = [asked(command, record) for command in QUESTIONS]
    path.write_text(before)
    named = [told for status, told in found if status == 1 and str(path) in told]
    assert named, "somebody noticed"
    assert all("delete its folder" in told or "datamask audit prove" in told for told in named)
    assert all("\n" not in told for _, told in found)


def test_an_error_of_ours_stays_what_it_is_where_no_manifest_is_to_blame(
    record: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datamask_pipeline.cli.funnel.funnel_of", lambda *_: {}["nothing"])
    with pytest.raises(KeyError, match="nothing"):
        asked(["audit", "funnel", "first"], record)


@pytest.mark.parametrize("data", ["{", '{"number": 1}', "removed", "documents"])
def test_a_damaged_tombstone_is_named(record: Store, data: str) -> None:
    values: dict[str, Any] = {"number": 1, "request": "x", "date": "d", "state": "done", "salt": "00"}
    values |= {"documents": {}, "contents": [], "removed": {}, "standing": []}
    path = Path(record.root, "purged", "000001.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values | {data: {"x": 5}}) if data in values else data)
    status, told = asked(["audit", "impact", "tiny-2024-10"], record)
    path.unlink()
    assert status == 1
    assert str(path) in told
    assert "restore it from a copy" in told


def test_a_later_record_is_refused_by_its_proof_with_the_remedy(record: Store) -> None:
    path = Path(record.root, "record.json")
    before = path.read_bytes()
    path.write_text('{"format": 99}')
    found = CliRunner().invoke(app, ["audit", "prove", "first", "--files-only", "-s", f"store={record.root}"])
    path.write_bytes(before)
    assert found.exit_code == 1
    assert "record.json: the record" in found.output
    assert "install the version that wrote it" in " ".join(found.output.split())


def test_names_that_nothing_has(record: Store, tmp_path: Path) -> None:
    assert asked(["audit", "diff", "first/random@", "first/datamask"], record) == (
        1,
        f"unknown version of first/random ''; choose one of: {require(record, 'select', 'first/random').short}",
    )
    empty = Store(tmp_path / "empty")
    told = asked(["audit", "diff", "a/b", "a/c"], empty)[1]
    assert told == (
        "unknown selection 'a/b'; `datamask run --until select` makes masks, in the record that `store` names"
    )
    assert asked(["audit", "prove", "first"], empty)[1] == (
        "there is no folder first, and in the record: unknown release 'first'; there is none"
    )


@pytest.mark.parametrize(
    "command",
    [
        "metrics",
        "sweep",
        "sweep --remove",
        "report",
        "retire first",
        "look page first --to page.html",
        "purge --request x",
        "purge --request x --dry-run",
        "audit flip <urn:uuid:1>",
        "audit contamination first",
        "audit training-content first",
        "release first --license odc-by --to data_set",
    ],
)
@pytest.mark.parametrize("is_made", [False, True], ids=["no folder", "an empty folder"])
def test_where_no_record_is_none_is_told_of(
    command: str, is_made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if is_made:
        Path("nowhere").mkdir()
    found = CliRunner().invoke(app, [*command.split(), "-s", "store=nowhere"])
    assert isinstance(found.exception, ConfigurationError), found.output
    assert str(found.exception).startswith(f"there is no record at nowhere (folder {tmp_path}/nowhere); ")
    assert "\n" not in str(found.exception)
    assert found.stdout == "", "what a shell writes to a file is nothing, and it sees that it failed"
    assert Path("nowhere").exists() == is_made

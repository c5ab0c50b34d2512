"""A record that was changed with all its digests is still found out where it contradicts what it was made from."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forger import ORDER, Forger

from datamask_pipeline.audit.findings import Finding
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.pieces import PIECES_FILE
from datamask_pipeline.storage.row_index import INDEX_FILES

#: So many of each kind, more than 100 in all.
SEEDS = range(4)

Rows = list[dict[str, Any]]
Forgery = Callable[[Forger, random.Random], None]


@pytest.fixture
def forger(tiny_run: Pipeline, tmp_path: Path) -> Forger:
    """The record of the tiny chain's `datamask` arm, as far as its subset."""
    record = tmp_path / "record"
    for folder in (Path(tiny_run.store.root) / stage for stage in (*ORDER, "releases")):
        if folder.exists():  # near-copies are not sought in this chain
            shutil.copytree(folder, record / folder.name)
    for stage in ("select", "learning_curve", "materialise"):
        shutil.rmtree(record / stage / "first" / "random")
    shutil.copy(Path(tiny_run.store.root) / "record.json", record)
    return Forger(record)


def found(forger: Forger) -> list[Finding]:
    return list(prove_record(Store(forger.record), *forger.arm.split("/")))


def test_the_forger_changes_nothing_where_it_is_asked_for_nothing(forger: Forger) -> None:
    forger.change_rows("select", lambda rows: None)
    forger.change_rows("materialise", lambda rows: None)
    assert found(forger) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [*(INDEX_FILES[each] for each in ("id", "representative_id", "url")), PIECES_FILE]
)
def test_an_index_that_leads_elsewhere_is_found(
    forger: Forger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = {INDEX_FILES["id"]: "select", INDEX_FILES["url"]: f"materialise/{forger.arm}"}.get(name, "pool")
    file = next((forger.record / stage).rglob(name))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    monkeypatch.setattr(forger, "index_again", forger.state_index)
    forger.settle()
    assert {finding.file.rsplit("/", 1)[1] for finding in found(forger)} == {name, PIECES_FILE}


def of_rows(stage: str, change: Callable[[Rows, random.Random], None]) -> Forgery:
    return lambda forger, draws: forger.change_rows(stage, lambda rows: change(rows, draws))


def of_scores(change: Callable[[Rows, random.Random], None]) -> Forgery:
    """Of documents in the index: nothing was made of the other scores, and they contradict nothing."""

    def forge(forger: Forger, draws: random.Random) -> None:
        used = forger.ids("gather")
        forger.change_rows("score", lambda rows: change([row for row in rows if row["id"] in used], draws))

    return forge


def of_manifest(stage: str, change: Callable[[dict[str, Any], random.Random], None]) -> Forgery:
    return lambda forger, draws: forger.change_manifest(stage, lambda manifest: change(manifest, draws))


def moved(column: str, by: float) -> Callable[[Rows, random.Random], None]:
    def change(rows: Rows, draws: random.Random) -> None:
        row = draws.choice(rows)
        row[column] += by

    return change


def swapped(*columns: str) -> Callable[[Rows, random.Random], None]:
    def change(rows: Rows, draws: random.Random) -> None:
        one = draws.choice(rows)
        other = draws.choice([row for row in rows if all(row[name] != one[name] for name in columns)])
        for name in columns:
            one[name], other[name] = other[name], one[name]

    return change


def dropped(rows: Rows, draws: random.Random) -> None:
    rows.pop(draws.randrange(len(rows)))


def another_mask(rows: Rows, draws: random.Random) -> None:
    """Two documents change places, with all that says so."""
    out = draws.choice([row for row in rows if row["selected"]])
    into = draws.choice([row for row in rows if not row["selected"]])
    for name in ("selected", "reason", "probability", "logit"):
        out[name], into[name] = into[name], out[name]


def all_thresholds(rows: Rows, draws: random.Random) -> None:
    for row in rows:
        row["threshold"] += 0.01


def eligible(rows: Rows, draws: random.Random) -> None:
    row = draws.choice([row for row in rows if not row["eligible"]])
    row |= {"eligible": True, "exclusion": None, "validation": False}


def another_document(rows: Rows, draws: random.Random) -> None:
    """A row that was left out is of somebody else: nothing is made of it."""
    draws.choice([row for row in rows if not row["selected"]])["id"] = "forged"


def figure(part: str, name: str, by: float) -> Callable[[dict[str, Any], random.Random], None]:
    def change(manifest: dict[str, Any], draws: random.Random) -> None:
        manifest["metadata"]["blocks"][0][part][name] += by

    return change


def other_reason(manifest: dict[str, Any], draws: random.Random) -> None:
    manifest["counts"]["dropped_duplicate_content"] -= 1
    manifest["counts"]["dropped_takedown"] += 1


def better_objective(manifest: dict[str, Any], draws: random.Random) -> None:
    manifest["metadata"]["objective"] += 0.01


def lowered_bound(manifest: dict[str, Any], draws: random.Random) -> None:
    """Nearer to the objective, and the gap with it."""
    block = manifest["metadata"]["blocks"][0]
    value, bound = block["objective"]["value"], block["certificate"]["bound"] - 0.002
    block["certificate"] |= {"bound": bound, "gap": (bound - value) / bound}


def no_bound(manifest: dict[str, Any], draws: random.Random) -> None:
    manifest["metadata"]["blocks"][0]["certificate"] |= {"bound": None, "gap": None, "method": "no bound"}


def easier_scale(manifest: dict[str, Any], draws: random.Random) -> None:
    zero, one = manifest["metadata"]["blocks"][0]["normalisation"]["Pair_simi"]
    manifest["metadata"]["blocks"][0]["normalisation"]["Pair_simi"] = [zero - 0.1 * (one - zero), one]


#: What is forged, how, and in which artefact it is found out.
FORGERIES: dict[str, tuple[Forgery, str]] = {
    "a score": (of_scores(moved("score", -0.1)), "gather"),
    "two scores swapped": (of_scores(swapped("score")), "gather"),
    "a score in the index": (of_rows("gather", moved("score_rules", 0.01)), "gather"),
    "a vector of another document": (of_rows("gather", swapped("row")), "gather"),
    "a document lost from the index": (of_rows("gather", dropped), "gather"),
    "a document lost from the candidates": (of_rows("pool", dropped), "pool"),
    "an excluded document": (of_rows("pool", eligible), "pool"),
    "a reason in the counts": (of_manifest("pool", other_reason), "pool"),
    "a text": (of_rows("ingest", swapped("text")), "ingest"),
    "a text of the subset": (of_rows("materialise", swapped("text")), "materialise"),
    "a document lost from the subset": (of_rows("materialise", dropped), "materialise"),
    "a document of the mask": (of_rows("select", another_document), "select"),
    "a quality": (of_rows("select", moved("quality", 1e-6)), "select"),
    "a mask": (of_rows("select", another_mask), "select"),
    "a mask bit": (of_rows("select", swapped("selected")), "select"),
    "a marginal by quality": (of_rows("select", moved("quality_marginal", 0.01)), "select"),
    "a marginal by diversity": (of_rows("select", moved("diversity_marginal", -0.01)), "select"),
    "a threshold": (of_rows("select", moved("threshold", 1e-6)), "select"),
    "all thresholds": (of_rows("select", all_thresholds), "select"),
    "a reason": (of_rows("select", swapped("reason")), "select"),
    "a probability": (of_rows("select", moved("probability", 1e-6)), "select"),
    "a bound raised": (of_manifest("select", figure("certificate", "bound", 0.01)), "select"),
    "a bound lowered": (of_manifest("select", lowered_bound), "select"),
    "a bound left out": (of_manifest("select", no_bound), "select"),
    "a gap": (of_manifest("select", figure("certificate", "gap", -0.005)), "select"),
    "an objective": (of_manifest("select", figure("objective", "value", 0.001)), "select"),
    "an objective of all blocks": (of_manifest("select", better_objective), "select"),
    "a scale": (of_manifest("select", easier_scale), "select"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_out(forger: Forger, name: str, seed: int) -> None:
    forge, where = FORGERIES[name]
    forge(forger, random.Random(f"{name} {seed}"))
    findings = found(forger)
    contradicting = {finding.file.split("/")[0] for finding in findings if finding.kind == "contradiction"}
    assert where in contradicting, [finding.line() for finding in findings]


def test_a_row_is_named(forger: Forger) -> None:
    def change(rows: Rows) -> None:
        rows[11]["diversity_marginal"] += 0.1

    forger.change_rows("select", change)
    assert ("select", 11) in {(finding.file.split("/")[0], finding.row) for finding in found(forger)}

"""A bound, and what it was computed from, cannot be changed unnoticed: of metrics of moments, of coverage and of both."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forger import ORDER, Forger
from numpy.typing import NDArray

from datamask_pipeline.audit.findings import Finding
from datamask_pipeline.audit.prove import prove_record
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store


def forger_of(many_arms: Callable[..., Pipeline], arm: str, folder: Path) -> Forger:
    """A copy of the record that has one arm, as far as its subset."""
    root, record = Path(many_arms(arm).store.root), folder / "record"
    for stage in ORDER:
        if stage in ("select", "learning_curve", "materialise"):
            shutil.copytree(root / stage / "first" / arm, record / stage / "first" / arm)
        elif (root / stage).exists():
            shutil.copytree(root / stage, record / stage)
    shutil.copytree(root / "releases", record / "releases")
    shutil.copy(root / "record.json", record)
    return Forger(record, f"first/{arm}")


def found(forger: Forger) -> list[Finding]:
    return list(prove_record(Store(forger.record), *forger.arm.split("/")))


def of_array(name: str, change: Callable[[NDArray[np.float64]], None]) -> Callable[[Forger], None]:
    return lambda forger: forger.change_array(f"{name}.npy", change)


def of_block(change: Callable[[dict[str, Any]], None]) -> Callable[[Forger], None]:
    return lambda forger: forger.change_manifest(
        "select", lambda manifest: change(manifest["metadata"]["blocks"][0])
    )


def one_more(values: NDArray[np.float64]) -> None:
    values[7] += 0.5


def below_zero(values: NDArray[np.float64]) -> None:
    values[3] = -0.2


def scaled(values: NDArray[np.float64]) -> None:
    values *= 0.5


def exchanged(values: NDArray[np.float64]) -> None:
    low, high = np.nanargmin(values), np.nanargmax(values)
    values[[low, high]] = values[[high, low]]


def lost(values: NDArray[np.float64]) -> None:
    values[5] = np.nan


def of_cliques(column: str, change: Callable[[NDArray[Any]], None]) -> Callable[[Forger], None]:
    def changed(table: pa.Table) -> pa.Table:
        values = table.column(column).to_numpy().copy()
        change(values)
        place = table.schema.get_field_index(column)
        return table.set_column(place, table.schema.field(place), pa.array(values))

    return lambda forger: forger.change_cliques(changed)


def one_clique_more(rows: Callable[[pa.ChunkedArray], list[int | None]]) -> Callable[[Forger], None]:
    def changed(table: pa.Table) -> pa.Table:
        members = rows(table.column("row"))
        more = [{"clique": 10**6, "row": row, "weight": 1e-3, "slope": 0.0} for row in members]
        return pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)])

    return lambda forger: forger.change_cliques(changed)


def all_steeper(values: NDArray[np.float64]) -> None:
    values += 0.5


def first_of_another(values: NDArray[np.int64]) -> None:
    values[0] = (values[0] + 40) % 80


def bound_moved(by: float) -> Callable[[dict[str, Any]], None]:
    def change(block: dict[str, Any]) -> None:
        value, bound = block["objective"]["value"], block["certificate"]["bound"] + by
        block["certificate"] |= {"bound": bound, "gap": (bound - value) / bound}

    return change


def bound_left_out(block: dict[str, Any]) -> None:
    block["certificate"] |= {"bound": None, "gap": None, "method": "no bound: there is none"}


def bound_made_up(block: dict[str, Any]) -> None:
    block["certificate"] |= {"bound": block["objective"]["value"], "gap": 0.0, "method": "by inspection"}


def threshold_of_a_group(block: dict[str, Any]) -> None:
    block["record"]["group_thresholds"]["tiny-2024-10"] += 1e-3


MOVED = {"raised": bound_moved(0.001), "lowered": bound_moved(-0.001), "left out": bound_left_out}
ARRAYS = {"one": one_more, "below zero": below_zero, "scaled": scaled, "exchanged": exchanged, "lost": lost}
FORGERIES: dict[str, Callable[[Forger], None]] = {
    **{
        f"{arm} bound {name}": of_block(change)
        for arm in (
            "disf",
            "quotas",
            "facility",
            "facility_quotas",
            "graph",
            "blocks",
            "tokens",
            "facility_tokens",
            "mixture",
            "mixture_blocks",
        )
        for name, change in MOVED.items()
    },
    **{
        f"{arm} {array} {name}": of_array(array, change)
        for arm, array in (
            ("disf", "tangent"),
            ("quotas", "tangent"),
            ("tokens", "tangent"),
            ("facility", "dual"),
            ("facility_quotas", "dual"),
            ("facility_tokens", "dual"),
            ("mixture", "tangent"),
            ("mixture", "dual"),
        )
        for name, change in ARRAYS.items()
        if (array, name) != ("dual", "exchanged")
    },
    "graph slopes all steeper": of_cliques("slope", all_steeper),
    "graph slopes one more": of_cliques("slope", one_more),
    "graph slopes lost": of_cliques("slope", lost),
    "graph weights scaled": of_cliques("weight", scaled),
    "graph weights one more": of_cliques("weight", one_more),
    "graph rows first of another": of_cliques("row", first_of_another),
    "graph cliques of two blocks": one_clique_more(lambda rows: [rows[0].as_py(), rows[-1].as_py()]),
    "graph cliques beyond the part": one_clique_more(lambda _: [10**6, 10**6 + 1]),
    "graph cliques below the part": one_clique_more(lambda rows: [-1, rows[0].as_py()]),
    "graph cliques of nobody": one_clique_more(lambda rows: [None, rows[0].as_py()]),
    "unbounded bound made up": of_block(bound_made_up),
    "quotas threshold of a group": of_block(threshold_of_a_group),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_out(many_arms: Callable[..., Pipeline], tmp_path: Path, name: str) -> None:
    forger = forger_of(many_arms, name.split()[0], tmp_path)
    FORGERIES[name](forger)
    findings = found(forger)
    assert {f.file.split("/")[0] for f in findings if f.kind == "contradiction"} == {"select"}, [
        finding.line() for finding in findings
    ]


def take_away(forger: Forger, name: str) -> None:
    """A file beside a selection, and what its manifest says of it."""
    (path,) = forger.manifests("select")
    (path.parent / name).unlink()
    forger.change_manifest(
        "select",
        lambda manifest: manifest.update(files=[f for f in manifest["files"] if f["name"] != name]),
    )


def test_without_what_it_was_computed_from_a_bound_cannot_be_told(
    many_arms: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """As in records of earlier versions."""
    forger = forger_of(many_arms, "facility", tmp_path)
    take_away(forger, "dual.npy")
    (finding,) = found(forger)
    assert finding.kind == "cannot tell"
    assert "stored no dual variables" in finding.problem


def test_of_a_bound_that_rests_on_two_files_neither_may_lack(
    many_arms: Callable[..., Pipeline], tmp_path: Path
) -> None:
    for name in ("tangent", "dual"):
        forger = forger_of(many_arms, "mixture", tmp_path / name)
        take_away(forger, f"{name}.npy")
        assert f"no `{name}` is stored that it rests on" in "".join(f.problem for f in found(forger))


def test_another_draw_is_found_out_though_all_its_figures_are_its_own(
    many_arms: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """The rows and figures of a draw by seed 1 in the place of that by seed 0."""
    forger = forger_of(many_arms, "random", tmp_path / "one")
    other = forger_of(many_arms, "drawn", tmp_path / "other")
    (theirs,), (path,) = other.manifests("select"), forger.manifests("select")
    told = json.loads(theirs.read_text())
    shutil.copy(theirs.parent / "00000.parquet", path.parent)
    forger.change_manifest(
        "select",
        lambda manifest: manifest.update(parts=told["parts"], metadata=told["metadata"] | {"arm": "random"}),
    )
    (finding,) = [f for f in found(forger) if f.file.startswith("select") and f.file.endswith(".parquet")]
    assert finding.kind == "contradiction"
    assert "the policy's rule gives the other" in finding.problem

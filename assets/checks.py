"""Turns plain functions over an artefact into asset checks. Knows the record and Dagster; knows no stage.

A stage's checks are evaluated in its own step, before anything downstream: a step of their own would cost a process.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from assets.metadata import Metadata, parts_schema
from datamask_pipeline import duck, schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.stage import Output
from datamask_pipeline.storage import Ref, check_balance


@dataclasses.dataclass(frozen=True, slots=True)
class Artefact:
    """What a check or a page looks at: an artefact of one stage and key.

    Attributes:
        pipeline: The chain, for the artefact's neighbours.
        ref: The artefact.
        manifest: Its manifest.
    """

    pipeline: Pipeline
    ref: Ref
    manifest: Mapping[str, Any]

    @property
    def found(self) -> Mapping[str, Any]:
        """What the stage tells of it."""
        return self.manifest["metadata"]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings it was made with."""
        return self.manifest["basis"]["config"]

    @property
    def release(self) -> str:
        """The release that a release's artefact belongs to."""
        return self.ref.key.split("/")[0]

    def neighbour(self, stage: str, key: str | None = None) -> Ref:
        """The artefact of another stage that the run made, or else the current one; by default of the same key."""
        return self.pipeline.reference((stage, key or self.ref.key))

    def sql(self, ref: Ref | None = None, columns: str = "*") -> str:
        """The artefact's rows, or another's, as a subquery for ``query``."""
        return duck.parts_sql(self.pipeline.store, [ref or self.ref], columns)

    def count(self, condition: str) -> int:
        """How many of the artefact's rows satisfy a condition.

        The condition stands in a FILTER, never in a WHERE: DuckDB prunes row groups of a WHERE by Parquet's
        minima and maxima, which leave out NaN, and so would not see the very rows that a check looks for.
        """
        (number,) = self.query(f"SELECT count(*) FILTER ({condition}) FROM {self.sql()}")
        return int(number)

    def has_no(self, what: str, condition: str) -> "Verdict":
        """Passes when no row satisfies a condition; ``what`` says what such rows are."""
        number = self.count(condition)
        return Verdict(number == 0, {what: number})

    def finds_no(self, what: str, sql: str) -> "Verdict":
        """Passes when a query that counts something gives 0."""
        (number,) = self.query(sql)
        return Verdict(number == 0, {what: number})

    def query(self, sql: str) -> tuple[Any, ...]:
        """The first row of a query over the record."""
        return self.rows(sql)[0]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a DuckDB query over the record; it spills to disk instead of growing."""
        store = self.pipeline.store
        with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
            return connection.execute(sql).fetchall()


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Attributes:
        passed: Whether the artefact is as it must be.
        measured: What was counted or measured, for the UI.
    """

    passed: bool
    measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Check = Callable[[Artefact], Verdict]
Headline = Callable[[Artefact], Metadata]


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What is special to one asset.

    Attributes:
        blocking: Checks; nothing downstream runs when one of these fails. Beside them stands one of the columns.
        warning: These only warn.
        numbers: Of its manifest's metadata, the numbers for the UI.
        headline: What else of it, e.g. tables.
        plots: PNG files that the stage writes beside its parts.
    """

    blocking: tuple[Check, ...] = ()
    warning: tuple[Check, ...] = ()
    numbers: tuple[str, ...] = ()
    headline: Headline = lambda _: {}
    plots: tuple[str, ...] = ()


def check_specs(
    output: Output, partitions: dg.PartitionsDefinition[Any], shown: Shown
) -> list[dg.AssetCheckSpec]:
    """The checks of one asset, each named and described by its function."""
    warning = {check.__name__ for check in shown.warning}
    return [
        dg.AssetCheckSpec(
            name,
            asset=output.asset,
            description=_summary(check),
            blocking=name not in warning,
            partitions_def=partitions,
        )
        for name, check in _checks(output, shown).items()
    ]


def check_names(output: Output, shown: Shown) -> list[str]:
    """The names of an asset's checks."""
    return list(_checks(output, shown))


def check_results(
    output: Output, shown: Shown, artefact: Artefact, wanted: Set[str] | None = None
) -> Iterator[dg.AssetCheckResult]:
    """What an asset's checks find in its artefact; ``wanted`` names some of them."""
    warning = {check.__name__ for check in shown.warning}
    for name, check in _checks(output, shown).items():
        if wanted is None or name in wanted:
            verdict = check(artefact)
            yield dg.AssetCheckResult(
                asset_key=output.asset,
                check_name=name,
                passed=verdict.passed,
                severity=dg.AssetCheckSeverity.WARN if name in warning else dg.AssetCheckSeverity.ERROR,
                metadata=dict(verdict.measured),
            )


def _checks(output: Output, shown: Shown) -> dict[str, Check]:
    """An asset's checks by name: what its file names, and that it has the columns of the record."""
    functions = {check.__name__: check for check in [*shown.blocking, *shown.warning]}
    if output.table is not None:
        functions.setdefault("columns", columns_of(output.table))
    return functions


def columns_of(table: schema.Table) -> Check:
    """The check that an artefact has a table's columns."""

    def columns(artefact: Artefact) -> Verdict:
        """Columns and types are the record's, in its order."""
        return same_schema(artefact, table.columns, more=bool(table.more))

    return columns


def same_schema(artefact: Artefact, expected: pa.Schema, *, more: bool = False) -> Verdict:
    """Whether the columns are the expected ones, in their order; ``more`` allows further ones after them."""
    found = parts_schema(artefact.pipeline.store, artefact.ref)
    compared = pa.schema(list(found)[: len(expected)]) if more else found
    return Verdict(
        compared.equals(expected.remove_metadata()), {"expected": str(expected), "found": str(found)}
    )


def rows_in_are_kept_plus_dropped(artefact: Artefact) -> Verdict:
    """Every row that came in was kept, or dropped for a reason that is counted; the parts hold the kept ones."""
    counts = {name: int(number) for name, number in artefact.manifest["counts"].items()}
    try:
        check_balance(artefact.ref.stage, artefact.ref.key, counts)
    except IntegrityError as error:
        return Verdict(False, {"problem": str(error), **counts})
    tabular = bool(artefact.manifest["parts"])
    return Verdict("rows_in" in counts and (not tabular or counts["kept"] <= artefact.ref.rows), counts)


def _summary(check: Check) -> str:
    return " ".join((check.__doc__ or "").split())

"""Every column of every table says what it means, and saying so changes no data."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline import lineage, schema
from datamask_pipeline.pipeline import Pipeline

#: What the chain writes; the tiny one trains no probe, collapses no near-copies (see `stages/test_copies.py`) and withdraws
#: nothing (see `stages/test_takedown.py`); an experiment is no part of a chain (see `experiment/`).
ABSENT = ("probe", "copies", "takedown", "decontaminate", "experiment")
TABLES = {artefact: table for artefact, table in schema.TABLES.items() if artefact not in ABSENT}


def bare(described: pa.Schema) -> pa.Schema:
    """The same columns without descriptions."""
    return pa.schema([pa.field(field.name, field.type) for field in described])


def test_every_column_that_the_chain_writes_is_described_in_its_file(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    for artefact, table in TABLES.items():
        assert store.keys(artefact), artefact
        for key in store.keys(artefact):
            ref = store.current(artefact, key)
            assert ref is not None
            for name in store.part_names(ref):
                with store.part_file(ref, name) as part:
                    found = part.schema_arrow
                assert [field.name for field in found if not schema.description(field)] == [], (artefact, key)
                known = pa.schema(list(found)[: len(table.columns)]) if table.more else found
                assert known == table.columns, (artefact, key)


def test_no_stage_writes_a_table_that_is_not_described(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    with_parts = {
        path[len(store.root) + 1 :].split("/", 1)[0]
        for path in store.fs.find(store.root)
        if path.endswith(".parquet.json")
    }
    assert with_parts == set(TABLES)


def test_every_figure_of_the_report_is_described(tiny_run: Pipeline) -> None:
    ref = tiny_run.store.current("compare", "first")
    assert ref is not None
    metadata = tiny_run.store.manifest(ref)["metadata"]
    for name, columns in (("arms", schema.REPORT_ARMS), ("differences", schema.REPORT_DIFFERENCES)):
        assert metadata[name]
        assert {key for row in metadata[name] for key in row} <= set(columns.names)
        assert all(schema.description(field) for field in columns)


@pytest.mark.parametrize("artefact", schema.TABLES)
def test_a_column_is_described_once(artefact: str) -> None:
    columns = schema.TABLES[artefact].columns
    assert len(set(columns.names)) == len(columns)
    for field in columns:
        text = schema.description(field)
        assert text is not None
        assert text[0].isupper(), text
        assert text.endswith("."), text


def test_descriptions_change_no_digest_and_no_comparison() -> None:
    for table in schema.TABLES.values():
        described, plain = table.columns, bare(table.columns)
        assert described == plain
        rows = pa.Table.from_pylist([], schema=plain)
        digests = []
        for columns in (described, plain):
            digest = lineage.TableDigest(columns)
            digest.update(rows)
            digests.append(digest.hexdigest())
        assert digests[0] == digests[1]


def test_the_descriptions_travel_with_the_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pq.write_table(schema.SCORES.empty_table(), tmp_path / "scores.parquet")
    read = pq.read_schema(tmp_path / "scores.parquet")
    assert schema.description(read.field("score")) == (
        "Its score; null: `reason` says why. Unit: from `scale_min` to `scale_max`."
    )
    assert schema.description(pa.field("stranger", pa.string())) is None

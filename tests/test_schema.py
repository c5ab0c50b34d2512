"""Every column of every table says what it means, and saying so changes no data."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline import lineage, schema
from datamask_pipeline.pipeline import Pipeline


def bare(described: pa.Schema) -> pa.Schema:
    """The same columns without descriptions."""
    return pa.schema([pa.field(field.name, field.type) for field in described])


def test_every_column_that_the_chain_writes_is_described_in_its_file(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    written = {stage: store.keys(stage) for stage in schema.TABLES}
    assert [stage for stage, keys in written.items() if not keys] == ["probe"], (
        "the tiny chain trains no probe"
    )
    for stage, keys in written.items():
        for key in keys:
            ref = store.current(stage, key)
            assert ref is not None
            for name in store.part_names(ref):
                with store.part_file(ref, name) as part:
                    found = part.schema_arrow
                assert [field.name for field in found if not schema.description(field)] == [], (stage, key)
                known = schema.TABLES[stage].columns
                if stage != "learning_curve":
                    assert found.names[: len(known)] == known.names, (stage, key)


def test_no_stage_writes_a_table_that_is_not_described(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    with_parts = {
        path[len(store.root) + 1 :].split("/", 1)[0]
        for path in store.fs.find(store.root)
        if path.endswith(".parquet.json")
    }
    assert with_parts <= set(schema.TABLES)


@pytest.mark.parametrize("stage", schema.TABLES)
def test_a_column_is_described_once(stage: str) -> None:
    columns = schema.TABLES[stage].columns
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

"""Limits of memory: what is accepted is what DuckDB starts with, and one that is too small is told in one line."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pydantic
import pytest

from datamask_pipeline import duck
from datamask_pipeline.errors import ConfigurationError, IntegrityError, StorageError
from datamask_pipeline.storage import Ref, Store

AMOUNT = pydantic.TypeAdapter(duck.MemoryLimit)


@pytest.mark.parametrize(
    "amount",
    [
        *(
            "2GB",
            "2 GB",
            " 2gb ",
            "2.5GiB",
            ".5TB",
            "5.G",
            "300m",
            "1MB",
            "1000kb",
            "1024 KiB",
            "7TiB",
            "80%",
            "1 %",
        ),
        *(
            "2 bananas",
            "",
            "2",
            "0GB",
            "-1GB",
            "1PB",
            "101%",
            "0%",
            "1,5GB",
            "1_000MB",
            "+2GB",
            "nanGB",
            "infGB",
        ),
        *("1KB", "0x10GB", "99999999TB", "\uff11GB", "1B", "default"),
    ],
)
def test_a_limit_is_accepted_where_duckdb_accepts_it(amount: str, tmp_path: Path) -> None:
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(f"SET memory_limit = {duck.literal(amount)}")
            connection.execute("SELECT current_setting('memory_limit')").fetchone()
        is_accepted = True
    except duckdb.Error:
        is_accepted = False
    if amount == "-1GB":  # DuckDB's way to say: without limit
        is_accepted = False
    if is_accepted:
        assert AMOUNT.validate_python(amount) == amount
    else:
        with pytest.raises(pydantic.ValidationError, match=r"is no amount of memory from 1MB"):
            AMOUNT.validate_python(amount)


def test_a_limit_that_a_query_exceeds_is_told_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(
            ConfigurationError, match=r"more memory than its limit of 1MB: .*raise the stage's"
        ) as refused,
        duck.database(tmp_path, memory_limit="1MB") as connection,
    ):
        connection.execute("SELECT list(range::VARCHAR) FROM range(1000000)").fetchall()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", ["thrift", "column name"])
def test_a_damaged_file_of_the_record_is_told_in_one_line(damage: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "record")
    builder = store.begin("select", "r", version="1", config={}, inputs={})
    table = pa.table({"number": [f"d{number}" for number in range(100)]})
    ref = builder.commit([builder.write_part("00000", table.to_batches(), table.schema)])
    path = Path(store.file_path(ref, "00000.parquet"))
    content = bytearray(path.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if damage == "thrift":
        content[start : start + 4] = b"\xff" * 4
    else:
        content[start:] = content[start:].replace(b"number", b"n\xffmber")
    path.write_bytes(content)
    with (
        pytest.raises(
            IntegrityError, match=r"a file of the record .* is damaged: .*audit prove` says which"
        ) as told,
        duck.connect(store, tmp_path) as connection,
    ):
        connection.execute(f"SELECT number FROM {duck.parts_sql(store, [ref])}").fetchall()
    assert "\n" not in str(told.value)
    with pytest.raises(
        (IntegrityError, StorageError), match=r"cannot read .*00000\.parquet"
    ) as told_by_store:
        store.read_table(ref).to_pylist()
    assert "\n" not in str(told_by_store.value)


def artefact(store: Store, key: str, sizes: list[int]) -> Ref:
    """A table of parts of so many rows each, whose rows say which they are."""
    builder, parts = store.begin("select", key, version="1", config={}, inputs={}), []
    for part, size in enumerate(sizes):
        table = pa.table({"said": [f"{key} {part} {row}" for row in range(size)]})
        parts.append(builder.write_part(f"{part:05d}", [table], table.schema))
    return builder.commit(parts)


def test_rows_are_numbered_over_parts_and_artefacts(tmp_path: Path) -> None:
    store = Store(tmp_path / "rec[o]rd*")
    sizes = {"b": [3, 0, 2], "a": [1, 4]}
    refs = [artefact(store, key, each) for key, each in sizes.items()]
    expected = []
    for order, (key, each) in enumerate(sizes.items()):
        rows = [(part, row) for part, size in enumerate(each) for row in range(size)]
        expected += [
            (f"{key} {part} {row}", order, number, part, row) for number, (part, row) in enumerate(rows)
        ]
    with duck.connect(store, tmp_path) as connection:
        found = connection.execute(
            "SELECT said, artefact_order, artefact_row, part_order, part_row "
            f"FROM {duck.parts_sql(store, refs, 'said')} ORDER BY artefact_order, artefact_row"
        ).fetchall()
    assert found == expected


def test_an_artefact_is_read_at_once_however_many_parts_it_has(tmp_path: Path) -> None:
    """A branch for each part would be planned in the square of their number."""
    store = Store(tmp_path / "record")
    sql = duck.parts_sql(store, [artefact(store, "a", [1] * 50), artefact(store, "b", [1] * 40)])
    assert sql.count("read_parquet(") == 2
    paths = ["/somewhere/00000.parquet"] * 1000
    assert duck.files_sql(store, paths, [2] * 1000, "id").count("SELECT") == 1


def test_a_wrong_query_is_no_damaged_file(tmp_path: Path) -> None:
    with (
        pytest.raises(duckdb.BinderException),
        duck.connect(Store(tmp_path / "record"), tmp_path) as connection,
    ):
        connection.execute("SELECT unknown FROM range(1)")


def test_no_progress_bar_stands_among_a_commands_lines(tmp_path: Path) -> None:
    with duck.database(tmp_path) as connection:
        assert connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]

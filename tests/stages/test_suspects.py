"""Rows that share an id or a content's group are found, whatever the batches they are read in."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline import duck
from datamask_pipeline.stages import suspects, windows
from datamask_pipeline.storage import Ref, Store

SCHEMA = pa.schema([("id", pa.string()), ("content_hash", pa.string())])


def crawl(store: Store, name: str, ids: list[str], contents: list[str]) -> Ref:
    builder = store.begin("ingest", name, version="1", config={}, inputs={})
    table = pa.table({"id": ids, "content_hash": contents}, schema=SCHEMA)
    half = len(ids) // 2
    parts = [
        builder.write_part(str(number), [piece], SCHEMA)
        for number, piece in enumerate((table.slice(0, half), table.slice(half)))
    ]
    return builder.commit(parts, counts={"rows_in": len(ids), "kept": len(ids)}, metadata={})


@pytest.mark.parametrize("window", [7, 1_000])
def test_rows_that_share_an_id_or_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    store = Store(str(tmp_path / "record"))
    monkeypatch.setattr(windows, "ROWS", window)
    draws = np.random.default_rng(window)
    hashes = [draws.bytes(32).hex() for _ in range(300)]
    ids = [f"d{number}" for number in draws.choice(900, 240)]
    contents = [hashes[number] for number in draws.choice(300, 240)]
    refs = [crawl(store, "A", ids[:100], contents[:100]), crawl(store, "B", ids[100:], contents[100:])]
    near = {contents[3]: contents[5], contents[8]: contents[5]}
    groups = [near.get(content, content) for content in contents]
    with duck.connect(store, tmp_path) as connection:
        pairs = {"content_hash": [*near], "group_hash": [*near.values()]}
        connection.register("pairs", pa.table(pairs, schema=pa.schema(dict.fromkeys(pairs, pa.string()))))
        connection.execute("CREATE TEMP TABLE near AS FROM pairs")
        found, prefixes = suspects.find_suspects(connection, store, refs, tmp_path, 20)
        *_, all_prefixes = suspects.find_suspects(connection, store, refs, tmp_path, 1_000)
        *_, none = suspects.find_suspects(connection, store, refs, tmp_path, 0)
        going_on, prefixes_again = suspects.find_suspects(connection, store, refs, tmp_path, 20, num_judged=1)
    by_id, by_group = Counter(ids), Counter(groups)
    shared = [row for row in range(240) if by_id[ids[row]] > 1 or by_group[groups[row]] > 1]
    assert found.tolist() == shared
    assert 0 < len(shared) < 240
    # Of a crawl that was judged before, what it shares with the other alone is told; by chance some further rows are.
    new_ids, new_groups = {*ids[100:]}, {*groups[100:]}
    beside_new = [row for row in shared if row >= 100 or ids[row] in new_ids or groups[row] in new_groups]
    assert {*beside_new} <= {*going_on.tolist()} < {*shared}
    np.testing.assert_array_equal(prefixes_again, prefixes)
    expected = sorted({int(group[:8], 16) for group in groups})
    assert prefixes.tolist() == expected[:20]
    assert all_prefixes.tolist() == expected
    assert not len(none)
    rows = pa.concat_tables(windows.rows_at(store, refs, ["id"], found))
    assert rows["row"].to_pylist() == shared
    assert rows["id"].to_pylist() == [ids[row] for row in shared]

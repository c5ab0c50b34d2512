"""DuckDB views over the current artefacts of a record: what a glob counts twice is counted once. Knows tables, no stage.

A view is named as its asset, e.g. `selection_mask`; crawl, release, arm or run stand in columns of those names. Files are
named one by one, so that views show the record as it was when they were made.
"""

from collections.abc import Collection, Iterator
from typing import Final

from datamask_pipeline import duck
from datamask_pipeline.audit.funnel import decisions_sql, examples_sql, made_of, rejected_sql
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.pipeline.stage import Output
from datamask_pipeline.storage import Store, require

#: Where the documents of each arm were left out; null: they are in its subset.
_FUNNEL: Final = f"""
CREATE OR REPLACE VIEW funnel AS
SELECT release, arm, left_at, CASE WHEN left_at IS NOT NULL THEN reason END AS rule, count(*) AS documents,
    CASE WHEN count(*) FILTER (left_at = 'ingest') = 0 THEN coalesce(sum(token_count), 0)::BIGINT END AS tokens,
    CASE WHEN count(*) FILTER (left_at = 'ingest') = 0 THEN count(*) - count(token_count) END AS without_tokens,
    {examples_sql("coalesce(id, shard || ' row ' || row)", "place")} AS examples
FROM decisions GROUP BY ALL;
"""


def views(store: Store, left_out: Collection[str] = ()) -> str:
    """SQL that makes the views: one for each asset that the record holds, ``artefacts``, ``decisions`` and ``funnel``.

    Args:
        store: The record.
        left_out: Masks by key that ``decisions`` and ``funnel`` do not tell of, as `left_over` finds them.

    Raises:
        ConfigurationError: the record holds nothing yet.
        IntegrityError: a manifest is damaged.
    """
    statements = [
        _artefacts(store),
        *(sql for output in _outputs() if (sql := _view(store, output)) is not None),
    ]
    if keys := [key for key in store.keys("select") if key not in left_out]:
        statements += [_decisions(store, keys), _FUNNEL]
    return "\n".join(statement.strip() for statement in statements) + "\n"


def _outputs() -> Iterator[Output]:
    yield from (output for stage in FLOW for output in stage.makes if output.table is not None)


def _view(store: Store, output: Output) -> str | None:
    """All keys of one asset; none where the record has no row of it."""
    assert output.table is not None
    named = output.table.key.split("/")
    selects = []
    for key in store.keys(output.artefact):
        ref = require(store, output.artefact, key)
        files = [duck.file_literal(store, path) for path in store.part_paths(ref)]
        if not files:
            continue
        of_key = dict(zip(named, key.split("/", len(named) - 1), strict=True))
        missing = {name: value for name, value in of_key.items() if name not in output.table.columns.names}
        columns = "".join(f"{duck.literal(value)} AS {name}, " for name, value in missing.items())
        selects.append(f"SELECT {columns}* FROM read_parquet([{', '.join(files)}])")
    if not selects:
        return None
    return f"CREATE OR REPLACE VIEW {output.asset} AS\n" + "\nUNION ALL BY NAME\n".join(selects) + ";"


def _decisions(store: Store, keys: list[str]) -> str:
    """Every row of the crawls under every arm, by the versions that each mask was made from."""
    selects = []
    for key in keys:
        selection = require(store, "select", key)
        release, arm = map(duck.literal, key.split("/", 1))
        candidates, copies = made_of(store, selection)
        queries = [decisions_sql(store, candidates, copies, selection), rejected_sql(store, candidates)]
        selects += [f"SELECT {release} AS release, {arm} AS arm, * FROM ({sql})" for sql in queries if sql]
    return "CREATE OR REPLACE VIEW decisions AS\n" + "\nUNION ALL BY NAME\n".join(selects) + ";"


def _artefacts(store: Store) -> str:
    """What is current: one row an artefact, with its version, counters and what it took."""
    rows = []
    for stage in FLOW:
        for output in stage.makes:
            for key in store.keys(output.artefact):
                ref = require(store, output.artefact, key)
                manifest = store.manifest(ref)
                texts = (
                    output.asset,
                    output.artefact,
                    key,
                    ref.location,
                    ref.fingerprint,
                    ref.content_digest,
                )
                values = [duck.literal(text) for text in (*texts, str(manifest["basis"]["version"]))]
                names, counts = list(manifest["counts"]), list(manifest["counts"].values())
                counters = f"MAP([{', '.join(map(duck.literal, names))}]::VARCHAR[], {counts}::BIGINT[])"
                rows.append(
                    f"({', '.join(values)}, {ref.rows}::BIGINT, {counters}, {manifest['wall_seconds']}::DOUBLE)"
                )
    columns = "asset, stage, key, location, fingerprint, content_digest, version, rows, counts, wall_seconds"
    if not rows:
        raise ConfigurationError(f"the record {store.root_url!r} holds nothing yet; `datamask run` fills it")
    listed = ",\n".join(rows)
    return f"CREATE OR REPLACE VIEW artefacts AS SELECT * FROM (VALUES\n{listed}\n) AS current({columns});"

"""DuckDB views over the current artefacts of a record: what a glob counts twice is counted once. Knows tables, no stage.

A view is named as its asset, e.g. `selection_mask`; crawl, release, arm or run stand in columns of those names. Files are
named one by one, so that views show the record as it was when they were made.
"""

from collections.abc import Iterator
from typing import Final

from datamask_pipeline import duck
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.pipeline.stage import Output
from datamask_pipeline.storage import Store, require

#: One row a document, release and arm: where it left the chain and by which rule; null: it is in the arm's subset.
_DECISIONS: Final = """
CREATE OR REPLACE VIEW decisions AS
SELECT c.release, m.arm, c.position, c.crawl, c.id, c.content_hash, c.domain, c.token_count,
    CASE WHEN NOT c.eligible THEN 'pool' WHEN n.near_copy_of IS NOT NULL THEN 'copies'
        WHEN s.id IS NULL OR NOT s.selected THEN 'select' END AS left_at,
    CASE WHEN NOT c.eligible THEN c.exclusion WHEN n.near_copy_of IS NOT NULL THEN 'near_copy'
        WHEN s.id IS NULL THEN 'no_score' ELSE s.reason END AS reason,
    coalesce(n.near_copy_of, c.representative_id) AS representative_id,
    s.selected, s.quality, s.probability, s.quality_marginal, s.diversity_marginal, s.threshold
FROM candidate_documents AS c
JOIN (SELECT DISTINCT release, arm FROM selection_mask) AS m USING (release)
LEFT JOIN near_copies AS n ON c.eligible AND n.release = c.release AND n.crawl = c.crawl AND n.id = c.id
LEFT JOIN selection_mask AS s
    ON c.eligible AND s.release = c.release AND s.arm = m.arm AND s.crawl = c.crawl AND s.id = c.id;
CREATE OR REPLACE VIEW funnel AS
SELECT release, arm, left_at, CASE WHEN left_at IS NOT NULL THEN reason END AS rule, count(*) AS documents,
    sum(token_count)::BIGINT AS tokens, arg_min(id, position, 3) AS examples
FROM decisions GROUP BY ALL;
"""
_NO_NEAR_COPIES: Final = """
CREATE OR REPLACE VIEW near_copies AS
SELECT NULL::VARCHAR AS release, NULL::VARCHAR AS crawl, NULL::VARCHAR AS id, NULL::VARCHAR AS near_copy_of WHERE false;
"""


def views(store: Store) -> str:
    """SQL that makes the views: one for each asset that the record holds, ``artefacts``, ``decisions`` and ``funnel``.

    Raises:
        ConfigurationError: the record holds nothing yet.
        IntegrityError: a manifest is damaged.
    """
    made = {output.asset: sql for output in _outputs() if (sql := _view(store, output)) is not None}
    statements = [_artefacts(store), *made.values()]
    if {"candidate_documents", "selection_mask"} <= made.keys():
        statements += ([] if "near_copies" in made else [_NO_NEAR_COPIES]) + [_DECISIONS]
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

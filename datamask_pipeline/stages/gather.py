"""Gather: one index of a release, which all arms read: where each eligible document's vector lies, and its scores.

Joins rows of the crawls by their position; knows no scorer, no learner and no vector's numbers. No vector is copied:
a further crawl adds its own part.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

if TYPE_CHECKING:
    import duckdb

STAGE: Final = "gather"
VERSION: Final = "1"

#: Before a scorer's name, in the index and in the subset.
SCORE_PREFIX: Final = "score_"


class GatherConfig(Settings):
    """How the index is written."""

    memory_limit: str = execution_field("2GB", description="Memory DuckDB may use before it spills to disk.")


def run(
    config: GatherConfig,
    *,
    store: Store,
    release: str,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    scores: Mapping[str, Ref],
) -> Ref:
    """Write the index of one release.

    Args:
        config: How to write.
        store: The record.
        release: The release's name.
        candidates: The release's candidates: one part a crawl, every document of it in order.
        embeddings: Embeddings of each crawl, in the release's order.
        scores: Quality scores of each crawl, in the same order.

    Returns:
        One row per eligible document in canonical order, one part per crawl: the shard and row of its vector, and a
        column ``score_<scorer>`` for each scorer of the crawls, null where it gave the document no score.

    Raises:
        IntegrityError: candidates, vectors and scores are not of the same documents.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    inputs |= {f"scores/{crawl}": ref for crawl, ref in scores.items()}
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        scorers = _scorers(connection, store, scores)
        columns = index_schema(list(dict.fromkeys(name for names in scorers.values() for name in names)))
        parts = []
        for number, (crawl, ref) in enumerate(embeddings.items()):
            connection.execute(
                "CREATE OR REPLACE TEMP TABLE joined AS "
                + _rows_sql(store, candidates, number, ref, scores[crawl], scorers[crawl])
            )
            _refuse_gaps(connection, crawl, len(scorers[crawl]))
            ordered = (
                f"SELECT {_selected(columns, scorers[crawl])} FROM joined WHERE eligible ORDER BY position"
            )
            batches = duck.stream(connection, ordered, columns, batch_rows=ROW_GROUP_ROWS)
            parts.append(builder.write_part(f"{number:05d}", batches, columns))
    kept = sum(int(part["rows"]) for part in parts)
    counts = {"rows_in": candidates.rows, "kept": kept, "dropped_not_eligible": candidates.rows - kept}
    return builder.commit(parts, counts=counts, metadata={"crawls": list(embeddings)})


def index_schema(scorers: list[str]) -> pa.Schema:
    """The index's columns, with those of the scorers sorted by name."""
    return pa.schema([*schema.RELEASE_INDEX, *map(schema.score_column, sorted(scorers))])


def index_scores(store: Store, index: Ref) -> pa.Schema:
    """The columns of scores that an index has."""
    (first, *_) = store.part_names(index)
    with store.part_file(index, first) as part:
        return pa.schema(list(part.schema_arrow)[len(schema.RELEASE_INDEX) :])


def _scorers(
    connection: "duckdb.DuckDBPyConnection", store: Store, scores: Mapping[str, Ref]
) -> dict[str, list[str]]:
    """The scorers of each crawl."""
    found = {}
    for crawl, ref in scores.items():
        rows = duck.parts_sql(store, [ref], "scorer")
        names = connection.execute(f"SELECT DISTINCT scorer FROM {rows} ORDER BY 1").fetchall()
        found[crawl] = [name for (name,) in names]
    return found


def _rows_sql(
    store: Store, candidates: Ref, number: int, embeddings: Ref, scores: Ref, scorers: list[str]
) -> str:
    """Every document of one crawl: its candidate row, beside its vector's place and its scores, by position."""
    pivot = "".join(
        f", max(score) FILTER (scorer = {duck.literal(name)}) AS {duck.identifier(SCORE_PREFIX + name)}"
        for name in scorers
    )
    embedded = duck.parts_sql(store, [embeddings], "id, content_hash")
    scored = duck.parts_sql(store, [scores], "id, scorer, score")
    return f"""
        WITH documents AS (
            SELECT position, crawl, id, content_hash, shard, domain, token_count, eligible, part_row AS document
            FROM {duck.parts_sql(store, [candidates])} WHERE part_order = {number}
        ),
        embedded AS (SELECT id, content_hash, artefact_row AS document, part_row AS row FROM {embedded}),
        scored AS (
            SELECT artefact_row // {max(1, len(scorers))} AS document, min(id) AS id, max(id) AS last_id,
                count(DISTINCT scorer) AS num_scores{pivot}
            FROM {scored} GROUP BY 1
        )
        SELECT documents.*, embedded.row, scored.* EXCLUDE (document, id, last_id),
            coalesce(embedded.id = documents.id AND embedded.content_hash = documents.content_hash, false) AS has_vector,
            coalesce(scored.id = documents.id AND scored.last_id = documents.id, false) AS has_scores
        FROM documents LEFT JOIN embedded USING (document) LEFT JOIN scored USING (document)
    """


def _refuse_gaps(connection: "duckdb.DuckDBPyConnection", crawl: str, num_scorers: int) -> None:
    """The crawl's vectors and scores are its documents', row by row."""
    whole = f"has_scores AND num_scores = {num_scorers}" if num_scorers else "true"
    for condition, what, stage in (("has_vector", "embedding", "embed"), (whole, "row of scores", "score")):
        missing, first = connection.execute(
            f"SELECT count(*), arg_min(id, position) FROM joined WHERE NOT ({condition})"
        ).fetchall()[0]
        if missing:
            raise IntegrityError(
                f"{missing} documents of crawl {crawl!r} have no {what} in their place, the first {first!r}; "
                f"run stage {stage!r} of that crawl again"
            )


def _selected(columns: pa.Schema, scorers: list[str]) -> str:
    """The index's columns, null for scorers that this crawl has not."""
    own = {*schema.RELEASE_INDEX.names, *(SCORE_PREFIX + name for name in scorers)}
    names = (duck.identifier(name) for name in columns.names)
    return ", ".join(
        quoted if name in own else f"NULL AS {quoted}"
        for name, quoted in zip(columns.names, names, strict=True)
    )

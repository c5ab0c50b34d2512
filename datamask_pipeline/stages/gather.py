"""Gather: one index of a release, which all arms read: where each eligible document's vector lies, and its scores.

Joins rows of the crawls by their position; knows no scorer, no learner and no vector's numbers. No vector is copied:
a further crawl adds its own part.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

if TYPE_CHECKING:
    import duckdb

STAGE: Final = "gather"
VERSION: Final = "1"

#: Before a scorer's name, in the index and in the subset.
SCORE_PREFIX: Final = "score_"


class GatherConfig(duck.QuerySettings):
    """How the index is written."""


def run(
    config: GatherConfig,
    *,
    store: Store,
    release: str,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    scores: Mapping[str, Ref],
    copies: Ref | None = None,
) -> Ref:
    """Write the index of one release.

    Args:
        config: How to write.
        store: The record.
        release: The release's name.
        candidates: The release's candidates: one part a crawl, every document of it in order.
        embeddings: Embeddings of each crawl, in the release's order.
        scores: Quality scores of each crawl, in the same order.
        copies: The release's near-copies, which are left out; ``None`` where they are not sought.

    Returns:
        One row per eligible document in canonical order, one part per crawl: the shard and row of its vector, how many
        near-copies it stands for if these are left out, and a column ``score_<scorer>`` for each scorer of the crawls,
        null where it gave the document no score.

    Raises:
        IntegrityError: candidates, vectors and scores are not of the same documents, or near-copies were sought among
            others.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    if copies is not None:
        inputs["copies"] = copies
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    inputs |= {f"scores/{crawl}": ref for crawl, ref in scores.items()}
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    if copies is not None:
        _refuse_other_inputs(store, copies, inputs)
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        scorers = _scorers(connection, store, scores)
        columns = index_schema(
            list(dict.fromkeys(name for names in scorers.values() for name in names)),
            near_copies=copies is not None,
        )
        parts = []
        for number, (crawl, ref) in enumerate(embeddings.items()):
            connection.execute(
                "CREATE OR REPLACE TEMP TABLE joined AS "
                + _rows_sql(store, candidates, number, ref, scores[crawl], scorers[crawl], copies)
            )
            _refuse_gaps(connection, crawl, len(scorers[crawl]))
            ordered = f"SELECT {_selected(columns, scorers[crawl])} FROM joined WHERE kept ORDER BY position"
            batches = duck.stream(connection, ordered, columns, batch_rows=ROW_GROUP_ROWS)
            parts.append(builder.write_part(f"{number:05d}", batches, columns))
    kept = sum(int(part["rows"]) for part in parts)
    eligible = kept if copies is None else copies.rows
    counts = {"rows_in": candidates.rows, "kept": kept, "dropped_not_eligible": candidates.rows - eligible}
    if copies is not None:
        counts["dropped_near_copy"] = eligible - kept
    return builder.commit(parts, counts=counts, metadata={"crawls": list(embeddings)})


def index_schema(scorers: list[str], *, near_copies: bool) -> pa.Schema:
    """The index's columns, with those of the scorers sorted by name."""
    counted = [schema.NUM_NEAR_COPIES] if near_copies else []
    return pa.schema([*schema.RELEASE_INDEX, *counted, *map(schema.score_column, sorted(scorers))])


def index_extra(store: Store, index: Ref) -> pa.Schema:
    """The columns that an index has beyond those of every index: number of near-copies, scores."""
    (first, *_) = store.part_names(index)
    with store.part_file(index, first) as part:
        return pa.schema(list(part.schema_arrow)[len(schema.RELEASE_INDEX) :])


def index_scores(store: Store, index: Ref) -> pa.Schema:
    """The columns of scores that an index has."""
    return pa.schema([field for field in index_extra(store, index) if field.name.startswith(SCORE_PREFIX)])


def _refuse_other_inputs(store: Store, copies: Ref, inputs: Mapping[str, Ref | str]) -> None:
    """Near-copies were sought among these candidates by these vectors."""
    for name, digest in store.manifest(copies)["basis"]["inputs"].items():
        if name == "held":  # of another release
            continue
        ref = inputs.get(name)
        if not isinstance(ref, Ref) or ref.content_digest != digest:
            raise IntegrityError(
                f"the near-copies of release {copies.key!r} were sought with other {name}; run stage 'copies' again"
            )


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
    store: Store,
    candidates: Ref,
    number: int,
    embeddings: Ref,
    scores: Ref,
    scorers: list[str],
    copies: Ref | None,
) -> str:
    """Every document of one crawl: its candidate row, beside its vector's place and its scores, by position."""
    pivot = "".join(
        f", max(score) FILTER (scorer = {duck.literal(name)}) AS {duck.identifier(SCORE_PREFIX + name)}"
        for name in scorers
    )
    embedded = duck.parts_sql(store, [embeddings], "id, content_hash")
    scored = duck.parts_sql(store, [scores], "id, scorer, score")
    near, counted, kept = "", "", "eligible"
    if copies is not None:
        columns = "position, near_copy_of, num_near_copies"
        of_crawl = f"{duck.parts_sql(store, [copies], columns)} WHERE part_order = {number}"
        near = f"LEFT JOIN (SELECT {columns} FROM {of_crawl}) AS near USING (position)"
        counted, kept = ", near.num_near_copies", "(eligible AND near.near_copy_of IS NULL)"
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
        SELECT documents.*, {kept} AS kept{counted}, embedded.row, scored.* EXCLUDE (document, id, last_id),
            coalesce(embedded.id = documents.id AND embedded.content_hash = documents.content_hash, false) AS has_vector,
            coalesce(scored.id = documents.id AND scored.last_id = documents.id, false) AS has_scores
        FROM documents LEFT JOIN embedded USING (document) LEFT JOIN scored USING (document)
        {near}
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
    own = {
        *schema.RELEASE_INDEX.names,
        schema.NUM_NEAR_COPIES.name,
        *(SCORE_PREFIX + name for name in scorers),
    }
    names = (duck.identifier(name) for name in columns.names)
    return ", ".join(
        quoted if name in own else f"NULL AS {quoted}"
        for name, quoted in zip(columns.names, names, strict=True)
    )

"""Materialise: write the subset that a selection names, with every document's scores beside its text.

A DuckDB join over the record; knows no learner.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pydantic

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.lineage import combined_digest
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

STAGE: Final = "materialise"
VERSION: Final = "3"

#: What makes a document of a subset the one it is, whatever the mask thought of it.
DOCUMENT_IDENTITY: Final = ("crawl", "id", "text")


class MaterialiseConfig(Settings):
    """How the subset is written."""

    memory_limit: str = execution_field("2GB", description="Memory DuckDB may use before it spills to disk.")
    batch_rows: int = execution_field(ROW_GROUP_ROWS, ge=1, description="Rows held at once while writing.")
    score_columns: bool = pydantic.Field(
        True, description="Add one column score_<scorer> for each quality scorer in the record."
    )


def run(
    config: MaterialiseConfig,
    *,
    store: Store,
    release: str,
    arm: str,
    documents: Mapping[str, Ref],
    candidates: Ref,
    scores: Mapping[str, Ref],
    selection: Ref,
) -> Ref:
    """Write the selected documents, one part per crawl, in canonical order.

    Args:
        config: How to write.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        documents: Documents of each crawl, in the release's order.
        candidates: The release's candidates.
        scores: Quality scores of each crawl.
        selection: The mask.

    Returns:
        The subset.

    Raises:
        IntegrityError: a selected document is not among the documents, or stands there twice.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates, "selection": selection}
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    inputs |= {f"scores/{crawl}": ref for crawl, ref in scores.items()}
    builder = store.begin(
        STAGE, f"{release}/{arm}", version=VERSION, config=config.result_config(), inputs=inputs
    )
    if (done := builder.finished()) is not None:
        return done
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        score_rows = duck.parts_sql(store, list(scores.values()), "id, scorer, score")
        scorers = (
            [
                name
                for (name,) in connection.execute(
                    f"SELECT DISTINCT scorer FROM {score_rows} ORDER BY 1"
                ).fetchall()
            ]
            if config.score_columns
            else []
        )
        subset_schema = pa.schema(
            [*schema.DOCUMENTS, *schema.SUBSET_EXTRA, *map(schema.score_column, scorers)]
        )
        connection.execute(
            f"""
            CREATE TEMP TABLE selected AS
            SELECT s.crawl, s.id, s.quality, s.logit, s.probability, c.num_copies, c.position, c.token_count
            FROM {duck.parts_sql(store, [selection])} AS s
            JOIN {duck.parts_sql(store, [candidates])} AS c ON c.crawl = s.crawl AND c.id = s.id
            WHERE s.selected
            """
        )
        parts = [
            builder.write_part(
                f"{index:05d}",
                duck.stream(
                    connection,
                    _subset_sql(
                        store, crawl, ref, scores[crawl], scorers, release, arm, selection_id(selection)
                    ),
                    subset_schema,
                    batch_rows=config.batch_rows,
                ),
                subset_schema,
                identity=DOCUMENT_IDENTITY,
            )
            for index, (crawl, ref) in enumerate(documents.items())
        ]
        (tokens,) = connection.execute(
            "SELECT coalesce(sum(token_count), 0)::BIGINT FROM selected"
        ).fetchall()[0]
    selected = int(store.manifest(selection)["counts"]["kept"])
    written = sum(int(part["rows"]) for part in parts)
    if written != selected:
        raise IntegrityError(
            f"the subset of {release}/{arm} has {written} rows where its selection has {selected}; "
            "the selection's crawls were ingested again since: run selection again"
        )
    metadata = {
        "release": release,
        "arm": arm,
        "tokens": tokens,
        "selection": selection_id(selection),
        "documents_digest": combined_digest((part["name"], part["identity_digest"]) for part in parts),
    }
    return builder.commit(parts, counts={"rows_in": selected, "kept": written}, metadata=metadata)


def documents_digest(store: Store, subset: Ref) -> str:
    """Which documents a subset has, in its order: a digest of crawl, id and text.

    Two selections of the same documents differ in their logits and in the id that every row carries, not in this.
    """
    digest: str = store.manifest(subset)["metadata"]["documents_digest"]
    return digest


def selection_id(selection: Ref) -> str:
    """What the subset calls its mask: the first 16 digits of the mask's content digest.

    Not of its fingerprint: a later version of selection that learns the same mask leaves the subset as it is, and
    nothing is trained again. The manifest's ``inputs`` say which artefact the mask was read from.
    """
    return selection.content_digest[:16]


def _subset_sql(
    store: Store,
    crawl: str,
    documents: Ref,
    scores: Ref,
    scorers: list[str],
    release: str,
    arm: str,
    mask_id: str,
) -> str:
    columns = ", ".join(f"d.{name}" for name in schema.DOCUMENTS.names)
    score_columns = "".join(f", p.{duck.identifier(f'score_{name}')}" for name in scorers)
    pivot = ", ".join(
        f"max(score) FILTER (WHERE scorer = {duck.literal(name)}) AS {duck.identifier(f'score_{name}')}"
        for name in scorers
    )
    joined = (
        f"LEFT JOIN (SELECT id, {pivot} FROM {duck.parts_sql(store, [scores], 'id, scorer, score')} GROUP BY id)"
        " AS p ON p.id = d.id"
        if scorers
        else ""
    )
    return f"""
        SELECT {columns}, s.quality, s.logit, s.probability, s.num_copies,
            {duck.literal(release)} AS release, {duck.literal(arm)} AS arm, {duck.literal(mask_id)} AS selection_id
            {score_columns}
        FROM {duck.parts_sql(store, [documents], ", ".join(schema.DOCUMENTS.names))} AS d
        JOIN selected AS s ON s.crawl = {duck.literal(crawl)} AND s.id = d.id
        {joined}
        ORDER BY s.position
    """

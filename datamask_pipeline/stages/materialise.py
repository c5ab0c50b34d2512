"""Materialise: write the subset that a selection names, with every document's scores beside its text.

A DuckDB join over the record, by position; knows no learner.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pydantic

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.lineage import combined_digest
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.stages.gather import SCORE_PREFIX, index_extra
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

STAGE: Final = "materialise"
VERSION: Final = "5"

#: What makes a document of a subset the one it is, whatever the mask thought of it.
DOCUMENT_IDENTITY: Final = ("crawl", "id", "text")


class MaterialiseConfig(Settings):
    """How the subset is written."""

    memory_limit: duck.MemoryLimit = execution_field(
        "2GB", description="Memory DuckDB may use before it spills to disk."
    )
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
    index: Ref,
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
        index: The release's index, with every document's scores.
        selection: The mask.

    Returns:
        The subset.

    Raises:
        IntegrityError: a selected document does not stand in its place among the documents.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates, "index": index, "selection": selection}
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    builder = store.begin(
        STAGE, f"{release}/{arm}", version=VERSION, config=config.result_config(), inputs=inputs
    )
    if (done := builder.finished()) is not None:
        return done
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        extra = pa.schema(
            [
                field
                for field in index_extra(store, index)
                if config.score_columns or not field.name.startswith(SCORE_PREFIX)
            ]
        )
        subset_schema = pa.schema([*schema.DOCUMENTS, *schema.SUBSET_EXTRA, *extra])
        connection.execute(
            f"""
            CREATE TEMP TABLE selected AS
            SELECT s.position, s.id, s.quality, s.logit, s.probability, c.num_copies, c.token_count,
                c.part_order AS crawl_order, c.part_row AS document {_listed("i", extra)}
            FROM {duck.parts_sql(store, [selection])} AS s
            JOIN {duck.parts_sql(store, [candidates])} AS c ON c.position = s.position AND c.id = s.id
            JOIN {duck.parts_sql(store, [index])} AS i ON i.position = s.position AND i.id = s.id
            WHERE s.selected
            """
        )
        labels = (release, arm, selection_id(selection))
        parts = [
            builder.write_part(
                f"{number:05d}",
                duck.stream(
                    connection,
                    _subset_sql(store, number, ref, labels, extra),
                    subset_schema,
                    batch_rows=config.batch_rows,
                ),
                subset_schema,
                identity=DOCUMENT_IDENTITY,
            )
            for number, ref in enumerate(documents.values())
        ]
        tokens, counted = connection.execute(
            "SELECT coalesce(sum(token_count), 0)::BIGINT, count(token_count) FROM selected"
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
        "tokens": tokens if counted == written else None,  # a sum over some of them is no length of all
        "without_token_count": written - counted,
        "selection": selection_id(selection),
        "documents_digest": combined_digest((part["name"], part["identity_digest"]) for part in parts),
    }
    return builder.commit(parts, counts={"rows_in": selected, "kept": written}, metadata=metadata)


def documents_digest(store: Store, subset: Ref) -> str:
    """Which documents a subset has, in its order: a digest of crawl, id and text.

    Two selections of the same documents differ in their logits and in the id that every row carries, not in this. A subset
    of an earlier version, which recorded none, is known by all of its content.
    """
    digest: str = store.manifest(subset)["metadata"].get("documents_digest", subset.content_digest)
    return digest


def selection_id(selection: Ref) -> str:
    """What the subset calls its mask: the first 16 digits of the mask's content digest.

    Not of its fingerprint: a later version of selection that learns the same mask leaves the subset as it is, and
    nothing is trained again. The manifest's ``inputs`` say which artefact the mask was read from.
    """
    return selection.content_digest[:16]


def _subset_sql(
    store: Store, crawl_order: int, documents: Ref, labels: tuple[str, str, str], extra: pa.Schema
) -> str:
    """The selected documents of one crawl; each is found by its place, and its id is seen to be the same."""
    columns = ", ".join(f"d.{name}" for name in schema.DOCUMENTS.names)
    release, arm, mask_id = map(duck.literal, labels)
    return f"""
        SELECT {columns}, s.quality, s.logit, s.probability, s.num_copies,
            {release} AS release, {arm} AS arm, {mask_id} AS selection_id {_listed("s", extra)}
        FROM {duck.parts_sql(store, [documents], ", ".join(schema.DOCUMENTS.names))} AS d
        JOIN selected AS s ON s.document = d.artefact_row AND s.id = d.id
        WHERE s.crawl_order = {crawl_order}
        ORDER BY s.position
    """


def _listed(table: str, columns: pa.Schema) -> str:
    return "".join(f", {table}.{duck.identifier(name)}" for name in columns.names)

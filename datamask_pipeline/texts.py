"""Texts out of the record, by what the pool decided. Knows the pool's columns and the documents'; no stage."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from datamask_pipeline import duck
from datamask_pipeline.storage import Ref, Store


def pool_documents(
    store: Store, candidates: Ref, documents: Mapping[str, Ref], where: str, *, limit: int | None = None
) -> Iterator[tuple[str, str]]:
    """Id and text of the pool's documents that satisfy a condition, in canonical order.

    Args:
        store: The record.
        candidates: The release's candidates.
        documents: Documents of each crawl.
        where: An SQL condition over the candidates' columns, ``c.`` before each.
        limit: Take this many, those whose content hash is smallest: a uniform sample that depends on
            content alone.
    """
    chosen = f"SELECT * FROM {duck.parts_sql(store, [candidates])} AS c WHERE {where}"
    if limit is not None:
        chosen += f" ORDER BY c.content_hash, c.position LIMIT {limit}"
    sql = f"""
        SELECT d.id, d.text
        FROM {duck.parts_sql(store, list(documents.values()), "crawl, id, text")} AS d
        JOIN ({chosen}) AS c ON c.crawl = d.crawl AND c.id = d.id
        ORDER BY c.position
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(store, Path(scratch), memory_limit=duck.STAGE_MEMORY) as connection,
    ):
        for batch in connection.sql(sql).to_arrow_reader(1_024):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

"""Copies: which eligible documents of a release are near-copies of an earlier one, by their embeddings.

Off unless `copies.threshold` is set: then the stage is no part of the flow. Documents are taken in the release's
canonical order, so the order of its crawls decides who represents whom. Knows vectors and their places; no text.
What is withdrawn or held out for validation is left out before: its near-copies stay unless `pool.near_duplicates` or
`pool.takedown` names them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.near_copies import NearCopyIndex
from datamask_pipeline.near_copies.index import LEAST_THRESHOLD, MOST_THRESHOLD
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store, array_files

STAGE: Final = "copies"
VERSION: Final = "1"


class CopiesConfig(Settings):
    """Whether near-copies are collapsed, and what counts as one."""

    threshold: float | None = pydantic.Field(
        None,
        ge=LEAST_THRESHOLD,
        le=MOST_THRESHOLD,
        description="Collapse documents whose embeddings have at least this cosine to an earlier one's, e.g. 0.98; null "
        "collapses none. Near-duplicates by their words are `pool.near_duplicates`.",
    )
    memory_limit: duck.MemoryLimit = execution_field(
        "2GB", description="Memory DuckDB may use before it spills to disk."
    )


def is_off(config: CopiesConfig) -> bool:
    """Whether the flow goes without this stage."""
    return config.threshold is None


def run(
    config: CopiesConfig, *, store: Store, release: str, candidates: Ref, embeddings: Mapping[str, Ref]
) -> Ref:
    """Find the near-copies of one release.

    Args:
        config: The threshold.
        store: The record.
        release: The release's name.
        candidates: The release's candidates: one part a crawl, every document of it in order.
        embeddings: Embeddings of each crawl, in the release's order.

    Returns:
        One row per eligible document in canonical order, one part per crawl: what it is a near-copy of, if it is one.

    Raises:
        ConfigurationError: no threshold is set.
        InputError: a vector is not of unit norm.
        IntegrityError: a crawl has another number of vectors than of documents.
    """
    if config.threshold is None:
        raise ConfigurationError("stage 'copies' is off; set copies.threshold, e.g. to 0.98")
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    positions_N, vectors = _eligible(store, candidates, embeddings)
    index = NearCopyIndex.of(builder.scratch() / "index", vectors, threshold=config.threshold)
    found = _found(index, positions_N)
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        connection.register("found", found)
        parts = [
            builder.write_part(
                f"{number:05d}",
                duck.stream(
                    connection,
                    _rows_sql(store, candidates, number),
                    schema.NEAR_COPIES,
                    batch_rows=ROW_GROUP_ROWS,
                ),
                schema.NEAR_COPIES,
            )
            for number in range(len(embeddings))
        ]
    rows, kept = len(positions_N), index.num_representatives
    metadata = {
        "crawls": list(embeddings),
        "threshold": config.threshold,
        "expected_recall": index.signatures.expected_recall,
        "largest_group": int(found.column("num_near_copies").to_numpy().max()),
    }
    return builder.commit(
        parts, counts={"rows_in": rows, "kept": kept, "dropped_near_copy": rows - kept}, metadata=metadata
    )


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How many near-copies there are."""
    counts, found = manifest["counts"], manifest["metadata"]
    yield (
        f"{counts['dropped_near_copy']} of {counts['rows_in']} eligible documents are near-copies of another "
        f"(cosine from {found['threshold']}; the largest group has {found['largest_group']})"
    )


def _eligible(
    store: Store, candidates: Ref, embeddings: Mapping[str, Ref]
) -> tuple[NDArray[np.int64], ShardedVectors]:
    """Positions of the eligible documents, and their vectors where they lie."""
    paths: list[Path] = []
    files, rows, positions = [], [], []
    for name, (crawl, ref) in zip(store.part_names(candidates), embeddings.items(), strict=True):
        with store.part_file(candidates, name) as part:
            table = part.read(["position", "eligible"])
        if table.num_rows != ref.rows:
            raise IntegrityError(
                f"crawl {crawl!r} has {ref.rows} vectors and {table.num_rows} documents; run stage 'embed' of it again"
            )
        ends_F = np.cumsum([int(part["rows"]) for part in store.manifest(ref)["parts"]])
        documents_n = np.flatnonzero(table.column("eligible").to_numpy())
        files_n = np.searchsorted(ends_F, documents_n, side="right")
        rows.append(documents_n - np.concatenate([[0], ends_F])[files_n])
        files.append(files_n + len(paths))
        positions.append(table.column("position").to_numpy()[documents_n])
        paths += array_files(store, ref).values()
    vectors = ShardedVectors(paths, np.concatenate(files).astype(np.int32), np.concatenate(rows))
    return np.concatenate(positions), vectors


def _found(index: NearCopyIndex, positions_N: NDArray[np.int64]) -> pa.Table:
    """Of every eligible document: its position, that of what stands for it, their cosine, and the size of its group."""
    blocks = [(block.rows_Q, block.cosines_Q) for block in index.representatives()]
    representatives_N, cosines_N = (np.concatenate(values) for values in zip(*blocks, strict=True))
    return pa.table(
        {
            "position": positions_N,
            "representative": positions_N[representatives_N],
            "cosine": cosines_N.astype(np.float64),
            "num_near_copies": np.bincount(representatives_N, minlength=len(positions_N))[representatives_N],
        }
    )


def _rows_sql(store: Store, candidates: Ref, number: int) -> str:
    documents = duck.parts_sql(store, [candidates], "position, crawl, id")
    return f"""
        SELECT d.position, d.crawl, d.id, r.crawl AS near_copy_of_crawl, r.id AS near_copy_of,
            CASE WHEN r.id IS NOT NULL THEN found.cosine END AS cosine, found.num_near_copies
        FROM {documents} AS d JOIN found ON found.position = d.position
        LEFT JOIN {documents} AS r ON r.position = found.representative AND r.position <> d.position
        WHERE d.part_order = {number}
        ORDER BY d.position
    """

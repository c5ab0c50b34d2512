"""Redundancy: what can be said of an arm's documents without training on them: copies, quality rank, coverage.

Knows the mask and what it was learnt from; knows no learner and no text. `schema.REDUNDANCY` says what each figure is.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import duck, schema
from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.near_copies import NearCopyIndex, coverage_of
from datamask_pipeline.near_copies.exact import MOST_VECTORS, num_standing
from datamask_pipeline.near_copies.index import LEAST_THRESHOLD, MOST_THRESHOLD
from datamask_pipeline.near_copies.recall import about_recall
from datamask_pipeline.stages.release_rows import ReleaseRows, read_rows
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.token_totals import TOTALS_SQL

STAGE: Final = "redundancy"
VERSION: Final = "4"


class RedundancyConfig(duck.QuerySettings):
    """How alike an arm's documents are, and how they stand for the others."""

    threshold: float = pydantic.Field(
        0.98,
        ge=LEAST_THRESHOLD,
        le=MOST_THRESHOLD,
        description="Least cosine of two embeddings that counts as a near-copy.",
    )
    coverage_documents: int = pydantic.Field(
        10_000,
        ge=2,
        description="Documents of the pool that coverage is measured on; all of them where there are no more.",
    )
    seed: int = pydantic.Field(0, ge=0, description="Draws those documents.")


def run(
    config: RedundancyConfig,
    *,
    store: Store,
    release: str,
    arm: str,
    candidates: Ref,
    index: Ref,
    embeddings: Mapping[str, Ref],
    selection: Ref,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Ref:
    """Measure one arm's documents.

    Args:
        config: What counts as a near-copy, and how many documents coverage is measured on.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        candidates: The release's candidates, with each document's content hash.
        index: The release's index.
        embeddings: Embeddings of each crawl, those that the index was made from.
        selection: The mask.
        progress: Told of the blocks compared.

    Returns:
        One row.

    Raises:
        IntegrityError: the mask was made from another index.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates, "index": index, "selection": selection}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, f"{release}/{arm}", version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    of_arm = store.manifest(selection)["basis"]["config"]
    rows = read_rows(store, index, embeddings, of_arm["scorers"], of_arm["score_normalisation"], None)
    selected_N = store.read_table(selection, ["selected"]).column(0).to_numpy()
    if len(rows) != len(selected_N) or rows.vectors is None:
        raise IntegrityError(
            f"the selection of {release}/{arm} has {len(selected_N)} rows where the index has {len(rows)} with every "
            "score; run stage 'select' again"
        )
    with duck.connect(store, builder.scratch(), memory_limit=config.memory_limit) as connection:
        ((contents, tokens, without),) = connection.execute(f"""
            SELECT count(DISTINCT c.content_hash), {TOTALS_SQL}
            FROM {duck.parts_sql(store, [selection], "position, selected")} AS s
            JOIN {duck.parts_sql(store, [candidates], "position, content_hash, token_count")} AS c USING (position)
            WHERE s.selected
        """).fetchall()
    documents = int(selected_N.sum())
    row = {
        "documents": documents,
        "tokens": tokens,
        "without_tokens": without,
        "exact_copies": documents - contents,
        **measured(config, rows, selected_N, builder.scratch() / "index", progress),
    }
    part = builder.write_part(
        "00000", pa.Table.from_pylist([row], schema.REDUNDANCY).to_batches(), schema.REDUNDANCY
    )
    return builder.commit([part], metadata={"release": release, "arm": arm, **row})


def amount(manifest: Mapping[str, Any]) -> str:
    """How many documents were measured."""
    return f"{manifest['metadata']['documents']} documents"


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The figures in one line."""
    row = manifest["metadata"]
    found = about_recall(row["near_copy_recall"])
    yield (
        f"{row['arm']}: {row['near_copies']} of {row['documents']} documents are near-copies of another "
        f"(cosine from {row['near_copy_cosine']}{found}); mean quality rank {row['quality_rank']:.4f}; coverage of the "
        f"pool {row['coverage']:.4f}"
    )


def measured(
    config: RedundancyConfig,
    rows: ReleaseRows,
    selected_N: NDArray[np.bool_],
    folder: Path,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> dict[str, Any]:
    """What vectors and quality say of a mask: near-copies, quality rank and coverage, as `schema.REDUNDANCY` names them.

    Args:
        config: What counts as a near-copy, and how many documents coverage is measured on.
        rows: What the mask selects from; it has vectors.
        selected_N: The mask.
        folder: Where the index of near-copies is made, where there are too many to compare every pair.
        progress: Told of the blocks compared.
    """

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("coverage of the pool", done, total)

    assert rows.vectors is not None
    chosen = rows.vectors.chosen(np.flatnonzero(selected_N))
    if len(chosen) <= MOST_VECTORS:
        standing, recall = num_standing(chosen, config.threshold), 1.0
    else:
        near = NearCopyIndex.of(folder, chosen, threshold=config.threshold)
        standing, recall = near.num_representatives, near.expected_recall
    coverage = coverage_of(
        rows.vectors, chosen, num_compared=config.coverage_documents, seed=config.seed, progress=tell
    )
    return {
        "near_copies": len(chosen) - standing,
        "near_copy_cosine": config.threshold,
        "near_copy_recall": recall,
        "quality_rank": float(mean_ranks(rows.quality_N)[selected_N].mean()),
        "coverage": coverage.mean,
        "coverage_error": coverage.error,
        "coverage_documents": coverage.num_compared,
        "pool_documents": len(rows),
    }

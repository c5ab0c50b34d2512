"""What Dagster checks and shows of embeddings."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from assets.checks import (
    Artefact,
    Shown,
    Verdict,
    rows_in_are_kept_plus_dropped,
    same_schema,
)
from assets.metadata import Metadata, parts_schema
from datamask_pipeline import schema
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.stages import ingest
from datamask_pipeline.storage import ROW_GROUP_ROWS, open_array
from datamask_pipeline.vectors import are_unit


def columns(artefact: Artefact) -> Verdict:
    """Id and content hash, then one column for each head of the forward pass."""
    heads: Iterable[str] = artefact.settings.get("heads", ())
    found = parts_schema(artefact.pipeline.store, artefact.ref)
    # A manifest's keys are sorted: the heads' order stands in the columns alone.
    scores = sorted((SCORE_PREFIX + name for name in heads), key=found.get_field_index)
    expected = pa.schema([*schema.EMBEDDINGS, *((name, pa.float64()) for name in scores)])
    return same_schema(artefact, expected)


def one_row_per_document(artefact: Artefact) -> Verdict:
    """Row by row the same ids and contents as the documents: none missing, none more, none moved."""
    documents = artefact.neighbour(ingest.STAGE)
    keys = "id, content_hash"
    (apart,) = artefact.query(
        f"""
        SELECT count(*) FROM {artefact.sql(columns=keys)} AS e
        FULL JOIN {artefact.sql(documents, keys)} AS d USING (part_order, part_row)
        WHERE e.id IS DISTINCT FROM d.id OR e.content_hash IS DISTINCT FROM d.content_hash
        """
    )
    return Verdict(apart == 0, {"rows apart": apart, "documents": documents.rows})


def unit_norm(artefact: Artefact) -> Verdict:
    """Every vector is finite and of length 1, up to the rounding of float16."""
    worst, wrong = 0.0, 0
    store = artefact.pipeline.store
    for name in store.part_names(artefact.ref):
        vectors_ND = open_array(store, artefact.ref, name)
        for first in range(0, len(vectors_ND), ROW_GROUP_ROWS):
            rows_nD = vectors_ND[first : first + ROW_GROUP_ROWS].astype(np.float32)
            norms_n = np.linalg.norm(rows_nD, axis=1)
            wrong += int(np.count_nonzero(~are_unit(norms_n)))
            worst = max(worst, float(np.max(np.abs(norms_n - 1), initial=0.0)))
    return Verdict(wrong == 0, {"vectors not of length 1": wrong, "largest |norm - 1|": worst})


def _headline(artefact: Artefact) -> Metadata:
    return {name: str(artefact.found[name]) for name in ("model", "revision")}


SHOWN = {
    "document_embeddings": Shown(
        blocking=(columns, rows_in_are_kept_plus_dropped, one_row_per_document, unit_norm), headline=_headline
    )
}

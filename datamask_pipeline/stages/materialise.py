"""Materialise: write the subset that a selection names, with every document's scores beside its text.

All tables stand in canonical order, so they are read side by side, once, in memory that does not grow with them; knows no
learner.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.ahead import drawn_ahead
from datamask_pipeline.arrays import equal_strings, values_of
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.lineage import combined_digest
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.stages.gather import index_extra
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.aligned import Aligned
from datamask_pipeline.storage.row_index import CONTENT, URL

STAGE: Final = "materialise"
VERSION: Final = "6"

#: What makes a document of a subset the one it is, whatever the mask thought of it.
DOCUMENT_IDENTITY: Final = ("crawl", "id", "text")
#: Columns whose values hardly repeat.
PLAIN: Final = ("text", "id", "url", "content_hash")
#: Columns by which what a subset holds is asked for, beside its ids.
INDEXES: Final = (CONTENT, URL)
#: Rows of tables without texts read at a time.
_READ_ROWS: Final = 8 * ROW_GROUP_ROWS


class MaterialiseConfig(Settings):
    """How the subset is written."""

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
    extra = pa.schema(
        [
            field
            for field in index_extra(store, index)
            if config.score_columns or not field.name.startswith(SCORE_PREFIX)
        ]
    )
    subset_schema = pa.schema([*schema.DOCUMENTS, *schema.SUBSET_EXTRA, *extra])
    labels = {"release": release, "arm": arm, "selection_id": selection_id(selection)}
    chosen = _Chosen(store, selection, ["id", "quality", "logit", "probability"])
    beside = ((Aligned(store, candidates), ["num_copies"]), (Aligned(store, index), extra.names))
    length = _Length()
    parts, first = [], 0
    for number, (ref, pooled) in enumerate(
        zip(documents.values(), store.manifest(candidates)["parts"], strict=True)
    ):
        last, name = first + int(pooled["rows"]), f"{number:05d}"
        if builder.part(name) is not None:  # of a run that was ended: its rows are not drawn again
            with builder.open_part(name) as part:
                length.add(part.read(["token_count"]))
        texts = Aligned(store, ref, first=first, groups=8)
        joined = (_joined(rows, beside, texts) for rows in chosen.between(first, last, config.batch_rows))
        # In one piece: what is digested and written chunk by chunk costs more.
        whole = (_labelled(rows, labels).combine_chunks() for rows in joined)
        batches = (rows.select(subset_schema.names).cast(subset_schema) for rows in whole)
        parts.append(
            builder.write_part(
                name,
                drawn_ahead(length.of(batches)),
                subset_schema,
                identity=DOCUMENT_IDENTITY,
                plain=PLAIN,
            )
        )
        first = last
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
        "tokens": length.tokens,
        "without_token_count": written - length.known,
        "selection": selection_id(selection),
        "documents_digest": combined_digest((part["name"], part["identity_digest"]) for part in parts),
    }
    counts = {"rows_in": selected, "kept": written}
    return builder.commit(parts, counts=counts, metadata=metadata, indexes=INDEXES)


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


class _Chosen:
    """The selected rows of a mask, read once, in ascending order of position."""

    def __init__(self, store: Store, selection: Ref, columns: Sequence[str]) -> None:
        batches = store.iter_batches(selection, ["position", "selected", *columns], batch_rows=_READ_ROWS)
        self._batches = (batch.filter(batch["selected"]).drop_columns(["selected"]) for batch in batches)
        self._held: pa.RecordBatch | None = None

    def between(self, first: int, last: int, most: int) -> Iterator[pa.Table]:
        """Those from position ``first`` to before ``last``, so many at a time; earlier ones are passed over."""
        waiting: list[pa.RecordBatch] = []
        while (batch := self._next()) is not None:
            start, stop = np.searchsorted(values_of(batch["position"], np.int64), [first, last])
            waiting.append(batch.slice(start, stop - start))
            while sum(each.num_rows for each in waiting) >= most:
                rows = pa.concat_batches(waiting)
                yield pa.Table.from_batches([rows.slice(0, most)])
                waiting = [rows.slice(most)]
            if stop < batch.num_rows:
                self._held = batch.slice(stop)
                break
        if any(each.num_rows for each in waiting):
            yield pa.Table.from_batches(waiting).combine_chunks()

    def _next(self) -> pa.RecordBatch | None:
        held, self._held = self._held, None
        return next(self._batches, None) if held is None else held


def _joined(rows: pa.Table, beside: Iterable[tuple[Aligned, Sequence[str]]], texts: Aligned) -> pa.Table:
    """Rows with columns of other tables at their positions, and their documents.

    What is missing in one of them, or is another document by its id, is left out.
    """
    for other, columns in beside:
        rows, found = _found(rows, other, columns)
        for name in columns:
            rows = rows.append_column(found.schema.field(name), found[name])
    rows, found = _found(rows, texts, schema.DOCUMENTS.names)
    is_same = pc.equal(found["id"], rows["id"])
    if not pc.all(is_same, min_count=0).as_py():
        rows, found = rows.filter(is_same), found.filter(is_same)
    rows = rows.drop_columns(["id"])
    for name in schema.DOCUMENTS.names:
        rows = rows.append_column(found.schema.field(name), found[name])
    return rows


def _found(rows: pa.Table, other: Aligned, columns: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows that another table has, and what it says of them."""
    found, is_found_n = other.at(_positions(rows), columns)
    return rows if is_found_n.all() else rows.filter(pa.array(is_found_n)), found


def _labelled(rows: pa.Table, labels: Mapping[str, str]) -> pa.Table:
    for name, label in labels.items():
        labels_n = equal_strings(label.encode() * rows.num_rows, len(label.encode()))
        rows = rows.append_column(name, labels_n)
    return rows


def _positions(rows: pa.Table) -> NDArray[np.int64]:
    return values_of(rows["position"].combine_chunks(), np.int64)


class _Length:
    """Tokens of the documents that passed by, of those that state them, and how many do."""

    def __init__(self) -> None:
        self.tokens = self.known = 0

    def of(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The batches, counted."""
        for rows in batches:
            self.add(rows)
            yield rows

    def add(self, rows: pa.Table) -> None:
        """Count these."""
        counts = rows["token_count"]
        self.tokens += pc.sum(counts, min_count=0).as_py()
        self.known += len(counts) - counts.null_count

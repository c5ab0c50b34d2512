"""Writes a crawl's shards as parts, and settles which row owns an id that stands twice.

Knows the record and a source; knows no filter's meaning. The order of writing makes every step repeatable:

1. a shard's documents are written, its rejected rows kept as a note just before they are published;
2. when all shards stand, the later rows of every id are found, exactly (``repeated_ids``);
3. a shard's rejected rows are published, those duplicates among them;
4. a shard that holds duplicates is written once more without the rows that step 3 lists.

A kill between any two steps leaves what the next run needs: a published rejected part is final, and without
one the shard's documents still hold every duplicate.
"""

import bisect
import dataclasses
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.arrays import int64_array, string_array, values_of, without_rows
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.sources.base import Reject, Shard, Source, SourceBatch
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.sources.filters import RowFilters, invalid_utf8_rows, rejection, rows_to_check
from datamask_pipeline.stages.repeated_ids import repeated_ids
from datamask_pipeline.storage import ROW_GROUP_ROWS, ArtefactBuilder, Store
from datamask_pipeline.storage.tombstones import Erased

Record = dict[str, Any]

#: What ``rejection`` reads of a row, in its order.
CHECKED = ("id", "text", "language", "language_score", "token_count")

#: Columns whose values hardly repeat.
PLAIN = ("text", "id", "url", "content_hash")

#: A reason that stands in counters, in metrics and on terminals.
_REASON: Final = re.compile(r"[A-Za-z0-9_]+")

#: Rows that were purged from the record, and so are neither documents nor told among the rejected.
DROPPED_ERASED: Final = "dropped_erased"


@dataclasses.dataclass(frozen=True)
class CrawlWriter:
    """One crawl on its way into the record."""

    store: Store
    crawl: str
    source: Source
    filters: RowFilters
    batch_rows: int
    schema: pa.Schema
    documents: ArtefactBuilder
    rejected: ArtefactBuilder
    erased: Erased | None = None

    @property
    def _given(self) -> dict[str, pa.DataType]:
        """The columns that the source gives, and their types: the others are written here."""
        own = schema.PROVENANCE.names
        return {field.name: field.type for field in self.schema if field.name not in own}

    def has(self, shard: Shard) -> bool:
        """Whether the shard's documents are published, and what was rejected of it is known."""
        if self.documents.part(shard.name) is None:
            return False
        return self.rejected.part(shard.name) is not None or self.documents.has_note(_spill(shard))

    def write_shard(self, shard: Shard) -> None:
        """Publish the shard's documents, duplicates of an id still among them."""
        counts: Counter[str] = Counter(rows_in=0)
        batches = self._filtered(shard, counts)
        self.documents.write_part(shard.name, batches, self.schema, counts=counts, replace=True, plain=PLAIN)

    def settle(self, shards: Sequence[Shard]) -> tuple[list[Record], list[Record]]:
        """Reject the later rows of every id.

        Returns:
            Records of the documents' parts and of the rejected rows' parts.
        """
        names = [shard.name for shard in shards]
        parts, rejected_parts = [], []
        repeats = repeated_ids(self.documents, names)
        for shard, duplicates in zip(shards, repeats, strict=True):
            rejected = self._publish_rejected(shard, duplicates)
            rejected_parts.append(rejected)
            parts.append(self._without_duplicates(shard, rejected["rows"]))
        return parts, rejected_parts

    def _filtered(self, shard: Shard, counts: "Counter[str]") -> Iterator[pa.RecordBatch]:
        """The shard's documents; every other row goes to the spill file, which is whole before the last batch."""
        private = self.documents.scratch() / f"{_spill(shard)}.{uuid.uuid4().hex}"
        pending: list[Reject] = []
        with pa.ipc.new_file(private, schema.REJECTED) as spill:
            read = self.source.read(self.crawl, shard, batch_rows=self.batch_rows)
            for batch in read:
                if problem := next(_breaches(batch, self._given), None):
                    raise IntegrityError(f"source {self.source.name!r}, {shard.location}: {problem}")
                _check_rows(batch, counts["rows_in"], shard)
                documents, rejects = self._split(shard, batch)
                counts["rows_in"] += documents.num_rows + len(rejects)
                if self.erased is not None:
                    documents, rejects = self._without_erased(documents, rejects, counts)
                pending += rejects
                if len(pending) >= ROW_GROUP_ROWS:
                    spill.write_batch(self._rejected_batch(shard, pending))
                    pending = []
                yield documents
            spill.write_batch(self._rejected_batch(shard, pending))
        self.documents.write_note(_spill(shard), private)

    def _split(self, shard: Shard, batch: SourceBatch) -> tuple[pa.RecordBatch, list[Reject]]:
        """Split a batch into documents, in the record's schema, and rejects, in row order."""
        rejects = list(batch.rejects)
        found, rows = batch.documents, batch.rows
        undecodable = invalid_utf8_rows(found)
        for index, field in undecodable.items():
            detail = f"field {field} is not valid UTF-8"
            rejects.append(Reject(rows[index].as_py(), None, "undecodable_text", detail))
        found, rows = _without(found, rows, list(undecodable))
        unfit = []
        for index in rows_to_check(self.filters, found):
            fields = (found.column(name)[index].as_py() for name in CHECKED)
            if (reason := rejection(self.filters, *fields)) is not None:
                unfit.append(index)
                rejects.append(Reject(rows[index].as_py(), found.column("id")[index].as_py(), *reason))
        found, rows = _without(found, rows, unfit)
        crawl, name = (pa.repeat(word, len(rows)) for word in string_array([self.crawl, shard.name]))
        hashes = content_hashes(found.column("text"))
        own = {"crawl": crawl, "shard": name, "row": rows, "content_hash": hashes}
        arrays = [own[name] if name in own else found.column(name) for name in self.schema.names]
        documents = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return documents, sorted(rejects, key=lambda reject: reject.row)

    def _without_erased(
        self, documents: pa.RecordBatch, rejects: list[Reject], counts: "Counter[str]"
    ) -> tuple[pa.RecordBatch, list[Reject]]:
        """Both without what was purged from the record, counted."""
        assert self.erased is not None
        gone = [row for row, name in enumerate(documents.column("id").to_pylist()) if name in self.erased]
        told = [reject for reject in rejects if reject.id not in self.erased]
        counts[DROPPED_ERASED] += len(gone) + len(rejects) - len(told)
        return without_rows(documents, gone), told

    def _publish_rejected(self, shard: Shard, duplicates: list[Reject]) -> Record:
        known = self.rejected.part(shard.name)
        if known is not None:
            return known
        counts: Counter[str] = Counter()
        batches = self._all_rejected(shard, duplicates, counts)
        return self.rejected.write_part(shard.name, batches, schema.REJECTED, counts=counts)

    def _all_rejected(
        self, shard: Shard, duplicates: Sequence[Reject], counts: "Counter[str]"
    ) -> Iterator[pa.RecordBatch]:
        """What was spilled and the duplicates, both in row order, as one sequence in row order."""
        begun = 0
        with self.documents.open_note(_spill(shard)) as stream, pa.ipc.open_file(stream) as spill:
            for number in range(spill.num_record_batches):
                batch = spill.get_batch(number)
                is_last = number == spill.num_record_batches - 1
                until = math.inf if is_last else values_of(batch.column("row"), np.int64)[-1]
                end = bisect.bisect(duplicates, until, key=lambda reject: reject.row)
                if begun < end:
                    more = self._rejected_batch(shard, duplicates[begun:end])
                    batch = pa.concat_batches([batch, more]).sort_by("row")
                begun = end
                counts.update(batch.column("reason").to_pylist())
                yield batch

    def _without_duplicates(self, shard: Shard, num_rejected: int) -> Record:
        """The shard's documents without the rows its rejected part lists as duplicates."""
        record = self.documents.part(shard.name)
        if record is None:
            raise IntegrityError(f"part {shard.name} of crawl {self.crawl!r} vanished while it was written")
        erased_rows = record["counts"].get(DROPPED_ERASED, 0)
        if record["rows"] + num_rejected + erased_rows == record["counts"]["rows_in"]:
            return record
        with self.rejected.open_part(shard.name) as opened:
            table = opened.read(columns=["row", "reason"])
        rejects = zip(*(column.to_pylist() for column in table.columns), strict=True)
        rows = {row for row, reason in rejects if reason == "duplicate_id"}
        with self.documents.open_part(shard.name) as opened:
            batches = (_drop_rows(batch, rows) for batch in opened.iter_batches(batch_size=self.batch_rows))
            return self.documents.write_part(
                shard.name, batches, self.schema, counts=record["counts"], replace=True, plain=PLAIN
            )

    def _rejected_batch(self, shard: Shard, rejects: Sequence[Reject]) -> pa.RecordBatch:
        # An id that cannot be encoded is shown escaped rather than lost.
        ids = (reject.id and reject.id.encode("utf-8", "backslashreplace").decode() for reject in rejects)
        columns = {
            "crawl": string_array([self.crawl] * len(rejects)),
            "shard": string_array([shard.name] * len(rejects)),
            "row": int64_array(np.array([reject.row for reject in rejects], np.int64)),
            "id": string_array(list(ids)),
            "reason": string_array([reject.reason for reject in rejects]),
            "detail": string_array([reject.detail for reject in rejects]),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema.REJECTED)


def _spill(shard: Shard) -> str:
    """The note that keeps a shard's rejected rows until they are published."""
    return f"{shard.name}.rejected.arrow"


def _without(
    documents: pa.RecordBatch, rows: pa.Array, dropped: Sequence[int]
) -> tuple[pa.RecordBatch, pa.Array]:
    """Both without the indices dropped."""
    if not dropped:
        return documents, rows
    kept = int64_array(np.delete(values_of(rows, np.int64), dropped))
    return without_rows(documents, sorted(dropped)), kept


def _breaches(batch: SourceBatch, needed: Mapping[str, pa.DataType]) -> Iterator[str]:
    """What of a batch is not as `SourceBatch` has it; a source may be another package's."""
    found, rows = batch.documents, batch.rows
    if not isinstance(found, pa.RecordBatch):
        yield f"documents must be a RecordBatch, and are a {type(found).__name__}"
        return
    if not isinstance(rows, pa.Int64Array) or rows.null_count or len(rows) != found.num_rows:
        yield f"rows must be an int64 array with a number, not null, for each of {found.num_rows} documents"
    names = found.schema.names
    for name in dict.fromkeys([*needed, *names]):
        if name not in needed:
            yield f"column {name!r} is neither FineWeb's nor among its `extra_fields`"
        elif names.count(name) != 1:
            yield f"column {name!r} must be there once, and is {names.count(name)} times (null where nothing is known)"
        elif (kind := found.schema.field(name).type) != needed[name]:
            yield f"column {name!r} must be of type {needed[name]}, and is of type {kind}: cast it"
    for reject in batch.rejects:
        if not (isinstance(reject.id, str | None) and isinstance(reject.detail, str)):
            yield f"row {reject.row} is rejected with an id or a detail that is no text"
        elif not _REASON.fullmatch(reject.reason):
            yield f"row {reject.row} is rejected for {reject.reason!r}: a reason is one word of letters, digits and _"


def _check_rows(batch: SourceBatch, first: int, shard: Shard) -> None:
    """A source must account for every row, in order."""
    rejected = [reject.row for reject in batch.rejects]
    rows = np.sort(np.concatenate([values_of(batch.rows, np.int64), np.array(rejected, dtype=np.int64)]))
    if not np.array_equal(rows, np.arange(first, first + len(rows))):
        raise IntegrityError(
            f"{shard.location}: rows {first} to {first + len(rows) - 1} were expected next, "
            f"the source gave {rows[:3].tolist()}..."
        )


def _drop_rows(batch: pa.RecordBatch, rows: set[int]) -> pa.RecordBatch:
    found = batch.column("row").to_pylist()
    return without_rows(batch, [index for index, row in enumerate(found) if row in rows])

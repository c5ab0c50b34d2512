"""Which row of a mask decides about a document: its own, or that of the document which stands for it.

Knows pools, near-copies and masks; knows no policy.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

from datamask_pipeline.audit.copies_of import representative
from datamask_pipeline.audit.funnel import made_of
from datamask_pipeline.audit.reader import Reader, Row
from datamask_pipeline.storage import Ref

#: What a document is to the one that stands for its text, by why it was left out.
ALIKE: Final = {
    "duplicate_content": "an exact copy",
    "near_duplicate": "a near-duplicate",
    "near_copy": "a near-copy",
    "takedown": "taken down with its copies: a copy",
}


@dataclasses.dataclass(frozen=True)
class Standing:
    """A document's row of one crawl under one mask.

    Attributes:
        crawl: The crawl.
        place: The row of the mask that decides; none where none does.
        representative: ``crawl``, ``id`` and ``why`` of what stands for it; none where it stands for itself.
        reason: Why no row decides: what kept it, or what stands for it, from being a candidate.
    """

    crawl: str
    place: int | None = None
    representative: dict[str, str] | None = None
    reason: str | None = None


def standings(reader: Reader, mask: Ref) -> Iterator[Standing]:
    """One for each row that the document has in the pool behind a mask.

    Raises:
        IntegrityError: what was read is not what was written.
    """
    pool, copies = made_of(reader.store, mask)
    near_copies = None if copies is None else copies.location
    for candidate in reader.at(pool.location):
        crawl = candidate["crawl"]
        own = _place(reader, mask, crawl, reader.document_id) if candidate["eligible"] else None
        if own is not None:
            yield Standing(crawl, own)
            continue
        about = representative(reader, pool.location, near_copies, crawl, reader.document_id)
        if about is None:
            yield Standing(crawl, reason=candidate["exclusion"] or "no_score")
            continue
        why = "near_copy" if candidate["eligible"] else candidate["exclusion"]
        told = {"crawl": about["crawl"], "id": about["id"], "why": why}
        place = None
        if about["exclusion"] is None:
            place = _place(reader, mask, about["crawl"], about["id"])
        yield Standing(crawl, place, told, (about["exclusion"] or "no_score") if place is None else None)


def _place(reader: Reader, mask: Ref, crawl: str, name: str) -> int | None:
    """The mask's row of a document."""
    row: Row | None = reader.one(mask.location, crawl, name)
    return None if row is None else reader.artefact_row(mask.location, row["record"])

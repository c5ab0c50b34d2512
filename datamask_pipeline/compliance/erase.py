"""Supersedes a crawl's current versions by the same rows without some documents. Knows tables and arrays; no model.

Vectors and scores are taken over, not computed again.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.compliance.purge_plan import OF_A_CRAWL
from datamask_pipeline.stages import score, takedown
from datamask_pipeline.stages.ingest_shards import DROPPED_ERASED
from datamask_pipeline.stages.takedown_unnamed import names_purged
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, open_array
from datamask_pipeline.storage.tombstones import Erased, erased, purged_manifests, unnamed

#: Rows of an array that are copied at a time.
_ARRAY_ROWS: Final = 65_536


def erase_crawl(store: Store, crawl: str) -> None:
    """Supersede what a crawl has, without the documents that the record's tombstones name; again, it changes nothing."""
    purged = erased(store, crawl)
    if purged is None:
        return
    gone = purged_manifests(store)
    successors: dict[str, _Successor] = {}
    for stage in OF_A_CRAWL:
        with store.exclusive(stage, crawl):
            ref = store.current(stage, crawl)
            if ref is not None:
                made = _supersede(store, ref, purged, successors)
                known = [*store.all_manifests(stage, crawl), *gone.values()]
                alike = [each for each in known if (each["stage"], each["key"]) == (stage, crawl)]
                successors[stage] = _Successor(made, _replaced(store, made, alike, purged, successors))


def unname_requests(store: Store, release: str) -> None:
    """Supersede what was asked of a release by the same without the names of what was purged."""
    with store.exclusive(takedown.STAGE, release):
        ref = store.current(takedown.STAGE, release)
        purged = unnamed(store)
        if ref is None or purged is None:
            return
        rows = store.read_table(ref).to_pylist()
        if any(names_purged(row, purged) for row in rows):
            takedown.unname(store, release, rows, store.manifest(ref)["basis"])


@dataclasses.dataclass(frozen=True)
class _Successor:
    """What a crawl has of a stage without the documents that are gone.

    Attributes:
        ref: The version.
        replaces: Content digests of the versions of which it is what is left.
    """

    ref: Ref
    replaces: frozenset[str]


def _supersede(store: Store, ref: Ref, purged: Erased, successors: Mapping[str, _Successor]) -> Ref:
    manifest = store.manifest(ref)
    builder = _begin(store, manifest, purged, successors)
    if builder.fingerprint == ref.fingerprint:
        return ref
    if (done := builder.finished()) is not None:
        return done
    parts = [_part(store, builder, ref, part, purged) for part in manifest["parts"]]
    metadata = dict(manifest["metadata"])
    if ref.stage == "score":
        fresh = score.summaries(store, [builder.part_path(part["name"]) for part in parts])
        metadata["scorers"] = {name: about | fresh[name] for name, about in metadata["scorers"].items()}
    return builder.commit(parts, counts=_counts(store, ref, manifest, parts, purged), metadata=metadata)


def _replaced(
    store: Store,
    made: Ref,
    known: Iterable[Mapping[str, Any]],
    purged: Erased,
    successors: Mapping[str, _Successor],
) -> frozenset[str]:
    """Content digests of the versions of which one is what is left; an earlier call, which was killed, may have made it."""
    return frozenset(
        each["content_digest"]
        for each in known
        if _begin(store, each, purged, successors).fingerprint == made.fingerprint
    )


def _begin(
    store: Store, manifest: Mapping[str, Any], purged: Erased, successors: Mapping[str, _Successor]
) -> ArtefactBuilder:
    """A version without the documents that are gone, made of the successors of what it was made of."""
    inputs: dict[str, Ref | str] = {}
    for name, item in manifest["inputs"].items():
        if not isinstance(item, Mapping):
            inputs[name] = item
            continue
        after = successors.get(item["stage"])
        is_replaced = after is not None and item["content_digest"] in after.replaces
        inputs[name] = after.ref if after is not None and is_replaced else Ref(**item)
    if manifest["stage"] in ("ingest", "rejected"):
        inputs["erased"] = purged.digest
    basis = manifest["basis"]
    return store.begin(
        manifest["stage"], manifest["key"], version=basis["version"], config=basis["config"], inputs=inputs
    )


def _part(
    store: Store, builder: ArtefactBuilder, ref: Ref, part: Mapping[str, Any], purged: Erased
) -> dict[str, Any]:
    name, counts = part["name"], Counter(part["counts"])
    with store.part_file(ref, name) as opened:
        columns, stays = opened.schema_arrow, _stays(opened.read(["id"]).column("id"), purged)
        gone = int((~stays).sum())
        if ref.stage == "ingest":
            counts[DROPPED_ERASED] += gone
        elif ref.stage == "rejected" and gone:
            counts -= _reasons(opened.read(["reason"]).column("reason"), ~stays)
        plain = [each for each in ("text", "id", "url", "content_hash") if each in columns.names]
        array = None
        if "array" in part:
            vectors_ND = open_array(store, ref, name)
            shape = (int(stays.sum()), *vectors_ND.shape[1:])
            blocks = (vectors_ND[rows] for rows in _blocks(np.flatnonzero(stays)))
            array = builder.write_array(name, blocks, dtype=part["array"]["dtype"], shape=shape)
        kept = _kept(opened.iter_batches(), stays)
        return builder.write_part(
            name, kept, columns, counts=counts, plain=plain if ref.stage == "ingest" else (), array=array
        )


def _stays(ids: pa.ChunkedArray, purged: Erased) -> NDArray[np.bool_]:
    return np.array([name not in purged for name in ids.to_pylist()], dtype=bool)


def _reasons(reasons: pa.ChunkedArray, gone: NDArray[np.bool_]) -> Counter[str]:
    return Counter(reasons.filter(pa.array(gone)).to_pylist())


def _blocks(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for first in range(0, len(rows), _ARRAY_ROWS):
        yield rows[first : first + _ARRAY_ROWS]


def _kept(batches: Iterator[pa.RecordBatch], stays: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        yield batch.filter(pa.array(stays[first : first + batch.num_rows]))
        first += batch.num_rows


def _counts(
    store: Store, ref: Ref, manifest: Mapping[str, Any], parts: list[dict[str, Any]], purged: Erased
) -> dict[str, int]:
    """Counts of the successor: of a crawl's documents, those erased beside the rejected ones; of the others, its rows."""
    if not manifest["counts"]:
        return {}
    rows = sum(part["rows"] for part in parts)
    if ref.stage != "ingest":
        return {"rows_in": rows, "kept": rows}
    totals = Counter(manifest["counts"])
    gone = Counter({"kept": totals["kept"] - rows})
    if (rejected := store.current("rejected", ref.key)) is not None:
        table = store.read_table(rejected, ["id", "reason"])
        reasons = _reasons(table.column("reason"), ~_stays(table.column("id"), purged))
        gone.update({f"dropped_{reason}": number for reason, number in reasons.items()})
    totals.subtract(gone)
    totals[DROPPED_ERASED] += gone.total()
    return dict(totals)

"""A document's whole story, read from the record. Knows the flow and no learner; changes nothing.

What an asset is called in the record, what is made from what, and which other tables name documents, the flow says. What
is read is checked byte by byte; what a story does not rest on is not read.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from datamask_pipeline.audit.copies_of import representative, stands_for
from datamask_pipeline.audit.cuts import cuts_of, group_in
from datamask_pipeline.audit.ever import models_ever, subsets_ever
from datamask_pipeline.audit.left_out_by import left_out_by
from datamask_pipeline.audit.left_over import left_over
from datamask_pipeline.audit.neighbours import nearest_in_block
from datamask_pipeline.audit.quality_of import cut, is_by_quality, normalised_scores, used_scores
from datamask_pipeline.audit.reader import Reader, Row, input_location
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Output, Scope
from datamask_pipeline.selection.reasons import BY_DRAW, BY_QUALITY, HELD, NEVER_JUDGED, PASSED_OVER
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import removed_by

#: Assets that have places of their own in a story; rows of all others that name documents stand under ``further``.
_PLACED = (
    "crawl_documents rejected_documents document_embeddings quality_scores candidate_documents near_copies "
    "selection_mask fineweb_mask"
).split()
#: So many copies are named of a document that stands for more.
MOST_COPIES: Final = 20
#: What has to be read of a whole release is read by default where its mask has so many rows at most.
SMALL_RELEASE: Final = 100_000

#: Reasons to be out that no chosen neighbour has a part in.
_NOT_CROWDED: Final = (BY_DRAW.out, BY_QUALITY.out, BY_QUALITY.out_all_the_same, *NEVER_JUDGED, PASSED_OVER)


def document_story(
    store: Store,
    document_id: str,
    *,
    with_text: bool = False,
    deep: bool | None = None,
    made: Collection[str] | None = None,
) -> dict[str, Any]:
    """Everything the record says of one document: where it came from, its scores, and every arm's decision.

    Args:
        store: The record.
        document_id: The id as in the crawl, angle brackets included.
        with_text: Add the document's text.
        deep: Read also what needs a pass over a release: ranks of scores, cuts by quality, and the vectors of chosen
            neighbours; by default where a release has at most ``SMALL_RELEASE`` documents to select from.
        made: Keys of the masks that runs make: of others nothing is told where they rest on what was purged (`left_over`).

    Returns:
        JSON values: ``id``, ``copies`` (one per crawl row of that id: provenance, embedding, scores), ``rejected``,
        ``releases`` (eligibility, as ``left_out_by`` what withdrew or contaminated it and, per arm, selection, subset row,
        models and results), ``subsets`` and ``models`` (all that ever held it or were trained on it, see ``audit.ever``),
        ``left_out`` (of which masks nothing is told, one line each) and ``scanned`` (artefacts without an index).
        Each copy, release and arm has ``stale``, why it is not of the current record, and ``further``: the document's
        rows in the flow's other tables of that scope, by asset.

    Raises:
        UnknownDocumentError: nothing in the record, old subsets included, has that id.
        IntegrityError: what was read is not what was written; the file is named.
    """
    reader = Reader(store, document_id)
    try:
        found = [
            copy for crawl in reader.keys("crawl_documents") for copy in _copies(reader, crawl, with_text)
        ]
        rejected = [
            row
            for crawl in reader.keys("rejected_documents")
            for row in reader.rows("rejected_documents", crawl)
        ]
        subsets = list(subsets_ever(reader))
        if not (found or rejected or subsets):
            crawls = ", ".join(reader.keys("crawl_documents")) or "none"
            raise UnknownDocumentError(
                f"no document {document_id!r} in {store.root_url} (crawls: {crawls}); "
                "give the id as in the crawl, angle brackets included"
            )
        left = left_over(store, made)
        return {
            "id": document_id,
            "copies": found,
            "rejected": rejected,
            "releases": [
                story
                for name in reader.keys("candidate_documents")
                for story in _release(reader, name, deep, left)
            ],
            "subsets": subsets,
            "models": list(models_ever(reader, subsets)) if subsets else [],
            "left_out": [*left.values()],
            "scanned": reader.tables.scanned,
        }
    finally:
        reader.tables.close()


def _copies(reader: Reader, crawl: str, with_text: bool) -> Iterator[Row]:
    """The document's rows in a crawl: more than one where the crawl repeats an id."""
    documents = reader.rows("crawl_documents", crawl, without=[] if with_text else ["text"])
    embeddings, scores = reader.rows("document_embeddings", crawl), reader.rows("quality_scores", crawl)
    of_each = len(scores) // max(1, len(documents))
    for number, document in enumerate(documents):
        made = reader.ref("document_embeddings", crawl)
        embedding = None
        if made is not None and number < len(embeddings):
            manifest = reader.manifest(made)
            embedding = {**manifest["metadata"], "config": manifest["basis"]["config"], **embeddings[number]}
        yield {
            **document,
            "embedding": embedding,
            "scores": scores[number * of_each : (number + 1) * of_each],
            "stale": [
                f"{asset}: {line}"
                for asset in ("document_embeddings", "quality_scores")
                for line in _stale(reader, asset, crawl)
            ],
            "further": _further(reader, "crawl", crawl, crawl),
        }


def _release(reader: Reader, release: str, deep: bool | None, left: Collection[str]) -> Iterator[Row]:
    pool = reader.ref("candidate_documents", release)
    assert pool is not None
    near_copies = _near_copies(reader, release)
    for candidate in reader.at(pool.location):
        crawl = candidate["crawl"]
        about = representative(reader, pool.location, near_copies, crawl, reader.document_id)
        copies = () if about else stands_for(reader, pool.location, near_copies, candidate)
        arms = [
            _decision(reader, release, key.split("/", 1)[1], candidate, about, deep)
            for key in reader.keys("selection_mask")
            if key.split("/", 1)[0] == release and key not in left
        ]
        yield {
            "release": release,
            "fingerprint": pool.short,
            "candidate": candidate,
            "by_words": reader.manifest(pool)["basis"]["config"].get("near_duplicates") is not None,
            "left_out_by": left_out_by(reader, reader.manifest(pool), candidate),
            "near_copy": reader.one(near_copies, crawl),
            "representative": about,
            "copies": list(itertools.islice(copies, MOST_COPIES)),
            "stale": stale(reader.store, pool),
            "arms": arms,
            "further": _further(reader, "release", release, crawl),
        }


def _near_copies(reader: Reader, release: str) -> str | None:
    """Where a release's near-copies lie; ``None`` where they were not collapsed."""
    ref = reader.ref("near_copies", release)
    if ref is None or reader.made_from("release_index", release, "near_copies", ref) is None:
        return None
    return ref.location


def _decision(
    reader: Reader, release: str, arm: str, candidate: Row, about: Row | None, deep: bool | None
) -> Row:
    """One arm's selection of one document, with what was made of it."""
    key, crawl = f"{release}/{arm}", candidate["crawl"]
    ref = reader.ref("selection_mask", key)
    assert ref is not None
    manifest = reader.manifest(ref)
    config = manifest["basis"]["config"]
    selection = reader.one(ref.location, crawl)
    index = input_location(manifest, "index")
    index_row = reader.one(index, crawl) if selection or (candidate["eligible"] and about is None) else None
    standing = None if about is None else reader.one(ref.location, about["crawl"], about["id"])
    subset = reader.made_from("fineweb_mask", key, "selection_mask", ref)
    is_deep = ref.rows <= SMALL_RELEASE if deep is None else deep
    return {
        "arm": arm,
        "selected": bool(selection and selection["selected"]),
        "selection_id": ref.content_digest[:16],
        "selection_artefact": ref.location,
        "config": config,
        "seed": config.get("seed"),
        "code_version": manifest["basis"]["version"],
        "selection": selection,
        "decided_in": _decided_in(reader, manifest, selection),
        "scores": _with_reasons(reader, crawl, used_scores(config, index_row)),
        "scale": _scale(manifest),
        "by_quality": bool(selection and is_by_quality(selection)),
        "quota": _quota(manifest, selection, index_row),
        **_passes(reader, manifest, config, selection, index_row, read=is_deep),
        "representative": about and {**about, "selected": bool(standing and standing["selected"])},
        "subset": next((row["record"] for row in _in_subset(reader, subset, crawl)), None),
        "subset_is_older": subset is None and reader.ref("fineweb_mask", key) is not None,
        "stale": stale(reader.store, ref),
        "models": [
            model
            for name in reader.keys("pretrained_model")
            if subset and name.startswith(f"{release}/{arm}.")
            for model in _model(reader, name, subset)
        ],
        "further": _further(reader, "arm", key, crawl),
    }


def _decided_in(reader: Reader, mask: Mapping[str, Any], selection: Row | None) -> Row | None:
    """The earlier release that brought the document in, or passed it over, with its row there; ``None`` where this did.

    A mask that was ``purged`` has no rows any more: the way ends there, with the request.
    """
    found, row = None, selection
    while row is not None and row["reason"] in (HELD, PASSED_OVER):
        location = input_location(mask, "held")
        assert location is not None
        by = removed_by(reader.store, location)
        mask = reader.store.manifest_at(location) if by is None else by.removed[location]
        row = reader.one(location, row["crawl"]) if by is None else None
        found = {
            "release": str(mask["key"]).partition("/")[0],
            "mask": location,
            "selection": row,
            "purged": by and by.title,
        }
    return found


def _with_reasons(reader: Reader, crawl: str, scores: list[Row]) -> list[Row]:
    """The scores, each missing one with its reason."""
    missing = any(score["score"] is None for score in scores)
    rows = reader.rows("quality_scores", crawl) if missing else []
    reasons = {row["scorer"]: row["reason"] for row in rows}
    return [
        {**score, "reason": reasons.get(score["scorer"]) if score["score"] is None else None}
        for score in scores
    ]


def _passes(
    reader: Reader,
    mask: Mapping[str, Any],
    config: Row,
    selection: Row | None,
    index_row: Row | None,
    *,
    read: bool,
) -> Row:
    """What needs a pass over the release: ``normalised`` scores, ``cut`` and ``neighbours``, null unless ``deep``."""
    nothing: Row = {"normalised": None, "cut": None, "neighbours": None, "deep": read}
    if selection is None or index_row is None or not read:
        return nothing
    index = input_location(mask, "index")
    assert index is not None
    place = reader.artefact_row(index, index_row["record"])
    scores = used_scores(config, index_row)
    by_domain = bool(config.get("quotas")) and config["quota_by"] == "domain"
    crowded = not selection["selected"] and selection["reason"] not in _NOT_CROWDED
    return nothing | {
        "normalised": normalised_scores(reader, index, place, scores, config["score_normalisation"]),
        "cut": None if by_domain else cut(reader, mask["location"], selection, config.get("quotas") or {}),
        "neighbours": nearest_in_block(reader, mask, index_row, selection["record"]["row"])
        if crowded
        else None,
    }


def _quota(mask: Mapping[str, Any], selection: Row | None, index_row: Row | None) -> Row | None:
    """Under quotas, the document's ``group`` and its ``threshold``, null where none of the group was chosen; ``None``
    without quotas, or where no threshold decided.
    """
    config = mask["basis"]["config"]
    quotas = config.get("quotas")
    if not quotas or selection is None or index_row is None:
        return None
    group = group_in(quotas, index_row[config["quota_by"]])
    of_group = (cut for cut in cuts_of(mask) if (cut.threshold, cut.group) == (selection["threshold"], group))
    return next(({"group": group, "threshold": cut.value} for cut in of_group), None)


def _scale(mask: Mapping[str, Any]) -> list[float] | None:
    """Quality's zero and one in the objective; ``None`` where it has no such scale, or blocks have one each."""
    blocks = mask["metadata"]["blocks"]
    scale = blocks[0]["normalisation"].get("quality") if len(blocks) == 1 else None
    return None if scale is None or list(scale) == [0.0, 1.0] else list(scale)


def _in_subset(reader: Reader, subset: Ref | None, crawl: str) -> list[Row]:
    rows = [] if subset is None else reader.at(subset.location, columns=["crawl", "id"])
    return [row for row in rows if row["crawl"] == crawl]


def _model(reader: Reader, key: str, subset: Ref) -> Iterator[Row]:
    """A model, if it was trained on this very subset, with the results of this very model."""
    ref = reader.made_from("pretrained_model", key, "fineweb_mask", subset)
    if ref is None:
        return
    result_ref = reader.made_from("benchmark_results", key, "pretrained_model", ref)
    yield {
        "run": key.split("/", 1)[1],
        "model": ref.short,
        "bits_per_byte": reader.manifest(ref)["metadata"]["bits_per_byte"],
        "stale": stale(reader.store, ref),
        "results": reader.store.read_table(result_ref).to_pylist() if result_ref else [],
    }


def _stale(reader: Reader, asset: str, key: str) -> list[str]:
    ref = reader.ref(asset, key)
    return [] if ref is None else stale(reader.store, ref)


def _further(reader: Reader, scope: Scope, key: str, crawl: str) -> dict[str, list[Row]]:
    """The document's rows in tables of a scope that have no place of their own, by asset."""
    found: dict[str, list[Row]] = {}
    for output in _naming_documents(scope):
        in_crawl = "crawl" in output.table.columns.names if output.table else False
        rows = reader.rows(output.asset, key, crawl=crawl if in_crawl else None)
        found |= {output.asset: rows} if rows else {}
    return found


def _naming_documents(scope: Scope) -> list[Output]:
    """The outputs of a scope whose rows name documents, but for those with a place of their own."""
    outputs = [output for stage in FLOW if stage.scope == scope for output in stage.makes]
    tables = [output for output in outputs if output.table and "id" in output.table.columns.names]
    return [output for output in tables if output.asset not in _PLACED]

"""A document's whole story, read from the record. Knows the flow and no learner; changes nothing.

What an asset is called in the record, what is made from what, and which other tables name documents, the flow says.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamask_pipeline import duck
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Output, Scope
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    import duckdb

#: Assets that have places of their own in a story; rows of all others that name documents stand under ``further``.
_PLACED = (
    "crawl_documents rejected_documents document_embeddings quality_scores candidate_documents near_copies "
    "selection_mask fineweb_mask"
).split()


def document_story(store: Store, document_id: str, *, with_text: bool = False) -> dict[str, Any]:
    """Everything the record says of one document: where it came from, its scores, and every arm's decision.

    Args:
        store: The record.
        document_id: The id as in the crawl, angle brackets included.
        with_text: Add the document's text.

    Returns:
        JSON values: ``id``, ``copies`` (one per crawl row of that id: provenance, embedding, scores),
        ``rejected`` and ``releases`` (eligibility and, per arm, selection, subset row, models and results). Each copy,
        release and arm has ``further``: the document's rows in the flow's other tables of that scope, by asset.

    Raises:
        UnknownDocumentError: no crawl in the record has that id.
    """
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        reader = _Reader(store, connection, document_id)
        crawls_read = reader.keys("crawl_documents")
        found = [copy for crawl in crawls_read for copy in _copy(reader, crawl, with_text=with_text)]
        rejected = [
            row
            for crawl in reader.keys("rejected_documents")
            for row in reader.rows("rejected_documents", crawl)
        ]
        if not found and not rejected:
            crawls = ", ".join(crawls_read) or "none"
            raise UnknownDocumentError(
                f"no document {document_id!r} in {store.root_url} (crawls: {crawls}); "
                "give the id as in the crawl, angle brackets included"
            )
        releases = [story for name in reader.keys("candidate_documents") for story in _release(reader, name)]
    return {"id": document_id, "copies": found, "rejected": rejected, "releases": releases}


class _Reader:
    """Rows of one document out of current artefacts."""

    def __init__(self, store: Store, connection: "duckdb.DuckDBPyConnection", document_id: str) -> None:
        self.store, self.connection, self.document_id = store, connection, document_id

    def keys(self, asset: str) -> list[str]:
        return self.store.keys(_artefact(asset))

    def ref(self, asset: str, key: str) -> Ref | None:
        return self.store.current(_artefact(asset), key)

    def rows(
        self,
        asset: str,
        key: str,
        where: str = "true",
        values: Sequence[str] = (),
        columns: str = "*",
        document_id: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of that id, or of another, in one artefact, each with the part file and row it stands in."""
        ref = self.ref(asset, key)
        if ref is None or not self.store.part_names(ref):
            return []
        sql = f"SELECT * FROM {duck.parts_sql(self.store, [ref], columns)} WHERE id = ? AND {where}"
        cursor = self.connection.execute(sql, [document_id or self.document_id, *values])
        names = [description[0] for description in cursor.description or []]
        return [self._placed(ref, dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

    def further(self, scope: Scope, key: str, crawl: str) -> dict[str, list[dict[str, Any]]]:
        """The document's rows in tables of a scope that have no place of their own, by asset."""
        found: dict[str, list[dict[str, Any]]] = {}
        for output in _naming_documents(scope):
            in_crawl = "crawl" in output.table.columns.names if output.table else False
            rows = self.rows(output.asset, key, *(("crawl = ?", [crawl]) if in_crawl else ()))
            found |= {output.asset: rows} if rows else {}
        return found

    def made_from(self, asset: str, key: str, source_asset: str, source: Ref) -> Ref | None:
        """The current artefact, unless it was made from something else than ``source``.

        A stage's result may depend on less than all of its input; what on, the flow says.
        """
        ref = self.ref(asset, key)
        if ref is None:
            return None
        stage, _ = FLOW.maker(asset)
        argument = next(argument for argument, read in stage.reads.items() if read == source_asset)
        used = self.store.manifest(ref)["basis"]["inputs"].get(argument)
        return ref if used == stage.identity(argument)(self.store, source) else None

    def _placed(self, ref: Ref, row: dict[str, Any]) -> dict[str, Any]:
        del row["artefact_order"], row["artefact_row"]
        row.pop("file_row_number", None)
        part = self.store.part_names(ref)[row.pop("part_order")]
        row["record"] = {"artefact": ref.location, "part": f"{part}.parquet", "row": row.pop("part_row")}
        return row


def _artefact(asset: str) -> str:
    return FLOW.maker(asset)[1].artefact


def _naming_documents(scope: Scope) -> list[Output]:
    """The outputs of a scope whose rows name documents, but for those with a place of their own."""
    outputs = [output for stage in FLOW if stage.scope == scope for output in stage.makes]
    tables = [output for output in outputs if output.table and "id" in output.table.columns.names]
    return [output for output in tables if output.asset not in _PLACED]


def _copy(reader: _Reader, crawl: str, *, with_text: bool) -> Iterator[dict[str, Any]]:
    columns = "*" if with_text else "* EXCLUDE (text)"
    for document in reader.rows("crawl_documents", crawl, columns=columns):
        embedding_ref = reader.ref("document_embeddings", crawl)
        embeddings = reader.rows("document_embeddings", crawl, columns="id, content_hash")
        embedding = None
        if embedding_ref is not None and embeddings:
            manifest = reader.store.manifest(embedding_ref)
            embedding = {**manifest["metadata"], "config": manifest["basis"]["config"], **embeddings[0]}
        yield {
            **document,
            "embedding": embedding,
            "scores": reader.rows("quality_scores", crawl),
            "further": reader.further("crawl", crawl, crawl),
        }


def _release(reader: _Reader, release: str) -> Iterator[dict[str, Any]]:
    ref = reader.ref("candidate_documents", release)
    for row in reader.rows("candidate_documents", release):
        scores = {score["scorer"]: score for score in reader.rows("quality_scores", row["crawl"])}
        near_copy = _near_copy(reader, release, row["crawl"])
        arms = [
            _decision(reader, release, key.split("/", 1)[1], row, near_copy, scores)
            for key in reader.keys("selection_mask")
            if key.split("/", 1)[0] == release
        ]
        yield {
            "release": release,
            "fingerprint": ref.short if ref else None,
            "candidate": row,
            "near_copy": near_copy,
            "arms": arms,
            "further": reader.further("release", release, row["crawl"]),
        }


def _decision(
    reader: _Reader,
    release: str,
    arm: str,
    candidate: Mapping[str, Any],
    near_copy: Mapping[str, Any] | None,
    scores: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """One arm's selection of one document, with what was made of it."""
    key, crawl = f"{release}/{arm}", candidate["crawl"]
    ref = reader.ref("selection_mask", key)
    assert ref is not None
    manifest = reader.store.manifest(ref)
    rows = reader.rows("selection_mask", key, "crawl = ?", [crawl])
    selection = rows[0] if rows else None
    subset_ref = reader.made_from("fineweb_mask", key, "selection_mask", ref)
    weights = dict(manifest["basis"]["config"]["scorers"]) or dict.fromkeys(scores, 1.0)
    used = {name: {**scores[name], "weight": weight} for name, weight in weights.items() if name in scores}
    columns = "crawl, id, selection_id"
    subset = reader.rows("fineweb_mask", key, "crawl = ?", [crawl], columns) if subset_ref else []
    models = [
        model
        for name in reader.keys("pretrained_model")
        if subset_ref and name.startswith(f"{release}/{arm}.")
        for model in _model(reader, name, subset_ref)
    ]
    return {
        "arm": arm,
        "selected": bool(selection and selection["selected"]),
        "selection_id": ref.content_digest[:16],
        "selection_artefact": ref.location,
        "config": manifest["basis"]["config"],
        "seed": manifest["basis"]["config"].get("seed"),
        "code_version": manifest["basis"]["version"],
        "selection": selection,
        "scores": [
            {name: score[name] for name in ("scorer", "score", "reason", "weight")} for score in used.values()
        ],
        "representative": _representative(reader, key, candidate, near_copy),
        "subset": subset[0]["record"] if subset else None,
        "subset_is_older": subset_ref is None and reader.ref("fineweb_mask", key) is not None,
        "models": models,
        "further": reader.further("arm", key, crawl),
    }


def _near_copy(reader: _Reader, release: str, crawl: str) -> dict[str, Any] | None:
    """What the document is a near-copy of, and how many there are; ``None`` where near-copies were not collapsed."""
    ref = reader.ref("near_copies", release)
    if ref is None or reader.made_from("release_index", release, "near_copies", ref) is None:
        return None
    rows = reader.rows("near_copies", release, "crawl = ?", [crawl])
    return rows[0] if rows else None


def _representative(
    reader: _Reader, key: str, candidate: Mapping[str, Any], near_copy: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Whether the document that stands for this copy is in; ``None`` for a document that stands for itself."""
    crawl, name = candidate["representative_crawl"], candidate["representative_id"]
    if near_copy is not None and near_copy["near_copy_of"] is not None:
        crawl, name = near_copy["near_copy_of_crawl"], near_copy["near_copy_of"]
    if (crawl, name) == (candidate["crawl"], candidate["id"]):
        return None
    rows = reader.rows("selection_mask", key, "crawl = ?", [crawl], document_id=name)
    return {"id": name, "crawl": crawl, "selected": bool(rows and rows[0]["selected"])}


def _model(reader: _Reader, key: str, subset: Ref) -> Iterator[dict[str, Any]]:
    """A model, if it was trained on this very subset, with the results of this very model."""
    ref = reader.made_from("pretrained_model", key, "fineweb_mask", subset)
    if ref is None:
        return
    result_ref = reader.made_from("benchmark_results", key, "pretrained_model", ref)
    yield {
        "run": key.split("/", 1)[1],
        "model": ref.short,
        "bits_per_byte": reader.store.manifest(ref)["metadata"]["bits_per_byte"],
        "results": reader.store.read_table(result_ref).to_pylist() if result_ref else [],
    }

"""A document's whole story, read from the record. Knows no learner and changes nothing."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamask_pipeline import duck
from datamask_pipeline.errors import UnknownDocumentError
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    import duckdb


def document_story(store: Store, document_id: str, *, with_text: bool = False) -> dict[str, Any]:
    """Everything the record says of one document: where it came from, its scores, and every arm's decision.

    Args:
        store: The record.
        document_id: The id as in the crawl, angle brackets included.
        with_text: Add the document's text.

    Returns:
        JSON values: ``id``, ``copies`` (one per crawl row of that id: provenance, embedding, scores),
        ``rejected`` and ``releases`` (eligibility and, per arm, selection, subset row, models and results).

    Raises:
        UnknownDocumentError: no crawl in the record has that id.
    """
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        reader = _Reader(store, connection, document_id)
        copies = [_copy(reader, crawl, with_text=with_text) for crawl in store.keys("ingest")]
        found = [copy for per_crawl in copies for copy in per_crawl]
        rejected = [row for crawl in store.keys("rejected") for row in reader.rows("rejected", crawl)]
        if not found and not rejected:
            crawls = ", ".join(store.keys("ingest")) or "none"
            raise UnknownDocumentError(
                f"no document {document_id!r} in {store.root_url} (crawls: {crawls}); "
                "give the id as in the crawl, angle brackets included"
            )
        releases = [story for name in store.keys("pool") for story in _release(reader, name)]
    return {"id": document_id, "copies": found, "rejected": rejected, "releases": releases}


class _Reader:
    """Rows of one document out of current artefacts."""

    def __init__(self, store: Store, connection: "duckdb.DuckDBPyConnection", document_id: str) -> None:
        self.store, self.connection, self.document_id = store, connection, document_id

    def ref(self, stage: str, key: str) -> Ref | None:
        return self.store.current(stage, key)

    def rows(
        self,
        stage: str,
        key: str,
        where: str = "true",
        values: Sequence[str] = (),
        columns: str = "*",
        document_id: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of that id, or of another, in one artefact, each with the part file and row it stands in."""
        ref = self.ref(stage, key)
        if ref is None or not self.store.part_names(ref):
            return []
        sql = f"SELECT * FROM {duck.parts_sql(self.store, [ref], columns)} WHERE id = ? AND {where}"
        cursor = self.connection.execute(sql, [document_id or self.document_id, *values])
        names = [description[0] for description in cursor.description or []]
        return [self._placed(ref, dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

    def made_from(self, stage: str, key: str, input_name: str, source: Ref) -> Ref | None:
        """The current artefact, unless it was made from something else than ``source``.

        A stage may hash, in place of all of its input, the digest of what it reads: a model, its subset's documents.
        """
        ref = self.ref(stage, key)
        if ref is None:
            return None
        used = self.store.manifest(ref)["basis"]["inputs"][input_name]
        documents = self.store.manifest(source)["metadata"].get("documents_digest")
        return ref if used in (source.content_digest, documents) else None

    def _placed(self, ref: Ref, row: dict[str, Any]) -> dict[str, Any]:
        del row["artefact_order"], row["artefact_row"]
        row.pop("file_row_number", None)
        part = self.store.part_names(ref)[row.pop("part_order")]
        row["record"] = {"artefact": ref.location, "part": f"{part}.parquet", "row": row.pop("part_row")}
        return row


def _copy(reader: _Reader, crawl: str, *, with_text: bool) -> Iterator[dict[str, Any]]:
    columns = "*" if with_text else "* EXCLUDE (text)"
    for document in reader.rows("ingest", crawl, columns=columns):
        embedding_ref = reader.ref("embed", crawl)
        embeddings = reader.rows("embed", crawl, columns="id, content_hash")
        embedding = None
        if embedding_ref is not None and embeddings:
            manifest = reader.store.manifest(embedding_ref)
            embedding = {**manifest["metadata"], "config": manifest["basis"]["config"], **embeddings[0]}
        yield {**document, "embedding": embedding, "scores": reader.rows("score", crawl)}


def _release(reader: _Reader, release: str) -> Iterator[dict[str, Any]]:
    ref = reader.ref("pool", release)
    for row in reader.rows("pool", release):
        scores = {score["scorer"]: score for score in reader.rows("score", row["crawl"])}
        arms = [
            _decision(reader, release, key.split("/", 1)[1], row, scores)
            for key in reader.store.keys("select")
            if key.split("/", 1)[0] == release
        ]
        yield {"release": release, "fingerprint": ref.short if ref else None, "candidate": row, "arms": arms}


def _decision(
    reader: _Reader,
    release: str,
    arm: str,
    candidate: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """One arm's selection of one document, with what was made of it."""
    key, crawl = f"{release}/{arm}", candidate["crawl"]
    ref = reader.ref("select", key)
    assert ref is not None
    manifest = reader.store.manifest(ref)
    rows = reader.rows("select", key, "crawl = ?", [crawl])
    selection = rows[0] if rows else None
    subset_ref = reader.made_from("materialise", key, "selection", ref)
    weights = dict(manifest["basis"]["config"]["scorers"]) or dict.fromkeys(scores, 1.0)
    used = {name: {**scores[name], "weight": weight} for name, weight in weights.items() if name in scores}
    columns = "crawl, id, selection_id"
    subset = reader.rows("materialise", key, "crawl = ?", [crawl], columns) if subset_ref else []
    models = [
        model
        for name in reader.store.keys("pretrain")
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
        "representative": _representative(reader, key, candidate),
        "subset": subset[0]["record"] if subset else None,
        "subset_is_older": subset_ref is None and reader.ref("materialise", key) is not None,
        "models": models,
    }


def _representative(reader: _Reader, key: str, candidate: Mapping[str, Any]) -> dict[str, Any] | None:
    """Whether the document that stands for this copy is in; ``None`` for a document that stands for itself."""
    crawl, name = candidate["representative_crawl"], candidate["representative_id"]
    if (crawl, name) == (candidate["crawl"], candidate["id"]):
        return None
    rows = reader.rows("select", key, "crawl = ?", [crawl], document_id=name)
    return {"id": name, "crawl": crawl, "selected": bool(rows and rows[0]["selected"])}


def _model(reader: _Reader, key: str, subset: Ref) -> Iterator[dict[str, Any]]:
    """A model, if it was trained on this very subset, with the results of this very model."""
    ref = reader.made_from("pretrain", key, "subset", subset)
    if ref is None:
        return
    result_ref = reader.made_from("evaluate", key, "model", ref)
    yield {
        "run": key.split("/", 1)[1],
        "model": ref.short,
        "bits_per_byte": reader.store.manifest(ref)["metadata"]["bits_per_byte"],
        "results": reader.store.read_table(result_ref).to_pylist() if result_ref else [],
    }

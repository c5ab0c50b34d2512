"""Every subset that ever held a document, and every model ever trained on one, superseded ones too. Changes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.audit.reader import Reader, Row, artefact_of, input_location
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.report.comparison import final_rows
from datamask_pipeline.storage.ref import ref_of


def subsets_ever(reader: Reader) -> Iterator[Row]:
    """Each version of a subset that holds the document, or the one that stands for its text, older ones first.

    Yields:
        ``key`` (``release/arm``), ``artefact``, ``crawl`` and ``id`` (under which its text is in), ``made`` (when),
        ``state`` (``current``, ``stale`` or ``superseded``), ``why`` (it is not current, one line each) and ``record``.
    """
    names = _names(reader)
    for manifest in _versions(reader, "fineweb_mask"):
        for crawl, name in names:
            for row in reader.at(manifest["location"], name, columns=["id", "crawl"]):
                if crawl in (None, row["crawl"]):
                    state, why = _state(reader, manifest)
                    yield {
                        "key": manifest["key"],
                        "artefact": manifest["location"],
                        "crawl": row["crawl"],
                        "id": name,
                        "made": manifest.get("written_at"),
                        "state": state,
                        "why": why,
                        "record": row["record"],
                    }


def _names(reader: Reader) -> list[tuple[str | None, str]]:
    """The document, in any crawl, and what stood for its text in any version of a pool or of near-copies."""
    found: dict[tuple[str | None, str], None] = {(None, reader.document_id): None}
    for manifest in _versions(reader, "candidate_documents"):
        for row in reader.at(manifest["location"]):
            first = row["representative_crawl"], row["representative_id"]
            found[first] = None
    for manifest in _versions(reader, "near_copies"):
        for crawl, name in list(found):
            near = None if crawl is None else reader.one(manifest["location"], crawl, name)
            if near is not None and near["near_copy_of"] is not None:
                found[near["near_copy_of_crawl"], near["near_copy_of"]] = None
    return [(crawl, name) for crawl, name in found if crawl is None or name != reader.document_id]


def models_ever(reader: Reader, subsets: list[Row]) -> Iterator[Row]:
    """Each version of a model that was trained on one of these subsets, or on one that the record no longer holds.

    Args:
        reader: The document.
        subsets: What ``subsets_ever`` found.

    Yields:
        ``key`` (``release/run``), ``model``, ``artefact``, ``subset`` (its artefact), ``trained`` (whether on this
        document; ``None``: the subset is gone, and nobody can tell), ``made``, ``state``, ``why``, ``bits_per_byte``,
        ``num_tasks`` and ``mean`` over the tasks of its last checkpoint (``None``: not evaluated).
    """
    held = {subset["artefact"] for subset in subsets}
    digests = {_documents_digest(reader.tables.manifest(location)) for location in held}
    there = {manifest["location"] for manifest in reader.store.all_manifests(artefact_of("fineweb_mask"))}
    for manifest in _versions(reader, "pretrained_model"):
        subset = input_location(manifest, "subset")
        trained: bool | None = subset in held or manifest["basis"]["inputs"]["subset"] in digests
        if not trained and subset not in there:
            trained = None
        if trained is False:
            continue
        state, why = _state(reader, manifest)
        yield {
            "key": manifest["key"],
            "model": manifest["fingerprint"][:16],
            "artefact": manifest["location"],
            "subset": subset,
            "trained": trained,
            "made": manifest.get("written_at"),
            "state": state,
            "why": why,
            "bits_per_byte": manifest["metadata"]["bits_per_byte"],
            **_mean_of_tasks(reader, manifest),
        }


def _versions(reader: Reader, asset: str) -> list[dict[str, Any]]:
    """All versions of an asset, by key and when they were made."""
    found = [
        reader.tables.manifest(manifest["location"])
        for manifest in reader.store.all_manifests(artefact_of(asset))
    ]
    return sorted(found, key=lambda manifest: (manifest["key"], manifest["written_at_ns"]))


def _state(reader: Reader, manifest: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Whether a version counts today, in the words of `compliance.graph.State`, and why it is not current."""
    now = reader.tables.current(manifest["stage"], manifest["key"])
    if now is None or now.location != manifest["location"]:
        later = "none is current" if now is None else f"that of fingerprint {now.short} is current"
        return "superseded", [f"another version took its place: {later}"]
    why = stale(reader.store, ref_of(manifest))
    return ("stale" if why else "current"), why


def _documents_digest(manifest: Mapping[str, Any]) -> str:
    """As ``stages.materialise.documents_digest``, of a manifest."""
    return str(manifest["metadata"].get("documents_digest", manifest["content_digest"]))


def _mean_of_tasks(reader: Reader, model: Mapping[str, Any]) -> dict[str, Any]:
    """The newest results of this very model."""
    for manifest in reversed(_versions(reader, "benchmark_results")):
        if (
            manifest["basis"]["inputs"].get("model") == model["content_digest"]
            and manifest["key"] == model["key"]
        ):
            rows = final_rows(reader.store.read_table(ref_of(manifest)).to_pylist())
            values = [row["value"] for row in rows if row["headline"]]
            return {"num_tasks": len(values), "mean": sum(values) / len(values) if values else None}
    return {"num_tasks": 0, "mean": None}

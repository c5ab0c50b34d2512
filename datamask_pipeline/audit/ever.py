"""Every subset that ever held a document, or what stood for it, and every model ever trained on one, superseded ones too.

Changes nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from datamask_pipeline.audit.copies_of import KINSHIP, Kinship, kinship
from datamask_pipeline.audit.reader import Reader, Row, artefact_of, input_location
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.report.comparison import final_rows
from datamask_pipeline.storage.ref import ref_of

#: What a document is to what a subset holds, the closest first; of the first two its text is in.
_CLOSEST: Final[tuple[Kinship | None, ...]] = (None, *KINSHIP)


def subsets_ever(reader: Reader) -> Iterator[Row]:
    """Each version of a subset that holds the document, or one that stands for it, older ones first.

    Yields:
        ``key`` (``release/arm``), ``artefact``, ``crawl`` and ``id`` (of what is in), ``by`` (what the document is to that,
        a key of `copies_of.KINSHIP`: only of a ``copy`` its text is in; null: it is the document itself), ``made`` (when),
        ``state`` (``current``, ``stale`` or ``superseded``), ``why`` (it is not current, one line each) and ``record``.
    """
    names = _names(reader)
    for manifest in _versions(reader, "fineweb_mask"):
        for (crawl, name), by in names.items():
            for row in reader.at(manifest["location"], name, columns=["id", "crawl"]):
                if crawl in (None, row["crawl"]):
                    state, why = _state(reader, manifest)
                    yield {
                        "key": manifest["key"],
                        "artefact": manifest["location"],
                        "crawl": row["crawl"],
                        "id": name,
                        "by": by,
                        "made": manifest.get("written_at"),
                        "state": state,
                        "why": why,
                        "record": row["record"],
                    }


def _names(reader: Reader) -> dict[tuple[str | None, str], Kinship | None]:
    """The document, in any crawl, and what stood for it in any version, with what it is to that."""
    found: dict[tuple[str | None, str], Kinship | None] = {(None, reader.document_id): None}

    def note(crawl: str, name: str, by: Kinship) -> None:
        known = found.get((crawl, name))
        if known is None or _CLOSEST.index(by) < _CLOSEST.index(known):
            found[crawl, name] = by

    for manifest in _versions(reader, "candidate_documents"):
        for row in reader.at(manifest["location"]):
            first = row["representative_crawl"], row["representative_id"]
            note(*first, kinship(row, reader.one(manifest["location"], *first)))
    for manifest in _versions(reader, "near_copies"):
        for crawl, name in list(found):
            near = None if crawl is None else reader.one(manifest["location"], crawl, name)
            if near is not None and near["near_copy_of"] is not None:
                note(near["near_copy_of_crawl"], near["near_copy_of"], "near_copy")
    return {
        (crawl, name): by
        for (crawl, name), by in found.items()
        if crawl is None or name != reader.document_id
    }


def models_ever(reader: Reader, subsets: list[Row]) -> Iterator[Row]:
    """Each version of a model that was trained on one of these subsets, or on one that the record no longer holds.

    Args:
        reader: The document.
        subsets: What ``subsets_ever`` found.

    Yields:
        ``key`` (``release/run``), ``model``, ``artefact``, ``subset`` (its artefact), ``trained`` (whether on this
        document's text; ``None``: nobody can tell, as the subset is gone or was read in part), ``read`` (the share of the
        subset's tokens that it read, at most 1; ``None``: the subset is gone), ``by`` (what the document is to the nearest
        that the subset holds, as there), ``made``, ``state``, ``why``, ``bits_per_byte``, ``num_tasks`` and ``mean`` over
        the tasks of its last checkpoint (``None``: not evaluated).
    """
    held: dict[str, Kinship | None] = {}
    for one in sorted(subsets, key=lambda one: _CLOSEST.index(one["by"])):
        held.setdefault(one["artefact"], one["by"])
    digests: dict[str, Kinship | None] = {}
    for location, by in held.items():
        digests.setdefault(_documents_digest(reader.tables.manifest(location)), by)
    there = {manifest["location"] for manifest in reader.store.all_manifests(artefact_of("fineweb_mask"))}
    for manifest in _versions(reader, "pretrained_model"):
        subset = input_location(manifest, "subset")
        digest = manifest["basis"]["inputs"]["subset"]
        is_held = subset in held or digest in digests
        if not is_held and subset in there:
            continue
        by = held[subset] if subset in held else digests.get(digest)
        state, why = _state(reader, manifest)
        read = min(1.0, manifest["metadata"].get("epochs", 1.0)) if is_held else None
        is_own = _CLOSEST.index(by) <= _CLOSEST.index("copy")
        yield {
            "key": manifest["key"],
            "model": manifest["fingerprint"][:16],
            "artefact": manifest["location"],
            "subset": subset,
            "trained": None if read is None or (is_own and read < 1) else is_own,
            "read": read,
            "by": by,
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

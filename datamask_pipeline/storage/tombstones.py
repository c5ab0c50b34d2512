"""What was purged from a record: which versions, by which request, and which documents, by salted hashes. Knows no stage.

A tombstone is `purged/<number>.json`, with a digest of itself: an edit of any figure in it is noticed. A hash tells nobody
which document it was, but answers whoever has the id: hence salted and not keyed, as a key would have to be kept as long as
the record for `datamask audit why` to answer. The salt is the record's own, so that a table of hashes that was made
elsewhere is of no use.
"""

import dataclasses
import functools
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.storage.ref import MANIFEST, pretty_json, read_json
from datamask_pipeline.storage.store import Store

FOLDER: Final = "purged"
#: Of all else in the file; those of earlier versions have none.
_DIGEST: Final = "tombstone_digest"
_FIELDS: Final[Mapping[str, type]] = {
    "number": int,
    "request": str,
    "date": str,
    "state": str,
    "salt": str,
    "documents": dict,
    "contents": list,
    "removed": dict,
    "standing": list,
}
#: What tombstones of earlier versions lack.
_LATER: Final[Mapping[str, type]] = {
    "urls": list,
    "totals": dict,
    "reports": dict,
    "unfinished": list,
    "kept": list,
}


@dataclasses.dataclass(frozen=True)
class Tombstone:
    """One purge.

    Attributes:
        number: Its number in the record, from 1.
        request: What asked for it, as its caller put it.
        date: When it began, in UTC.
        state: ``begun`` until all that it removes is gone.
        salt: Stands before an id or content hash when it is hashed.
        documents: By crawl, the hashes of the ids that are gone from it.
        contents: Hashes of the content hashes of what was withdrawn, whatever the crawl.
        removed: By location, the manifest of each version that is gone, with the hashes of the documents it held under
            ``held`` (by crawl), whether it had made use of one under ``used``, and of a subset what it held in numbers
            under ``content``, and under ``texts``, by the hash of an id, how many rows had that document's text.
        standing: Locations of current versions that were made from one of these documents and stay.
        urls: Hashes of the addresses of what was withdrawn, each its host and what follows it.
        totals: By crawl, of what is gone from it ``documents``, ``bytes``, ``tokens`` (of those stated), ``without_tokens``
            (documents), and ``domains``: of each registrable domain documents and bytes.
        reports: By release, what was asked, found and done, and what it cost, when the purge began; no document is named.
        unfinished: Where unfinished work lay that went with it.
        kept: Superseded versions that stay because one of ``standing`` needs them.
    """

    number: int
    request: str
    date: str
    state: Literal["begun", "done"]
    salt: str
    documents: Mapping[str, list[str]]
    contents: list[str]
    removed: Mapping[str, Mapping[str, Any]]
    standing: list[str]
    urls: list[str] = dataclasses.field(default_factory=list)
    totals: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    reports: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    unfinished: list[str] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)

    @property
    def title(self) -> str:
        """The purge by its number, and what asked for it."""
        return f"request {self.number} ({self.request}) of {self.date}"

    def erases(self, name: str) -> bool:
        """Whether a hash is that of an id, content or address that it erased."""
        return name in self.contents or name in self.urls or any(name in of for of in self.documents.values())

    @property
    def entries(self) -> list[str]:
        """The entries that withdrew something when it began, as it keeps them."""
        asked = (entry for report in self.reports.values() for entry in report["entries"])
        return sorted({entry["asked"] for entry in asked if entry["withdrawn"]})

    @property
    def named(self) -> dict[str, Any]:
        """Number, request and date, as JSON values."""
        return {"number": self.number, "request": self.request, "date": self.date}


def tombstones(store: Store) -> list[Tombstone]:
    """Every purge of the record, by number.

    Raises:
        IntegrityError: the file of one is damaged.
    """
    folder = f"{store.root}/{FOLDER}"
    if not store.fs.exists(folder):
        return []
    paths = sorted(path for path in store.fs.find(folder) if path.endswith(".json"))
    remedy = "restore it from a copy of the record: nothing else says what was purged"
    names = (*_FIELDS, *_LATER)
    read = [read_json(store.fs.cat_file(path), path, _FIELDS, remedy=remedy) for path in paths]
    for number, (path, values) in enumerate(zip(paths, read, strict=True), 1):
        if values["number"] != number:
            raise IntegrityError(f"{path} is number {values['number']} where {number} is missing; {remedy}")
        if values.get(_DIGEST, digest := _digest(values)) != digest:
            raise IntegrityError(f"{path} says something else than was written; {remedy}")
        of_dicts = (values["removed"], values.get("totals", {}), values.get("reports", {}))
        if not all(isinstance(each, list) for each in values["documents"].values()) or not all(
            isinstance(each, dict) for of in of_dicts for each in of.values()
        ):
            raise IntegrityError(f"{path} is no tombstone: its lists and objects are others; {remedy}")
    return [Tombstone(**{name: values[name] for name in names if name in values}) for values in read]


def num_purges(store: Store) -> int:
    """How many purges were begun; reads none of their files."""
    try:
        return sum(path.endswith(".json") for path in store.fs.ls(f"{store.root}/{FOLDER}", detail=False))
    except FileNotFoundError:
        return 0


def publish(store: Store, tombstone: Tombstone) -> None:
    """Write a tombstone at once, in place of what stood there."""
    values = json.loads(json.dumps(dataclasses.asdict(tombstone)))
    values[_DIGEST] = _digest(values)
    store.publish_bytes(f"{FOLDER}/{tombstone.number:06d}.json", pretty_json(values).encode())


def _digest(values: Mapping[str, Any]) -> str:
    return sha256_text(canonical_json({name: value for name, value in values.items() if name != _DIGEST}))


def salt_of(store: Store) -> str:
    """The record's salt; a new one for the first purge."""
    return next((tombstone.salt for tombstone in tombstones(store)), secrets.token_hex(16))


def hashed(salt: str, document_id: str) -> str:
    """What stands for an id or content hash; `hashed_sql` computes the same."""
    return hashlib.sha256(f"{salt}{document_id}".encode()).hexdigest()


def hashed_sql(salt: str, column: str) -> str:
    """SQL of what stands for an id or content hash; the salt is one of ours."""
    return f"sha256('{salt}' || {column})"


def removed_by(store: Store, location: str) -> Tombstone | None:
    """The purge that removed a version."""
    return next((each for each in tombstones(store) if location in each.removed), None)


def purged_manifests(store: Store) -> dict[str, Mapping[str, Any]]:
    """The manifests of all versions that were purged, by location."""
    return {location: manifest for each in tombstones(store) for location, manifest in each.removed.items()}


def kept_manifest(store: Store, location: str) -> Mapping[str, Any]:
    """The manifest of a version; of one that was purged, as its tombstone keeps it.

    Raises:
        IntegrityError: it is missing, and no tombstone keeps it; or damaged.
    """
    by = removed_by(store, location)
    return store.manifest_at(location) if by is None else by.removed[location]


def missing(store: Store, location: str, remedy: str) -> str:
    """Why a version has no manifest, and what to do."""
    if (by := removed_by(store, location)) is not None:
        return f"{location} was purged by {by.title}; `datamask run` makes what rests on it from what is left"
    return f"no manifest at {store.root}/{location}/{MANIFEST}; {remedy}"


@dataclasses.dataclass(frozen=True)
class Erased:
    """Documents of one crawl, or contents of any, that must not come back; or all that must not be named.

    Attributes:
        salt: Stands before an id or content hash when it is hashed.
        hashes: Their hashes.
    """

    salt: str
    hashes: frozenset[str]

    @functools.cached_property
    def digest(self) -> str:
        """What a stage that leaves them out hashes."""
        return sha256_text(canonical_json([self.salt, sorted(self.hashes)]))

    def __contains__(self, document_id: object) -> bool:
        return isinstance(document_id, str) and hashed(self.salt, document_id) in self.hashes


def erased(store: Store, crawl: str) -> Erased | None:
    """What was purged from a crawl; ``None``: nothing was."""
    found = [each for each in tombstones(store) if each.documents.get(crawl)]
    hashes = frozenset(name for each in found for name in each.documents[crawl])
    return Erased(found[0].salt, hashes) if found else None


def erased_contents(store: Store) -> Erased | None:
    """The contents that were purged, under whatever id and from whatever crawl; ``None``: none was."""
    return _contents(tombstones(store))


def num_purges_of(store: Store, digest: str | None) -> int | None:
    """How many purges, the later ones left out, erased the contents of a digest; the most, where a later one erased no more.

    Args:
        store: The record.
        digest: That of `erased_contents` when something was made; ``None``: no content was purged then.
    """
    found = tombstones(store)
    for number in range(len(found), -1, -1):
        contents = _contents(found[:number])
        if (None if contents is None else contents.digest) == digest:
            return number
    return None


def _contents(purges: Sequence[Tombstone]) -> Erased | None:
    found = [each for each in purges if each.contents]
    hashes = frozenset(name for each in found for name in each.contents)
    return Erased(found[0].salt, hashes) if found else None


def unnamed(store: Store) -> Erased | None:
    """Every id, content and address of what was purged: the record names none of them; ``None``: nothing was."""
    found = tombstones(store)
    hashes = [each for tombstone in found for each in (*tombstone.contents, *tombstone.urls)]
    hashes += [each for tombstone in found for names in tombstone.documents.values() for each in names]
    return Erased(found[0].salt, frozenset(hashes)) if found else None

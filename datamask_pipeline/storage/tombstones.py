"""What was purged from a record: which versions, by which request, and which documents, by salted hashes. Knows no stage.

A tombstone is `purged/<number>.json`. A hash tells nobody which document it was, but answers whoever has the id: hence
salted and not keyed, as a key would have to be kept as long as the record for `datamask audit why` to answer. The salt is
the record's own, so that a table of hashes that was made elsewhere is of no use.
"""

import dataclasses
import functools
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.storage.ref import pretty_json, read_json
from datamask_pipeline.storage.store import Store

FOLDER: Final = "purged"
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
            ``held`` (by crawl).
        standing: Locations of current versions that were made from one of these documents and stay.
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

    @property
    def title(self) -> str:
        """The purge by its number, and what asked for it."""
        return f"request {self.number} ({self.request}) of {self.date}"


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
    read = (read_json(store.fs.cat_file(path), path, _FIELDS, remedy=remedy) for path in paths)
    return [Tombstone(**{name: values[name] for name in _FIELDS}) for values in read]


def publish(store: Store, tombstone: Tombstone) -> None:
    """Write a tombstone at once, in place of what stood there."""
    values = pretty_json(json.loads(json.dumps(dataclasses.asdict(tombstone))))
    store.publish_bytes(f"{FOLDER}/{tombstone.number:06d}.json", values.encode())


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


@dataclasses.dataclass(frozen=True)
class Erased:
    """Documents of one crawl, or contents of any, that must not come back.

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
    found = [each for each in tombstones(store) if each.contents]
    hashes = frozenset(name for each in found for name in each.contents)
    return Erased(found[0].salt, hashes) if found else None

"""References to artefacts, and where an artefact lies. Knows no file system."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

MANIFEST = "manifest.json"
CURRENT = "current.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """What travels between stages instead of a table.

    Attributes:
        stage: The stage that made the artefact.
        key: Its partition: a crawl, a release, or ``release/arm``.
        fingerprint: What it should be.
        content_digest: What it is.
        location: Directory, relative to the store's root.
        rows: Rows over all its parts.
    """

    stage: str
    key: str
    fingerprint: str
    content_digest: str
    location: str
    rows: int

    @property
    def short(self) -> str:
        """First 16 digits of the fingerprint: the artefact's id in paths and reports."""
        return self.fingerprint[:16]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def location_of(stage: str, key: str, fingerprint: str) -> str:
    return f"{stage}/{key}/{fingerprint[:16]}"


def ref_of(manifest: Mapping[str, Any]) -> Ref:
    return Ref(**{field.name: manifest[field.name] for field in dataclasses.fields(Ref)})


def pretty_json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

"""Which crawls a release is made of and what it goes on from, frozen in the record when it is first asked for.

Knows no stage. A retired release stays frozen and readable; nothing is made of it any more.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from datamask_pipeline.errors import ConfigurationError, DataMaskError, IntegrityError, UnknownNameError
from datamask_pipeline.storage.ref import read_json
from datamask_pipeline.storage.store import Store


@dataclass(frozen=True)
class Frozen:
    """What the record's file of a release says.

    Attributes:
        crawls: Its crawls in their order.
        given: The release whose subsets are held in this one.
        rolls: The rolling release of the configuration that made it.
        retired: Nothing is made of it any more.
    """

    crawls: list[str]
    given: str | None = None
    rolls: str | None = None
    retired: bool = False


def names(store: Store) -> set[str]:
    """The releases that the record knows and that are not retired."""
    return {name for name in every_name(store) if not is_retired(store, name)}


def every_name(store: Store) -> set[str]:
    """The releases that the record knows, retired ones too; what editors leave beside their files is none."""
    base = f"{store.root}/releases"
    found = store.fs.ls(base, detail=False) if store.fs.exists(base) else []
    names = (str(path).rsplit("/", 1)[1] for path in found)
    return {
        name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")
    }


def frozen(store: Store, release: str) -> Frozen | None:
    """What the record has of a release, or ``None`` if it is not frozen yet; one file is read.

    Raises:
        IntegrityError: the record's file of the release is damaged.
    """
    path = f"{store.root}/releases/{release}.json"
    if (data := store.bytes_at(path)) is None:
        return None
    remedy = (
        'write {"crawls": [...]} into it again, the names in their order; `basis.config.crawls` of '
        f"{store.root}/pool/{release}/*/manifest.json has them"
    )
    found: dict[str, Any] = read_json(data, path, {"crawls": list}, remedy=remedy)
    if not found["crawls"] or not all(isinstance(crawl, str) for crawl in found["crawls"]):
        raise IntegrityError(f"{path} names no crawls; {remedy}")
    for name in ("given", "rolls"):
        if not isinstance(found.get(name, ""), str):
            raise IntegrityError(f'{path}: "{name}" names no release; write the name of one, or take it out')
    return Frozen(found["crawls"], found.get("given"), found.get("rolls"), bool(found.get("retired")))


def frozen_crawls(store: Store, release: str) -> list[str] | None:
    """The crawls of a release in their order, or ``None`` if it is not frozen yet.

    Raises: as `frozen`.
    """
    found = frozen(store, release)
    return None if found is None else found.crawls


def is_retired(store: Store, release: str) -> bool:
    """Whether nothing is made of the release any more.

    Raises: as `frozen`.
    """
    found = frozen(store, release)
    return found is not None and found.retired


def rolled(store: Store, template: str) -> list[tuple[str, list[str]]]:
    """The releases that a rolling release of the configuration made, each with its crawls, in their order.

    Raises: as `frozen`.
    """
    found = [(name, frozen(store, name)) for name in every_name(store)]
    made = [(name, file.crawls) for name, file in found if file is not None and file.rolls == template]
    return sorted(made, key=lambda each: (len(each[1]), each[0]))  # each has the crawls of those before


def freeze(
    store: Store, release: str, crawls: list[str], given: str | None = None, rolls: str | None = None
) -> list[str]:
    """Record the crawls of a new release, in order of precedence, what it goes on from, and which rolling release made it.

    Raises:
        ConfigurationError: no crawls, or the release exists already.
    """
    if not crawls:
        raise ConfigurationError(f"release {release!r} needs at least one crawl")
    relative = f"releases/{release}.json"
    if store.fs.exists(f"{store.root}/{relative}"):
        raise ConfigurationError(f"release {release!r} exists and is frozen; choose another name")
    store.publish_bytes(relative, frozen_bytes(crawls, given, rolls))
    return crawls


def refusal_without(
    store: Store, release: str, what: str, having: Iterable[str], until: str, remedy: str = ""
) -> DataMaskError:
    """Why a release is refused that has none of something yet, or that the record does not know.

    Args:
        store: The record.
        release: The release.
        what: What it lacks, e.g. ``"mask"``.
        having: The releases that have it.
        until: The stage that makes it.
        remedy: Of a release that the record does not know.
    """
    if release in every_name(store):
        command = f"`datamask run --release {release} --until {until}` makes it"
        return ConfigurationError(f"release {release!r} has no {what} yet; {command}")
    return UnknownNameError("release", release, having, remedy=remedy)


def retire(store: Store, release: str, *, retired: bool = True) -> None:
    """Mark a release as one of which nothing is made any more, or take the mark away. Nothing is deleted.

    Raises:
        UnknownNameError: the record has no such release.
        IntegrityError: its file is damaged.
    """
    found = frozen(store, release)
    if found is None:
        raise UnknownNameError("release", release, every_name(store))
    data = frozen_bytes(found.crawls, found.given, found.rolls, retired=retired)
    store.publish_bytes(f"releases/{release}.json", data)


def frozen_bytes(
    crawls: list[str], given: str | None = None, rolls: str | None = None, *, retired: bool = False
) -> bytes:
    """The file of a release of these crawls."""
    values: dict[str, Any] = {"crawls": crawls}
    if given is not None:
        values["given"] = given
    if rolls is not None:
        values["rolls"] = rolls
    if retired:
        values["retired"] = True
    return (json.dumps(values, indent=1) + "\n").encode()

"""Which crawls a release is made of, frozen in the record when it is first asked for. Knows no stage."""

import json

from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.storage.ref import read_json
from datamask_pipeline.storage.store import Store


def names(store: Store) -> set[str]:
    """The releases that the record knows."""
    base = f"{store.root}/releases"
    found = store.fs.ls(base, detail=False) if store.fs.exists(base) else []
    return {str(path).rsplit("/", 1)[1].removesuffix(".json") for path in found}


def frozen_crawls(store: Store, release: str) -> list[str] | None:
    """The crawls of a release in their order, or ``None`` if it is not frozen yet.

    Raises:
        IntegrityError: the record's file of the release is damaged.
    """
    path = f"{store.root}/releases/{release}.json"
    if not store.fs.exists(path):
        return None
    remedy = (
        'write {"crawls": [...]} into it again, the names in their order; `basis.config.crawls` of '
        f"{store.root}/pool/{release}/*/manifest.json has them"
    )
    crawls = read_json(store.fs.cat_file(path), path, {"crawls": list}, remedy=remedy)["crawls"]
    if not crawls or not all(isinstance(crawl, str) for crawl in crawls):
        raise IntegrityError(f"{path} names no crawls; {remedy}")
    return list(crawls)


def freeze(store: Store, release: str, crawls: list[str]) -> list[str]:
    """Record the crawls of a new release, in order of precedence.

    Raises:
        ConfigurationError: no crawls, or the release exists already.
    """
    if not crawls:
        raise ConfigurationError(f"release {release!r} needs at least one crawl")
    relative = f"releases/{release}.json"
    if store.fs.exists(f"{store.root}/{relative}"):
        raise ConfigurationError(f"release {release!r} exists and is frozen; choose another name")
    store.publish_bytes(relative, frozen_bytes(crawls))
    return crawls


def frozen_bytes(crawls: list[str]) -> bytes:
    """The file of a release of these crawls."""
    return (json.dumps({"crawls": crawls}, indent=1) + "\n").encode()

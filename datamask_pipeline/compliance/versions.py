"""Versions of a record by their manifests, those that were purged too, as their tombstones keep them. Reads no rows."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.publish.facts import subset_of
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.tombstones import Tombstone, tombstones

Manifest = Mapping[str, Any]


class Versions:
    """The versions of a record.

    Args:
        store: The record.

    Attributes:
        tombstones: Every purge, by number.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tombstones = tombstones(store)

    def purged_by(self, location: str) -> Tombstone | None:
        """The purge that removed a version."""
        return next((each for each in self.tombstones if location in each.removed), None)

    def manifest(self, location: str) -> Manifest:
        """The manifest of a version.

        Raises:
            IntegrityError: it is missing, and no tombstone keeps it.
        """
        by = self.purged_by(location)
        return self.store.manifest_at(location) if by is None else by.removed[location]

    def all(self, stage: str) -> Iterator[Manifest]:
        """Every version of a stage that the record holds or held."""
        yield from self.store.all_manifests(stage)
        for each in self.tombstones:
            yield from (manifest for manifest in each.removed.values() if manifest["stage"] == stage)

    def subset(self, release: str, arm: str | None, version: str | None = None) -> Manifest:
        """A subset, the current one unless a version is named by the first digits of its fingerprint.

        Raises:
            UnknownNameError: there is and was no such release, arm or version.
            ConfigurationError: no arm is named and there are several.
        """
        current = subset_of(self.store, release, arm)
        if version is None:
            return self.store.manifest(current)
        digits = version.rpartition("/")[2]
        known = {each["location"]: each for each in self.all("materialise") if each["key"] == current.key}
        found = [each for each in known.values() if digits and each["fingerprint"].startswith(digits)]
        if len(found) != 1:
            raise UnknownNameError(
                f"version of {current.key}", version, [each["fingerprint"][:16] for each in known.values()]
            )
        return found[0]

    def models(self, key: str) -> list[dict[str, Any]]:
        """Every model that was trained on a version of a subset.

        Returns:
            Of each ``model`` and ``purged`` (the request that removed it; null: it stands), ``subset`` (what it was trained
            on), ``subset_purged`` and ``read`` (the share of its tokens that the model read, at most 1).
        """
        found = []
        for manifest in self.all("pretrain"):
            trained_on = dict(inputs_of(manifest)).get("subset")
            if trained_on is None or trained_on.key != key:
                continue
            model, subset = self.purged_by(manifest["location"]), self.purged_by(trained_on.location)
            found.append(
                {
                    "model": manifest["location"],
                    "purged": model and model.named,
                    "subset": trained_on.location,
                    "subset_purged": subset and subset.named,
                    "read": min(1.0, manifest["metadata"].get("epochs", 1.0)),
                }
            )
        return sorted(found, key=lambda each: str(each["model"]))

    def purged_from(self, pool: Manifest) -> list[dict[str, Any]]:
        """Every purge that erased documents from the crawls of a pool.

        Returns:
            Of each ``number``, ``request``, ``date``, ``documents``, ``bytes`` and ``domains`` (documents and bytes by
            registrable domain; both null where its tombstone has no numbers), and ``not_in_pool``: how many of the documents
            were gone already when the pool was made, so that it does not count them.
        """
        crawls = pool["basis"]["config"]["crawls"]
        inputs = dict(inputs_of(pool))
        ends = {crawl: self._number(inputs[f"documents/{crawl}"].location) for crawl in crawls}
        found = []
        for each in self.tombstones:
            gone = {crawl: len(each.documents[crawl]) for crawl in crawls if each.documents.get(crawl)}
            if gone:
                totals = [each.totals[crawl] for crawl in gone if crawl in each.totals]
                is_known = len(totals) == len(gone)
                found.append(
                    each.named
                    | {
                        "documents": sum(gone.values()),
                        "bytes": sum(of["bytes"] for of in totals) if is_known else None,
                        "domains": _added(totals) if is_known else None,
                        "not_in_pool": sum(n for crawl, n in gone.items() if each.number < ends[crawl]),
                    }
                )
        return found

    def report(self, release: str, pool: str) -> Mapping[str, Any] | None:
        """What the latest purge kept of a release's withdrawal by a pool; ``None``: none did."""
        found = (each.reports.get(release) for each in reversed(self.tombstones))
        return next((each for each in found if each is not None and each["pool"] == pool), None)

    def _number(self, location: str) -> float:
        """The number of the purge that removed a version; infinite for one that stands."""
        by = self.purged_by(location)
        return math.inf if by is None else by.number


def _added(totals: list[Mapping[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for of_crawl in totals:
        for domain, (documents, size) in of_crawl["domains"].items():
            before = found.get(domain, [0, 0])
            found[domain] = [before[0] + documents, before[1] + size]
    return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))

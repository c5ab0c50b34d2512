"""Which settings and inputs differ between two selections, and which settings the arm does not read. Knows manifests; reads
no rows.

What no mask of an arm depends on is told apart: it is why a fingerprint is another, and no reason for a document's side.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from datamask_pipeline.audit.reader import input_location
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.families import POLICIES
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.changes import settings_that_differ
from datamask_pipeline.storage.tombstones import kept_manifest

Settings = Mapping[str, Any]
_BUDGETS: Final = SelectionConfig.one_of
#: What is said of an input of the pool that is another.
_TOLD: Final = {
    "takedown": "other documents are withdrawn: other requests, or they name others",
    "question_texts": "documents were held against other questions",
    "purged": "other documents were purged",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Differences:
    """Settings that differ, each as ``stage: line``.

    Attributes:
        told: Those that may have moved a document.
        unread: Those that the arm does not read, on either side.
        are_others: Whether the arm itself, its code or its vectors are others; differences of pools, near-copies and scores
            are seen in what they did to a document.
    """

    told: list[str]
    unread: list[str]
    are_others: bool


def differences(store: Store, old: Selection, new: Selection) -> Differences:
    """What differs between two selections, and behind them."""
    before, after = old.mask["basis"]["config"], new.mask["basis"]["config"]
    own = list(_of_stage("select", old.mask, new.mask, *_read_by_both(before, after)))
    unread: list[str] = []
    if before.get("policy") == after.get("policy"):
        read = read_by(before) | read_by(after)
        rest = (_only(each, {*each} - read) for each in (before, after))
        unread += _of_stage("select", old.mask, new.mask, *rest)
    told = [*_of_stage("pool", old.pool, new.pool), *_of_stage("gather", old.index, new.index)]
    if old.copies and new.copies:
        told += _of_stage("copies", old.copies, new.copies)
    for crawl in old.crawls:
        if crawl in new.crawls:
            vectors = [*_behind(store, "embed", f"embeddings/{crawl}", old.mask, new.mask)]
            scores = [*_behind(store, "score", f"scores/{crawl}", old.index, new.index)]
            own += [] if _no_vectors(before, after) else vectors
            told += _behind(store, "score", f"scores/{crawl}", old.index, new.index, _weighted(before, after))
            told += _behind(store, "ingest", f"documents/{crawl}", old.pool, new.pool)
            unread += [*vectors, *scores]
    told = list(dict.fromkeys([*own, *_goes_on_from(old, new), *told, *_other_inputs(old.pool, new.pool)]))
    return Differences(
        told=told, unread=[line for line in dict.fromkeys(unread) if line not in told], are_others=bool(own)
    )


def _goes_on_from(old: Selection, new: Selection) -> Iterator[str]:
    """What each mask goes on from, where that is not of one release, and the new one's is not the old one itself."""
    held = [dict(inputs_of(each.mask)).get("held") for each in (old, new)]
    before, after = ("nothing" if each is None else each.key.partition("/")[0] for each in held)
    if after not in (before, str(old.mask["key"]).partition("/")[0]):
        yield f"select: goes on from {before} -> {after}"


def _other_inputs(old: Settings, new: Settings) -> Iterator[str]:
    """What both pools were made from under one name, and is not the same."""
    before, after = old["basis"]["inputs"], new["basis"]["inputs"]
    for name in sorted({*before, *after}):
        kind, _, crawl = name.partition("/")
        if before.get(name) == after.get(name):
            continue
        if kind == "documents":  # of a crawl that one side alone has, what came and went tells
            if name in before and name in after:
                yield f"ingest: {crawl} has other documents: its files, or what was kept of them, changed"
        elif kind in _TOLD:
            yield f"pool: {_TOLD[kind]}"


def _read_by_both(before: Settings, after: Settings) -> tuple[Settings, Settings]:
    """What each mask depends on; of two policies what both read, and the policy and budget themselves."""
    mine, others = map(read_by, (before, after))
    shared = mine | others
    if before.get("policy") != after.get("policy"):
        shared = (mine & others) | ({"policy", *_BUDGETS} & shared)
    return _only(before, mine & shared), _only(after, others & shared)


def read_by(config: Settings) -> set[str]:
    """The settings that a mask of this arm depends on."""
    policy: Any = POLICIES.classes().get(config.get("policy", ""))
    names = {*config} - (set() if policy is None else policy.unread)
    names -= {"reserve"}  # which only a later release reads
    if not config.get("quotas"):
        names -= {"quota_by"}
    given = {name for name in _BUDGETS if config.get(name) is not None}
    return names - {*_BUDGETS} | (given - {"ratio"} or given)


def _no_vectors(before: Settings, after: Settings) -> bool:
    """Whether both masks follow from quality, budget and seed alone."""
    policies: list[Any] = [POLICIES.classes().get(each.get("policy", "")) for each in (before, after)]
    return all(policy is not None and policy.by_rule for policy in policies)


def _weighted(before: Settings, after: Settings) -> set[str] | None:
    """The scorers that either arm reads; none named: all of them."""
    named = [{*each["scorers"]} for each in (before, after)]
    return None if not all(named) else set.union(*named)


def _behind(
    store: Store, stage: str, name: str, old: Settings, new: Settings, scorers: set[str] | None = None
) -> Iterator[str]:
    """The settings that differ of what both read under a name, of some scorers alone if they are named."""
    locations = [input_location(each, name) for each in (old, new)]
    if None in locations:
        return
    made = [kept_manifest(store, str(location)) for location in locations]
    configs = [each["basis"]["config"] for each in made]
    if scorers is not None:
        configs = [
            {**each, "scorers": [scorer for scorer in each["scorers"] if scorer["name"] in scorers]}
            for each in configs
        ]
    yield from _of_stage(stage, *made, *configs)


def _of_stage(
    stage: str, old: Settings, new: Settings, before: Settings | None = None, after: Settings | None = None
) -> Iterator[str]:
    """What differs between two manifests of a stage, or between some of their settings."""
    versions = [each["basis"]["version"] for each in (old, new)]
    if versions[0] != versions[1]:
        yield f"{stage}: version of its code {versions[0]} -> {versions[1]}"
    before = old["basis"]["config"] if before is None else before
    after = new["basis"]["config"] if after is None else after
    yield from (f"{stage}: {line}" for line in settings_that_differ(before, after))


def _only(config: Settings, names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name in names}

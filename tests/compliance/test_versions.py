"""Several purges are told apart: of each, what was gone before a pool was made, whatever the pool counts itself."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.compliance.purged import purged_holdings, under
from datamask_pipeline.compliance.takedown import _done
from datamask_pipeline.compliance.versions import Versions
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages.takedown_unnamed import HIDDEN
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.tombstones import Tombstone, publish, tombstones


def of(documents: int, size: int, **domains: list[int]) -> dict[str, Any]:
    return {"documents": documents, "bytes": size, "tokens": None, "domains": domains}


def tombstone(number: int, documents: dict[str, list[str]], removed: list[str], **numbers: Any) -> Tombstone:
    return Tombstone(
        number=number,
        request=f"letter {number}",
        date="2026-11-22T12:00:00Z",
        state="done",
        salt="00",
        documents=documents,
        contents=[],
        removed={location: {"stage": "ingest", "location": location} for location in removed},
        standing=[],
        **numbers,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two purges: of crawl a, then of both a and b."""
    store = Store(tmp_path)
    first = {"a": of(2, 30, x=[1, 10], y=[1, 20])}
    second = {"a": of(1, 5, x=[1, 5]), "b": of(1, 7, x=[1, 7])}
    publish(store, tombstone(1, {"a": ["1", "2"]}, ["ingest/a/1"], totals=first))
    publish(store, tombstone(2, {"a": ["3"], "b": ["4"]}, ["ingest/a/2", "ingest/b/1"], totals=second))
    return store


def pool(**documents: str) -> dict[str, Any]:
    """A pool that was made from these versions."""
    empty = {"stage": "ingest", "key": "", "fingerprint": "", "content_digest": "", "rows": 0}
    inputs = {
        f"documents/{crawl}": empty | {"location": f"ingest/{crawl}/{n}"} for crawl, n in documents.items()
    }
    return {"inputs": inputs, "basis": {"config": {"crawls": [*documents]}}}


@pytest.mark.parametrize(
    ("made_from", "gone_before"),
    [
        (pool(a="1", b="1"), [0, 0]),
        (pool(a="2", b="1"), [2, 0]),
        (pool(a="3", b="2"), [2, 2]),
        (pool(a="3"), [2, 1]),
        (pool(b="2"), [1]),
        (pool(c="1"), []),
    ],
)
def test_what_was_gone_before_a_pool_was_made(
    made_from: dict[str, Any], gone_before: list[int], store: Store
) -> None:
    found = Versions(store).purged_from(made_from)
    assert [each["not_in_pool"] for each in found] == gone_before


def test_numbers_of_several_crawls_are_added(store: Store) -> None:
    first, second = Versions(store).purged_from(pool(a="3", b="2"))
    assert (first["documents"], first["bytes"], first["domains"]) == (2, 30, {"y": [1, 20], "x": [1, 10]})
    assert (second["documents"], second["bytes"], second["domains"]) == (2, 12, {"x": [2, 12]})


def test_a_tombstone_of_an_earlier_version_is_read_and_says_no_more_than_it_knows(store: Store) -> None:
    path = Path(store.root, "purged", "000002.json")
    values = json.loads(path.read_text())
    for name in ("urls", "totals", "reports", "tombstone_digest"):
        del values[name]
    path.write_text(json.dumps(values))
    assert [each.number for each in tombstones(store)] == [1, 2]
    _, second = Versions(store).purged_from(pool(a="3", b="2"))
    assert (second["documents"], second["bytes"], second["domains"]) == (2, None, None)


def test_a_tombstone_that_was_edited_or_is_missing_is_refused(store: Store) -> None:
    path = Path(store.root, "purged", "000001.json")
    kept = path.read_text()
    path.write_text(json.dumps(json.loads(kept) | {"date": "2020-01-01T00:00:00Z"}))
    with pytest.raises(IntegrityError, match=r"000001\.json says something else than was written"):
        tombstones(store)
    path.unlink()
    with pytest.raises(IntegrityError, match="number 2 where 1 is missing"):
        tombstones(store)
    path.write_text(kept)
    assert len(tombstones(store)) == 2


def test_an_entry_is_told_by_the_purge_that_it_named_something_in(tmp_path: Path) -> None:
    """Later purges repeat the contents that stay withdrawn, and say nothing new of them."""
    store, entry = Store(tmp_path), {"asked": f"{HIDDEN}:aa", "kind": HIDDEN, "named": 0}
    report = {"first": {"entries": [entry | {"named": 2, "withdrawn": 3}]}}
    for number in (1, 2):
        publish(store, dataclasses.replace(tombstone(number, {}, []), contents=["aa"]))
    assert "request 1 " in _done(entry, Versions(store), "first")
    publish(store, dataclasses.replace(tombstone(1, {}, []), contents=["aa"], reports=report))
    told = _done(entry, Versions(store), "first")
    assert "request 1 " in told
    assert "it named 2, withdrawn with copies 3" in told


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("news.example", ["robots:www.news.example", "url:https://www.news.example/old/"]),
        ("host.news.example", []),
        ("shop.example", ["domain:shop.example"]),
    ],
)
def test_of_many_entries_those_of_the_domain_are_told_first(
    tmp_path: Path, asked: str, first: list[str]
) -> None:
    """Five are told: of a domain withdrawn by address, those were `domain` entries of other people."""
    others = [f"domain:site{number}.example" for number in range(5)]
    entries = [*others, "domain:shop.example", "url:https://www.news.example/old/", "robots:www.news.example"]
    asked_for = {"first": {"entries": [{"asked": entry, "withdrawn": 1} for entry in entries], "cost": []}}
    gone = {"documents": 9, "bytes": 90, "tokens": 9, "without_tokens": 0}
    gone["domains"] = {"news.example": [2, 20], "shop.example": [7, 70]}
    store = Store(tmp_path)
    publish(store, tombstone(1, {"a": ["1"]}, ["ingest/a/1"], totals={"a": gone}, reports=asked_for))
    found = purged_holdings(store, asked, "domain")
    assert found is not None
    told = found.purges[0]["entries"]
    assert told[: len(first)] == first
    assert set(told) == ({"domain:shop.example"} if asked == "shop.example" else set(entries))
    assert under(found.purges[0]).startswith(f", under {', '.join(first)}")

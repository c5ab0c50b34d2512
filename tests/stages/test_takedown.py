"""What is withdrawn is found by id, content, URL prefix, domain and robots.txt, and nothing else is."""

import datetime
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from datamask_pipeline import schema
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.stages import pool, takedown
from datamask_pipeline.stages.takedown_entries import entry_of
from datamask_pipeline.stages.takedown_robots import forbids
from datamask_pipeline.storage import Ref, Store

URLS = {
    "root": "https://example.com",
    "blog": "https://www.Example.com/blog/1?x=1",
    "blogger": "http://example.com/blogger",
    "port": "https://example.com:443/blog/2",
    "other_port": "https://example.com:8443/blog/3",
    "user": "https://me@example.com:80/private/a.pdf",
    "suffix": "https://notexample.com/blog/",
    "evil": "https://example.com.evil.org/",
    "idn": "https://MÜNCHEN.de/a",
    "punycode": "https://xn--mnchen-3ya.de/b",
    "deep": "https://a.b.example.co.uk/x",
    "lent": "https://alice.github.io/x",
    "ipv6": "http://[2001:db8:0::1]:8080/x",
    "named": "https://someone@dots.org./x",
    "sharp": "https://faß.de/",
    "broken": "https://[x@broken.org:80:80/x",
    "none": None,
    "edge": None,
    "edge ": None,
    "edge\u00a0": None,
    "two\nlines": None,
    "ta\tb": None,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


@pytest.fixture
def documents(store: Store) -> Ref:
    builder = store.begin("ingest", "one", version="1", config={}, inputs={})
    rows = [
        {
            "id": name,
            "text": name,
            "url": url,
            "token_count": 1,
            "crawl": "one",
            "shard": "0",
            "row": row,
            "content_hash": hashlib.sha256(name.encode()).hexdigest(),
        }
        for row, (name, url) in enumerate(URLS.items())
    ]
    table = pa.Table.from_pylist(rows, schema=schema.DOCUMENTS)
    return builder.commit([builder.write_part("0", table.to_batches(), schema.DOCUMENTS)])


def withdrawn(store: Store, documents: Ref, *entries: str, **settings: Any) -> set[str]:
    config = pool.PoolConfig(validation_share=0.0, takedown=entries, **settings)
    asked = takedown.run(config, store=store, release="r", documents={"one": documents})
    assert store.read_table(asked).schema == schema.TAKEDOWN
    ref = pool.run(config, store=store, release="r", documents={"one": documents}, takedown=asked)
    rows = store.read_table(ref).to_pylist()
    assert store.manifest(ref)["counts"]["dropped_takedown"] == sum(not row["eligible"] for row in rows)
    return {row["id"] for row in rows if row["exclusion"] == "takedown"}


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("blog", "blog"),
        ("id:blog", "blog"),
        (hashlib.sha256(b"deep").hexdigest(), "deep"),
        ("content:" + hashlib.sha256(b"deep").hexdigest().upper(), "deep"),
        ("id:" + hashlib.sha256(b"deep").hexdigest(), ""),
        ("url:https://example.com", "root blogger port user"),
        ("url:https://www.example.com/blog/", "blog"),
        ("url:http://EXAMPLE.com:80/blog", "blogger port"),
        ("url:https://example.com/Blog", ""),
        ("url:https://example.com:8443/", "other_port"),
        ("url:https://münchen.de/", "idn punycode"),
        ("domain:example.com", "root blog blogger port other_port user"),
        ("domain:EXAMPLE.com.", "root blog blogger port other_port user"),
        ("domain:www.example.com", "blog"),
        ("domain:xn--mnchen-3ya.de", "idn punycode"),
        ("domain:example.co.uk", "deep"),
        (" domain:example.co.uk\t", "deep"),
        ("suffix:co.uk", "deep"),
        ("suffix:github.io", "lent"),
        ("domain:alice.github.io", "lent"),
        ("url:http://[2001:DB8::1]:8080/", "ipv6"),
        ("domain:[2001:0db8::1]", "ipv6"),
        ("url:http://[2001:db8::1]:808", ""),
        ("url:https://dots.org/", "named"),
        ("domain:dots.org", "named"),
        ("domain:fass.de", ""),
        ("domain:xn--fa-hia.de", "sharp"),
        ("urn:uuid:nobody", ""),
    ],
)
def test_an_entry_withdraws_exactly_what_it_names(
    entry: str, found: str, store: Store, documents: Ref
) -> None:
    assert withdrawn(store, documents, entry) == set(found.split())


def test_ids_that_differ_in_blanks_at_their_ends_are_told_apart(
    store: Store, documents: Ref, tmp_path: Path
) -> None:
    for name in ("edge", "edge ", "edge\u00a0"):
        assert withdrawn(store, documents, f"id:{name}") == {name}
        path = tmp_path / "list.txt"
        path.write_text(f"  id:{name}\r\n", encoding="utf-8")
        assert withdrawn(store, documents, f"file:{path}") == {name}
    path.write_text(" edge \t\r\n", encoding="utf-8")
    assert withdrawn(store, documents, f"file:{path}") == {"edge"}, "blanks around a bare id do not count"
    path.write_text("edge\u00a0\n", encoding="utf-8")
    assert withdrawn(store, documents, f"file:{path}") == {"edge\u00a0"}, "but for those that stay on a line"
    with pytest.raises(InputError, match="write id:edge  for exactly that id"):
        withdrawn(store, documents, "edge ")


@pytest.mark.slow
def test_the_entry_of_a_document_names_that_document_alone(
    store: Store, documents: Ref, tmp_path: Path
) -> None:
    for row in store.read_table(documents).to_pylist():
        path = tmp_path / "list.txt"
        path.write_text(f"{entry_of(row['id'], row['content_hash'])}\n", encoding="utf-8")
        assert withdrawn(store, documents, f"file:{path}") == {row["id"]}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (" ", "no entry"),
        ("a\x1b[31m", "holds no control characters.*content:HASH"),
        ("domian:example.com", "'domian' is no kind of entry.*write domain:"),
        ("content:abc", "64 hexadecimal digits"),
        ("url:example.com/blog", "with scheme and host"),
        ("url:https:///blog", "with scheme and host"),
        ("url:", "nothing follows 'url'"),
        ("domain:*.example.com", "its subdomains go with it"),
        ("domain:https://example.com", "give its name alone"),
        ("domain:co.uk", r"belong to different people \(publicsuffixlist .*suffix:co\.uk"),
        ("domain:com", "com is a public suffix"),
        ("domain:GITHUB.io.", "github.io is a public suffix"),
        ("suffix:example.com", "write domain:example.com"),
        ("URL:https://example.com/", "write url:"),
        ("https://example.com/", "write url:https://example.com/ for every URL"),
    ],
)
def test_a_malformed_entry_is_refused_with_its_place(entry: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        takedown.check(pool.PoolConfig(takedown=("fine", entry)))
    path = tmp_path / "list.txt"
    path.write_text(f"# asked by mail\nfine\n\n{entry}\n", encoding="utf-8")
    if entry.strip():
        with pytest.raises(InputError, match=rf"list\.txt line 4: .*{problem}"):
            takedown.check(pool.PoolConfig(takedown=(f"file:{path}",)))


def test_a_list_in_a_file_is_what_its_entries_are_in_the_settings(
    store: Store, documents: Ref, tmp_path: Path
) -> None:
    path = tmp_path / "list.txt"
    path.write_text("\ufeff# two requests\r\ndomain:example.co.uk\r\n  blog  \n", encoding="utf-8")
    assert withdrawn(store, documents, f"file:{path}") == {"deep", "blog"}
    first = store.current("pool", "r")
    assert withdrawn(store, documents, "blog", "domain:example.co.uk", "blog") == {"deep", "blog"}
    assert store.current("pool", "r") == first
    with pytest.raises(InputError, match=r"pool\.takedown\[0\].*cannot be read"):
        takedown.check(pool.PoolConfig(takedown=("file:/nowhere",)))
    path.write_text("file:more.txt")
    with pytest.raises(InputError, match="names no further list"):
        takedown.check(pool.PoolConfig(takedown=(f"file:{path}",)))


ROBOTS = {
    "example.com": "User-agent: GPTBot\nDisallow: /*.pdf$\n\nUser-agent: *\nDisallow: /blog\nAllow: /blogger\n",
    "münchen.de": "\ufeffUser-agent: *\nDisallow: /\n",
    "dots.org": "User-agent: gptbot/1.1 (+https://openai.com)\r\nDisallow: /x\r\n\r\nUser-agent: GPT\r\nAllow: /\r\n",
    "broken.org": "User-agent: *\nDisallow: /x\n",
    "unknown.org": "User-agent: *\nDisallow: /\n",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("agents", "found"),
    [
        (("GPTBot",), "user idn punycode named broken"),
        (("GPTBot/1.0",), "user idn punycode named broken"),
        (("CCBot",), "port other_port idn punycode broken"),
        (("CCBot", "GPTBot"), "user port other_port idn punycode named broken"),
    ],
)
@pytest.mark.parametrize("form", ["files", "folders", "lines"])
def test_a_robots_snapshot_withdraws_what_one_of_the_agents_may_not_fetch(
    form: str, agents: tuple[str, ...], found: str, store: Store, documents: Ref, tmp_path: Path
) -> None:
    snapshot = tmp_path / "robots"
    if form == "lines":
        lines = [json.dumps({"host": host, "robots": text}) for host, text in ROBOTS.items()]
        snapshot.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        snapshot.mkdir()
        for host, text in ROBOTS.items():
            path = snapshot / (f"{host}.txt" if form == "files" else f"{host}/robots.txt")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    robots = {"snapshot": str(snapshot), "date": datetime.date(2026, 11, 1), "user_agents": agents}
    assert withdrawn(store, documents, robots=robots) == set(found.split())
    ref = store.current("pool", "r")
    assert ref is not None
    assert store.manifest(ref)["metadata"]["takedown_unmatched"] == []


def check_agents(*names: str) -> None:
    robots = {"snapshot": "x", "date": "2026-11-01", "user_agents": names}
    pool.PoolConfig.model_validate({"robots": robots})


def test_a_group_counts_for_its_own_crawler_alone() -> None:
    robots = "User-agent: Applebot\nDisallow: /\n\nUser-agent: *\nDisallow: /private\n"
    assert forbids(robots, ["Applebot"], "/a")
    assert not forbids(robots, ["Applebot-Extended"], "/a")  # another crawler, under the rules for all
    assert forbids(robots, ["Applebot-Extended"], ":8080/private")
    assert not forbids(robots, ["CCBot"], "")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_group_is_its_crawlers_whatever_ends_a_line(end: str) -> None:
    for named, forbidden in (("GPTBot/1.1", True), ("GPT", False)):
        robots = end.join(["# ours", f"User-agent: {named}", "Disallow: /", ""])
        assert forbids(robots, ["GPTBot"], "/a") is forbidden


def test_a_snapshot_that_is_none_is_refused(tmp_path: Path) -> None:
    def check(snapshot: Path) -> None:
        robots = {"snapshot": str(snapshot), "date": "2026-11-01", "user_agents": ["CCBot"]}
        takedown.check(pool.PoolConfig.model_validate({"robots": robots}))

    lines = tmp_path / "robots.jsonl"
    for text, problem in [
        ("", "holds no robots.txt"),
        ('{"host": "a.org", "robots": ""}\n{"host": 1, "robots": ""}', "line 2"),
        ('{"host": "a.org"}', "line 1"),
        ('{"host": "a.org", "robots": ""}\n{"host": "A.org", "robots": ""}', "twice.*line 2"),
        ('{"host": "a b", "robots": ""}', "no host"),
    ]:
        lines.write_text(text)
        with pytest.raises(InputError, match=problem):
            check(lines)
    with pytest.raises(InputError, match="cannot be read"):
        check(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no product token"):
        check_agents("Mozilla/5.0 (compatible; GPTBot/1.0)", "Google Bot")
    for missing in ("date", "user_agents"):
        given = {"snapshot": "x", "date": "2026-11-01", "user_agents": ["CCBot"]}
        del given[missing]
        with pytest.raises(ValueError, match=missing):
            pool.PoolConfig.model_validate({"robots": given})


def test_what_was_not_taken_in_is_not_passed_over(store: Store, documents: Ref) -> None:
    config = pool.PoolConfig(takedown=("blog",))
    with pytest.raises(ConfigurationError, match=re.escape("run stage 'takedown'")):
        pool.run(config, store=store, release="r", documents={"one": documents})


def ingested(store: Store, crawl: str, rows: list[dict[str, Any]]) -> Ref:
    """Documents of a crawl, each with id, text and URL."""
    builder = store.begin("ingest", crawl, version="1", config={}, inputs={"rows": json.dumps(rows)})
    placed = [
        {**row, "token_count": 1, "crawl": crawl, "shard": "0", "row": number}
        | {"content_hash": hashlib.sha256(row["text"].encode()).hexdigest()}
        for number, row in enumerate(rows)
    ]
    table = pa.Table.from_pylist(placed, schema=schema.DOCUMENTS)
    return builder.commit([builder.write_part("0", table.to_batches(), schema.DOCUMENTS)])


def with_another_crawl(store: Store) -> Ref:
    """A release's crawl; copies of two of its documents, and a text that it lacks, are in another one."""
    others = [
        {"id": "copy", "text": "shared", "url": "https://mirror.org/private/1"},
        {"id": "second", "text": "common", "url": "https://mirror.org/open/2"},
        {"id": "strange", "text": "strange", "url": "https://mirror.org/open/3"},
    ]
    ingested(store, "other", others)
    rows = [
        {"id": "first", "text": "shared", "url": "https://a.org/1"},
        {"id": "common", "text": "common", "url": "https://a.org/2"},
        {"id": "left", "text": "left", "url": "https://a.org/3"},
    ]
    return ingested(store, "one", rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("copy", "first"),
        ("id:copy", "first"),
        ("url:https://mirror.org/open/", "common"),
        ("domain:mirror.org", "first common"),
        ("content:" + hashlib.sha256(b"shared").hexdigest(), "first"),
        ("strange", ""),
    ],
)
def test_what_an_entry_names_in_another_crawl_goes_by_its_text(entry: str, found: str, store: Store) -> None:
    assert withdrawn(store, with_another_crawl(store), entry, "nobody") == set(found.split())
    ref = store.current("pool", "r")
    assert ref is not None
    unmatched = store.manifest(ref)["metadata"]["takedown_unmatched"]
    assert unmatched == sorted({"nobody"} | ({entry} if not found else set()))
    asked = store.current("takedown", "r")
    assert asked is not None
    assert store.manifest(asked)["metadata"]["entries"] == 2


def test_what_a_robots_file_forbids_in_another_crawl_goes_by_its_text(store: Store, tmp_path: Path) -> None:
    (tmp_path / "robots").mkdir()
    (tmp_path / "robots" / "mirror.org.txt").write_text("User-agent: *\nDisallow: /private\n")
    robots = {
        "snapshot": str(tmp_path / "robots"),
        "date": datetime.date(2026, 11, 1),
        "user_agents": ("GPTBot",),
    }
    assert withdrawn(store, with_another_crawl(store), robots=robots) == {"first"}


def test_a_pool_is_the_same_while_no_other_crawl_has_a_text_that_is_asked_for(store: Store) -> None:
    """Nor is an entry told twice that names the text in the release too."""
    documents = ingested(store, "one", [{"id": "first", "text": "shared", "url": None}])
    config = pool.PoolConfig(validation_share=0.0, takedown=("nobody", f"content:{'0' * 64}"))
    given = {"store": store, "release": "r", "documents": {"one": documents}}
    asked = takedown.run(config, **given)
    assert "crawls" not in store.manifest(asked)["basis"]["inputs"]
    ingested(store, "other", [{"id": "copy", "text": "shared", "url": None}])
    again = takedown.run(config, **given)
    assert asked.fingerprint != again.fingerprint
    assert asked.content_digest == again.content_digest
    assert takedown.run(config, **given) == again
    other = ingested(store, "one", [{"id": "first", "text": "another", "url": None}])
    assert takedown.run(config, **given | {"documents": {"one": other}}).fingerprint != again.fingerprint
    named = takedown.run(config.model_copy(update={"takedown": ("first", "copy")}), **given)
    kinds = [(row["entry"], row["kind"]) for row in store.read_table(named).to_pylist()]
    assert kinds == [("copy", "name"), ("copy", "text"), ("first", "name")]
    assert [*takedown.told(store.manifest(named))][1].startswith("they name 1 texts in crawls outside r")

"""The pool decides who may be selected, says why not, and loses nobody."""

import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pytest
from tiny_chain import write_tiny_config

from datamask_pipeline import schema
from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.stages import pool, takedown
from datamask_pipeline.storage import Ref, Store


def ingested(store: Store, crawl: str, rows: list[tuple[str, str]]) -> Ref:
    """Documents of (id, text) in two parts, as ingestion writes them."""
    builder = store.begin("ingest", crawl, version="1", config={}, inputs={})
    half = len(rows) // 2
    parts = []
    for number, chunk in enumerate([rows[:half], rows[half:]]):
        table = pa.Table.from_pylist(
            [
                {
                    "id": name,
                    "text": text,
                    "dump": crawl,
                    "url": f"https://www.{crawl.lower()}.org:8080/{name}",
                    "token_count": len(text),
                    "crawl": crawl,
                    "shard": f"{number}",
                    "row": row,
                    "content_hash": hashlib.sha256(text.encode()).hexdigest(),
                }
                for row, (name, text) in enumerate(chunk)
            ],
            schema=schema.DOCUMENTS,
        )
        parts.append(builder.write_part(f"{number:05d}", table.to_batches(), schema.DOCUMENTS))
    return builder.commit(parts)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def pool_of(store: Store, documents: dict[str, Ref], release: str = "r", **settings: object) -> Ref:
    """The pool, after what is asked to be withdrawn was taken in, as the flow does."""
    config = pool.PoolConfig(**{"validation_share": 0.0} | settings)
    asked = {}
    if not takedown.is_off(config):
        asked["takedown"] = takedown.run(config, store=store, release=release, documents=documents)
    return pool.run(config, store=store, release=release, documents=documents, **asked)


def pooled(
    store: Store, documents: dict[str, Ref], **settings: object
) -> dict[tuple[str, str], dict[str, object]]:
    table = store.read_table(pool_of(store, documents, **settings))
    assert table.schema == schema.CANDIDATES
    return {(row["crawl"], row["id"]): row for row in table.to_pylist()}


def test_copies_point_at_the_first_by_crawl_shard_and_row(store: Store) -> None:
    one = ingested(store, "one", [("a", "x"), ("b", "same"), ("c", "same"), ("d", "y")])
    two = ingested(store, "two", [("e", "same"), ("f", "z")])
    rows = pooled(store, {"one": one, "two": two})
    assert [rows[key]["exclusion"] for key in [("one", "b"), ("one", "c"), ("two", "e")]] == [
        None,
        "duplicate_content",
        "duplicate_content",
    ]
    assert {rows[key]["representative_id"] for key in [("one", "b"), ("one", "c"), ("two", "e")]} == {"b"}
    assert rows["two", "e"]["num_copies"] == 3
    swapped = pooled(store, {"two": two, "one": one})
    assert swapped["two", "e"]["exclusion"] is None
    assert swapped["one", "b"]["representative_crawl"] == "two"


@pytest.mark.slow
def test_going_on_judges_added_crawls_as_all_at_once_would(store: Store) -> None:
    """Whatever copies and ids they share; earlier crawls keep what was said of them."""
    draws = random.Random(3)
    shares = {"validation_share": 0.05, "validation_documents": 3}
    for turn in range(12):
        documents: dict[str, Ref] = {}
        before: Ref | None = None
        for number in range(3):
            crawl = f"turn{turn}-{number}"
            rows = [
                (
                    f"{draws.randrange(60)}" if draws.random() < 0.2 else f"{crawl}-{row}",
                    f"{draws.randrange(40)}",
                )
                for row in range(draws.randrange(8, 30))
            ]
            documents[crawl] = ingested(store, crawl, rows)
            config = pool.PoolConfig(**shares)
            held = {} if before is None else {"held": before}
            went_on = pool.run(config, store=store, release=f"{turn}-{number}", documents=documents, **held)
            whole = pool.run(config, store=store, release=f"whole-{turn}-{number}", documents=documents)
            found, wanted = (store.read_table(ref).to_pylist() for ref in (went_on, whole))
            added = [row for row in found if row["crawl"] == crawl]
            assert added == [row for row in wanted if row["crawl"] == crawl]
            if before is not None:
                assert found[: before.rows] == store.read_table(before).to_pylist()
            here, there = (Path(store.root) / ref.location for ref in (went_on, whole))
            by_id = "rows_by_id.u64"
            assert (here / by_id).read_bytes() == (there / by_id).read_bytes()
            before = went_on


def test_an_id_of_two_contents_is_kept_once(store: Store) -> None:
    rows = pooled(
        store, {"one": ingested(store, "one", [("a", "x")]), "two": ingested(store, "two", [("a", "other")])}
    )
    assert rows["one", "a"]["eligible"]
    assert rows["two", "a"]["exclusion"] == "duplicate_id"


def test_a_content_is_not_lost_with_a_document_that_repeats_an_id(store: Store) -> None:
    one = ingested(store, "one", [("x", "text one"), ("q", "other")])
    two = ingested(store, "two", [("x", "shared"), ("y", "shared"), ("z", "third")])
    documents = {"one": one, "two": two}
    rows = pooled(store, documents)
    assert rows["two", "y"]["eligible"]
    assert (rows["two", "x"]["exclusion"], rows["two", "x"]["representative_id"]) == (
        "duplicate_content",
        "y",
    )
    # A release that goes on from one in which nobody could stand for the content.
    before = {"one": one, "half": ingested(store, "half", [("x", "shared"), ("z", "third")])}
    held = pool_of(store, before, "before")
    three = ingested(store, "three", [("x", "shared"), ("y", "shared"), ("v", "shared")])
    config = pool.PoolConfig(validation_share=0.0)
    ref = pool.run(config, store=store, release="after", documents=before | {"three": three}, held=held)
    found = {(row["crawl"], row["id"]): row for row in store.read_table(ref).to_pylist()}
    told = [(found["three", name]["exclusion"], found["three", name]["representative_id"]) for name in "xyv"]
    assert told == [("duplicate_content", "y"), (None, "y"), ("duplicate_content", "y")]
    four = ingested(store, "four", [("w", "shared")])
    documents = before | {"three": three, "four": four}
    again = pool.run(config, store=store, release="last", documents=documents, held=ref)
    last = store.read_table(again).to_pylist()[-1]
    assert (last["exclusion"], last["representative_crawl"], last["num_copies"]) == (
        "duplicate_content",
        "three",
        5,
    )


def test_near_duplicates_are_not_lost_with_a_document_that_repeats_an_id(store: Store) -> None:
    one = ingested(store, "one", [("x", "text one"), ("q", "other")])
    two = ingested(store, "two", [("x", LONG), ("y", NEAR), ("z", "third")])
    rows = pooled(store, {"one": one, "two": two}, near_duplicates={})
    assert rows["two", "y"]["eligible"]
    assert (rows["two", "x"]["exclusion"], rows["two", "x"]["representative_id"]) == ("near_duplicate", "y")


WORDS = [f"w{number}" for number in range(120)]
LONG, NEAR, FAR = " ".join(WORDS), " ".join([*WORDS[:112], *"stuvwxyz"]), " ".join(reversed(WORDS))
NEAR_ROWS = {"one": [("a", LONG), ("b", FAR), ("c", NEAR)], "two": [("d", NEAR), ("e", LONG), ("f", "short")]}


def test_a_domain_is_the_host_that_takedowns_find(store: Store) -> None:
    rows = [
        {
            "id": url,
            "text": url,
            "url": url,
            "crawl": "one",
            "shard": "0",
            "row": row,
            "content_hash": hashlib.sha256(url.encode()).hexdigest(),
        }
        for row, url in enumerate(
            ["https://me@www.dots.org./a", "https://DOTS.org:8080/b", "https://münchen.de/", "https:///c"]
        )
    ]
    builder = store.begin("ingest", "one", version="1", config={}, inputs={})
    table = pa.Table.from_pylist(rows, schema=schema.DOCUMENTS)
    documents = {"one": builder.commit([builder.write_part("0", table.to_batches(), schema.DOCUMENTS)])}
    found = [row["domain"] for row in pooled(store, documents).values()]
    assert found == ["dots.org", "dots.org", "xn--mnchen-3ya.de", ""]


def test_near_duplicates_point_at_the_first_and_are_counted(store: Store) -> None:
    documents = {crawl: ingested(store, crawl, rows) for crawl, rows in NEAR_ROWS.items()}
    rows = pooled(store, documents, near_duplicates={})
    assert {key: row["exclusion"] for key, row in rows.items()} == {
        ("one", "a"): None,
        ("one", "b"): None,
        ("one", "c"): "near_duplicate",
        ("two", "d"): "near_duplicate",
        ("two", "e"): "duplicate_content",
        ("two", "f"): None,
    }
    for key in [("one", "a"), ("one", "c"), ("two", "d"), ("two", "e")]:
        assert (rows[key]["representative_crawl"], rows[key]["representative_id"]) == ("one", "a")
        assert rows[key]["num_copies"] == 4
    current = store.current("pool", "r")
    assert current is not None
    counts = store.manifest(current)["counts"]
    assert (counts["rows_in"], counts["kept"], counts["dropped_near_duplicate"]) == (6, 3, 2)


@pytest.mark.slow
def test_near_duplicates_are_off_unless_set_and_each_setting_counts(store: Store) -> None:
    documents = {crawl: ingested(store, crawl, rows) for crawl, rows in NEAR_ROWS.items()}

    def near(**settings: object) -> int:
        rows = pooled(store, documents, **settings)
        return sum(row["exclusion"] == "near_duplicate" for row in rows.values())

    assert near() == 0
    assert near(near_duplicates={"threshold": 0.95}) == 0
    assert near(near_duplicates={"shingle_words": 100}) == 0
    assert near(near_duplicates={"shingle_words": 1, "threshold": 0.75}) == 3
    coarse = [
        near(near_duplicates={"num_permutations": number, "threshold": 0.87}) for number in range(32, 64)
    ]
    assert len(set(coarse)) == 2


def test_takedown_takes_near_duplicates_too(store: Store) -> None:
    documents = {crawl: ingested(store, crawl, rows) for crawl, rows in NEAR_ROWS.items()}
    rows = pooled(store, documents, near_duplicates={}, takedown=("d",))
    withdrawn = {name for (_, name), row in rows.items() if row["exclusion"] == "takedown"}
    assert withdrawn == {"a", "c", "d", "e"}


def test_takedown_entries_that_name_no_document_are_told_and_counted(store: Store) -> None:
    one = ingested(store, "one", [("a", "first"), ("b", "second")])
    digest = hashlib.sha256(b"second").hexdigest()
    manifest = store.manifest(
        pool_of(store, {"one": one}, takedown=("nobody", digest.upper(), "f" * 64, "nobody"))
    )
    assert manifest["counts"]["dropped_takedown"] == 1
    assert manifest["metadata"]["takedown_unmatched"] == ["f" * 64, "nobody"]
    (line,) = pool.told(manifest)
    assert line == (f"warning: 2 of 3 entries of pool.takedown name no document of r, e.g. {'f' * 64!r}")
    manifest = store.manifest(pool_of(store, {"one": one}, "s", takedown=("a",)))
    assert manifest["metadata"]["takedown_unmatched"] == []
    assert not list(pool.told(manifest))


def test_takedown_by_id_takes_every_copy(store: Store) -> None:
    one = ingested(store, "one", [("a", "x"), ("b", "same")])
    two = ingested(store, "two", [("e", "same"), ("f", "z")])
    rows = pooled(store, {"one": one, "two": two}, takedown=("e",))
    assert [rows[key]["exclusion"] for key in [("one", "b"), ("two", "e"), ("one", "a")]] == [
        "takedown",
        "takedown",
        None,
    ]


def test_validation_depends_on_content_alone(store: Store) -> None:
    texts = [(f"d{i}", f"text {i}") for i in range(400)]
    one = ingested(store, "one", texts)
    two = ingested(store, "two", [(f"e{i}", f"text {i}") for i in range(400, 500)])
    rows = pooled(store, {"one": one, "two": two}, validation_share=0.1)
    held = {row["content_hash"] for row in rows.values() if row["validation"]}
    assert 25 <= len(held) <= 75
    again = pooled(store, {"two": two, "one": one}, validation_share=0.1)
    assert held == {row["content_hash"] for row in again.values() if row["validation"]}
    assert not any(row["eligible"] and row["validation"] for row in rows.values())


def test_rows_balance_and_keep_their_order(store: Store) -> None:
    one = ingested(store, "one", [("a", "x"), ("b", "x"), ("c", "w"), ("d", "v"), ("e", "u")])
    ref = pool.run(pool.PoolConfig(validation_share=0.0), store=store, release="r", documents={"one": one})
    counts = store.manifest(ref)["counts"]
    assert counts["rows_in"] == 5 == ref.rows
    assert store.read_table(ref).column("position").to_pylist() == [0, 1, 2, 3, 4]
    assert store.read_table(ref).column("domain").to_pylist() == ["one.org"] * 5


def test_a_release_without_crawls_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="no crawls"):
        pool.run(pool.PoolConfig(), store=store, release="r", documents={})


def test_the_audit_names_a_near_duplicates_representative(store: Store) -> None:
    documents = {crawl: ingested(store, crawl, rows) for crawl, rows in NEAR_ROWS.items()}
    pooled(store, documents, near_duplicates={})
    told = "\n".join(story_lines(document_story(store, "d")))
    assert "one of 4 copies and near-duplicates; represented by a of one" in told
    assert "not eligible: near_duplicate" in told


@pytest.mark.parametrize(
    ("documents", "settings", "held_out"),
    [
        (300, {"validation_share": 0.02}, 30),  # by its share alone it would be about 6
        (100, {"validation_share": 0.02}, 20),  # a fifth at most
        (4, {"validation_share": 0.02}, 0),
        (300, {"validation_share": 0.02, "validation_documents": 50}, 50),
        (300, {"validation_share": 0.0}, 0),  # none were asked for
    ],
)
def test_a_small_pool_holds_out_enough_documents_to_validate_on(
    documents: int, settings: dict[str, float], held_out: int, store: Store
) -> None:
    rows = [(str(number), f"text {number % documents}") for number in range(2 * documents)]
    found = pooled(store, {"one": ingested(store, "one", rows)}, **settings)
    assert sum(bool(row["validation"]) for row in found.values()) == held_out


@pytest.mark.sampled(1)
@pytest.mark.parametrize("settings", [{}, {"takedown": ["id:two 7"]}, {"near_duplicates": {}}])
def test_what_an_earlier_release_held_out_stays_held_out(settings: dict[str, object], store: Store) -> None:
    """Whether its judgements are carried over or, for a takedown or near-duplicates, every crawl is judged again."""
    words = [f"alpha{number} beta{number * 7} gamma{number * 11} delta{number}" for number in range(450)]
    documents = {
        crawl: ingested(store, crawl, [(f"{crawl} {number}", words[number]) for number in numbers])
        for crawl, numbers in (("one", range(200)), ("two", range(200, 350)), ("three", range(350, 450)))
    }
    config = pool.PoolConfig(**{"validation_share": 0.02, "validation_documents": 20} | settings)
    held, before = None, set[str]()
    for number, release in enumerate(("first", "second", "third"), start=1):
        crawls = dict(list(documents.items())[:number])
        asked = {}
        if not takedown.is_off(config):
            asked["takedown"] = takedown.run(config, store=store, release=release, documents=crawls)
        held = pool.run(config, store=store, release=release, documents=crawls, held=held, **asked)
        rows = store.read_table(held).to_pylist()
        held_out = {row["id"] for row in rows if row["validation"]}
        assert {
            one for one in held_out if any(one.startswith(f"{crawl} ") for crawl in list(crawls)[:-1])
        } == before
        assert len(held_out) > len(before)
        before = held_out


def test_a_large_pools_share_is_not_changed_by_the_fewest(store: Store) -> None:
    one = ingested(store, "one", [(str(number), f"text {number}") for number in range(2_000)])
    held_out = [
        {
            key
            for key, row in pooled(
                store, {"one": one}, validation_share=0.1, validation_documents=fewest
            ).items()
            if row["validation"]
        }
        for fewest in (0, 30)
    ]
    assert held_out[0] == held_out[1]
    assert 150 < len(held_out[0]) < 250


def test_a_release_without_an_eligible_document_is_refused_with_the_counts(tmp_path: Path) -> None:
    settings = {"ingest.min_chars": 100_000}
    pipeline = Pipeline(load_config(str(write_tiny_config(tmp_path)), settings))
    for crawl in pipeline.release_crawls("first"):
        pipeline.run("ingest", crawl)
    with pytest.raises(
        ConfigurationError,
        match=r"no document of release 'first' is eligible: \d+ too_short.*; e\.g\. crawl \S+, file \S+, row 0: "
        r"too_short, field text.*; lower ingest\.min_chars",
    ):
        pipeline.run("pool", "first")

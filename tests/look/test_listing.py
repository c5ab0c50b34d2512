"""Listings hold exactly the documents asked for, page by page, and neighbours are the nearest chosen ones."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamask_pipeline import duck
from datamask_pipeline.errors import ConfigurationError, UnknownDocumentError, UnknownNameError
from datamask_pipeline.look import listing
from datamask_pipeline.look.document import document_page, find_document
from datamask_pipeline.look.listing import PAGE_ROWS, Listing, Query
from datamask_pipeline.look.neighbours import nearest_chosen
from datamask_pipeline.look.selected import selected
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store, array_files, require

ARM = {"release": "first", "arm": "datamask"}


@pytest.fixture
def store(hostile) -> Store:
    return hostile.store


def all_rows(store: Store, scratch: Path, **asked: Any) -> list[dict[str, Any]]:
    """Every page of a listing, one after another."""
    rows: list[dict[str, Any]] = []
    after = None
    with duck.connect(store, scratch) as connection:
        while True:
            page = Listing(store, Query(**asked, after=after)).page(connection)
            assert len(page.rows) <= PAGE_ROWS
            rows += page.rows
            if page.after is None:
                return rows
            after = page.after


def record(store: Store, stage: str, key: str) -> list[dict[str, Any]]:
    return store.read_table(require(store, stage, key)).to_pylist()


def documents(store: Store) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (row["crawl"], row["id"]): row
        for crawl in store.keys("ingest")
        for row in record(store, "ingest", crawl)
    }


def names(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["crawl"], row["id"]) for row in rows]


def test_kept_and_dropped_are_the_mask_in_its_order(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(listing, "_FIRST_STRETCH", 7)
    mask = record(store, "select", "first/datamask")
    for view, wanted in (("all", mask), ("kept", None), ("dropped", None)):
        wanted = wanted or [row for row in mask if row["selected"] == (view == "kept")]
        found = all_rows(store, tmp_path, **ARM, view=view)
        assert names(found) == names(wanted)
        texts = documents(store)
        assert [row["text"] for row in found] == [texts[name]["text"] for name in names(wanted)]


def test_borderline_documents_stand_by_their_distance(store: Store, tmp_path: Path) -> None:
    mask = record(store, "select", "first/datamask")
    distance = {
        (row["crawl"], row["id"]): abs(row["quality_marginal"] + row["diversity_marginal"] - row["threshold"])
        for row in mask
    }
    found = all_rows(store, tmp_path, **ARM, view="borderline")
    assert len(found) == len(mask)
    assert [row["distance"] for row in found] == sorted(distance.values())
    assert all(row["distance"] == distance[row["crawl"], row["id"]] for row in found)
    assert all_rows(store, tmp_path, release="first", arm="random", view="borderline") == []


@pytest.mark.slow
def test_a_cut_is_a_quality_where_qualities_were_compared_and_that_of_the_group(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    quotas = {"tiny-2024-10": 0.2, "*": 0.8}
    hosts = {"quota_by": "domain", "quotas": {"site0.example": 0.1, "*": 0.9}}
    arms: dict[str, dict[str, Any]] = {
        "top": {"policy": "quality_topk"},
        "blocks": {"policy": "quality_topk", "block_rows": 30},
        "crawls": {"policy": "quality_topk", "quotas": quotas},
        "hosts": {"policy": "datamask", **hosts},
    }
    settings = {"store": str(tmp_path / "record")} | {f"arms.{name}": own for name, own in arms.items()}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    store = pipeline.store
    of_host = {row["position"]: row["domain"] for row in record(store, "pool", "first")}
    assert "site0.example" in of_host.values()
    for arm in arms:
        pipeline.run("select", "first", arm)
        mask = record(store, "select", f"first/{arm}")
        group = {row["position"]: (row["threshold"], row["crawl"] in quotas) for row in mask}
        if arm == "hosts":
            group = {row["position"]: of_host[row["position"]] in hosts["quotas"] for row in mask}
        elif arm in ("top", "blocks"):
            group = {row["position"]: row["threshold"] for row in mask}

        def compared(row: dict[str, Any], arm: str = arm) -> float:
            return row["quality_marginal"] + row["diversity_marginal"] if arm == "hosts" else row["quality"]

        wanted = {}
        for one in set(group.values()):
            mine = [row for row in mask if group[row["position"]] == one]
            cut = sorted(map(compared, mine), reverse=True)[sum(row["selected"] for row in mine) - 1]
            wanted |= {row["position"]: abs(compared(row) - cut) for row in mine}
        found = all_rows(store, tmp_path / arm, release="first", arm=arm, view="borderline")
        assert [row["distance"] for row in found] == pytest.approx(sorted(wanted.values()), abs=1e-12)
        assert {row["position"]: row["distance"] for row in found} == pytest.approx(wanted, abs=1e-12)
        with duck.connect(store, tmp_path / arm) as connection:
            place = find_document(store, found[0]["id"], connection)[0]
            page = document_page(store, selected(store, "first", arm), *place, connection)
            decision = page.arms[arm]
            assert decision is not None
            assert abs(compared(decision) - decision["cut"]) == found[0]["distance"]


def test_copies_are_those_of_content_and_of_embedding(store: Store, tmp_path: Path) -> None:
    near = {
        row["position"]
        for row in record(store, "copies", "first")
        if row["near_copy_of"] or row["num_near_copies"] > 1
    }
    pool = record(store, "pool", "first")
    wanted = [row for row in pool if row["num_copies"] > 1 or row["position"] in near]
    assert near
    assert 0 < len(wanted) < len(pool)
    assert names(all_rows(store, tmp_path, **ARM, stage="pool", view="copies")) == names(wanted)
    judged = {row["position"] for row in record(store, "select", "first/datamask")}
    found = all_rows(store, tmp_path, **ARM, view="copies")
    assert names(found) == names([row for row in wanted if row["position"] in judged])


def test_a_sample_is_the_seeds_and_holds_each_document_once(store: Store, tmp_path: Path) -> None:
    plain = names(all_rows(store, tmp_path, **ARM))
    one, again, two = (names(all_rows(store, tmp_path, **ARM, seed=seed)) for seed in (1, 1, 2))
    assert one == again != two
    assert sorted(one) == sorted(two) == sorted(plain)
    assert one != plain


def test_filters_let_through_what_they_say(store: Store, tmp_path: Path) -> None:
    of = documents(store)
    texts = {name: row["text"].lower() for name, row in of.items()}
    mask = record(store, "select", "first/datamask")
    pool = {(row["crawl"], row["id"]): row for row in record(store, "pool", "first")}
    foreign = next(row["language"] for row in of.values() if row["language"] != "en")
    for asked, passes in (
        ({"crawl": "tiny-2024-18"}, lambda row: row["crawl"] == "tiny-2024-18"),
        ({"domain": "Site1.example"}, lambda row: pool[row["crawl"], row["id"]]["domain"] == "site1.example"),
        ({"domain": "example"}, lambda row: pool[row["crawl"], row["id"]]["domain"].endswith(".example")),
        ({"language": foreign}, lambda row: of[row["crawl"], row["id"]]["language"] == foreign),
        ({"reason": "above threshold"}, lambda row: row["reason"] == "above threshold"),
        ({"text": "VIOLIN"}, lambda row: "violin" in texts[row["crawl"], row["id"]]),
        (
            {"text": "violin", "view": "kept", "crawl": "tiny-2024-10"},
            lambda row: (
                row["selected"]
                and row["crawl"] == "tiny-2024-10"
                and "violin" in of[row["crawl"], row["id"]]["text"]
            ),
        ),
    ):
        wanted = [row for row in mask if passes(row)]
        assert names(all_rows(store, tmp_path, **ARM, **asked)) == names(wanted), asked
        assert 0 < len(wanted) < len(mask), f"shows something: {asked}"


def test_a_search_that_takes_long_ends_and_goes_on(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    whole = all_rows(store, tmp_path, **ARM, text="the")
    monkeypatch.setattr(listing, "SEARCH_SECONDS", -1.0)
    with duck.connect(store, tmp_path) as connection:
        first = Listing(store, Query(**ARM, text="nowhere to be found")).page(connection)
    assert (first.rows, first.searched) == ([], (0, first.after[1]))
    assert first.after[1] < sum(len(record(store, "ingest", crawl)) for crawl in store.keys("ingest")) - 1
    assert names(all_rows(store, tmp_path, **ARM, text="the")) == names(whole)


def test_crawls_and_rejected_rows_can_be_looked_at(store: Store, tmp_path: Path) -> None:
    assert names(all_rows(store, tmp_path, stage="crawl")) == list(documents(store))
    of_host = [row for row in record(store, "pool", "first") if row["domain"] == "site3.example"]
    assert names(all_rows(store, tmp_path, stage="crawl", domain="Site3.example")) == names(of_host)
    assert of_host
    rejected = [row for crawl in store.keys("rejected") for row in record(store, "rejected", crawl)]
    assert names(all_rows(store, tmp_path, stage="rejected")) == names(rejected)
    nul = all_rows(store, tmp_path, stage="rejected", reason="nul_byte", text="CHARACTER")
    assert names(nul) == names([row for row in rejected if row["reason"] == "nul_byte"])
    assert nul


def test_neighbours_are_the_nearest_chosen_documents(store: Store, tmp_path: Path) -> None:
    about = selected(store, "first", "datamask")
    vectors_ND = np.concatenate(
        [np.load(path) for ref in about.embeddings.values() for path in array_files(store, ref).values()]
    ).astype(np.float32)
    chosen = [row["position"] for row in record(store, "select", "first/datamask") if row["selected"]]
    with duck.connect(store, tmp_path) as connection:
        for position in (0, chosen[3], len(vectors_ND) - 1):
            near = nearest_chosen(about, connection, position)
            cosines = {
                place: float(vectors_ND[place] @ vectors_ND[position])
                for place in chosen
                if place != position
            }
            wanted = sorted(cosines, key=lambda place: (-cosines[place], place))[:5]
            assert [place for _, place in near.nearest] == wanted
            assert near.compared == len(cosines)
        few = nearest_chosen(about, connection, 0, most_compared=4)
        assert few == nearest_chosen(about, connection, 0, most_compared=4)
        assert (few.compared, few.chosen) == (4, len(chosen))


def test_a_document_is_shown_with_all_that_the_record_says(store: Store, tmp_path: Path) -> None:
    about = selected(store, "first", "datamask")
    with duck.connect(store, tmp_path) as connection:
        for crawl in about.documents:
            for row, source in list(enumerate(record(store, "ingest", crawl)))[::17]:
                found = document_page(store, about, crawl, row, connection)
                assert found.text == source["text"]
                assert found.columns == {name: value for name, value in source.items() if name != "text"}
                assert found.pool["id"] == source["id"]
                assert [score["score"] for score in found.scores] == [
                    score["score"] for score in record(store, "score", crawl) if score["id"] == source["id"]
                ]
                for arm, decision in found.arms.items():
                    mask = {
                        (each["crawl"], each["id"]): each for each in record(store, "select", f"first/{arm}")
                    }
                    wanted = mask.get((crawl, source["id"]))
                    assert (decision and decision["selected"]) == (wanted and wanted["selected"])
        alone = document_page(store, None, "tiny-2024-10", 3, connection)
        assert (alone.pool, alone.arms) == (None, {})
        assert find_document(store, alone.columns["id"], connection) == [("tiny-2024-10", 3)]
        assert ("tiny-2024-10", 3) in find_document(store, alone.columns["content_hash"], connection)
        with pytest.raises(UnknownDocumentError, match="no row 99999"):
            document_page(store, about, "tiny-2024-10", 99_999, connection)


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"stage": "models"}, UnknownNameError, "unknown stage 'models'"),
        ({**ARM, "view": "keep"}, UnknownNameError, "did you mean 'kept'"),
        ({"stage": "crawl", "view": "kept"}, UnknownNameError, "choose one of: all"),
        ({**ARM, "crawl": "none"}, UnknownNameError, "unknown crawl 'none'"),
        ({"release": "none"}, UnknownNameError, "unknown release 'none'"),
        ({**ARM, "view": "borderline", "seed": 1}, ConfigurationError, "leave out the seed"),
        ({**ARM, "text": "a", "seed": 1}, ConfigurationError, "in the record's order"),
    ],
)
def test_what_does_not_go_together_is_refused(
    store: Store, asked: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        Listing(store, Query(**asked))

"""The embedded default: real texts, the same every time, with copies across crawls."""

import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources import Source
from datamask_pipeline.sources.harvest import distributions
from datamask_pipeline.sources.harvest.language import count_pieces, english_score


def rows(source: Source) -> list[dict[str, object]]:
    return [
        entry
        for crawl in source.crawls()
        for shard in source.shards(crawl)
        for batch in source.read(crawl, shard, batch_rows=100)
        for entry in batch.documents.to_pylist()
    ]


#: Small ones, two of which both crawls visit.
NAMES = ["packaging", "anyio", "filelock", "Mako", "structlog"]
FEW = {"distributions": NAMES, "documents_per_distribution": 20}


@pytest.fixture(scope="module")
def few() -> list[dict[str, object]]:
    return rows(SOURCES.make("installed", FEW))


def test_it_gives_fineweb_rows_of_english_text(few: list[dict[str, object]]) -> None:
    assert len(few) > 60
    assert list(few[0]) == [*FINEWEB.names, "kind"]
    assert {entry["kind"] for entry in few} == {"page", "docstring", "description"}
    assert len({entry["id"] for entry in few}) == len(few)
    assert all(str(entry["id"]).startswith("<urn:uuid:") for entry in few)
    assert all(300 <= len(str(entry["text"])) <= 20_000 for entry in few)
    assert sum(entry["language"] == "en" for entry in few) > 0.8 * len(few)


def test_the_crawls_share_documents(few: list[dict[str, object]]) -> None:
    texts = [{entry["text"] for entry in few if entry["dump"] == dump} for dump in ("PYDOCS-A", "PYDOCS-B")]
    assert len(texts[0] & texts[1]) >= 4


def test_the_harvest_is_the_same_every_time(few: list[dict[str, object]]) -> None:
    source = SOURCES.make("installed", FEW)
    again = SOURCES.make("installed", FEW)
    assert rows(again) == few
    assert again.shards("PYDOCS-A") == source.shards("PYDOCS-A")


@pytest.mark.slow
def test_every_setting_changes_the_harvest(few: list[dict[str, object]]) -> None:
    def texts(**options: object) -> list[object]:
        return [entry["text"] for entry in rows(SOURCES.make("installed", FEW | options))]

    assert len(texts(documents_per_distribution=9)) < len(few)
    assert min(len(str(text)) for text in texts(min_chars=900)) >= 900
    assert max(len(str(text)) for text in texts(max_chars=800)) <= 800
    assert texts(documents_per_file=1) != [entry["text"] for entry in few]
    assert len(texts(distributions=NAMES[:3])) < len(few)
    assert SOURCES.make("installed", {"num_crawls": 3}).crawls() == ["PYDOCS-A", "PYDOCS-B", "PYDOCS-C"]
    assert len(SOURCES.make("installed", {"num_shards": 3}).shards("PYDOCS-A")) == 3


def test_an_unknown_crawl_is_refused() -> None:
    with pytest.raises(InputError, match="none of the distributions"):
        SOURCES.make("installed", {"distributions": ["no-such-distribution"]})
    with pytest.raises(InputError, match="PYDOCS-A, PYDOCS-B"):
        SOURCES.make("installed").shards("CC-MAIN-2024-10")


def test_some_distributions_are_visited_twice() -> None:
    for names in (NAMES, distributions.LISTED):
        assert {len(distributions.crawls_of(name, 2)) for name in names} == {1, 2}


def test_english_is_told_from_code_and_counted() -> None:
    assert english_score("The cat is on the mat, and it will not be moved by any of the dogs.") == 1.0
    assert english_score("def f(x): return lambda y: x + y") == 0.0
    assert english_score("") == 0.0
    assert count_pieces("Hello, wide world!") == 5

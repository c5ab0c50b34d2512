"""Texts by what the pool decided: against whole tables, sampled, and refused where documents are others."""

import pytest

from datamask_pipeline import texts
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref, require

RELEASE = "first"


def inputs(pipeline: Pipeline) -> tuple[Ref, dict[str, Ref]]:
    crawls = pipeline.release_crawls(RELEASE)
    return require(pipeline.store, "pool", RELEASE), {
        crawl: require(pipeline.store, "ingest", crawl) for crawl in crawls
    }


@pytest.mark.parametrize("flag", ["eligible", "validation"])
@pytest.mark.parametrize("limit", [None, 1, 7, 10_000])
def test_they_are_those_of_the_tables(tiny_run: Pipeline, flag: str, limit: int | None) -> None:
    store, (candidates, documents) = tiny_run.store, inputs(tiny_run)
    text_of = {
        (row["crawl"], row["id"]): row["text"]
        for ref in documents.values()
        for row in store.read_table(ref).to_pylist()
    }
    rows = [row for row in store.read_table(candidates).to_pylist() if row[flag]]
    rows = sorted(sorted(rows, key=lambda row: row["content_hash"])[:limit], key=lambda row: row["position"])
    found = list(texts.pool_documents(store, candidates, documents, flag, limit=limit))
    assert found == [(row["id"], text_of[row["crawl"], row["id"]]) for row in rows]
    assert found


def test_documents_that_are_others_are_refused(tiny_run: Pipeline) -> None:
    candidates, documents = inputs(tiny_run)
    swapped = dict(zip(documents, reversed(documents.values()), strict=True))
    assert swapped != documents
    with pytest.raises(IntegrityError, match=r"do not stand in their places .* run stage 'pool'"):
        list(texts.pool_documents(tiny_run.store, candidates, swapped, "eligible"))

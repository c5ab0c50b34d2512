"""The release's index says where each eligible document's vector lies and what each scorer gave it, by position."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline import schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages import gather, pool
from datamask_pipeline.storage import Ref, Store, open_array

SCORERS = {"one": ("rules", "column:edu"), "two": ("rules",)}
#: (id, text) of each document by shard; "same" stands in both crawls, and once more in the first.
SHARDS = {
    "one": {"a": [("a0", "x"), ("a1", "same"), ("a2", "same")], "b": [], "c": [("c0", "y"), ("c1", "z")]},
    "two": {"a": [("a0", "same"), ("t1", "w")]},
}


class Record:
    """Two crawls as ingestion, embedding and scoring leave them; the vector of a document says who it is."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.documents = {crawl: self.ingested(crawl) for crawl in SHARDS}
        self.embeddings = {crawl: self.embedded(crawl) for crawl in SHARDS}
        self.scores = {crawl: self.scored(crawl) for crawl in SHARDS}
        config = pool.PoolConfig(validation_share=0.0)
        self.candidates = pool.run(config, store=store, release="r", documents=self.documents)

    def ingested(self, crawl: str) -> Ref:
        tables = {}
        for shard, rows in SHARDS[crawl].items():
            values = [
                {
                    "id": name,
                    "text": text,
                    "url": f"https://{crawl}.org/{name}",
                    "token_count": None if name == "c1" else len(text),
                    "crawl": crawl,
                    "shard": shard,
                    "row": 10 + row,  # of the raw file, where rows were rejected before
                    "content_hash": hashlib.sha256(text.encode()).hexdigest(),
                }
                for row, (name, text) in enumerate(rows)
            ]
            tables[shard] = pa.Table.from_pylist(values, schema=schema.DOCUMENTS)
        return self.write("ingest", crawl, tables)

    def embedded(self, crawl: str, *, moved: bool = False) -> Ref:
        builder = self.store.begin("embed", crawl, version=f"{moved}", config={}, inputs={})
        parts = []
        for shard in SHARDS[crawl]:
            keys = self.table("ingest", crawl, shard).select(schema.EMBEDDINGS.names)
            if moved:
                keys = keys.take(np.arange(keys.num_rows)[::-1])
            vectors = np.zeros((keys.num_rows, 4), np.float16)
            vectors[:, 0] = [number_of(crawl, name) for name in keys.column("id").to_pylist()]
            array = builder.write_array(shard, [vectors], dtype="float16", shape=vectors.shape)
            parts.append(builder.write_part(shard, [keys], keys.schema, array=array))
        return builder.commit(parts)

    def scored(self, crawl: str, *, lost: int = 0) -> Ref:
        tables = {}
        for shard in SHARDS[crawl]:
            rows = [
                {
                    "id": name,
                    "scorer": scorer,
                    "score": None
                    if name == "c0" and scorer == "column:edu"
                    else number_of(crawl, name) + order / 8,
                    "reason": "no number" if name == "c0" and scorer == "column:edu" else None,
                }
                for name in self.table("ingest", crawl, shard).column("id").to_pylist()
                for order, scorer in enumerate(SCORERS[crawl])
            ]
            tables[shard] = pa.Table.from_pylist(rows[lost:], schema=schema.SCORES)
        return self.write("score", crawl, tables, version=f"{lost}")

    def table(self, stage: str, crawl: str, shard: str) -> pa.Table:
        ref = self.store.current(stage, crawl)
        assert ref is not None
        with self.store.part_file(ref, shard) as part:
            return part.read()

    def write(self, stage: str, key: str, tables: dict[str, pa.Table], version: str = "1") -> Ref:
        builder = self.store.begin(stage, key, version=version, config={}, inputs={})
        parts = [builder.write_part(name, [table], table.schema) for name, table in tables.items()]
        return builder.commit(parts)

    def gathered(self) -> Ref:
        return gather.run(
            gather.GatherConfig(),
            store=self.store,
            release="r",
            candidates=self.candidates,
            embeddings=self.embeddings,
            scores=self.scores,
        )


def number_of(crawl: str, name: str) -> float:
    """A number that no other document has."""
    names = [
        f"{each}/{row[0]}" for each, shards in SHARDS.items() for rows in shards.values() for row in rows
    ]
    return 1.0 + names.index(f"{crawl}/{name}")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(Store(tmp_path))


def test_every_eligible_document_leads_to_its_own_vector_and_scores(record: Record) -> None:
    store, ref = record.store, record.gathered()
    rows = store.read_table(ref).to_pylist()
    assert [(row["crawl"], row["id"]) for row in rows] == [
        ("one", "a0"),
        ("one", "a1"),
        ("one", "c0"),
        ("one", "c1"),
        ("two", "t1"),
    ]
    assert [row["position"] for row in rows] == [0, 1, 3, 4, 6]
    for row in rows:
        number = number_of(row["crawl"], row["id"])
        assert open_array(store, record.embeddings[row["crawl"]], row["shard"])[row["row"], 0] == number
        assert row["score_rules"] == number
        assert row["domain"] == f"{row['crawl']}.org"
        is_edu = row["crawl"] == "one" and row["id"] != "c0"
        assert row["score_column:edu"] == (number + 1 / 8 if is_edu else None)
        assert (row["token_count"] is None) == (row["id"] == "c1")
    counts = store.manifest(ref)["counts"]
    assert counts == {"rows_in": 7, "kept": 5, "dropped_not_eligible": 2}
    assert store.part_names(ref) == ["00000", "00001"], "one part a crawl"


def test_columns_are_the_records_and_one_a_scorer(record: Record) -> None:
    columns = record.store.read_table(record.gathered()).schema
    scores = [("score_column:edu", pa.float64()), ("score_rules", pa.float64())]
    assert columns.equals(pa.schema([*schema.RELEASE_INDEX, *(pa.field(*score) for score in scores)]))
    assert gather.index_scores(record.store, record.gathered()).names == [name for name, _ in scores]


def test_it_is_written_once(record: Record) -> None:
    first = record.gathered()
    assert record.gathered() == first
    files = [path for path in Path(record.store.root, "gather").rglob("*") if path.suffix == ".npy"]
    assert files == [], "no vector is copied"


def test_vectors_that_are_not_the_documents_are_refused(record: Record) -> None:
    record.embeddings["one"] = record.embedded("one", moved=True)
    with pytest.raises(
        IntegrityError, match=r"4 documents of crawl 'one' have no embedding .*first 'a0'.*'embed'"
    ):
        record.gathered()


def test_scores_that_are_not_the_documents_are_refused(record: Record) -> None:
    record.scores["one"] = record.scored("one", lost=1)
    with pytest.raises(
        IntegrityError, match=r"documents of crawl 'one' have no row of scores .*first 'a0'.*'score'"
    ):
        record.gathered()

"""Selection over the record: blocks share one budget, missing scores leave with a reason, nothing is lost."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datamask_pipeline import schema
from datamask_pipeline.audit.recompute import check_selection
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError, UnknownNameError
from datamask_pipeline.selection.inputs import budget_of
from datamask_pipeline.selection.moments.relaxed import RelaxedObjective
from datamask_pipeline.stages import gather, select
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.document_rows import CheckedTables
from datamask_pipeline.storage.row_index import INDEX_FILES, write_index

NUM_DOCUMENTS = 120
CRAWL = "one"


class Inputs:
    """Candidates, embeddings and scores of one crawl, as the stages before write them."""

    def __init__(
        self,
        store: Store,
        *,
        unscored: int = 0,
        uncounted: int = 0,
        near: dict[int, tuple[int, float]] | None = None,
    ) -> None:
        generator = np.random.default_rng(0)
        self.store = store
        names = [f"d{number:03d}" for number in range(NUM_DOCUMENTS)]
        vectors = generator.normal(size=(NUM_DOCUMENTS, schema.EMBEDDING_DIM))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for row, (other, cosine) in (near or {}).items():
            noise = vectors[row] - vectors[row] @ vectors[other] * vectors[other]
            vectors[row] = cosine * vectors[other] + (1 - cosine**2) ** 0.5 * noise / np.linalg.norm(noise)
        table = pa.table({"id": names, "content_hash": names}, schema=schema.EMBEDDINGS)
        self.embeddings = {CRAWL: self.write("embed", CRAWL, table, vectors=vectors.astype(np.float16))}
        scores = [None if number < unscored else float(generator.random()) for number in range(NUM_DOCUMENTS)]
        rows = [
            {"id": name, "scorer": "rules", "score": score, "scale_min": 0.0, "scale_max": 1.0}
            for name, score in zip(names, scores, strict=True)
        ]
        self.scores = {CRAWL: self.write("score", CRAWL, pa.Table.from_pylist(rows, schema=schema.SCORES))}
        candidates = [
            {
                "position": number,
                "crawl": CRAWL,
                "shard": "00000",
                "id": name,
                "content_hash": name,
                "domain": f"site{number % 4}.example",
                "token_count": 10 + number if number >= uncounted else None if number else 0,
                "eligible": True,
            }
            for number, name in enumerate(names)
        ]
        table = pa.Table.from_pylist(candidates, schema=schema.CANDIDATES)
        self.candidates = candidates = self.write(
            "pool", "r", table, {"rows_in": NUM_DOCUMENTS, "kept": NUM_DOCUMENTS}
        )
        self.index = gather.run(
            gather.GatherConfig(),
            store=store,
            release="r",
            candidates=candidates,
            embeddings=self.embeddings,
            scores=self.scores,
        )

    def write(
        self,
        stage: str,
        key: str,
        table: pa.Table,
        counts: dict[str, int] | None = None,
        vectors: np.ndarray | None = None,
    ) -> Ref:
        builder = self.store.begin(stage, key, version="1", config={}, inputs={})
        array = None
        if vectors is not None:
            array = builder.write_array("00000", [vectors], dtype=schema.EMBEDDING_DTYPE, shape=vectors.shape)
        part = builder.write_part("00000", table.to_batches(), table.schema, array=array)
        return builder.commit([part], counts=counts)

    def select(self, **settings: object) -> tuple[Ref, list[dict[str, object]]]:
        few = {"num_kicks": 0} if settings.get("policy", "datamask") == "datamask" else {}
        ref, _ = select.run(
            select.SelectConfig.of(few | settings),
            store=self.store,
            release="r",
            arm="a",
            index=self.index,
            embeddings=self.embeddings,
        )
        return ref, self.store.read_table(ref).to_pylist()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block_rows", [1_000, 50])
@pytest.mark.parametrize("policy", ["random", "quality_topk", "datamask"])
def test_the_budget_is_exact_however_many_blocks(tmp_path: Path, policy: str, block_rows: int) -> None:
    _, rows = Inputs(Store(tmp_path)).select(policy=policy, num_documents=31, block_rows=block_rows)
    assert sum(row["selected"] for row in rows) == 31
    assert [row["id"] for row in rows] == [f"d{number:03d}" for number in range(NUM_DOCUMENTS)]
    assert [row["position"] for row in rows] == list(range(NUM_DOCUMENTS))
    num_blocks = 1 if block_rows == 1_000 else 3
    thresholds = {row["threshold"] for row in rows}
    assert thresholds == {None} if policy == "random" else len(thresholds) == num_blocks
    assert all(row["reason"] for row in rows)


@given(
    num_rows=st.integers(100, 5_000),
    ratio=st.floats(0.2, 1.0),
    num_blocks=st.integers(1, 7),
    seed=st.integers(0, 9),
)
@settings(max_examples=300, deadline=None)
@example(num_rows=519, ratio=0.1, num_blocks=3, seed=0)
def test_blocks_share_what_one_block_would_select(
    num_rows: int, ratio: float, num_blocks: int, seed: int
) -> None:
    block_rows = -(-num_rows // num_blocks)
    config = select.SelectConfig(ratio=ratio, block_rows=block_rows, seed=seed)
    blocks = select.blocks_of(num_rows, config)
    budgets = [
        budget_of(budgeted, len(block), None, None).limits[0]
        for block, budgeted in zip(
            blocks, select.budgets_of(config, blocks, None, np.ones(num_rows)), strict=True
        )
    ]
    assert sum(budgets) == budget_of(config, num_rows, None, None).limits[0]
    for block, budget in zip(blocks, budgets, strict=True):
        assert abs(budget - ratio * len(block)) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.11, 0.27])
def test_as_many_are_selected_in_blocks_as_without(tmp_path: Path, ratio: float) -> None:
    inputs = Inputs(Store(tmp_path))
    for block_rows in (1_000, 33):
        for seed in range(3):
            _, rows = inputs.select(policy="random", ratio=ratio, block_rows=block_rows, seed=seed)
            assert sum(row["selected"] for row in rows) == round(ratio * NUM_DOCUMENTS)


def test_a_block_that_would_select_one_document_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"block of 4\d documents would select 1.*`ratio`.*`block_rows`"
    ):
        Inputs(Store(tmp_path)).select(policy="random", ratio=0.025, block_rows=45)


@pytest.mark.slow
def test_a_token_budget_is_shared_by_the_blocks(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path))
    _, rows = inputs.select(policy="quality_topk", num_tokens=900, block_rows=50)
    tokens = sum(10 + int(str(row["id"])[1:]) for row in rows if row["selected"])
    assert 0 < tokens <= 900


def test_documents_without_a_score_leave_with_a_counted_reason(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path), unscored=7)
    ref, rows = inputs.select(policy="quality_topk", ratio=0.1)
    counts = inputs.store.manifest(ref)["counts"]
    assert counts["dropped_no_score"] == 7
    assert [row["position"] for row in rows] == list(range(7, NUM_DOCUMENTS))
    assert [row["id"] for row in rows] == [f"d{number:03d}" for number in range(7, NUM_DOCUMENTS)]
    assert counts["kept"] + counts["dropped_not_selected"] + 7 == NUM_DOCUMENTS


@pytest.mark.parametrize("unscored", [0, 3])
def test_documents_are_found_in_the_mask_by_their_ids(tmp_path: Path, unscored: int) -> None:
    store = Store(str(tmp_path / "record"))
    mask, _ = Inputs(store, unscored=unscored).select(policy="random", ratio=0.2)
    tables = CheckedTables(store)
    for number in range(unscored, NUM_DOCUMENTS):
        (row,) = tables.rows(mask.location, f"d{number:03d}")
        assert row["position"] == number
    assert not any([*tables.rows(mask.location, f"d{number:03d}")] for number in range(unscored))
    assert not tables.scanned
    (stated,) = [file for file in store.manifest(mask)["files"] if file["name"] == INDEX_FILES["id"]]
    path = Path(store.file_path(mask, stated["name"]))
    assert stated["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    write_index(store, store.part_paths(mask), "id", tmp_path / "anew", tmp_path)
    assert path.read_bytes() == (tmp_path / "anew").read_bytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["turned round", "cut", "lost"])
def test_a_damaged_index_of_the_release_is_not_taken_for_the_mask(tmp_path: Path, damage: str) -> None:
    store = Store(str(tmp_path / "record"))
    inputs = Inputs(store)
    path = Path(store.file_path(inputs.index, INDEX_FILES["id"]))
    data = path.read_bytes()
    path.unlink()
    if damage != "lost":
        path.write_bytes(data[::-1] if damage == "turned round" else data[:-16])
    mask, _ = inputs.select(policy="random", ratio=0.2)
    (row,) = CheckedTables(store).rows(mask.location, "d001")
    assert row["position"] == 1


def test_an_index_of_other_vectors_is_refused(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path))
    table = inputs.store.read_table(inputs.embeddings[CRAWL])
    other = np.zeros((NUM_DOCUMENTS, schema.EMBEDDING_DIM), np.float16)
    other[:, 0] = 1
    inputs.embeddings = {CRAWL: inputs.write("embed", "again", table, vectors=other)}
    with pytest.raises(
        IntegrityError, match=r"release 'r' was made from other vectors of crawl 'one'.*'gather'"
    ):
        inputs.select(policy="random")


def test_a_selection_holds_no_vector_and_no_id_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors reach the engine as an index of their files, in blocks too; ids do not reach it at all."""
    from datamask_pipeline.selection import api
    from datamask_pipeline.selection.sharded import ShardedVectors

    whole, given = api.select_documents, []

    def recording(embeddings: object, quality: object, **settings: object) -> object:
        given.append(embeddings)
        assert settings.get("ids") is None
        return whole(embeddings, quality, **settings)

    monkeypatch.setattr(api, "select_documents", recording)
    Inputs(Store(tmp_path)).select(policy="quality_topk", num_documents=31, block_rows=50)
    assert [type(vectors) for vectors in given] == [ShardedVectors] * 3
    assert not list(tmp_path.rglob("*.f16")), "nothing is gathered"


@pytest.mark.slow
def test_a_budget_in_tokens_has_a_bound_from_this_version_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proved of a mask that an earlier version left without, and missed in one of this."""
    monkeypatch.setattr(RelaxedObjective, "_bound_in_tokens", lambda *_: None)
    inputs, problems = Inputs(Store(tmp_path)), []
    for version in ("33", select.VERSION):
        monkeypatch.setattr(select, "VERSION", version)
        ref, _ = select.run(
            select.SelectConfig.of({"num_tokens": 900, "num_restarts": 0, "num_kicks": 0}),
            store=inputs.store,
            release="r",
            arm="a",
            index=inputs.index,
            embeddings=inputs.embeddings,
        )
        manifest = inputs.store.manifest(ref)
        assert manifest["basis"]["version"] == version
        assert manifest["metadata"]["blocks"][0]["certificate"]["bound"] is None
        found = check_selection(inputs.store, ref, manifest, inputs.index, inputs.embeddings)
        problems.append([each.problem for each in found])
    assert problems == [[], ["no bound is stated where its metrics, policy and budget give one"]]


def test_a_mixture_with_coverage_has_a_bound_from_this_version_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proved of a mask that an earlier version left without, and missed in one of this."""
    monkeypatch.setattr(
        "datamask_pipeline.selection.mixture_bound.certified", lambda _, solution, __: solution
    )
    inputs, problems = Inputs(Store(tmp_path)), []
    settings = {"diversity": {"Facility": 1, "Pair_simi": 1}, "num_restarts": 0, "num_kicks": 0}
    for version in ("52", select.VERSION):
        monkeypatch.setattr(select, "VERSION", version)
        ref, _ = inputs.select(**settings)
        manifest = inputs.store.manifest(ref)
        assert manifest["basis"]["version"] == version
        found = check_selection(inputs.store, ref, manifest, inputs.index, inputs.embeddings)
        problems.append([each.problem for each in found])
    assert problems == [[], ["no bound is stated where its metrics, policy and budget give one"]]


def test_missing_token_counts_matter_to_token_budgets_alone(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path), uncounted=2)
    assert sum(row["selected"] for row in inputs.select(policy="quality_topk", num_documents=5)[1]) == 5
    told = (
        r"2 of 120 documents have no token count above 0, .*: 2 of crawl 'one' \(the first: 'd000' of crawl "
        r"'one'\).*run again"
    )
    with pytest.raises(InputError, match=told):
        inputs.select(policy="quality_topk", num_tokens=900)


def test_what_the_engine_refuses_of_a_row_names_the_document(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"num_tokens 20 is too small: .*'d119' of crawl 'one'.*raise num_tokens"
    ):
        Inputs(Store(tmp_path)).select(policy="quality_topk", num_tokens=20)


def test_a_document_too_long_for_the_budget_is_a_row_with_that_reason(tmp_path: Path) -> None:
    _, rows = Inputs(Store(tmp_path)).select(policy="quality_topk", num_tokens=200)
    long = [row for row in rows if row["reason"].startswith("too long")]
    assert long
    assert not any(row["selected"] or row["logit"] is not None for row in long)
    assert 0 < sum(row["selected"] for row in rows) < len(rows) - len(long)


@pytest.mark.slow
def test_what_a_bound_was_computed_from_stands_beside_the_mask(tmp_path: Path) -> None:
    """For each row of the part in its order, whatever the blocks; and nothing where there is no bound."""
    inputs = Inputs(Store(tmp_path))
    for arm, names in (
        ({"policy": "datamask", "block_rows": 50}, ["tangent.npy"]),
        ({"policy": "datamask", "diversity": "Facility", "quality_pruning": 0.1}, ["dual.npy"]),
        ({"policy": "datamask", "diversity": {"Facility": 1, "LogDet": 1}}, ["dual.npy", "tangent.npy"]),
        ({"policy": "random"}, []),
    ):
        ref, rows = inputs.select(ratio=0.25, **arm)
        files = {file["name"] for file in inputs.store.manifest(ref)["files"]}
        assert sorted(name for name in files & {"tangent.npy", "dual.npy"}) == names
        assert ("held.npy" in files) == (arm.get("diversity") != "Facility")
        for name in names:
            values = np.load(tmp_path / ref.location / name)
            pruned = np.array([row["reason"] == "pruned by quality" for row in rows])
            assert values.shape == (NUM_DOCUMENTS,)
            assert np.array_equal(np.isnan(values), pruned)
            if name == "tangent.npy":
                assert values.sum() == pytest.approx(30)


def test_an_unknown_scorer_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'nobody'.*rules"):
        Inputs(Store(tmp_path)).select(policy="random", scorers={"nobody": 1.0})


def test_a_crawl_without_a_document_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no eligible document"):
        Inputs(Store(tmp_path), unscored=NUM_DOCUMENTS).select()


def test_quotas_by_crawl_and_by_domain(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path))
    quotas = {"site1.example": 0.5, "*": 0.5}
    _, rows = inputs.select(num_documents=20, quota_by="domain", quotas=quotas)
    chosen = [int(str(row["id"])[1:]) % 4 for row in rows if row["selected"]]
    assert len(chosen) == 20
    assert chosen.count(1) == 10
    _, rows = inputs.select(num_documents=20, quotas={CRAWL: 1.0})
    assert sum(row["selected"] for row in rows) == 20
    with pytest.raises(InputError, match=r"no quota.*one"):
        inputs.select(num_documents=20, quotas={"x": 1.0})
    with pytest.raises(
        ConfigurationError, match=r"'site1\.example' is 10 documents, and the block has 0 that"
    ):
        inputs.select(num_documents=20, quotas=quotas)


@pytest.mark.slow
def test_lambda_changes_the_mask(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path))
    masks = [{row["id"] for row in inputs.select(lamb=lamb)[1] if row["selected"]} for lamb in (1.0, 0.0)]
    assert masks[0] != masks[1]


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    """In two records, or the second call would only find the first one's artefact."""
    refs = [Inputs(Store(tmp_path / str(n))).select(ratio=0.2, num_workers=n)[0] for n in (1, 2)]
    assert refs[0] == refs[1]


def test_a_manifest_is_json_where_no_threshold_decided(tmp_path: Path) -> None:
    inputs = Inputs(Store(tmp_path))
    inputs.select(policy="random", num_documents=31)
    (manifest,) = tmp_path.glob("select/**/manifest.json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(manifest.read_text(encoding="utf-8"), parse_constant=refuse)
    assert [block["threshold"] for block in found["metadata"]["blocks"]] == [None]


@pytest.mark.slow
def test_a_misspelt_quota_is_told_once_for_all_blocks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = Inputs(Store(tmp_path))
    quotas = {"site1.exmaple": 0, "site2.example": 0, "*": 1.0}
    for over, where in (("blocks", "arm 'a' of release 'r': "), ("shards", "")):
        caplog.clear()
        inputs.select(num_documents=20, quota_by="domain", quotas=quotas, block_rows=50, over=over)
        assert caplog.messages == [
            f"{where}no document has the group 'site1.exmaple' that quotas name (did you mean 'site1.example'?); "
            "its quota changes nothing"
        ]

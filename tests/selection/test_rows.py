"""The same vectors give the same rows wherever they lie: in memory, in one file, in several files by an index."""

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents, spill
from datamask_pipeline.errors import InputError
from datamask_pipeline.selection import sharded
from datamask_pipeline.selection.rows import ChosenRows, MappedRows, MemoryRows, Rows
from datamask_pipeline.selection.sharded import ShardedVectors

D, FILES = 24, 7
CPU = torch.device("cpu")


class Shards:
    """Vectors scattered over files with rows that nobody asks for, and the same vectors gathered."""

    def __init__(self, folder: Path, dtype: str = "float16", scale: float = 1.0) -> None:
        generator = np.random.default_rng(0)
        self.files, files, rows, vectors = [], [], [], []
        for number in range(FILES):
            stored = generator.standard_normal((int(generator.integers(1, 90)), D))
            stored = (scale * stored / np.linalg.norm(stored, axis=1, keepdims=True)).astype(dtype)
            path = folder / f"{number}.npy"
            np.save(path, stored)
            kept = np.flatnonzero(generator.random(len(stored)) < 0.7)
            self.files.append(path)
            files.append(np.full(len(kept), number))
            rows.append(kept)
            vectors.append(stored[kept])
        self.gathered = np.concatenate(vectors)
        self.index = ShardedVectors(self.files, np.concatenate(files), np.concatenate(rows))


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    return Shards(tmp_path)


def kinds(shards: Shards, chunk_rows: int) -> dict[str, Rows]:
    tensor = torch.from_numpy(shards.gathered)
    return {
        "memory": MemoryRows(tensor, chunk_rows),
        "map": MappedRows(shards.gathered, chunk_rows, CPU, normalise=False),
        "shards": MappedRows(shards.index, chunk_rows, CPU, normalise=False),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk_rows", [1, 7, 1_000])
def test_chunks_and_lists_are_the_same_wherever_rows_lie(
    shards: Shards, chunk_rows: int, dtype: torch.dtype
) -> None:
    expected = torch.from_numpy(shards.gathered).to(dtype)
    index = torch.randperm(len(expected))
    some = torch.sort(index[:50]).values
    for name, rows in kinds(shards, chunk_rows).items():
        assert (rows.num_rows, rows.dim, rows.stored_dtype) == (*expected.shape, torch.float16), name
        chunks = [rows.chunk(*span, dtype) for span in rows.spans()]
        assert torch.equal(torch.cat(chunks), expected), name
        assert torch.equal(rows.take(index, dtype), expected[index]), name
        assert rows.take(index[:0], dtype).shape == (0, D), name
        chosen = rows.chosen(some)
        assert torch.equal(torch.cat([chosen.chunk(*span, dtype) for span in chosen.spans()]), expected[some])
        assert torch.equal(chosen.take(torch.tensor([3, 1, 3]), dtype), expected[some[[3, 1, 3]]]), name


@pytest.mark.parametrize("normalise", [False, True])
def test_rows_kept_in_a_file_are_those_kept_in_memory(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, normalise: bool
) -> None:
    monkeypatch.setattr(spill, "LONG", 1)
    rows = MappedRows(shards.index, 7, CPU, normalise=normalise)
    index, some = torch.randperm(rows.num_rows)[:60], torch.arange(3, rows.num_rows)
    made: list[int] = []
    room = spill.Room(tmp_path)
    monkeypatch.setattr(room, "_block", lambda size: made.append(size) or mmap.mmap(-1, size))
    for block, places in ((rows, index), (rows.chosen(some), index % len(some))):
        in_file, in_memory = block.copied(places, room), block.copied(places, None)
        assert torch.equal(in_file.everything(), in_memory.everything())
        assert torch.equal(in_file.everything(), block.take(places, torch.float16).float())
        assert (in_file.stored_dtype, in_file.chunk_rows) == (in_memory.stored_dtype, in_memory.chunk_rows)
        del in_file
    assert made == [2 * D * len(index)], "one file serves both"


def test_rows_that_are_handed_out_do_not_belong_to_the_file(shards: Shards) -> None:
    """What a learner does to a chunk must not reach the vectors."""
    first = MappedRows(np.load(shards.files[0], mmap_mode="r+"), 8, CPU, normalise=False)
    for rows in (first, MappedRows(shards.index, 8, CPU, normalise=False)):
        before = rows.chunk(0, 1).clone()
        rows.chunk(0, 1, torch.float16).zero_()
        rows.take(torch.tensor([0]), torch.float16).zero_()
        assert torch.equal(rows.chunk(0, 1), before)


def test_chosen_vectors_are_views(shards: Shards) -> None:
    places = np.array([40, 3, 3, 90])
    chosen = shards.index.chosen(places)
    assert chosen.shape == (4, D)
    np.testing.assert_array_equal(chosen[0:4], shards.gathered[places])
    assert chosen.files == shards.index.files
    assert (shards.index.chosen(places, spill.Room())[0:4] == chosen[0:4]).all()
    mask = np.isin(np.arange(len(shards.gathered)), places)
    np.testing.assert_array_equal(shards.index.chosen(mask)[0:3], shards.gathered[mask])
    np.testing.assert_array_equal(shards.index.chosen(np.array([-1]))[0:1], shards.gathered[-1:])
    with pytest.raises(IndexError):
        shards.index.chosen(np.array([len(shards.gathered)]))


def test_no_more_files_are_open_than_allowed(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "OPEN_FILES", 2)
    few = ShardedVectors(shards.files, shards.index.files_N, shards.index.rows_N)
    order = np.random.default_rng(1).permutation(len(few))
    np.testing.assert_array_equal(few[order], shards.gathered[order])
    assert few._opened.cache_info().currsize == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", ["quality_topk", "datamask", "greedy"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_mask_over_shards_is_the_mask_over_the_gathered_vectors(
    policy: str, scale: float, tmp_path: Path
) -> None:
    shards = Shards(tmp_path, dtype="float32", scale=scale)
    quality = np.random.default_rng(2).random(len(shards.gathered))
    settings = {"ratio": 0.2, "policy": policy, "chunk_rows": 64}
    settings |= {"num_kicks": 1, "num_restarts": 1} if policy == "datamask" else {}
    np.save(tmp_path / "gathered.npy", shards.gathered)
    results = [
        select_documents(vectors, quality, **settings)
        for vectors in (tmp_path / "gathered.npy", shards.index)
    ]
    np.testing.assert_array_equal(results[0].mask, results[1].mask)
    np.testing.assert_array_equal(results[0].logits, results[1].logits)
    assert results[0].objective == results[1].objective
    assert results[0].record["embeddings_digest"] == results[1].record["embeddings_digest"]
    normalised = {result.record["rows_normalised_to_unit"] for result in results}
    assert normalised == {0 if scale == 1 else len(quality)}


def test_an_index_that_does_not_fit_its_files_is_refused(shards: Shards, tmp_path: Path) -> None:
    one = np.array([0])
    with pytest.raises(InputError, match="do not make an index"):
        ShardedVectors(shards.files, one, np.array([0, 1]))
    with pytest.raises(InputError, match="without a vector"):
        ShardedVectors(shards.files, one[:0], one[:0])
    with pytest.raises(InputError, match=r"file that is not there .*value 7"):
        ShardedVectors(shards.files, np.array([7]), one)
    with pytest.raises(InputError, match=r"row that its file does not have .*0\.npy, row 500"):
        ShardedVectors(shards.files, np.array([0, 0]), np.array([0, 500]))
    np.save(tmp_path / "wide.npy", np.zeros((2, D + 1), np.float16))
    with pytest.raises(InputError, match=r"files of vectors differ.*wide\.npy"):
        ShardedVectors([*shards.files, tmp_path / "wide.npy"], one, one)
    (tmp_path / "cut.npy").write_bytes(shards.files[0].read_bytes()[:-1])
    with pytest.raises(InputError, match=r"can be mapped.*cut\.npy"):
        ShardedVectors([tmp_path / "cut.npy"], one, one)
    with pytest.raises(InputError, match="no such file"):
        ShardedVectors([tmp_path / "none.npy"], one, one)


def test_chosen_rows_of_chosen_rows(shards: Shards) -> None:
    rows = MappedRows(shards.index, 16, CPU, normalise=False)
    twice = ChosenRows(ChosenRows(rows, torch.arange(10, 60)), torch.tensor([0, 7, 9]))
    assert torch.equal(twice.everything(), torch.from_numpy(shards.gathered)[[10, 17, 19]].float())

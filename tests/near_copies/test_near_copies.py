"""Near-copies against an exhaustive search that shares no code with the index."""

import hashlib
import json
import os
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError
from datamask_pipeline.near_copies import NearCopyIndex, buckets, groups, sample_of
from datamask_pipeline.near_copies.signatures import BAND_BITS, Keys
from datamask_pipeline.selection.sharded import ShardedVectors

Rows = NDArray[np.int64]


def planted(
    seed: int,
    num_rows: int = 1_500,
    num_dimensions: int = 96,
    common: float = 0.7,
    dtype: type[np.floating] = np.float16,
) -> NDArray[np.floating]:
    """Unit vectors with a common direction; a third are moved from an earlier one, to cosines from .95 to 1."""
    draws = np.random.default_rng(seed)
    fresh_ND = draws.standard_normal((num_rows, num_dimensions)) * (1 - common) ** 0.5 / num_dimensions**0.5
    vectors_ND = unit(fresh_ND + common**0.5 * unit(np.ones(num_dimensions)))
    for row in np.flatnonzero(draws.random(num_rows) < 1 / 3)[1:]:
        first = vectors_ND[draws.integers(row)]
        noise = draws.standard_normal(num_dimensions)
        noise = unit(noise - noise @ first * first)
        cosine = draws.choice([1.0, draws.uniform(0.95, 0.975), draws.uniform(0.975, 0.9999)])
        vectors_ND[row] = cosine * first + (1 - cosine**2) ** 0.5 * noise
    return unit(vectors_ND).astype(dtype)


def unit(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def exhaustive(vectors_ND: NDArray[np.floating], threshold: float) -> Rows:
    """Row by row: the first row that stands for itself and is near."""
    unit_ND = unit(vectors_ND.astype(np.float64))
    standing: list[int] = []
    rows = np.arange(len(unit_ND))
    for row in range(len(unit_ND)):
        near = np.flatnonzero(unit_ND[standing] @ unit_ND[row] >= threshold)
        if len(near):
            rows[row] = standing[near[0]]
        else:
            standing.append(row)
    return rows


def indexed(folder: Path, vectors: object, sample: object = None, threshold: float = 0.98) -> NearCopyIndex:
    sample = sample_of(vectors) if sample is None else sample
    index = NearCopyIndex.create(folder, sample, threshold=threshold)
    index.add(vectors)
    return index


def found(index: NearCopyIndex) -> tuple[Rows, NDArray[np.float32]]:
    parts = list(index.representatives())
    assert [part.first_row for part in parts] == np.cumsum(
        [0, *(len(part.rows_Q) for part in parts[:-1])]
    ).tolist()
    return np.concatenate([part.rows_Q for part in parts]), np.concatenate([part.cosines_Q for part in parts])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [0.95, 0.98, 0.995])
def test_finds_what_an_exhaustive_search_finds(tmp_path: Path, seed: int, threshold: float) -> None:
    vectors_ND = planted(seed, common=(0.0, 0.4, 0.8)[seed % 3], dtype=(np.float16, np.float32)[seed % 2])
    index = indexed(tmp_path / "index", vectors_ND, threshold=threshold)
    rows, cosines = found(index)
    wanted = exhaustive(vectors_ND, threshold)
    copies = wanted != np.arange(len(wanted))
    assert copies.sum() > 100
    # At .95 beside a common direction of norm .9 a pair's cosine from the mean is .75 alone: the index says so.
    expected = index.signatures.expected_recall
    assert expected >= (0.998 if threshold >= 0.98 else 0.7)
    assert (rows[copies] == wanted[copies]).mean() >= min(0.99, expected - 0.02)
    # What it says is true, whether it found everything or not.
    unit_ND = unit(vectors_ND.astype(np.float64))
    exact = np.einsum("nd,nd->n", unit_ND, unit_ND[rows])
    assert (exact >= threshold - 1e-12).all()
    np.testing.assert_allclose(cosines, exact, atol=1e-6)
    assert (rows[rows] == rows).all()
    assert (rows <= np.arange(len(rows))).all()


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 400), max_size=3),
    block_rows=st.integers(90, 500),
    dimensions=st.sampled_from([2, 8, 33, 128]),
)
@settings(max_examples=10, deadline=None)
def test_later_crawls_leave_the_groups_that_all_at_once_make(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int], block_rows: int, dimensions: int
) -> None:
    folder = tmp_path_factory.mktemp("near")
    vectors_ND = planted(seed, num_rows=400, num_dimensions=dimensions, common=0.5)
    at_once = indexed(folder / "at-once", vectors_ND)
    by_crawl = NearCopyIndex.create(folder / "by-crawl", sample_of(vectors_ND))
    for cut in [*sorted(cuts), 400]:
        by_crawl.add(vectors_ND[:cut], block_rows=block_rows)
        by_crawl = NearCopyIndex(folder / "by-crawl")
        assert len(by_crawl) == cut
    for one, other in zip(found(at_once), found(by_crawl), strict=True):
        np.testing.assert_array_equal(one, other)
    assert by_crawl.num_representatives == len(np.unique(found(at_once)[0]))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("block_rows", [7, 60, 499])
def test_the_first_near_one_stands_for_a_vector_however_many_segments_are_sought_through(
    tmp_path: Path, block_rows: int
) -> None:
    vectors_ND = planted(4, num_rows=500)
    by_block = NearCopyIndex.create(tmp_path / "by-block", sample_of(vectors_ND))
    by_block.add(vectors_ND, block_rows=block_rows)
    np.testing.assert_array_equal(found(by_block)[0], exhaustive(vectors_ND, 0.98))


KEYS = st.sampled_from([0, 1, 33, 40, 63, 64, 127, 128, 1 << 20, 2**BAND_BITS - 64, 2**BAND_BITS - 1])


@given(
    asked=st.lists(KEYS, min_size=1, max_size=30),
    held=st.lists(KEYS, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    most_hits=st.sampled_from([1, 5, 2**20]),
)
@settings(deadline=None, max_examples=50)
def test_pairs_are_all_that_share_a_key_with_or_without_one_bit_turned_round(
    asked: list[int], held: list[int], cuts: list[int], most_hits: int
) -> None:
    asked_1N = np.array([asked], np.uint32)
    bits = [0, 6, BAND_BITS - 1]
    keys = Keys(
        asked_1N,
        np.tile(np.array(bits, np.uint8)[None, :, None], (1, 1, len(asked))),
        np.zeros((len(asked), 32), np.int8),
    )
    edges = [0, *sorted(min(cut, len(held)) for cut in cuts), len(held)]
    segments = [
        buckets.Held(
            np.array([held[start:stop]], np.uint32),
            np.zeros((stop - start, 32), np.int8),
            np.arange(start, stop),
        )
        for start, stop in pairwise(edges)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "MOST_HITS", most_hits)
        told = list(buckets.pairs_between(keys, segments, 0))
    turned = [sum(1 << bit for bit in chosen) for n in range(4) for chosen in combinations(bits, n)]
    wanted = {
        (row, other) for row, key in enumerate(asked) for other, its in enumerate(held) if key ^ its in turned
    }
    assert {pair for rows in told for pair in zip(*(each.tolist() for each in rows), strict=True)} == wanted


def test_files_of_a_crawl_are_read_where_they_lie(tmp_path: Path) -> None:
    vectors_ND = planted(3, num_rows=600)
    for number, part_nD in enumerate(np.split(vectors_ND, [200, 450])):
        np.save(tmp_path / f"{number}.npy", part_nD)
    files_N = np.repeat(np.arange(3), [200, 250, 150])
    rows_N = np.concatenate([np.arange(200), np.arange(250), np.arange(150)])
    sharded = ShardedVectors([tmp_path / f"{number}.npy" for number in range(3)], files_N, rows_N)
    one, other = indexed(tmp_path / "one", sharded), indexed(tmp_path / "other", vectors_ND)
    np.testing.assert_array_equal(found(one)[0], found(other)[0])


def test_a_new_crawl_reads_of_the_held_vectors_only_what_it_compares(tmp_path: Path) -> None:
    held_ND, new_ND = planted(1, num_rows=2_000, common=0.0), planted(2, num_rows=100, common=0.0)
    new_ND[:7] = held_ND[:7]
    both = _Counted(np.concatenate([held_ND, new_ND]))
    index = indexed(tmp_path / "index", held_ND)
    index.add(both)
    assert 7 <= index.num_compared <= 70
    read = [row for row in both.read if row < 2_000]
    assert len(read) == index.num_compared + 1  # one vector more, to know that they are those of the index
    np.testing.assert_array_equal(found(index)[0][2_000:2_007], found(index)[0][:7])


class _Counted:
    def __init__(self, vectors_ND: NDArray[np.floating]) -> None:
        self.vectors_ND, self.shape, self.dtype = vectors_ND, vectors_ND.shape, vectors_ND.dtype
        self.read: list[int] = []

    def __getitem__(self, index: slice | Rows) -> NDArray[np.floating]:
        self.read += np.arange(self.shape[0])[index].tolist()
        return self.vectors_ND[index]


def test_copies_of_copies_do_not_chain(tmp_path: Path) -> None:
    """Each of a row of vectors is near its neighbours alone: every second one stays, none leads far away."""
    angles = np.arange(40) * 0.15  # cos .15 = .989, cos .3 = .955
    vectors_ND = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    rows, cosines = found(indexed(tmp_path / "index", vectors_ND))
    np.testing.assert_array_equal(rows, exhaustive(vectors_ND, 0.98))
    assert cosines.min() > 0.98
    assert len(np.unique(rows)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("most_listed", [1, 64, 2**20])
@pytest.mark.parametrize("seed", range(2))
def test_a_large_group_is_taken_by_halves_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_listed: int, seed: int
) -> None:
    vectors_ND = planted(seed, num_rows=300)
    vectors_ND[100:250] = unit(vectors_ND[100] + 0.004 * planted(9, num_rows=150).astype(np.float64)).astype(
        np.float16
    )
    wanted = found(indexed(tmp_path / "whole", vectors_ND))[0]
    monkeypatch.setattr(groups, "MOST_LISTED", most_listed)
    monkeypatch.setattr(buckets, "MOST_PAIRS", 5_000)
    np.testing.assert_array_equal(found(indexed(tmp_path / "halves", vectors_ND))[0], wanted)
    assert len(np.unique(wanted[100:250])) == 1


@pytest.mark.slow
def test_identical_vectors_have_one_representative(tmp_path: Path) -> None:
    vectors_ND = np.repeat(planted(0, num_rows=1), 700, axis=0)
    assert (found(indexed(tmp_path / "index", vectors_ND))[0] == 0).all()


def test_any_number_of_threads_writes_the_same_files(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", planted(5, num_rows=3_000, num_dimensions=768))
    digests = set()
    for threads in ("1", "2", "3"):
        folder = tmp_path / threads
        code = (
            "import sys; import numpy as np; from pathlib import Path\n"
            "from datamask_pipeline.near_copies import NearCopyIndex, sample_of\n"
            "vectors = np.load(sys.argv[1], mmap_mode='r')\n"
            "NearCopyIndex.create(Path(sys.argv[2]), sample_of(vectors)).add(vectors)"
        )
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "vectors.npy"), str(folder)],
            env=environment,
            check=True,
        )
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        digests.add(tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in files))
    assert len(digests) == 1


def test_a_write_that_was_cut_off_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datamask_pipeline.near_copies import index as module

    vectors_ND = planted(4, num_rows=500)
    wanted = found(indexed(tmp_path / "whole", vectors_ND))
    cut = NearCopyIndex.create(tmp_path / "cut", sample_of(vectors_ND))
    publish = module._publish

    def fail_at_second(path: Path, state: dict[str, object]) -> None:
        if len(state["segments"]) == 2:  # type: ignore[arg-type]
            raise OSError("no space left on device")
        publish(path, state)

    monkeypatch.setattr(module, "_publish", fail_at_second)
    with pytest.raises(OSError, match="no space"):
        cut.add(vectors_ND, block_rows=200)
    monkeypatch.setattr(module, "_publish", publish)
    again = NearCopyIndex(tmp_path / "cut")
    assert len(again) == 200
    again.add(vectors_ND, block_rows=200)
    for one, other in zip(found(again), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("threshold", [0.0, 0.89, 1.0, 2.0, float("nan")])
def test_a_threshold_out_of_range_is_refused(tmp_path: Path, threshold: float) -> None:
    with pytest.raises(ConfigurationError, match=r"must lie from 0\.9 to 0\.9999"):
        NearCopyIndex.create(tmp_path / "index", sample_of(planted(0)), threshold=threshold)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 3.0])
def test_a_vector_that_is_not_of_unit_norm_is_named(tmp_path: Path, value: float) -> None:
    vectors_ND = planted(0, num_rows=300)
    index = NearCopyIndex.create(tmp_path / "index", sample_of(vectors_ND))
    vectors_ND[217] = value
    with pytest.raises(InputError, match=r"row 217.*field embeddings.*norm.*divide each vector by its norm"):
        index.add(vectors_ND)
    assert len(index) == 0


def test_other_vectors_than_those_held_are_refused(tmp_path: Path) -> None:
    index = indexed(tmp_path / "index", planted(0))
    with pytest.raises(InputError, match=r"shape \(N, 96\).*\(1500, 64\)"):
        index.add(planted(0, num_dimensions=64))
    with pytest.raises(InputError, match="must be floats"):
        index.add(np.ones((1_600, 96), np.int32))
    with pytest.raises(InputError, match="holds 1500 vectors, 100 were given"):
        index.add(planted(0, num_rows=100))
    with pytest.raises(IntegrityError, match=r"row \d+ is not the vector that the index"):
        index.add(planted(1, num_rows=1_600))


def test_an_index_is_created_once_and_opened_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no index of near-copies"):
        NearCopyIndex(tmp_path)
    index = indexed(tmp_path / "index", planted(0))
    with pytest.raises(ConfigurationError, match="is not empty"):
        NearCopyIndex.create(tmp_path / "index", sample_of(planted(0)))
    (index.folder / "00000" / "rows.npy").write_bytes(b"cut")
    with pytest.raises(IntegrityError, match=r"cannot map .*rows\.npy"):
        NearCopyIndex(index.folder).add(planted(0))


def test_an_empty_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one vector"):
        NearCopyIndex.create(tmp_path / "index", np.empty((0, 96), np.float32))


def test_a_folder_of_somebody_s_own_files_is_left_as_it_is(tmp_path: Path) -> None:
    vectors_ND = planted(0, num_rows=300)
    for name in ("notes.txt", "centre.npy"):
        folder = tmp_path / name.split(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(ConfigurationError, match=f"{folder} is not empty and holds no index"):
            NearCopyIndex.of(folder, vectors_ND, threshold=0.98)
        assert (folder / name).read_text() == "mine"
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "missing" / "too"):
        assert len(NearCopyIndex.of(folder, vectors_ND, threshold=0.98)) == 300


def test_an_index_whose_making_was_cut_off_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datamask_pipeline.near_copies import index as module

    vectors_ND, save = planted(0, num_rows=300), module.save_array

    def fail_at_planes(path: Path, values: object) -> None:
        if path.name == "planes.npy":
            path.write_bytes(b"half")
            raise OSError("no space left on device")
        save(path, values)

    monkeypatch.setattr(module, "save_array", fail_at_planes)
    with pytest.raises(OSError, match="no space"):
        NearCopyIndex.of(tmp_path / "index", vectors_ND, threshold=0.98)
    monkeypatch.setattr(module, "save_array", save)
    with pytest.raises(InputError, match="no index of near-copies"):
        NearCopyIndex(tmp_path / "index")
    again = NearCopyIndex.of(tmp_path / "index", vectors_ND, threshold=0.98)
    whole = NearCopyIndex.of(tmp_path / "whole", vectors_ND, threshold=0.98)
    for one, other in zip(found(again), found(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    assert {path.name for path in again.folder.iterdir()} == {path.name for path in whole.folder.iterdir()}


def test_a_folder_may_be_a_string(tmp_path: Path) -> None:
    vectors_ND = planted(0, num_rows=300)
    NearCopyIndex.create(f"{tmp_path}/one", sample_of(vectors_ND)).add(vectors_ND)
    assert len(NearCopyIndex(f"{tmp_path}/one")) == 300
    assert len(NearCopyIndex.of(f"{tmp_path}/two", vectors_ND, threshold=0.98)) == 300


def test_an_index_of_another_threshold_is_not_gone_on_with(tmp_path: Path) -> None:
    vectors_ND = planted(1, num_rows=100)
    index = NearCopyIndex.of(tmp_path / "index", vectors_ND, threshold=0.98)
    with pytest.raises(ConfigurationError, match=r"index of threshold 0\.98, not 0\.99"):
        NearCopyIndex.of(tmp_path / "index", vectors_ND, threshold=0.99)
    again = NearCopyIndex.of(tmp_path / "index", vectors_ND, threshold=np.float64(0.98))
    assert len(again) == len(index) == 100


@pytest.mark.parametrize("block_rows", [0, -1])
def test_a_block_without_a_vector_is_refused(tmp_path: Path, block_rows: int) -> None:
    index = NearCopyIndex.create(tmp_path / "index", sample_of(planted(1, num_rows=50)))
    with pytest.raises(InputError, match="block_rows"):
        index.add(planted(1, num_rows=50), block_rows=block_rows)


@pytest.mark.parametrize("threshold", ["0.98", None, True])
def test_a_threshold_that_is_no_number_is_refused(tmp_path: Path, threshold: object) -> None:
    with pytest.raises(ConfigurationError, match="is no number"):
        NearCopyIndex.of(tmp_path / "index", planted(1, num_rows=50), threshold=threshold)


def test_what_is_no_array_of_vectors_is_told(tmp_path: Path) -> None:
    vectors_ND = planted(1, num_rows=50).astype(np.float32)
    index = NearCopyIndex.create(tmp_path / "index", vectors_ND)
    with pytest.raises(InputError, match="numpy array"):
        index.add(vectors_ND.tolist())
    vectors_ND[3] = np.nan
    with pytest.raises(InputError, match=r"unit norm.*row 3"):
        NearCopyIndex.create(tmp_path / "other", vectors_ND)
    (tmp_path / "index" / "index.json").write_bytes(b"\xff{}")
    with pytest.raises(IntegrityError, match="make the index again"):
        NearCopyIndex(tmp_path / "index")


@pytest.mark.parametrize("stated", ["{}", "[]", '{"format": 4, "segments": []}'])
def test_a_file_that_is_none_of_an_index_is_told(tmp_path: Path, stated: str) -> None:
    index = indexed(tmp_path / "index", planted(0))
    (index.folder / "index.json").write_text(stated)
    with pytest.raises(IntegrityError, match=r"index\.json is damaged.*make the index again"):
        NearCopyIndex(index.folder)


@pytest.mark.parametrize("segments", [{}, 3, ["00000"], [{"name": "00000"}], [{"name": 0, "num_rows": 1}]])
def test_segments_that_are_none_are_told(tmp_path: Path, segments: object) -> None:
    index = indexed(tmp_path / "index", planted(0))
    path = index.folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"segments": segments}))
    with pytest.raises(IntegrityError, match=r"index\.json is damaged: its segments .*make the index again"):
        NearCopyIndex(index.folder)


@pytest.mark.parametrize("name", ["bands", "sketches", "rows", "representatives", "cosines"])
def test_a_file_of_another_number_of_vectors_is_told(tmp_path: Path, name: str) -> None:
    """Whole by itself, as of another time: what it lacks would be found for nobody."""
    index = indexed(tmp_path / "index", planted(0))
    path = index.folder / "00000" / f"{name}.npy"
    array = np.load(path)
    np.save(path, array[:, :-1] if name == "bands" else array[:-1])
    with pytest.raises(IntegrityError, match=rf"00000/{name}\.npy is damaged: it has shape .* were written"):
        NearCopyIndex(index.folder)


def test_an_index_that_finds_few_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    vectors_ND = planted(0, num_rows=3_000, common=0.8)
    few = NearCopyIndex.create(tmp_path / "few", vectors_ND, threshold=0.9)
    assert few.expected_recall < 0.95
    assert f"is expected to find {100 * few.expected_recall:.0f} %" in caplog.text
    caplog.clear()
    assert NearCopyIndex.create(tmp_path / "most", vectors_ND, threshold=0.99).expected_recall > 0.99
    assert not caplog.text

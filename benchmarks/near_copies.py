"""The index of near-copies against exhaustive search and faiss. Knows the index by its folder and its public functions.

A tenth of the vectors are earlier ones moved to cosines of .981 to .999, a twentieth to .95 to .975.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import fill
from benchmarks.harness import AnonymousMemory, Context, Outcome, Row, at_least, at_most, exponent
from datamask_pipeline.near_copies import NearCopyIndex, sample_of

TITLE = "Near-copies, up to 3 000 000 x 768 float16 on disk"
QUESTION = "Does the index find what exhaustive search finds, in 2 GB of memory and in nearly linear time?"
LONG = True
SIZES = (100_000, 316_000, 1_000_000, 3_000_000)
THRESHOLD = 0.98
COPIES, NEGATIVES = 0.1, 0.05
CHUNK = 4_096
PROBES = 16
"""Lists that the peer searches, of four times the square root of N."""


def run(context: Context) -> Outcome:
    """Every size from disk, in one block and then a later quarter; exhaustive search and the peer at the smallest."""
    outcome, seed = Outcome(), context.seeds[0]
    for number in SIZES:
        size = context.size(number)
        path, folder = context.folder / f"near-copies-{size}-{seed}.npy", context.folder / "near-copies"
        copy_of_N, negative_N = _write(path, context, size, seed)
        vectors_ND = np.load(path, mmap_mode="r")
        row = _indexed(vectors_ND, folder, copy_of_N, negative_N) | {"documents": size, "seed": seed}
        outcome.rows.append({"method": "index"} | row)
        if number == SIZES[0]:
            outcome.rows += _opponents(np.asarray(vectors_ND, np.float32), copy_of_N, seed)
        del vectors_ND
        path.unlink()
    ours = [row for row in outcome.rows if row["method"] == "index"]
    outcome.claims += [
        at_least(
            "share of planted copies found, least of the sizes", 0.99, min(row["recall"] for row in ours)
        ),
        at_least(
            "cosine to the representative, least of all", THRESHOLD, min(row["least cosine"] for row in ours)
        ),
        at_most("RssAnon, GB, most of the sizes", 2.0, max(row["RssAnon GB"] for row in ours)),
        at_most(
            "exponent of the processor time",
            1.1,
            exponent([row["documents"] for row in ours], [row["cpu_seconds"] for row in ours]),
        ),
    ]
    return outcome


def _write(path: Path, context: Context, size: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The vectors; which earlier row each copy was made of, -1 for none; which are negatives."""
    shape = (size, context.base.vectors_MD.shape[1])
    written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    fill(written, context.base, seed)
    draws = np.random.default_rng(seed)
    kind_N = draws.choice(3, size, p=(1 - COPIES - NEGATIVES, COPIES, NEGATIVES))
    kind_N[0] = 0
    fresh = np.flatnonzero(kind_N == 0)
    copy_of_N = np.full(size, -1)
    for kind, cosines in ((1, (0.981, 0.999)), (2, (0.95, 0.975))):
        rows = np.flatnonzero(kind_N == kind)
        for start in range(0, len(rows), CHUNK):
            rows_n = rows[start : start + CHUNK]
            first_n = fresh[draws.integers(np.searchsorted(fresh, rows_n))]
            copy_of_N[rows_n] = first_n if kind == 1 else -1
            written[rows_n] = _moved(written[first_n], draws.uniform(*cosines, (len(rows_n), 1)), draws)
    written.flush()
    return copy_of_N, kind_N == 2


def _moved(first_nD: NDArray[Any], cosines_n1: NDArray[Any], draws: np.random.Generator) -> NDArray[Any]:
    """Unit vectors at these cosines to the first ones, in random directions."""
    first_nD = first_nD.astype(np.float64)
    first_nD /= np.linalg.norm(first_nD, axis=1, keepdims=True)
    noise_nD = draws.standard_normal(first_nD.shape)
    noise_nD -= (noise_nD * first_nD).sum(1, keepdims=True) * first_nD
    noise_nD /= np.linalg.norm(noise_nD, axis=1, keepdims=True)
    return cosines_n1 * first_nD + np.sqrt(1 - cosines_n1**2) * noise_nD


def _indexed(
    vectors_ND: NDArray[Any], folder: Path, copy_of_N: NDArray[np.int64], negative_N: NDArray[np.bool_]
) -> Row:
    """Three quarters, then the last as a later crawl."""
    shutil.rmtree(folder, ignore_errors=True)
    held = len(vectors_ND) * 3 // 4
    with AnonymousMemory() as memory:
        begun = time.process_time()
        index = NearCopyIndex.create(folder, sample_of(vectors_ND), threshold=THRESHOLD)
        index.add(vectors_ND[:held])
        between = time.process_time()
        index.add(vectors_ND)
        ended = time.process_time()
    parts = list(index.representatives())
    rows_N = np.concatenate([part.rows_Q for part in parts])
    shutil.rmtree(folder)
    return {
        "cpu_seconds": ended - begun,
        "later_quarter_cpu_seconds": ended - between,
        "RssAnon GB": memory.most / 1e9,
        "recall": _recall(rows_N, copy_of_N),
        "negatives represented": float((rows_N != np.arange(len(rows_N)))[negative_N].mean()),
        "least cosine": float(min(part.cosines_Q.min() for part in parts)),
        "held vectors read": index.num_compared,
    }


def _recall(rows_N: NDArray[np.int64], copy_of_N: NDArray[np.int64]) -> float:
    """Of the planted copies whose original stands for itself, how many are represented."""
    own_N = rows_N == np.arange(len(rows_N))
    copies = np.flatnonzero(copy_of_N >= 0)
    copies = copies[own_N[copy_of_N[copies]]]
    return float(1 - own_N[copies].mean())


def _opponents(vectors_ND: NDArray[np.float32], copy_of_N: NDArray[np.int64], seed: int) -> Iterable[Row]:
    """Exhaustive search by blocked products, and faiss by inverted lists where it is installed."""
    common = {"documents": len(vectors_ND), "seed": seed}
    begun = time.process_time()
    pairs = []
    for start in range(0, len(vectors_ND), CHUNK):
        later, earlier = np.nonzero(
            vectors_ND[start : start + CHUNK] @ vectors_ND[: start + CHUNK].T >= THRESHOLD
        )
        pairs.append(np.stack([later + start, earlier]))
    rows_N = _represented(np.concatenate(pairs, axis=1), len(vectors_ND))
    seconds = time.process_time() - begun
    yield {"method": "exhaustive", "cpu_seconds": seconds, "recall": _recall(rows_N, copy_of_N)} | common
    try:
        from faiss import METRIC_INNER_PRODUCT, IndexFlatIP, IndexIVFFlat
    except ImportError:
        return
    begun = time.process_time()
    width = vectors_ND.shape[1]
    lists = round(4 * len(vectors_ND) ** 0.5)
    index = IndexIVFFlat(IndexFlatIP(width), width, lists, METRIC_INNER_PRODUCT)
    index.train(vectors_ND)
    index.add(vectors_ND)
    index.nprobe = PROBES
    limits, _, neighbours = index.range_search(vectors_ND, THRESHOLD)
    asked = np.repeat(np.arange(len(vectors_ND)), np.diff(limits.astype(np.int64)))
    rows_N = _represented(np.stack([asked, neighbours]), len(vectors_ND))
    seconds = time.process_time() - begun
    yield {"method": "faiss IVF", "cpu_seconds": seconds, "recall": _recall(rows_N, copy_of_N)} | common


def _represented(pairs_2P: NDArray[np.int64], num_rows: int) -> NDArray[np.int64]:
    """The index's rule on all pairs: the first near one that stands for itself."""
    later_P, earlier_P = pairs_2P[:, pairs_2P[0] > pairs_2P[1]]
    order_P = np.lexsort((earlier_P, later_P))
    rows = list(range(num_rows))
    for later, earlier in zip(later_P[order_P].tolist(), earlier_P[order_P].tolist(), strict=True):
        if rows[later] == later and rows[earlier] == earlier:
            rows[later] = earlier
    return np.array(rows)

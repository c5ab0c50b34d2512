"""A made crawl of short texts with vectors and a score, in files as crawls come in. Knows no stage.

Texts are four to six sentences out of a stock of 200 000, their words by Zipf's law: distinct but for exact copies of
earlier documents, whose vector is the original's. Some further vectors are an earlier one moved a little. No file depends
on how many come after it, so the first files of a crawl are a smaller crawl.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.data import Base, fill
from datamask_pipeline import schema

CRAWL = "made"
SHARD_ROWS, GROUP_ROWS = 50_000, 8_192
WORDS, SENTENCES = 20_000, 200_000
EXACT, NEAR = 0.03, 0.05
"""Shares of a file's documents that are copies of earlier ones of the file: of text and vector, or of the vector nearly."""
SHIFT = 0.1
"""Norm of the difference of a near-copy's vector: a cosine of .995."""
QUALITY = "quality"


def make_crawl(folder: Path, base: Base, documents: int, seed: int) -> None:
    """Write `crawls/made/` and `vectors/`, one file of each for `SHARD_ROWS` documents; files that are there stay."""
    stock: list[str] = []
    for name in (f"crawls/{CRAWL}", "vectors"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, documents, SHARD_ROWS)):
        places = [folder / f"{name}/{number:04d}.parquet" for name in (f"crawls/{CRAWL}", "vectors")]
        if not all(place.exists() for place in places):
            stock = stock or _sentences(np.random.default_rng([seed, WORDS]))
            size = min(SHARD_ROWS, documents - first)
            private = [place.with_suffix(".tmp") for place in places]
            _write_file(private, stock, base, (number, first, size), seed)
            for made, place in zip(private, places, strict=True):
                made.replace(place)


def _write_file(
    places: list[Path], stock: list[str], base: Base, which: tuple[int, int, int], seed: int
) -> None:
    number, first, size = which
    draws = np.random.default_rng([seed, number])
    kind_n = draws.choice(3, size, p=(1 - EXACT - NEAR, EXACT, NEAR))
    kind_n[0] = 0
    fresh = np.flatnonzero(kind_n == 0)
    of_n = np.arange(size)
    copies = np.flatnonzero(kind_n)
    of_n[copies] = fresh[draws.integers(np.searchsorted(fresh, copies))]
    ids = [f"<urn:uuid:{draws.bytes(16).hex()}>" for _ in range(size)]
    texts = list(_texts(stock, size, draws))
    for row in np.flatnonzero(kind_n == 1).tolist():
        texts[row] = texts[of_n[row]]
    _write_documents(places[0], f"{number:04d}.warc", ids, texts, first, draws)
    vectors_nD = np.empty((size, schema.EMBEDDING_DIM), np.float16)
    fill(vectors_nD, base, seed * 10_007 + number)
    _copy(vectors_nD, of_n, np.flatnonzero(kind_n == 2), draws)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors_nD.reshape(-1)), schema.EMBEDDING_DIM)
    pq.write_table(
        pa.table({"id": ids, "embedding": lists}),
        places[1],
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=GROUP_ROWS,
    )


def part_of(crawl: Path, folder: Path, documents: int) -> None:
    """The first files of a crawl, `documents` in all, as a crawl of its own: linked, not copied."""
    for name in (f"crawls/{CRAWL}", "vectors"):
        (folder / name).mkdir(parents=True)
        for number in range(-(-documents // SHARD_ROWS)):
            os.link(crawl / f"{name}/{number:04d}.parquet", folder / f"{name}/{number:04d}.parquet")


def _sentences(draws: np.random.Generator) -> list[str]:
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = np.array(["".join(draws.choice(letters, draws.integers(2, 10))) for _ in range(WORDS)])
    shares = 1 / np.arange(1, WORDS + 1)
    lengths = draws.integers(7, 13, SENTENCES)
    drawn = iter(draws.choice(words, int(lengths.sum()), p=shares / shares.sum()).tolist())
    return [" ".join(itertools.islice(drawn, length)).capitalize() + "." for length in lengths.tolist()]


def _texts(stock: list[str], size: int, draws: np.random.Generator) -> Iterator[str]:
    picks_n6 = draws.integers(0, len(stock), (size, 6)).tolist()
    for picks, length in zip(picks_n6, draws.integers(4, 7, size).tolist(), strict=True):
        yield " ".join([stock[pick] for pick in picks[:length]])


def _write_documents(
    path: Path, archive: str, ids: list[str], texts: list[str], first: int, draws: np.random.Generator
) -> None:
    size = len(ids)
    columns: dict[str, object] = {
        "text": texts,
        "id": ids,
        "dump": [CRAWL] * size,
        "url": [f"https://site{number % 10_007}.example/{number}" for number in range(first, first + size)],
        "date": ["2026-11-01"] * size,
        "file_path": [archive] * size,
        "language": ["en"] * size,
        "language_score": draws.uniform(0.7, 1, size),
        "token_count": [len(text) // 5 for text in texts],
        QUALITY: draws.standard_normal(size),
    }
    columns_schema = pa.schema([*schema.FINEWEB, pa.field(QUALITY, pa.float64())])
    pq.write_table(
        pa.table(columns, schema=columns_schema), path, compression="zstd", row_group_size=GROUP_ROWS
    )


def _copy(
    vectors_nD: NDArray[np.float16],
    of_n: NDArray[np.int64],
    near_n: NDArray[np.int64],
    draws: np.random.Generator,
) -> None:
    """Every copy gets its original's vector, and those of `near_n` are then moved."""
    vectors_nD[:] = vectors_nD[of_n]
    moved_nD = vectors_nD[near_n].astype(np.float32)
    moved_nD += draws.standard_normal(moved_nD.shape, np.float32) * (SHIFT / vectors_nD.shape[1] ** 0.5)
    moved_nD /= np.linalg.norm(moved_nD, axis=1, keepdims=True)
    vectors_nD[near_n] = moved_nD

"""Selection from embeddings on disk. Knows no metric but one of moments."""

from __future__ import annotations

import numpy as np

from benchmarks.data import drawn_quality, fill
from benchmarks.harness import AnonymousMemory, Context, Outcome, at_most, timed

TITLE = "Out of core, 5 000 000 x 768 float16 on disk"
QUESTION = "Does anonymous memory stay below 4 GB whatever the number of documents?"
LONG = True
METRICS = ("Pair_simi", "DiSF_uncentred")


def run(context: Context) -> Outcome:
    """A map on disk, written once; RssAnon is sampled while the selection runs."""
    outcome, seed, size = Outcome(), context.seeds[0], context.size(5_000_000)
    path = context.folder / f"out-of-core-{context.base.digest}-{size}-{seed}.npy"
    if not path.exists():
        shape = (size, context.base.vectors_MD.shape[1])
        written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
        fill(written, context.base, seed)
        written.flush()
        del written
    quality = drawn_quality(np.load(path, mmap_mode="r"), seed)
    for metric in METRICS:
        with AnonymousMemory() as watch:
            ours = timed(np.load(path, mmap_mode="r"), quality, diversity=metric, seed=seed)
        outcome.rows.append(ours.row(metric, seed) | {"RssAnon GB": watch.most / 1e9})
        outcome.claims.append(at_most(f"{metric}: RssAnon, GB", 4.0, watch.most / 1e9))
    path.unlink()
    return outcome

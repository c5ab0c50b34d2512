"""Embeds windows of documents, each resumable. Knows an encoder and a directory of checkpoints; no storage.

A window is sorted by length, cut into batches, embedded and put back into its own order. Its vectors depend
on its texts and the settings alone, not on where an earlier run was interrupted. While one window is in the
forward pass, a thread tokenises the next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.embedding.batching import compose_batches
from datamask_pipeline.embedding.encoder import Encoder

Tokens = list[list[int]]


def embed_windows(
    encoder: Encoder,
    windows: Iterable[Sequence[str]],
    *,
    batch_tokens: int,
    checkpoints: Path,
    on_documents: Callable[[int], None] | None = None,
) -> Iterator[NDArray[np.float16]]:
    """Vectors of each window, in its order.

    Args:
        encoder: The model.
        windows: Texts of each window.
        batch_tokens: Most tokens of a batch, padding included.
        checkpoints: Directory where each finished window's vectors are kept.
        on_documents: Told the number of documents of each finished window.

    Yields:
        float16 (documents, D), unit norm.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise") as pool:

        def begin(number: int, texts: Sequence[str]) -> "Future[Tokens] | None":
            known = _checkpoint(checkpoints, number).exists()
            return None if known else pool.submit(encoder.tokenise, list(texts))

        pending: list[tuple[int, Future[Tokens] | None]] = []
        for number, texts in enumerate(windows):
            pending.append((number, begin(number, texts)))
            if len(pending) > 1:
                yield _finish(encoder, checkpoints, *pending.pop(0), batch_tokens, on_documents)
        for number, future in pending:
            yield _finish(encoder, checkpoints, number, future, batch_tokens, on_documents)


def embed_tokens(encoder: Encoder, tokens: Tokens, batch_tokens: int) -> NDArray[np.float16]:
    """Vectors of one window of tokenised documents, in its order."""
    vectors = np.empty((len(tokens), encoder.dim), dtype=np.float16)
    for batch in compose_batches([len(ids) for ids in tokens], batch_tokens):
        vectors[batch] = encoder.embed([tokens[index] for index in batch])
    return vectors


def _finish(
    encoder: Encoder,
    checkpoints: Path,
    number: int,
    future: "Future[Tokens] | None",
    batch_tokens: int,
    on_documents: Callable[[int], None] | None,
) -> NDArray[np.float16]:
    path = _checkpoint(checkpoints, number)
    vectors: NDArray[np.float16]
    if future is None:
        vectors = np.load(path)
    else:
        vectors = embed_tokens(encoder, future.result(), batch_tokens)
        private = path.with_suffix(".tmp")
        with private.open("wb") as stream:
            np.save(stream, vectors)
        private.replace(path)
    if on_documents is not None:
        on_documents(len(vectors))
    return vectors


def _checkpoint(directory: Path, number: int) -> Path:
    return directory / f"window-{number:06d}.npy"

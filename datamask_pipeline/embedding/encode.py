"""Embeds windows of documents, each resumable. Knows encoders and a directory of checkpoints; no storage.

A window is sorted by length, cut into batches, embedded and put back into its own order. Its vectors depend
on its texts and the settings alone, not on where an earlier run was interrupted. While one window is in the
forward pass, a thread tokenises the next.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.disk import sync
from datamask_pipeline.embedding.batching import compose_batches
from datamask_pipeline.embedding.encoder import Encoder
from datamask_pipeline.embedding.workers import EncoderWorkers, Tokens
from datamask_pipeline.errors import InputError


@dataclasses.dataclass(frozen=True)
class Window:
    """What the forward pass gave for one window, in its order.

    Attributes:
        vectors_ND: float16, unit norm.
        head_scores_N: float64 by head: scores that further heads read off the same hidden states.
    """

    vectors_ND: NDArray[np.float16]
    head_scores_N: dict[str, NDArray[np.float64]]


def embed_windows(
    encoders: Sequence[Encoder],
    windows: Iterable[Sequence[str]],
    *,
    batch_tokens: int,
    checkpoints: Path,
    on_documents: Callable[[int], None] | None = None,
) -> Iterator[Window]:
    """Vectors of each window, in its order.

    Args:
        encoders: The model, once a worker.
        windows: Texts of each window.
        batch_tokens: Most tokens of a batch, padding included.
        checkpoints: Directory where each finished window's vectors are kept.
        on_documents: Told the number of documents of each finished window.

    Raises:
        InputError: a document has no tokens, or its vector is zero or not finite; rows count over the windows.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    with (
        EncoderWorkers(encoders) as workers,
        ThreadPoolExecutor(1, thread_name_prefix="tokenise") as tokeniser,
    ):

        def begin(number: int, texts: Sequence[str]) -> "Future[Tokens] | None":
            known = _checkpoint(checkpoints, number).exists()
            return None if known else tokeniser.submit(workers.model.tokenise, list(texts))

        def finish(number: int, first: int, future: "Future[Tokens] | None") -> Window:
            window = _window(workers, _checkpoint(checkpoints, number), first, future, batch_tokens)
            if on_documents is not None:
                on_documents(len(window.vectors_ND))
            return window

        pending: list[tuple[int, int, Future[Tokens] | None]] = []
        first = 0
        for number, texts in enumerate(windows):
            pending.append((number, first, begin(number, texts)))
            first += len(texts)
            if len(pending) > 1:
                yield finish(*pending.pop(0))
        for waiting in pending:
            yield finish(*waiting)


def embed_tokens(workers: EncoderWorkers, tokens: Tokens, batch_tokens: int) -> Window:
    """One window of tokenised documents, in its order."""
    vectors_ND = np.empty((len(tokens), workers.model.dim), dtype=np.float16)
    head_scores_N = {name: np.empty(len(tokens), dtype=np.float64) for name in workers.model.heads}
    batches = compose_batches([len(ids) for ids in tokens], batch_tokens)
    results = workers.embed([tokens[row] for row in rows] for rows in batches)
    for rows, (vectors_BD, scores_B) in zip(batches, results, strict=True):
        vectors_ND[rows] = vectors_BD
        for name, values_B in scores_B.items():
            head_scores_N[name][rows] = values_B
    return Window(vectors_ND, head_scores_N)


def _window(
    workers: EncoderWorkers, path: Path, first: int, future: "Future[Tokens] | None", batch_tokens: int
) -> Window:
    """The window as its checkpoint holds it, or computed, seen to be sound and kept there."""
    if future is None:
        with np.load(path) as stored:
            heads = {name: stored[f"head {name}"] for name in workers.model.heads}
            return Window(stored["vectors"], heads)
    tokens = future.result()
    if [] in tokens:
        raise InputError(
            f"encoder {workers.model.model_name!r} makes no token of a document",
            row=first + tokens.index([]),
            remedy="leave the document out, or choose another model",
        )
    window = embed_tokens(workers, tokens, batch_tokens)
    _check_sound(window, tokens, workers.model, first)
    private = path.with_suffix(".tmp")
    arrays = {f"head {name}": values_N for name, values_N in window.head_scores_N.items()}
    with private.open("wb") as stream:
        np.savez(stream, vectors=window.vectors_ND, **arrays)  # type: ignore[arg-type]
    sync(private)
    private.replace(path)
    return window


def _check_sound(window: Window, tokens: Tokens, encoder: Encoder, first: int) -> None:
    # NaN is above nothing.
    sound_N = np.linalg.norm(window.vectors_ND.astype(np.float32), axis=1) > 0.5
    if not sound_N.all():
        row = int(np.argmin(sound_N))
        raise InputError(
            f"encoder {encoder.model_name!r} gives a vector that is zero or not finite",
            row=first + row,
            value=encoder.tokenizer.decode(tokens[row]),
            remedy="check the model's weights, or leave the document out",
        )


def _checkpoint(directory: Path, number: int) -> Path:
    return directory / f"window-{number:06d}.npz"

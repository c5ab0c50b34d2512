"""Encoders at work side by side on one window's batches. Knows no window, text or checkpoint.

A batch's vectors depend on the batch alone: on a processor every worker computes with one thread, so neither
the number of workers nor who finishes first shows in a single bit. Threads of one process share the weights.
"""

import queue
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.embedding.encoder import Encoder

Tokens = list[list[int]]


class Workers:
    """A context: inside it, threads wait for batches.

    Args:
        encoders: One a worker, all of the same model; workers of one device may share theirs.
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        self.model = encoders[0]
        self._idle: queue.SimpleQueue[Encoder] = queue.SimpleQueue()
        for encoder in encoders:
            self._idle.put(encoder)
        self._threads_before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            len(encoders), "embed", initializer=torch.set_num_threads, initargs=(1,)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        # The last thread to set its number also set it for threads yet to come.
        torch.set_num_threads(self._threads_before)

    def embed(
        self, batches: Iterable[Tokens]
    ) -> Iterator[tuple[NDArray[np.float32], dict[str, NDArray[np.float64]]]]:
        """Each batch's vectors_BD and head scores_B, in the batches' order."""
        return self._pool.map(self._embed, batches)

    def _embed(self, tokens: Tokens) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float64]]]:
        encoder = self._idle.get()
        try:
            return encoder.embed(tokens)
        finally:
            self._idle.put(encoder)

"""Encoders at work side by side on one window's batches. Knows no window, text or checkpoint.

A batch's vectors depend on the batch alone: on a processor every worker computes with one thread, so neither
the number of workers nor who finishes first shows in a single bit. Threads of one process share the weights.
"""

import queue
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.embedding.encoder import Encoder
from datamask_pipeline.hardware import one_thread_each

Tokens = list[list[int]]


class EncoderWorkers:
    """A context: inside it, threads wait for batches.

    Args:
        encoders: One a worker, all of the same model; workers of one device may share theirs.
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        self.model = encoders[0]
        self._num_workers = len(encoders)
        self._idle: queue.SimpleQueue[Encoder] = queue.SimpleQueue()
        for encoder in encoders:
            self._idle.put(encoder)

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(one_thread_each(self._num_workers))
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

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

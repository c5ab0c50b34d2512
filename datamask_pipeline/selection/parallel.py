"""One thread a chunk, several chunks at a time, results in order. Knows no metric and no data.

Whatever the number of workers, each chunk is computed by one thread and its result is used in chunk order:
no result depends on the number of cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import chain, islice
from typing import Self, TypeVar

import torch
from torch import Tensor

from datamask_pipeline.hardware import num_cores, one_thread_each

Span = tuple[int, int]
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Workers:
    """Threads over chunks. While it is open, every torch operation of this process runs on one thread.

    Args:
        num_workers: Threads; every core of this process when none.
        device: Where they compute, until the first one begins to be set anew; none is the processor.
    """

    def __init__(self, num_workers: int | None = None, device: torch.device | None = None) -> None:
        self.num_workers, self.device = num_workers or num_cores(), device

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(one_thread_each(self.num_workers, lambda: self.device))
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def map(self, function: Callable[[Item], Outcome], items: Iterable[Item]) -> Iterator[Outcome]:
        """The function of each item, in the items' order; two results a thread wait at most.

        An item that is alone, and what one worker is to do, is computed by who asks: handing it over takes longer than a
        small one.
        """
        if self.num_workers == 1:
            yield from map(function, items)
            return
        first = list(islice(source := iter(items), 2))
        if len(first) == 1:
            yield function(first[0])
            return
        waiting: deque[Future[Outcome]] = deque()
        for item in chain(first, source):
            waiting.append(self._pool.submit(function, item))
            if len(waiting) >= 2 * self.num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def fill(self, function: Callable[[Span], Tensor], spans: Iterable[Span], length: int) -> Tensor:
        """A vector of this length from the parts of its spans.

        Parts do not outlive their copy: small results that stayed would each hold on to a hole of the heap as large
        as the chunk they were computed from, and memory would grow with the number of chunks.
        """
        whole = torch.empty(0)
        for span, part in self.map(lambda span: (span, function(span)), spans):
            if len(whole) != length:
                whole = part.new_empty(length)
            whole[slice(*span)] = part
        return whole

"""The results of a long search, part by part. Knows no list, metric or file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from datamask_pipeline.selection.parallel import Workers

Item = TypeVar("Item")
Part = tuple[Tensor, ...]


class Parts:
    """What a search has found so far, in order.

    Args:
        found: Parts of a run that was interrupted, which are not computed again.
        keep: Called with all parts so far after each, to write them down.
        tell: Called with the number of parts so far and of all.
    """

    def __init__(
        self,
        found: Sequence[Part] = (),
        keep: Callable[[list[Part]], None] = lambda found: None,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.found, self.keep, self.tell = list(found), keep, tell
        self._gathered = 0

    def gather(
        self, workers: Workers, work: Callable[[Item], Part], items: Sequence[Item], later: int = 0
    ) -> list[Part]:
        """The parts of all items, in their order, whatever the number of workers.

        A search of several rounds calls it once a round; `later` is how many parts the rounds to come will add.
        """
        first, self._gathered = self._gathered, self._gathered + len(items)
        for part in workers.map(work, items[max(0, len(self.found) - first) :]):
            self.found.append(part)
            self.keep(self.found)
            self.tell(len(self.found), self._gathered + later)
        return self.found[first : self._gathered]

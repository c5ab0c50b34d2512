"""A stage's work on one crawl, shard by shard: whoever comes takes a shard that nobody is at, on any machine.

Each shard is published by itself; the last step, which makes the artefact out of them, is done once. Knows no stage.
"""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from datamask_pipeline.errors import InputError, IntegrityError, StorageError
from datamask_pipeline.storage import ArtefactBuilder, Ref
from datamask_pipeline.storage.earlier import Earlier
from datamask_pipeline.storage.tombstones import num_purges

#: What is other than before so many times in turn is not read once more.
MOST_CHANGES: Final = 5

#: What a stage returns: one reference, or several.
Made = TypeVar("Made", Ref, tuple[Ref, Ref])


class ShardWork(abc.ABC, Generic[Made]):
    """What a stage does for one crawl.

    Args:
        builder: The artefact in the making.
        names: The crawl's shards in canonical order.
        by_parts: Inputs of which a shard is made from the part of its name alone: where that is what it was, the shard is
            carried over from the crawl's artefact before. None are where it is left out.

    Attributes:
        num_done: How many shards are done, as far as this process knows.
    """

    def __init__(self, builder: ArtefactBuilder, names: Sequence[str], by_parts: Sequence[str] = ()) -> None:
        self.builder, self.names = builder, list(names)
        self._by_parts = by_parts
        self.num_done = 0
        self._num_purges = num_purges(builder.store)

    @abc.abstractmethod
    def finished(self) -> Made | None:
        """What the stage makes, if it is there already."""

    @abc.abstractmethod
    def has(self, name: str) -> bool:
        """Whether a shard's work is done."""

    @abc.abstractmethod
    def write(self, name: str) -> None:
        """Do a shard's work."""

    @abc.abstractmethod
    def finish(self) -> Made:
        """Make the artefact out of all shards."""

    def complete(
        self,
        start: float = 0.0,
        again: "Callable[[], ShardWork[Made]] | None" = None,
        *,
        num_changes: int = 0,
    ) -> Made:
        """What the stage makes; whatever of it is missing is made.

        Args:
            start: Where in the list of shards to begin, as a share of its length.
            again: Begins this work anew: what it is made from may have changed while shards were written, as by a purge.
            num_changes: How often in turn it did, without a purge.

        Raises:
            StorageError: a purge began meanwhile, and `again` is not given.
            InputError: what it is made from never stays as it is.
        """
        done = self.finished()
        if done is not None:
            return done
        whole = self.write_missing(start)
        if again is None and not whole:
            raise StorageError(
                f"a purge began while {self.builder.stage}/{self.builder.key} was made: run again"
            )
        builder = self.builder
        with builder.store.exclusive(builder.stage, builder.key):
            now = self if again is None else again()
            if whole and now.builder.location == builder.location:
                try:
                    return self.finished() or self.finish()
                except IntegrityError:
                    if all(map(self.has, self.names)):
                        raise
                    # A sweep that spares nothing unfinished came between two shards: what it took is written again.
        num_changes = num_changes + 1 if whole and now.builder.location != builder.location else 0
        if num_changes == MOST_CHANGES:
            raise InputError(
                f"{builder.stage} of {builder.key!r}: what it is made from was another each of the {MOST_CHANGES} times "
                "that it was read",
                remedy="run again when nobody writes to it; if nobody does, its source calls the same bytes by another "
                "`digest` each time it is asked, or its settings have another `result_config`",
            )
        return now.complete(start, again, num_changes=num_changes)

    def write_missing(self, start: float = 0.0) -> bool:
        """Write every shard that nobody else writes, and wait for those that others do.

        Args:
            start: As of `complete`.

        Returns:
            Whether all are there; else a purge began, which nothing that was begun before it knows of.
        """
        first = int(start * len(self.names))
        missing = self.names[first:] + self.names[:first]
        while missing := [name for name in missing if not self.has(name)]:
            self.num_done = len(self.names) - len(missing)
            busy = [name for name in missing if not self._try_to_write(name, wait=False)]
            if len(busy) == len(missing):
                self._try_to_write(busy[0], wait=True)
            if self._is_purged():
                return False
        return True

    def _try_to_write(self, name: str, *, wait: bool) -> bool:
        """Write a shard unless somebody else is at it; says whether it is done now."""
        with self.builder.writing(name, wait=wait) as is_ours:
            if is_ours and not self._is_purged() and not self.has(name) and not self._carried_over(name):
                self.write(name)
            self.num_done += is_ours
            return is_ours

    def _carried_over(self, name: str) -> bool:
        return self._earlier is not None and self.builder.carry_part(self._earlier, name)

    @functools.cached_property
    def _earlier(self) -> Earlier | None:
        return self.builder.earlier(self._by_parts) if self._by_parts else None

    def _is_purged(self) -> bool:
        """Whether a purge began since this work did. Asked while a shard is held, for which a purge waits."""
        return num_purges(self.builder.store) != self._num_purges

"""What a document source is. Knows no file format, no file system and nothing of what happens to documents.

A source lists crawls; a crawl is a list of shards; a shard is read as batches in FineWeb's schema. A source
never drops a row silently: what it cannot put into the schema it hands over as a ``Reject``.
"""

import abc
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from datamask_pipeline.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """One file of a crawl.

    Attributes:
        name: Unique in its crawl, without a slash; becomes the name of the part that ingestion writes.
        location: Where it lies, as messages name it.
        digest: Identity of its bytes; equal digests promise equal rows.
        num_bytes: Its size, where known.
    """

    name: str
    location: str
    digest: str
    num_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reject:
    """A row that does not become a document.

    Attributes:
        row: Row in the shard, counted from 0.
        id: The document's id where one can be read.
        reason: One word of letters, digits and ``_`` out of a small vocabulary, e.g. ``wrong_type``.
        detail: The field and what is wrong, for a human; nothing of a text or URL, as withdrawals do not reach it.
    """

    row: int
    id: str | None
    reason: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class SourceBatch:
    """Some consecutive rows of a shard: the ones that fit the schema, and the ones that do not.

    Attributes:
        rows: int64, the row in the shard of every row of ``documents``; none is null.
        documents: FineWeb's columns, then the source's extra columns, each of the type stated; null where unknown.
        rejects: The other rows of this stretch.
    """

    rows: pa.Array
    documents: pa.RecordBatch
    rejects: tuple[Reject, ...] = ()


class Source(abc.ABC):
    """A family member; the subclass is built from its ``Config``.

    Attributes:
        name: The name it is found by.
        Config: Its settings, a model that imports nothing heavy.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Settings]]

    config: Any

    def __init__(self, config: Settings) -> None:
        self.config = config

    def check(self, crawl: str) -> None:  # noqa: B027 - what lies far away is not fetched to be checked
        """Refuse a crawl that cannot be read, as far as it shows without work.

        Raises:
            InputError: a column is missing, or the crawl cannot be read.
        """

    def known_fields(self, crawl: str) -> list[pa.Field] | None:
        """`extra_fields`, where they are known without work; else ``None``."""
        return self.extra_fields(crawl)

    @abc.abstractmethod
    def crawls(self) -> list[str]:
        """Names of the crawls there are, sorted."""

    def about_missing(self, crawl: str) -> str:
        """Why there is no crawl of a name, where something more is known than that; else an empty text."""
        del crawl
        return ""

    @abc.abstractmethod
    def shards(self, crawl: str) -> list[Shard]:
        """The crawl's shards in canonical order.

        Raises:
            InputError: there is no such crawl, or it has no shard.
        """

    def states(self, crawl: str) -> list[tuple[str, str]]:
        """Each of the crawl's shards with what tells cheaply that its bytes are others by now; none where they stay.

        Raises: as `shards`.
        """
        del crawl
        return []

    def num_rows(self, crawl: str) -> int | None:
        """Rows that the crawl's files state without being read; ``None`` where one states none.

        Raises:
            InputError: there is no such crawl, or a file cannot be read.
        """
        del crawl
        return None

    @abc.abstractmethod
    def extra_fields(self, crawl: str) -> list[pa.Field]:
        """Columns beyond FineWeb's that this crawl's documents carry, the union over its shards."""

    @abc.abstractmethod
    def read(self, crawl: str, shard: Shard, *, batch_rows: int) -> Iterator[SourceBatch]:
        """The shard's rows in order, at most ``batch_rows`` at a time.

        Raises:
            InputError: the shard as a whole cannot be read.
        """

    def result_config(self) -> dict[str, Any]:
        """What of the settings changes rows beyond what the shards' digests say; goes into fingerprints.

        All that are not said to be of execution alone, where a source does not say better.
        """
        found: dict[str, Any] = self.config.result_config()
        return found

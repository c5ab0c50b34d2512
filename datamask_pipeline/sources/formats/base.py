"""What a file format is. Knows no file system, no crawl's layout and no network."""

import abc
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, ClassVar

import pyarrow as pa

from datamask_pipeline.settings import Settings
from datamask_pipeline.sources.base import SourceBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One file of a crawl.

    Attributes:
        location: Where it lies, as messages name it.
        open: Opens its bytes for reading, from the beginning.
        local_path: Its path on this machine's disk, if it lies there.
    """

    location: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    local_path: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """How the files' columns become those of FineWeb.

    Attributes:
        renamed: FineWeb's column name -> the files' own name for it.
        optional: FineWeb columns that a file may lack.
        declared: Further columns with their types, for formats that have no types.
    """

    renamed: Mapping[str, str]
    optional: Sequence[str]
    declared: Sequence[pa.Field]


class FileFormat(abc.ABC):
    """A family member, built from its ``Config``: one file of this package with the class as ``FORMAT``.

    Attributes:
        name: The name it is found by.
        suffixes: How its files' names end, in lower case.
        Config: Its settings; none unless a member says so.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    Config: ClassVar[type[Settings]] = Settings

    config: Any

    def __init__(self, config: Settings | None = None) -> None:
        self.config = self.Config() if config is None else config

    @abc.abstractmethod
    def extra_fields(self, file: ShardFile, columns: Columns) -> list[pa.Field]:
        """Columns beyond FineWeb's that the file has.

        Raises:
            InputError: the file cannot be read.
        """

    def num_rows(self, file: ShardFile) -> int | None:
        """Rows that the file states without being read; ``None`` where it states none.

        Raises:
            InputError: the file cannot be read.
        """
        del file
        return None

    @abc.abstractmethod
    def read(
        self, file: ShardFile, columns: Columns, *, crawl: str, extras: Sequence[pa.Field], batch_rows: int
    ) -> Generator[SourceBatch]:
        """The file's rows in order; what does not fit the schema as `Reject`, nothing left out.

        Args:
            file: The file.
            columns: How its columns become FineWeb's.
            crawl: The crawl's name.
            extras: Every extra column of the crawl; those that this file lacks are null.
            batch_rows: Rows a batch holds at most.

        Raises:
            InputError: the file as a whole cannot be read.
        """

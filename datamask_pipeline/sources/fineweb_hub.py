"""FineWeb, or any dataset of its layout, on the Hugging Face hub. Downloads whole files at a pinned commit.

Knows the layout ``data/<dump>/<file>.parquet`` and ``sample/<size>/<file>.parquet``; transfer, cache and
retries are the hub client's. A dump's listing is one request, not one a file; a file in the cache costs none.
"""

import functools
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pyarrow as pa
import pydantic

from datamask_pipeline.errors import InputError
from datamask_pipeline.hub import HubFile, HubRepository
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.sources.base import Shard, Source, SourceBatch
from datamask_pipeline.sources.columns import extra_fields
from datamask_pipeline.sources.formats.parquet import open_parquet, read_parquet
from datamask_pipeline.sources.shard_names import by_shard_name


class FineWebHubConfig(Settings):
    """Which dataset, which dumps, which files."""

    dataset: str = pydantic.Field("HuggingFaceFW/fineweb", description="The dataset's repository on the hub.")
    revision: str = pydantic.Field(
        description="Commit hash of the dataset: FineWeb rewrote dumps after their release, so a branch is refused."
    )
    folder: str = pydantic.Field(
        "data",
        description="Folder whose subfolders are the crawls: `data` for dumps, `sample` for the samples.",
    )
    crawls: tuple[str, ...] = pydantic.Field(
        (), description="The crawls wanted, e.g. `CC-MAIN-2024-10` or `10BT`; empty takes every one there is."
    )
    files: str = pydantic.Field(
        "*.parquet", description="Pattern of the file names wanted, e.g. `000_0000*`."
    )
    max_files: int | None = pydantic.Field(
        None, ge=1, description="Take only the first files of each crawl, by name; null takes all."
    )
    optional_columns: tuple[str, ...] = pydantic.Field(
        ("date",), description="FineWeb columns a file may lack; they are filled with null."
    )
    endpoint: str | None = execution_field(None, description="Another server that speaks the hub's protocol.")
    cache_dir: str | None = execution_field(
        None, description="Where downloads are kept; null is the hub client's own cache."
    )

    @pydantic.field_validator("folder")
    @classmethod
    def _without_slashes(cls, folder: str) -> str:
        if not (name := folder.strip("/")):
            raise ValueError("name the folder whose subfolders are the crawls")
        return name


class FineWebHubSource(Source):
    """Dumps of the dataset as crawls, their files as shards."""

    name = "fineweb_hub"
    Config = FineWebHubConfig

    def __init__(self, config: FineWebHubConfig) -> None:
        self.config = config
        self._repository = HubRepository(
            config.dataset,
            config.revision,
            kind="dataset",
            endpoint=config.endpoint,
            cache_dir=config.cache_dir,
        )

    def crawls(self) -> list[str]:
        if self.config.crawls:
            return sorted(self.config.crawls)
        depth = len(self.config.folder.split("/"))
        listed = self._repository.list_files(self.config.folder)
        return sorted({file.path.split("/")[depth] for file in listed if file.path.count("/") > depth})

    def shards(self, crawl: str) -> list[Shard]:
        return [
            Shard(name, self._url(file.path), file.sha256 or f"git:{file.blob}", file.size)
            for name, file in self._files(crawl).items()
        ]

    def known_fields(self, crawl: str) -> list[pa.Field] | None:
        return None  # a shard would have to be fetched

    def extra_fields(self, crawl: str) -> list[pa.Field]:
        """Those of the crawl's first file with a row; a later file with others is refused when it is read."""
        for file in self._files(crawl).values():
            local = str(self._repository.download(file))
            with open_parquet(local, self._url(file.path)) as opened:
                if opened.metadata.num_rows:
                    return extra_fields(opened.schema_arrow, renamed={})
        return []

    def read(self, crawl: str, shard: Shard, *, batch_rows: int) -> Iterator[SourceBatch]:
        extras = self.extra_fields(crawl)
        local = str(self._repository.download(self._files(crawl)[shard.name]))
        with open_parquet(local, shard.location) as opened:
            yield from read_parquet(
                opened,
                shard.location,
                renamed={},
                optional=self.config.optional_columns,
                extras=extras,
                batch_rows=batch_rows,
            )

    def result_config(self) -> dict[str, Any]:
        return {"optional_columns": list(self.config.optional_columns)}

    @functools.cache  # noqa: B019 - one source lives as long as a stage; a crawl is listed once
    def _files(self, crawl: str) -> dict[str, HubFile]:
        """Shard name -> file, in the order of their paths."""
        if self.config.crawls and crawl not in self.config.crawls:
            raise InputError(
                f"crawl {crawl!r} is not among those configured: {', '.join(self.config.crawls)}",
                remedy="add it to `crawls` of the source",
            )
        folder = f"{self.config.folder}/{crawl}"
        wanted = {
            file.path: file
            for file in self._repository.list_files(folder)
            if fnmatch(file.path.rpartition("/")[2], self.config.files)
        }
        if not wanted:
            raise InputError(
                f"no file matches {self.config.files!r}", file=self._url(folder), remedy="correct `files`"
            )
        paths = list(wanted)[: self.config.max_files]
        named = by_shard_name(((path[len(folder) + 1 :], path) for path in paths), [".parquet"])
        return {name: wanted[path] for name, path in named.items()}

    def _url(self, path: str) -> str:
        return f"hf://datasets/{self.config.dataset}@{self.config.revision}/{path}"


SOURCE = FineWebHubSource

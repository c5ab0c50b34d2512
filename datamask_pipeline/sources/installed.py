"""The embedded default: documentation that the installed distributions carry, as small local crawls.

Needs no hub and no download. The texts are real English, with natural near-duplicates; licences recur word
for word, and some distributions are visited by two crawls. ``language`` and ``token_count`` follow the
stated rules of ``harvest.language``; ``date`` is null, for an installation knows none.
"""

import hashlib
import itertools
import uuid
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

import pyarrow as pa
import pydantic

from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import FINEWEB, column
from datamask_pipeline.settings import Settings
from datamask_pipeline.sources.base import Shard, Source, SourceBatch
from datamask_pipeline.sources.harvest import distributions, language, texts

#: Raised when the same installation would give other documents.
VERSION: Final = "1"

#: What sort of text a document is: ``docstring``, ``page`` or ``description``.
KIND: Final = column(
    "kind", pa.string(), "What the text is: a `docstring`, a `page`, or the `description` of a distribution."
)


class InstalledConfig(Settings):
    """How much is harvested."""

    distributions: tuple[str, ...] = pydantic.Field(
        distributions.LISTED, description="Distributions to harvest; those not installed are left out."
    )
    num_crawls: int = pydantic.Field(2, ge=1, le=16, description="Crawls the distributions are spread over.")
    num_shards: int = pydantic.Field(2, ge=1, le=64, description="Shards of each crawl.")
    documents_per_distribution: int = pydantic.Field(
        52, ge=1, description="Most documents taken from one distribution in one crawl."
    )
    documents_per_file: int = pydantic.Field(
        8, ge=1, description="Most docstrings taken from one Python file, so that no module dominates."
    )
    min_chars: int = pydantic.Field(300, ge=1, description="Shorter texts are no documents.")
    max_chars: int = pydantic.Field(20_000, ge=1, description="Longer texts are no documents.")


class InstalledSource(Source):
    """The harvest; it depends on the listed distributions, their versions and these settings alone."""

    name = "installed"
    Config = InstalledConfig

    def __init__(self, config: InstalledConfig) -> None:
        self.config = config
        self._found = distributions.installed(config.distributions)
        if not self._found:
            raise InputError(
                "none of the distributions to harvest is installed",
                remedy="install this package with its requirements, or use the source `local`",
            )

    def crawls(self) -> list[str]:
        return [crawl_name(number) for number in range(self.config.num_crawls)]

    def shards(self, crawl: str) -> list[Shard]:
        shards = []
        for number in range(self.config.num_shards):
            members = self._members(crawl, number)
            if members:
                hashed = hashlib.sha256(" ".join(map(distributions.digest_of, members)).encode())
                shards.append(Shard(f"{number:03d}_00000", _location(crawl, number), hashed.hexdigest()))
        return shards

    def extra_fields(self, crawl: str) -> list[pa.Field]:
        return [KIND]

    def read(self, crawl: str, shard: Shard, *, batch_rows: int) -> Iterator[SourceBatch]:
        rows = self._rows(crawl, int(shard.name[:3]))
        schema = pa.schema([*FINEWEB, KIND])
        first = 0
        while taken := list(itertools.islice(rows, batch_rows)):
            documents = pa.RecordBatch.from_pylist(taken, schema=schema)
            yield SourceBatch(pa.array(range(first, first + len(taken)), pa.int64()), documents)
            first += len(taken)

    def result_config(self) -> dict[str, Any]:
        return {"harvest_version": VERSION, **self.config.result_config()}

    def _members(self, crawl: str, shard: int) -> list[metadata.Distribution]:
        if crawl not in self.crawls():
            raise InputError(f"no such crawl; there are: {', '.join(self.crawls())}", value=crawl)
        number = self.crawls().index(crawl)
        return [
            found
            for found in self._found
            if number in distributions.crawls_of(found.metadata["Name"], self.config.num_crawls)
            and distributions.shard_of(found.metadata["Name"], self.config.num_shards) == shard
        ]

    def _rows(self, crawl: str, shard: int) -> Iterator[dict[str, Any]]:
        for member in self._members(crawl, shard):
            wanted = filter(self._is_document, self._texts(member))
            for text in itertools.islice(wanted, self.config.documents_per_distribution):
                yield _row(crawl, member, text)

    def _texts(self, member: metadata.Distribution) -> Iterator[texts.HarvestedText]:
        yield texts.description(member)
        for file in texts.prose_files(member.metadata["Name"]):
            yield from itertools.islice(
                filter(self._is_document, texts.texts_of_file(file)), self.config.documents_per_file
            )

    def _is_document(self, text: texts.HarvestedText) -> bool:
        return self.config.min_chars <= len(text.text) <= self.config.max_chars


def crawl_name(number: int) -> str:
    """``PYDOCS-A``, ``PYDOCS-B``, ...: named so that nobody takes it for a Common Crawl dump."""
    return f"PYDOCS-{chr(ord('A') + number)}"


def _location(crawl: str, shard: int) -> str:
    return f"installed://{crawl}/{shard:03d}_00000"


def _row(crawl: str, member: metadata.Distribution, text: texts.HarvestedText) -> dict[str, Any]:
    name = member.metadata["Name"]
    url = f"python://{name.lower()}/{text.path}" + (f"#{text.name}" if text.name else "")
    score = language.english_score(text.text)
    return {
        "text": text.text,
        "id": f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{crawl} {url}')}>",
        "dump": crawl,
        "url": url,
        "date": None,
        "file_path": f"{name}=={member.version}/{text.path}",
        "language": "en" if score >= language.ENGLISH_FROM else "und",
        "language_score": score,
        "token_count": language.count_pieces(text.text),
        "kind": text.kind,
    }


SOURCE = InstalledSource

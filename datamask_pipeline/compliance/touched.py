"""What a purge touches beside versions of the record: releases that have to be made again, and published data sets."""

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import duck
from datamask_pipeline.errors import InputError
from datamask_pipeline.publish.config import IDS
from datamask_pipeline.publish.manifest import NAME, SHARD
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.ref import read_json
from datamask_pipeline.storage.tombstones import hashed_sql


def releases_of(store: Store, crawls: Collection[str]) -> list[str]:
    """The releases that read one of these crawls."""

    def reads(release: str) -> bool:
        config = store.manifest(require(store, "pool", release))["basis"]["config"]
        return bool({*config["crawls"]} & {*crawls})

    return [release for release in store.keys("pool") if reads(release)]


def shards_of(folder: Path) -> list[Path]:
    """The files of a published data set in which its documents are, each of which can be read.

    Args:
        folder: A data set that `datamask release` made, on this machine.

    Raises:
        InputError: it is no such folder, or one of these files is missing or cut or has no documents' names.
        IntegrityError: its manifest is damaged.
    """
    path, remedy = folder / NAME, "give the folder as `datamask release --to` wrote it"
    if not path.is_file():
        raise InputError("no data set", folder=str(folder), remedy=remedy)
    files = read_json(path.read_bytes(), str(path), {"files": dict}, remedy=remedy)["files"]
    shards = [folder / name for name in sorted(files) if name.endswith(SHARD)]
    if not shards:
        raise InputError("a data set without documents", folder=str(folder), remedy=remedy)
    for shard in shards:
        try:
            lacking = sorted({*IDS} - {*pq.read_schema(shard).names})
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"cannot be read: {error}", file=str(shard), remedy=remedy) from error
        if lacking:
            raise InputError(f"lacks {', '.join(lacking)}", file=str(shard), remedy=remedy)
    return shards


def documents_in(
    folder: Path, salt: str, documents: Mapping[str, Collection[str]], contents: Collection[str]
) -> int:
    """How many documents of a published data set are among these, by crawl and id or by content.

    Args:
        folder: A data set that `datamask release` made, on this machine.
        salt: Stands before what is hashed.
        documents: By crawl, hashes of ids.
        contents: Hashes of content hashes.

    Raises:
        InputError: as `shards_of`.
        IntegrityError: as `shards_of`.
    """
    shards = shards_of(folder)
    with tempfile.TemporaryDirectory() as scratch, duck.database(Path(scratch)) as connection:
        connection.execute("CREATE TEMP TABLE gone (crawl VARCHAR, hash VARCHAR)")
        connection.execute("CREATE TEMP TABLE contents (hash VARCHAR)")
        if pairs := [(crawl, name) for crawl, names in documents.items() for name in names]:
            connection.executemany("INSERT INTO gone VALUES (?, ?)", pairs)
        if contents:
            connection.executemany("INSERT INTO contents VALUES (?)", [(name,) for name in contents])
        files = ", ".join(duck.path_literal(str(path)) for path in shards)
        ((number,),) = connection.execute(f"""
            SELECT count(*) FROM read_parquet([{files}])
            WHERE (crawl, {hashed_sql(salt, "id")}) IN (SELECT (crawl, hash) FROM gone)
                OR {hashed_sql(salt, "content_hash")} IN (SELECT hash FROM contents)
        """).fetchall()
    return int(number)

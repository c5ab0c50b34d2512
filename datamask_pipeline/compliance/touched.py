"""What a purge touches beside versions of the record: releases that have to be made again, and published data sets."""

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from datamask_pipeline import duck
from datamask_pipeline.errors import InputError
from datamask_pipeline.publish.manifest import NAME
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.tombstones import hashed_sql


def releases_of(store: Store, crawls: Collection[str]) -> list[str]:
    """The releases that read one of these crawls."""

    def reads(release: str) -> bool:
        config = store.manifest(require(store, "pool", release))["basis"]["config"]
        return bool({*config["crawls"]} & {*crawls})

    return [release for release in store.keys("pool") if reads(release)]


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
        InputError: it is no such folder.
    """
    parts = sorted((folder / "data").glob("*.parquet"))
    if not parts or not (folder / NAME).is_file():
        raise InputError(
            "no data set", folder=str(folder), remedy="give the folder that `datamask release --to` wrote"
        )
    with tempfile.TemporaryDirectory() as scratch, duck.database(Path(scratch)) as connection:
        connection.execute("CREATE TEMP TABLE gone (crawl VARCHAR, hash VARCHAR)")
        connection.execute("CREATE TEMP TABLE contents (hash VARCHAR)")
        if pairs := [(crawl, name) for crawl, names in documents.items() for name in names]:
            connection.executemany("INSERT INTO gone VALUES (?, ?)", pairs)
        if contents:
            connection.executemany("INSERT INTO contents VALUES (?)", [(name,) for name in contents])
        files = ", ".join(duck.path_literal(str(path)) for path in parts)
        ((number,),) = connection.execute(f"""
            SELECT count(*) FROM read_parquet([{files}])
            WHERE (crawl, {hashed_sql(salt, "id")}) IN (SELECT (crawl, hash) FROM gone)
                OR {hashed_sql(salt, "content_hash")} IN (SELECT hash FROM contents)
        """).fetchall()
    return int(number)

"""Takedown: takes what is asked to be withdrawn from a release into the record. Knows no text.

Where a request names a document of a crawl outside the release, and documents of the release have the same text, their
content hash stands beside the request: whoever asks knows one address of a text, and it is to go from every release. For
that the crawls that stand in the record are looked at, whatever release reads them; a crawl that is ingested later is by
the next run.

Off where neither `pool.takedown` nor `pool.robots` asks for anything: then the stage is no part of the flow. The pool reads
what stands in the record, so that what was asked on that day can be read, and applied, again.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline import duck, schema
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.stages.pool import PoolConfig
from datamask_pipeline.stages.takedown_elsewhere import crawls_elsewhere, digest_of, texts_elsewhere
from datamask_pipeline.stages.takedown_entries import read_entries
from datamask_pipeline.stages.takedown_robots import read_snapshot
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL, TEXT, hide
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store
from datamask_pipeline.storage.tombstones import unnamed

STAGE: Final = "takedown"
VERSION: Final = "4"


def is_off(config: PoolConfig) -> bool:
    """Whether the flow goes without this stage."""
    return not config.takedown and config.robots is None


def check(config: PoolConfig) -> None:
    """Refuse what `run` would refuse.

    Raises:
        InputError: a file cannot be read, or an entry cannot be one.
    """
    _rows(config)


def asked(config: PoolConfig) -> Iterator[tuple[str, str, str]]:
    """The input's name, the settings that it comes from, and the digest of what they ask for.

    Raises:
        InputError: a file cannot be read, or an entry cannot be one.
    """
    yield "asked", "what pool.takedown and pool.robots ask to be withdrawn", _digest(_rows(config))


def compared(config: PoolConfig, recorded: Mapping[str, Any]) -> tuple[()]:
    """No settings: what is asked to be withdrawn is an input."""
    del config, recorded
    return ()


def beside(store: Store, crawls: Collection[str]) -> str | None:
    """Digest of what else of the record the result depends on: crawls outside the release; ``None``: there are none."""
    elsewhere = crawls_elsewhere(store, crawls)
    return digest_of(elsewhere) if elsewhere else None


def run(config: PoolConfig, *, store: Store, release: str, documents: Mapping[str, Ref]) -> Ref:
    """Take in what is asked.

    Args:
        config: The entries and the snapshot.
        store: The record.
        release: The release's name.
        documents: Documents of each of its crawls.

    Returns:
        One row per entry, each followed by one per content that it names outside the release alone, then one per host of
        the snapshot, each sorted.

    Raises:
        InputError: a file cannot be read, or an entry cannot be one.
    """
    rows = _rows(config)
    robots = config.robots
    snapshot = None if robots is None else robots.model_dump(mode="json", include={"date", "user_agents"})
    elsewhere = crawls_elsewhere(store, documents)
    sought_in = digest_of(documents, elsewhere) if elsewhere else None
    builder, shown = _begun(store, release, rows, _digest(rows), snapshot, sought_in)
    if (done := builder.finished()) is not None:
        return done
    if elsewhere:
        with duck.connect(store, builder.scratch(), memory_limit=duck.STAGE_MEMORY) as connection:
            texts = texts_elsewhere(connection, store, shown, documents, elsewhere, snapshot)
        shown = hide([*shown, *texts], unnamed(store))
    return _written(builder, shown, snapshot)


def unname(store: Store, release: str, rows: list[dict[str, Any]], basis: Mapping[str, Any]) -> Ref:
    """Write requests again; what was purged from the record since is named in them by a salted hash.

    Args:
        store: The record.
        release: The release's name.
        rows: The requests as they stand in the record.
        basis: Of their manifest.
    """
    inputs, snapshot = basis["inputs"], basis["config"]["robots"]
    builder, shown = _begun(store, release, rows, inputs["asked"], snapshot, inputs.get("crawls"))
    done = builder.finished()
    return _written(builder, shown, snapshot) if done is None else done


def _begun(
    store: Store,
    release: str,
    rows: list[dict[str, Any]],
    requests: str,
    snapshot: Mapping[str, Any] | None,
    crawls: str | None,
) -> tuple[ArtefactBuilder, list[dict[str, Any]]]:
    """The artefact that is to be written, and its requests, without names of what was purged.

    Args:
        store: The record.
        release: The release's name.
        rows: The requests.
        requests: Digest of the requests as they were asked.
        snapshot: Date and crawlers of a robots snapshot.
        crawls: Digest of the crawls in which texts were sought; ``None``: there are none outside the release.
    """
    inputs: dict[str, Ref | str] = {"asked": requests}
    if crawls is not None:
        inputs["crawls"] = crawls
    shown = hide(rows, unnamed(store))
    if hidden := [row["entry"] for row in shown if row["kind"] in (HIDDEN, HIDDEN_URL)]:
        inputs["hidden"] = sha256_text(canonical_json(hidden))
    return store.begin(STAGE, release, version=VERSION, config={"robots": snapshot}, inputs=inputs), shown


def _written(
    builder: ArtefactBuilder, shown: list[dict[str, Any]], snapshot: Mapping[str, Any] | None
) -> Ref:
    table = pa.Table.from_pylist(shown, schema=schema.TAKEDOWN)
    hosts, texts = (sum(row["kind"] == kind for row in shown) for kind in ("robots", TEXT))
    metadata = {"entries": len(shown) - hosts - texts, "robots_hosts": hosts, "robots": snapshot}
    if texts:
        metadata["texts"] = texts
    return builder.commit(
        [builder.write_part("00000", table.to_batches(), schema.TAKEDOWN)], metadata=metadata
    )


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How much is asked."""
    found = manifest["metadata"]
    robots = found["robots"]
    snapshot = f", {found['robots_hosts']} hosts of the robots snapshot of {robots['date']}" if robots else ""
    yield f"asked to be withdrawn: {found['entries']} entries{snapshot}"
    if texts := found.get("texts"):
        yield f"they name {texts} texts in crawls outside {manifest['key']} that its own documents have too"


def amount(manifest: Mapping[str, Any]) -> str:
    """How much was made."""
    found = manifest["metadata"]
    return f"{found['entries'] + found['robots_hosts']} requests"


def _rows(config: PoolConfig) -> list[dict[str, Any]]:
    rows = read_entries(config.takedown, "pool.takedown")
    return rows if config.robots is None else rows + read_snapshot(config.robots, "pool.robots")


def _digest(rows: list[dict[str, Any]]) -> str:
    """Where files lie does not matter; what they say is hashed."""
    return sha256_text(canonical_json([list(row.values()) for row in rows]))

"""Takedown: takes what is asked to be withdrawn from a release into the record. Knows no document.

Off where neither `pool.takedown` nor `pool.robots` asks for anything: then the stage is no part of the flow. The pool reads
what stands in the record, so that what was asked on that day can be read, and applied, again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.stages.pool import PoolConfig
from datamask_pipeline.stages.takedown_entries import read_entries
from datamask_pipeline.stages.takedown_robots import read_snapshot
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL, hide
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import unnamed

STAGE: Final = "takedown"
VERSION: Final = "1"


def is_off(config: PoolConfig) -> bool:
    """Whether the flow goes without this stage."""
    return not config.takedown and config.robots is None


def check(config: PoolConfig) -> None:
    """Refuse what `run` would refuse.

    Raises:
        InputError: a file cannot be read, or an entry cannot be one.
    """
    _rows(config)


def compared(config: PoolConfig, recorded: Mapping[str, Any]) -> tuple[()]:
    """No settings: what is asked to be withdrawn is an input."""
    del config, recorded
    return ()


def run(config: PoolConfig, *, store: Store, release: str) -> Ref:
    """Take in what is asked.

    Args:
        config: The entries and the snapshot.
        store: The record.
        release: The release's name.

    Returns:
        One row per entry, then one per host of the snapshot, each sorted.

    Raises:
        InputError: a file cannot be read, or an entry cannot be one.
    """
    rows = _rows(config)
    # Where files lie does not matter; what they say is hashed.
    asked = sha256_text(canonical_json([list(row.values()) for row in rows]))
    robots = config.robots
    snapshot = None if robots is None else robots.model_dump(mode="json", include={"date", "user_agents"})
    return take_in(store, release, rows, asked=asked, snapshot=snapshot)


def take_in(
    store: Store, release: str, rows: list[dict[str, Any]], *, asked: str, snapshot: Mapping[str, Any] | None
) -> Ref:
    """Write requests; what was purged from the record is named in them by a salted hash.

    Args:
        store: The record.
        release: The release's name.
        rows: The requests.
        asked: Digest of the requests as they were asked.
        snapshot: Date and crawlers of a robots snapshot.
    """
    inputs: dict[str, Ref | str] = {"asked": asked}
    shown = hide(rows, unnamed(store))
    if hidden := [row["entry"] for row in shown if row["kind"] in (HIDDEN, HIDDEN_URL)]:
        inputs["hidden"] = sha256_text(canonical_json(hidden))
    builder = store.begin(STAGE, release, version=VERSION, config={"robots": snapshot}, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    table = pa.Table.from_pylist(shown, schema=schema.TAKEDOWN)
    hosts = sum(row["kind"] == "robots" for row in shown)
    metadata = {"entries": len(shown) - hosts, "robots_hosts": hosts, "robots": snapshot}
    return builder.commit(
        [builder.write_part("00000", table.to_batches(), schema.TAKEDOWN)], metadata=metadata
    )


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How much is asked."""
    found = manifest["metadata"]
    robots = found["robots"]
    snapshot = f", {found['robots_hosts']} hosts of the robots snapshot of {robots['date']}" if robots else ""
    yield f"asked to be withdrawn: {found['entries']} entries{snapshot}"


def amount(manifest: Mapping[str, Any]) -> str:
    """How much was made."""
    return f"{manifest['rows']} requests"


def _rows(config: PoolConfig) -> list[dict[str, Any]]:
    rows = read_entries(config.takedown, "pool.takedown")
    return rows if config.robots is None else rows + read_snapshot(config.robots, "pool.robots")

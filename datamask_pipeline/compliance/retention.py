"""What a record may forget: superseded versions that nothing standing was made from, and work that was given up.

Withdrawals are another thing: `compliance.purge` removes what holds a document; this removes what nobody refers to, by age.
"""

import collections
import contextlib
import dataclasses
import datetime
import itertools
import shutil
from collections.abc import Iterator
from typing import Final

from datamask_pipeline.compliance.graph import Graph, Manifest
from datamask_pipeline.compliance.unfinished import unfinished_key
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.lineage import canonical_json
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.storage import Store, storage_errors
from datamask_pipeline.storage.ref import CURRENT, MANIFEST, SHARDS
from datamask_pipeline.storage.removal import remove_files

#: A superseded model may be in use elsewhere: it stays, with all that it was made from, unless models are asked for.
MODELS: Final = "pretrain"
#: What is superseded or unfinished stays for so long, unless told otherwise: going back to earlier settings finds it again.
DAYS: Final = 30
#: A hundred years: of more, calendars end.
MOST_DAYS: Final = 36_500


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """A version that may go.

    Attributes:
        location: Where it lies in the record.
        stage: Its stage.
        key: Its key.
        num_bytes: Of its files.
        is_unfinished: Whether it has no manifest.
    """

    location: str
    stage: str
    key: str
    num_bytes: int
    is_unfinished: bool


def leftovers(store: Store, *, days: float = DAYS, with_models: bool = False) -> list[Leftover]:
    """What may go, what was made from others before these; writes nothing.

    Standing are all current versions, of retired releases too, whatever was superseded less than `days` ago, and superseded
    models; what one of these was made from stays, however many steps before, and what the same step made with any of all
    these. Unfinished work goes where no file of it was written for `days` and nobody is at work on its stage and key.

    Args:
        store: The record.
        days: How long what is superseded or unfinished stays.
        with_models: Take superseded models as any other version.

    Raises:
        ConfigurationError: no calendar has so many days.
    """
    if not 0 <= days <= MOST_DAYS:
        raise ConfigurationError(f"days={days} lies outside of 0 to {MOST_DAYS:,}")
    graph = Graph(store)
    superseded = _superseded(graph)
    oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    standing = {
        location
        for location, manifest in graph.manifests.items()
        if location in graph.pointed
        or superseded[location] > oldest.timestamp()
        or (manifest["stage"] == MODELS and not with_models)
    }
    kept = standing.union(*map(graph.behind, standing))
    together = {_made_with(graph.manifests[location]) for location in kept}
    kept |= {location for location, manifest in graph.manifests.items() if _made_with(manifest) in together}
    gone = sorted(
        (location for location in graph.manifests if location not in kept),
        key=lambda location: (-int(graph.manifests[location]["written_at_ns"]), location),
    )
    found = [
        Leftover(location, manifest["stage"], manifest["key"], _size(store, location), False)
        for location, manifest in ((location, graph.manifests[location]) for location in gone)
    ]
    for location in graph.unfinished:
        stage, key = unfinished_key(location)
        sizes = _begun(store, location)
        try:
            modified = [store.fs.modified(path) for path in sizes]
        except FileNotFoundError:  # somebody is at work on it
            continue
        if sizes and max(modified) < oldest and not store.is_busy(_maker(stage), key):
            found.append(Leftover(location, stage, key, sum(sizes.values()), True))
    return found


def forget(store: Store, found: list[Leftover]) -> Iterator[Leftover]:
    """Remove leftovers, one after the other; gives each that is gone. What was finished, gone on with, or became current,
    meanwhile stays."""
    store.sweep()  # private files of writers that were killed, checkpoints of work that was given up
    for each in found:
        with store.exclusive(_maker(each.stage), each.key), storage_errors(each.location):
            now = store.current(each.stage, each.key)
            is_current = now is not None and now.location == each.location
            if is_current or (each.is_unfinished and _is_gone_on_with(store, each)):
                continue
            remove_files(store, each.location)
            shutil.rmtree(store.scratch(each.location), ignore_errors=True)
            store.remove_notes(each.location)
        yield each


def _superseded(graph: Graph) -> dict[str, float]:
    """When each version that no pointer names was superseded, in seconds of the epoch.

    That is when the next one of its stage and key was made; of the last one, when the pointer went back to an earlier one.
    """
    written = {location: manifest["written_at_ns"] / 1e9 for location, manifest in graph.manifests.items()}
    versions = collections.defaultdict(list)
    for location in sorted(written, key=written.__getitem__):
        versions[graph.manifests[location]["stage"], graph.manifests[location]["key"]].append(location)
    found: dict[str, float] = {}
    for (stage, key), locations in versions.items():
        found |= {location: written[later] for location, later in itertools.pairwise(locations)}
        if (last := locations[-1]) not in graph.pointed:
            found[last] = written[last]
            with contextlib.suppress(FileNotFoundError):  # somebody removed the pointer
                pointed = graph.store.fs.modified(f"{graph.store.root}/{stage}/{key}/{CURRENT}")
                found[last] = max(found[last], pointed.timestamp())
    return found


def _made_with(manifest: Manifest) -> str:
    """The same for all that one step made at once, and for nothing else."""
    return canonical_json([_maker(manifest["stage"]), manifest["key"], {**manifest["basis"], "stage": ""}])


def _maker(artefact: str) -> str:
    """The stage that makes an artefact: it holds the lease of all that it makes, as of rejected rows beside documents."""
    stage = FLOW.keeper(artefact)
    return artefact if stage is None else stage.name


def _is_gone_on_with(store: Store, each: Leftover) -> bool:
    """Whether unfinished work was finished, or somebody is at a shard of it or wrote some, since it was told."""
    return (
        store.fs.exists(f"{store.root}/{each.location}/{MANIFEST}")
        or store.leases.are_held(f"{_maker(each.stage)}/{each.key}/{SHARDS}")
        or sum(_begun(store, each.location).values()) != each.num_bytes
    )


def _begun(store: Store, location: str) -> dict[str, int]:
    """Bytes of each file of an unfinished version, by path: what was published of it, and its checkpoints or notes."""
    folders = (f"{store.root}/{location}", f"{store.root}/.scratch/{location}")
    return {
        path: each["size"] for folder in folders for path, each in store.fs.find(folder, detail=True).items()
    }


def _size(store: Store, location: str) -> int:
    return int(store.fs.du(f"{store.root}/{location}"))

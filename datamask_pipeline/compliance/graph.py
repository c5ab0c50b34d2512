"""Which artefacts of a record were made from which, superseded ones too, by their manifests. Knows no table."""

import collections
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import CURRENT, MANIFEST, Ref
from datamask_pipeline.storage.tombstones import purged_manifests

Manifest = Mapping[str, Any]
#: Current; current, but made from something superseded; not current any more; removed by a purge.
State = Literal["current", "stale", "superseded", "purged"]
#: A file of a version, finished or not, or what was kept for whoever goes on with it: `location_of` ends in 16 digits.
_IN_A_VERSION: Final = re.compile(r"(?:\.scratch/)?([^./][^/]*/.+/[0-9a-f]{16})/.")


class Graph:
    """The versions of a record.

    Args:
        store: The record.
        with_purged: Those too that were purged, as their tombstones keep them: their rows are gone.

    Attributes:
        manifests: Every finished version, by location.
        pointed: Locations that pointers name.
        purged: Of ``manifests`` those that were purged.
        unfinished: By location, files of versions that have no manifest; checkpoints and notes are not named.
    """

    def __init__(self, store: Store, *, with_purged: bool = False) -> None:
        self.store = store
        store.format()
        names = [path[len(store.root) + 1 :] for path in sorted(store.fs.find(store.root))]
        folders = [name.rpartition("/") for name in names if not name.startswith(".")]
        finished = [folder for folder, _, name in folders if name == MANIFEST and folder]
        with unswept(store, finished):
            self.manifests: dict[str, Manifest] = {each: store.manifest_at(each) for each in finished}
        self.unfinished: dict[str, list[str]] = {}
        for name in names:
            found = _IN_A_VERSION.match(name)
            if found is not None and not any(folder in self.manifests for folder in _folders(name)):
                files = self.unfinished.setdefault(found[1], [])
                files += [name] * (not name.startswith("."))
        self.purged = purged_manifests(store) if with_purged else {}
        self.manifests |= self.purged
        pointers = (folder.partition("/") for folder, _, name in folders if name == CURRENT)
        self._current = {(stage, key): store.current(stage, key) for stage, _, key in pointers}
        self.pointed = {ref.location for ref in self._current.values() if ref is not None}
        self._up_to_date: dict[str, bool] = {}
        self._made_from: dict[str, list[str]] = collections.defaultdict(list)
        for location in self.manifests:
            for _, ref in self.inputs(location):
                self._made_from[ref.location].append(location)

    def inputs(self, location: str) -> Iterator[tuple[str, Ref]]:
        """What a version was made from, by the input's name."""
        return inputs_of(self.manifests[location])

    def of(self, *stages: str) -> list[str]:
        """The versions of some stages, by stage, key and date."""
        found = [location for location, manifest in self.manifests.items() if manifest["stage"] in stages]

        def order(location: str) -> tuple[int, str, int]:
            manifest = self.manifests[location]
            return stages.index(manifest["stage"]), manifest["key"], manifest["written_at_ns"]

        return sorted(found, key=order)

    def behind(self, location: str) -> set[str]:
        """What a version was made from, all the way, as far as the record holds it."""
        found: set[str] = set()
        waiting = [location]
        while waiting:
            for _, ref in self.inputs(waiting.pop()):
                if ref.location in self.manifests and ref.location not in found:
                    found.add(ref.location)
                    waiting.append(ref.location)
        return found

    def resting_on(
        self, locations: Iterable[str], passes: Callable[[str], bool] = lambda _: True
    ) -> set[str]:
        """These versions and all that was made from them.

        Args:
            locations: Where to begin.
            passes: Whether a version that was made from one of them rests on it; by default it does.
        """
        found: set[str] = set()
        waiting = [*locations]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += [location for location in self._made_from.get(here, ()) if passes(location)]
        return found

    def state(self, location: str) -> State:
        """Whether a version counts today."""
        if location in self.purged:
            return "purged"
        if location not in self.pointed:
            return "superseded"
        return "current" if self._is_up_to_date(location) else "stale"

    def _is_up_to_date(self, location: str) -> bool:
        """Whether all that a current version was made from is what it would be made from today, and so on."""
        if location not in self._up_to_date:  # many a way leads to most of them
            self._up_to_date[location] = self._is_made_of_what_is_current(location)
        return self._up_to_date[location]

    def _is_made_of_what_is_current(self, location: str) -> bool:
        manifest, stage = self.manifests[location], FLOW.keeper(self.manifests[location]["stage"])
        for name, ref in self.inputs(location):
            now = self._current.get((ref.stage, ref.key))
            if now is None or now.location not in self.manifests or now.location in self.purged:
                return False
            identities = {now.content_digest}
            if stage is not None:
                identities.add(stage.identity(name.partition("/")[0])(self.store, now))
            if manifest["basis"]["inputs"][name] not in identities or not self._is_up_to_date(now.location):
                return False
        return True


@contextlib.contextmanager
def unswept(store: Store, locations: Iterable[str]) -> Iterator[None]:
    """Inside it, that a version is missing is told as what it is where it was there when the record was listed."""
    try:
        yield
    except IntegrityError as error:
        for location in locations:
            if not store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
                raise IntegrityError(
                    f"{location} was removed while the record was read, as `datamask sweep --remove` or another purge does; "
                    "call again"
                ) from error
        raise


def _folders(name: str) -> Iterator[str]:
    """Every folder above a file."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name

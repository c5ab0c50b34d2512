"""A record that is only looked at: tells what a stage would compute, and writes nothing. Knows no stage."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from datamask_pipeline.errors import DataMaskError, IntegrityError
from datamask_pipeline.storage.changes import current_manifest, differences
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.store import Store

if TYPE_CHECKING:
    from datamask_pipeline.storage.builder import ArtefactBuilder


class WouldComputeError(DataMaskError):
    """A stage came to an artefact that the record does not hold.

    Args:
        stage: Whose artefact.
        why: The reasons, one each.
    """

    def __init__(self, stage: str, why: list[str]) -> None:
        super().__init__(f"{stage}: {'; '.join(why)}")
        self.stage, self.why = stage, why


class Forecast(Store):
    """A record in which every stage ends where its work would begin.

    What is found under settings that were current before counts as current from then on, as in a run.
    """

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None) -> None:
        super().__init__(root, storage_options)
        self._pointed: dict[tuple[str, str], Ref] = {}

    def _refuse_unwritable(self) -> None:
        """Take a record that can only be read."""

    def begin(self, *args: Any, **named: Any) -> "ArtefactBuilder":
        """As of a store.

        Raises:
            WouldComputeError: the artefact is not there.
        """
        builder = super().begin(*args, **named)
        if self.find(builder.stage, builder.key, builder.fingerprint) is None:
            before = current_manifest(self, builder.stage, builder.key)
            why = differences(before, builder._basis, builder.fingerprint) if before else ["not there yet"]
            raise WouldComputeError(builder.stage, why)
        return builder

    def current(self, stage: str, key: str) -> Ref | None:
        """As of a store."""
        return self._pointed.get((stage, key)) or super().current(stage, key)

    def point_to(self, ref: Ref) -> None:
        """Remember it, for this look alone."""
        self._pointed[ref.stage, ref.key] = ref

    def repointed(self) -> list[tuple[Ref, list[str]]]:
        """What was found although another version is current, so that a run would make it current again; why it is not."""
        return [(ref, self._why_not_current(ref)) for _, ref in sorted(self._pointed.items())]

    def _why_not_current(self, ref: Ref) -> list[str]:
        try:
            before = Store.current(self, ref.stage, ref.key)
            if before is None:
                return ["none is current"]
            return differences(self.manifest(before), self.manifest(ref)["basis"], ref.fingerprint)
        except IntegrityError as error:
            return [str(error)]

    def publish_bytes(self, relative: str, data: bytes) -> None:
        """Write nothing."""

    @contextlib.contextmanager
    def exclusive(self, stage: str, key: str, *, wait: bool = True, tell: bool = True) -> Iterator[bool]:
        """Wait for nobody: what is at work is not there yet."""
        yield True

"""What failed in a run, and what of the rest needs it: the others go on. Knows the flow; runs nothing."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Stage

if TYPE_CHECKING:
    from datamask_pipeline.pipeline.chain import Artefact, Pipeline


@dataclasses.dataclass(frozen=True)
class Unmade:
    """What failed in a run, or needs what failed.

    Attributes:
        artefacts: Those of releases, of their arms and of models.
        releases: Those whose steps are not through: nothing is made that goes on from them.
    """

    artefacts: "set[Artefact]" = dataclasses.field(default_factory=set)
    releases: set[str] = dataclasses.field(default_factory=set)

    def add(self, stage: Stage, key: str) -> None:
        """What a stage makes for a key is not made."""
        self.artefacts.update((output.artefact, key) for output in stage.makes)

    def keeps_from(self, pipeline: "Pipeline", stage: Stage, key: str) -> bool:
        """Whether a stage reads for a key what is not made; what an earlier run left of it counts for nothing."""
        read = pipeline.inputs(stage, key) | pipeline.held_inputs(stage, key)
        return not self.artefacts.isdisjoint(_flat(read))

    def add_all_of(self, steps: "list[tuple[str, str]]") -> None:
        """Nothing that these stages make for these keys is made, but for crawls: those are not the release's alone."""
        for name, key in steps:
            if (stage := FLOW.stage(name)).scope != "crawl":
                self.add(stage, key)


def _flat(inputs: "Mapping[str, Artefact | dict[str, Artefact]]") -> "Iterator[Artefact]":
    """The artefacts that a step reads."""
    for read in inputs.values():
        yield from read.values() if isinstance(read, dict) else [read]

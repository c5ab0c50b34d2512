"""An experiment's file as a Dagster resource, named when its job is launched. Knows no asset."""

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.chain import Artefact, Progress
from datamask_pipeline.storage import Ref

if TYPE_CHECKING:
    from datamask_pipeline.experiment.config import ExperimentConfig


class ExperimentResource(dg.ConfigurableResource["ExperimentResource"]):
    """Where an experiment and its data lie, as options of `datamask experiment`. Paths are those of the code server."""

    file: str = Field(description="The experiment's YAML file, e.g. experiments/ngram.yaml.")
    data: str = Field(description="The folder that ${data} stands for in that file.")
    store: str | None = Field(
        default=None, description="Root of the record; by default what the file's `chain.store` says."
    )
    kept: str | None = Field(
        default=None,
        description="Folder of what trained networks found; none is trained again whose file is there.",
    )
    to: str | None = Field(
        default=None,
        description="Folder that the report is written to; by default it is on the asset's page alone.",
    )

    def load(
        self,
        pools: tuple[str, ...] = (),
        progress: Progress | None = None,
        made: dict[Artefact, Ref] | None = None,
    ) -> "tuple[ExperimentConfig, Pipeline]":
        """The experiment and the chain of its collection.

        Args:
            pools: Only these pools of the file; all for no name.
            progress: Told what the chain has done of what.
            made: What earlier steps of the same run made, see `Pipeline`.

        Raises:
            ConfigurationError: the file is missing or wrong.
        """
        # Here, as definitions are loaded without what an experiment computes with.
        from datamask_pipeline.experiment.config import load_experiment

        config, chain = load_experiment(Path(self.file), Path(self.data), pools)
        if self.store is not None:
            chain = chain.model_copy(update={"store": self.store})
        return config, Pipeline(chain, progress=progress, made=made)

    @property
    def kept_folder(self) -> Path | None:
        """Folder of what trained networks found."""
        return None if self.kept is None else Path(self.kept)

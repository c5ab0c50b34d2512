"""The chain as a Dagster resource. Knows how it is configured, not what it does."""

from typing import Any

import dagster as dg
from pydantic import Field

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.chain import Artefact, Progress
from datamask_pipeline.storage import Ref


class PipelineResource(dg.ConfigurableResource[Pipeline]):
    """Builds the chain. Each field takes an ``EnvVar`` too."""

    config: str = Field(description="A packaged configuration's name, or the path of a YAML file.")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings by dotted name that win over the file's."
    )
    store: str | None = Field(
        default=None, description="Root of the record, instead of the configured one: a directory or URL."
    )

    def pipeline(self, progress: Progress | None = None, made: dict[Artefact, Ref] | None = None) -> Pipeline:
        """The chain.

        Args:
            progress: Told what is done of what.
            made: What earlier steps of the same run made, see `Pipeline`.

        Raises:
            ConfigurationError: the configuration is missing or wrong.
        """
        changed = dict(self.settings) | ({"store": self.store} if self.store else {})
        return Pipeline(load_config(self.config, changed), progress=progress, made=made)

"""The chain as a Dagster resource. Knows how it is configured, not what it does."""

import functools
import json
from typing import Any

import dagster as dg
from pydantic import Field

from datamask_pipeline.pipeline import Pipeline, PipelineConfig, load_config
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

    def pipeline(
        self,
        progress: Progress | None = None,
        made: dict[Artefact, Ref] | None = None,
        *,
        run: str | None = None,
    ) -> Pipeline:
        """The chain.

        Args:
            progress: Told what is done of what.
            made: What earlier steps of the same run made, see `Pipeline`.
            run: The run of Dagster that asks: its first step in a process reads the configuration for all that follow it
                there, so that an edit of the file counts from the next run on.

        Raises:
            ConfigurationError: the configuration is missing or wrong.
        """
        changed = dict(self.settings) | ({"store": self.store} if self.store else {})
        if run is None:
            config = load_config(self.config, changed)
        else:
            config = _read_once(run, self.config, json.dumps(changed, sort_keys=True))
        return Pipeline(config, progress=progress, made=made)


@functools.lru_cache(maxsize=8)
def _read_once(run: str, config: str, changed: str) -> PipelineConfig:
    """A run's configuration; one that is wrong is read again when the run asks again."""
    del run
    return load_config(config, json.loads(changed))

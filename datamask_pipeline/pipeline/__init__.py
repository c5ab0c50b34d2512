"""The whole chain in plain Python: one configuration, one method a stage. Knows every stage and no Dagster."""

from datamask_pipeline.pipeline.chain import Pipeline
from datamask_pipeline.pipeline.config import PipelineConfig, load_config

__all__ = ["Pipeline", "PipelineConfig", "load_config"]

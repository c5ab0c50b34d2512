"""The whole chain in plain Python: one flow of stages, one configuration, one runner. Knows no Dagster."""

from datamask_pipeline.pipeline.chain import Pipeline
from datamask_pipeline.pipeline.config import PipelineConfig, load_config
from datamask_pipeline.pipeline.flow import FLOW

__all__ = ["FLOW", "Pipeline", "PipelineConfig", "load_config"]

"""Build the library's objects from configuration. Knows Dagster and the chain; knows no asset."""

from resources.experiment import ExperimentResource
from resources.pipeline import PipelineResource

__all__ = ["ExperimentResource", "PipelineResource"]

"""Choose pre-training data for quality and diversity together. Importing this loads nothing heavy."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before torch: MKL promises sums in a fixed order and a fixed division of work among threads in this mode alone, and OpenMP
# would take fewer threads on a busy machine. On AMD's processors no bit of a product differs by it.
os.environ.setdefault("MKL_CBWR", "AUTO")
os.environ["OMP_DYNAMIC"] = "FALSE"

if TYPE_CHECKING:
    from datamask_pipeline.selection.api import select_documents
    from datamask_pipeline.selection.estimator import DataMaskSelector
    from datamask_pipeline.selection.frontier import Frontier, frontier
    from datamask_pipeline.selection.given import Given
    from datamask_pipeline.selection.shards.api import select_over_shards
    from datamask_pipeline.selection.shards.source import Shard

__all__ = [
    "DataMaskSelector",
    "Frontier",
    "Given",
    "Shard",
    "frontier",
    "select_documents",
    "select_over_shards",
]

_HOMES = {
    "DataMaskSelector": "estimator",
    "Frontier": "frontier",
    "Given": "given",
    "frontier": "frontier",
    "Shard": "shards.source",
    "select_documents": "api",
    "select_over_shards": "shards.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"datamask_pipeline.selection.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

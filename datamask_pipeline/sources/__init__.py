"""Document sources: where crawls come from. Knows no stage, no storage of ours and no Dagster.

One file a member, found by its name; ``make_source("local", {...})`` builds one from plain values.
"""

from datamask_pipeline.sources.base import Reject, Shard, Source, SourceBatch
from datamask_pipeline.sources.registry import make_source

__all__ = ["Reject", "Shard", "Source", "SourceBatch", "make_source"]

"""Document sources: where crawls come from. Knows no stage, no storage of ours and no Dagster.

One file a member; ``families.SOURCES.make("local", {...})`` finds one by its name and builds it.
"""

from datamask_pipeline.sources.base import Reject, Shard, Source, SourceBatch

__all__ = ["Reject", "Shard", "Source", "SourceBatch"]

"""Near-copies: documents whose embeddings point the same way, each with the earlier document that stands for it.

Knows vectors and their order; no text, crawl, store or release.
"""

from datamask_pipeline.near_copies.coverage import coverage_of
from datamask_pipeline.near_copies.index import NearCopyIndex
from datamask_pipeline.near_copies.signatures import sample_of

__all__ = ["NearCopyIndex", "coverage_of", "sample_of"]

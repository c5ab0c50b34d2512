"""Quality scorers: one number per document, higher is better. Knows no stage and no storage.

One file a member, found by its name; ``make_scorer("rules", {})`` builds one from plain values. Importing
this package imports no torch.
"""

from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.registry import make_scorer

__all__ = ["ScoreBatch", "Scorer", "Scores", "make_scorer"]

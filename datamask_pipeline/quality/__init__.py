"""Quality scorers: one number per document, higher is better. Knows no stage and no storage.

One file a member; ``families.SCORERS.make("rules", {})`` finds one by its name and builds it. Importing this
package imports no torch.
"""

from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores

__all__ = ["ScoreBatch", "Scorer", "Scores"]

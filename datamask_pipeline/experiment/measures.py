"""What can be said of an arm's choice without a model: its terms on one scale for all arms, near-copies, domains.

Knows vectors, quality and domains of the half; knows no arm. Shape suffixes: N documents of the half, n chosen ones.
"""

import math
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.experiment.collection import Documents
from datamask_pipeline.near_copies import NearCopyIndex, coverage_of

VERSION: Final = "1"
#: Least cosine of a near-copy, and documents of the half that coverage is measured on.
_NEAR_COPY, _COVERED = 0.98, 2_000


def measured(half: Documents, chosen_n: NDArray[np.int64]) -> dict[str, float]:
    """Figures of one choice.

    Formula:
        ``quality_rank``: mean rank by quality in the half, 0 to 1, higher is better; ``coverage``: mean over documents of
        the half of the largest cosine to a chosen one, higher is better; ``similarity``: mean cosine of two chosen ones,
        lower is more diverse; ``near_copies``: share of the chosen that are near-copies of another one that stands for
        them; ``domains``: different domains, those without one count as one.

    Args:
        half: What was chosen from.
        chosen_n: Places of the chosen documents.

    Cost: the products of the chosen with 2 000 documents, and an index of near-copies.
    """
    vectors = half.vectors.chosen(chosen_n)
    sum_D = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), 4096):
        sum_D += vectors[start : start + 4096].astype(np.float64).sum(axis=0)
    num_chosen = len(chosen_n)
    with tempfile.TemporaryDirectory() as folder:
        near = NearCopyIndex.of(Path(folder) / "index", vectors, threshold=_NEAR_COPY)
        standing = near.num_representatives
    return {
        "quality_rank": float(mean_ranks(half.quality_N)[chosen_n].mean()),
        "coverage": coverage_of(half.vectors, vectors, num_compared=_COVERED, seed=0).mean,
        "similarity": (math.fsum(sum_D**2) - num_chosen) / max(1, num_chosen * (num_chosen - 1)),
        "near_copies": 1 - standing / num_chosen,
        "domains": float(len({half.domains[place] for place in chosen_n})),
    }

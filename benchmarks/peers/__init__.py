"""The engine's opponents, each in its fastest form. Knows no learner of the engine's.

All maximise one function of a set of a given size: ``sum of linear_i over the picks + scale * diversity of the picks``.
At a fixed number of documents that is the engine's objective but for a constant.

Shape suffixes: N documents, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an opponent is given.

    Attributes:
        embeddings_ND: float16 of unit norm.
        linear_N: What a document's quality adds to the objective, its share of the mean included.
        scale: What a raw value of the diversity metric is multiplied by.
        budget: The number of documents to pick.
    """

    embeddings_ND: NDArray[np.float16]
    linear_N: NDArray[np.float64]
    scale: float
    budget: int

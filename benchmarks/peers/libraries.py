"""Facility location by other libraries, each in its fastest exact form. Knows no quality: neither do they.

Shape suffixes: N documents, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.peers import Task


def similarities(embeddings_ND: NDArray[np.float16]) -> NDArray[np.float32]:
    """Every cosine similarity clipped at 0, float32, by the fastest product at hand."""
    rows_ND = torch.from_numpy(embeddings_ND.copy()).float()
    products: NDArray[np.float32] = (rows_ND @ rows_ND.T).clamp_(min=0).numpy()
    return products


def apricot(task: Task) -> NDArray[np.int64]:
    """Picks of apricot-select's lazy greedy."""
    return _fit(similarities(task.embeddings_ND), task.budget)


def compile_apricot(task: Task) -> None:
    """What apricot-select compiles when it is first called, done beforehand."""
    _fit(similarities(task.embeddings_ND[:100]), 10)


def submodlib(task: Task) -> NDArray[np.int64]:
    """Picks of submodlib-py's lazy greedy on a given dense kernel."""
    from submodlib import FacilityLocationFunction

    kernel_NN = similarities(task.embeddings_ND)
    function = FacilityLocationFunction(n=len(kernel_NN), mode="dense", sijs=kernel_NN, separate_rep=False)
    pairs = function.maximize(budget=task.budget, optimizer="LazyGreedy", show_progress=False)
    return np.array([pick for pick, _ in pairs], dtype=np.int64)


def _fit(matrix_NN: NDArray[np.float32], num_picks: int) -> NDArray[np.int64]:
    from apricot import FacilityLocationSelection

    model: Any = FacilityLocationSelection(num_picks, metric="precomputed", optimizer="lazy")
    model.fit(matrix_NN)
    picks: NDArray[np.int64] = np.asarray(model.ranking, dtype=np.int64)
    return picks


LIBRARIES: dict[str, Callable[[Task], NDArray[np.int64]]] = {
    "apricot-select": apricot,
    "submodlib-py": submodlib,
}

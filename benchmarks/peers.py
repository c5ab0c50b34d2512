"""Facility location by other libraries, each in its fastest exact form. Knows no quality: neither do they.

Shape suffixes: N documents, D dimensions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Peer = Callable[[NDArray[np.float16], int], tuple[float, NDArray[np.int64]]]


def similarities(embeddings_ND: NDArray[np.float16]) -> NDArray[np.float32]:
    """Every cosine similarity clipped at 0, float32, by the fastest product at hand."""
    rows_ND = torch.from_numpy(embeddings_ND.copy()).float()
    products: NDArray[np.float32] = (rows_ND @ rows_ND.T).clamp_(min=0).numpy()
    return products


def apricot(embeddings_ND: NDArray[np.float16], budget: int) -> tuple[float, NDArray[np.int64]]:
    """Seconds and picks of apricot-select's lazy greedy; compiled beforehand."""
    from apricot import FacilityLocationSelection

    def fit(matrix_NN: NDArray[np.float32], num_picks: int) -> NDArray[np.int64]:
        model: Any = FacilityLocationSelection(num_picks, metric="precomputed", optimizer="lazy")
        model.fit(matrix_NN)
        picks: NDArray[np.int64] = np.asarray(model.ranking, dtype=np.int64)
        return picks

    fit(similarities(embeddings_ND[:100]), 10)
    begun = time.perf_counter()
    picks = fit(similarities(embeddings_ND), budget)
    return time.perf_counter() - begun, picks


def submodlib(embeddings_ND: NDArray[np.float16], budget: int) -> tuple[float, NDArray[np.int64]]:
    """Seconds and picks of submodlib-py's lazy greedy on a given dense kernel."""
    from submodlib import FacilityLocationFunction

    begun = time.perf_counter()
    kernel_NN = similarities(embeddings_ND)
    function = FacilityLocationFunction(
        n=len(embeddings_ND), mode="dense", sijs=kernel_NN, separate_rep=False
    )
    pairs = function.maximize(budget=budget, optimizer="LazyGreedy", show_progress=False)
    picks = np.array([pick for pick, _ in pairs], dtype=np.int64)
    return time.perf_counter() - begun, picks


PEERS: dict[str, Peer] = {"apricot-select": apricot, "submodlib-py": submodlib}

"""Large blocks are learnt by bands: budgets are kept, bounds hold and are those of the whole block, masks are as good."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.selection.moments import band
from datamask_pipeline.selection.moments.relaxed import RelaxedObjective

METRICS = ("Pair_simi", "DiSF_uncentred")


def block(kind: str, size: int = 900, dim: int = 12, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(size, dim)) + (0.0 if kind == "isotropic" else 0.6)
    if kind == "copies":
        rows[: size // 2] = rows[draws.integers(size // 2, size, size=size // 2)] + 0.01 * draws.normal(
            size=(size // 2, dim)
        )
    return rows.astype(np.float16), draws.normal(size=size)


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(band, "LEAST_BAND", 300)
    monkeypatch.setattr(band, "LEAST_SELECTED", 50)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["isotropic", "shifted", "copies"])
@pytest.mark.parametrize(("ratio", "lamb"), [(0.15, 0.0), (0.3, 0.5), (0.9, 0.5)])
def test_bands_end_where_the_whole_block_does(
    metric: str, kind: str, ratio: float, lamb: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        rows, quality = block(kind, seed=seed)
        settings: dict[str, Any] = {"diversity": metric, "ratio": ratio, "lamb": lamb, "seed": seed}
        # Searches of small blocks would make up for what either leaves.
        settings |= {"chunk_rows": 128, "sample_documents": 256, "num_restarts": 0, "num_kicks": 0}
        whole = select_documents(rows, quality, **settings)
        lower_limits(monkeypatch)
        narrow = select_documents(rows, quality, normalisation_constants=whole.normalisation, **settings)
        monkeypatch.undo()
        assert narrow.mask.sum() == whole.mask.sum() == round(ratio * len(rows))
        assert narrow.certificate.bound is not None
        assert narrow.certificate.bound >= max(whole.objective.value, narrow.objective.value) - 1e-6
        distance = whole.objective.value - whole.objective.random
        assert narrow.objective.value >= whole.objective.value - 0.02 * distance


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", METRICS)
def test_the_bound_and_the_marginals_are_those_of_the_whole_block(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sharing one pass leaves out changes nothing: the tangent's bound by every document's own score."""
    rows, quality = block("copies")
    lower_limits(monkeypatch)
    seen: list[tuple[float, float]] = []
    shared = band.bound_at

    def watched(relaxed: RelaxedObjective, tangent: Any, near: Any, mask_N: Any, gradient_N: Any) -> float:
        bound = shared(relaxed, tangent, near, mask_N, gradient_N)
        direct = relaxed.bound(*relaxed.gradient(tangent, torch.float32), tangent)
        assert direct is not None
        seen.append((bound, direct))
        at_mask, _ = relaxed.gradient(near, torch.float32)
        torch.testing.assert_close(gradient_N, at_mask, rtol=0, atol=1e-6 * float(at_mask.abs().max()))
        return bound

    monkeypatch.setattr(band, "bound_at", watched)
    held = select_documents(rows[:300], quality[:300], diversity=metric, ratio=0.1).held
    for given in (None, held):
        select_documents(rows, quality, diversity=metric, ratio=0.1, given=given, num_steps=15)
    assert len(seen) >= 2
    for bound, direct in seen:
        assert bound == pytest.approx(direct, abs=1e-6)

"""Dense lazy greedy: in memory and on demand, the greedy choice."""

import pytest
import torch

from datamask_pipeline.selection.facility import dense as module
from datamask_pipeline.selection.facility.dense import dense_lazy_greedy
from datamask_pipeline.selection.parallel import Workers


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("on_demand", [False, True])
def test_picks_are_those_of_naive_greedy(monkeypatch, seed, on_demand):
    monkeypatch.setattr(module, "MATRIX_BYTES", 0 if on_demand else 1 << 20)
    monkeypatch.setattr(module, "CHUNK_DOCUMENTS", 16)
    monkeypatch.setattr(module, "SPAN_REFERENCES", 10)
    monkeypatch.setattr(module, "REPORT_EVERY", 4)
    monkeypatch.setattr(module._OnDemand, "first", 2)
    monkeypatch.setattr(module, "RECENT", 5)
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.nn.functional.normalize(torch.randn(70, 6, generator=draws) + 0.3)
    linear_N = 0.02 * torch.randn(70, generator=draws, dtype=torch.float64)
    groups_N = torch.arange(70) % 2
    references_R = torch.arange(0, 70, 2)
    reported = []
    with torch.inference_mode(), Workers(2) as workers:  # as the engine calls it
        picks_P = dense_lazy_greedy(
            rows_ND, references_R, linear_N, 0.8, groups_N, (6, 3), workers, reported.append
        )

    similar_RN = (rows_ND[references_R] @ rows_ND.T).clamp(min=0).double()
    best_R, left, expected = torch.zeros(35, dtype=torch.float64), [6, 3], []
    while len(expected) < 9:
        gains_N = linear_N + 0.8 * (similar_RN - best_R[:, None]).clamp(min=0).mean(0)
        gains_N[expected] = -torch.inf
        for group in (0, 1):
            if left[group] == 0:
                gains_N[groups_N == group] = -torch.inf
        pick = int(gains_N.argmax())
        left[int(groups_N[pick])] -= 1
        expected.append(pick)
        best_R = best_R.maximum(similar_RN[:, pick])
    assert picks_P.tolist() == expected
    assert reported == [4, 8]

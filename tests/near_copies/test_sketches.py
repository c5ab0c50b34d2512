"""Sketches tell apart what shares a key: near-copies stay, most others are not compared."""

import numpy as np
import pytest

from datamask_pipeline.near_copies.signatures import apart, signatures_for


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cosine", [0.98, 0.995])
def test_near_copies_have_near_sketches_and_others_of_their_cluster_do_not(seed: int, cosine: float) -> None:
    draws = np.random.default_rng(seed)
    centres_CD = draws.standard_normal((20, 64))
    vectors_ND = centres_CD[draws.integers(20, size=4_000)] + draws.standard_normal((4_000, 64))
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    noise_ND = draws.standard_normal(vectors_ND.shape) * draws.uniform(
        0.1, 3, 64
    )  # not the same in all directions
    noise_ND -= (noise_ND * vectors_ND).sum(1, keepdims=True) * vectors_ND
    noise_ND /= np.linalg.norm(noise_ND, axis=1, keepdims=True)
    copies_ND = cosine * vectors_ND + np.sqrt(1 - cosine**2) * noise_ND
    signatures = signatures_for(vectors_ND.astype(np.float32), 0.98, seed)
    sketches, others = (
        signatures.keys(each.astype(np.float32), 0, 4_000).sketches_NS for each in (vectors_ND, copies_ND)
    )
    rows_N = np.arange(4_000)
    assert (apart(sketches, rows_N, others, rows_N) <= signatures.most_apart).mean() >= 0.998
    left_P, right_P = draws.integers(4_000, size=(2, 20_000))
    far_P = (vectors_ND[left_P] * vectors_ND[right_P]).sum(1) < 0.9
    near_P = apart(sketches, left_P[far_P], sketches, right_P[far_P]) <= signatures.most_apart
    assert near_P.mean() <= 0.01

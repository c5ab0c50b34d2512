"""What a policy says that it does not read changes no mask of it, whatever is set; pruning and quotas included."""

from typing import Any

import numpy as np
import pytest

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.selection.api import select_documents

#: Another value of each setting that some policy leaves unread.
OTHERS: dict[str, Any] = {
    "lamb": 0.9,
    "diversity": "DiSF_uncentred",
    "diversity_options": {},
    "normalisation": "none",
    "normalisation_constants": {"quality": (0.2, 0.7), "Pair_simi": (-0.9, -0.1)},
    "dtype": "float32",
    "chunk_rows": 64,
}
UNREAD = [(name, setting) for name in POLICIES.names() for setting in sorted(POLICIES.find(name).unread)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("policy", "setting"), UNREAD)
def test_an_unread_setting_changes_no_mask(policy: str, setting: str) -> None:
    draw = np.random.default_rng(8)
    vectors = draw.normal(size=(240, 16)).astype(np.float32)
    quality = draw.integers(0, 40, 240) / 40  # with equal ones, which lots decide
    for more in ({"ratio": 0.2}, {"num_documents": 31, "quality_pruning": 0.3}):
        given: dict[str, Any] = {"policy": policy, "seed": 5, "dtype": "bfloat16", **more}
        before = select_documents(vectors, quality, **given)
        after = select_documents(vectors, quality, **given | {setting: OTHERS[setting]})
        assert (before.mask == after.mask).all()


def test_what_no_mask_depends_on_needs_no_range() -> None:
    draw = np.random.default_rng(0)
    unlike, alike = draw.normal(size=(20, 4)), np.ones((20, 4))
    equal, scores = np.full(20, 0.3), draw.random(20)
    for policy in ("random", "semdedup"):
        found = select_documents(unlike, equal, policy=policy, num_documents=4)
        assert found.mask.sum() == 4
        assert found.objective.quality == pytest.approx(0.0, abs=1e-12), "as far above random masks as it is"
    for policy in ("random", "semdedup", "quality_topk"):
        assert select_documents(alike, scores, policy=policy, num_documents=4).mask.sum() == 4
    with pytest.raises(ConfigurationError, match="'quality' cannot be normalised"):
        select_documents(unlike, equal, policy="quality_topk", num_documents=4)
    with pytest.raises(ConfigurationError, match="'Pair_simi' cannot be normalised"):
        select_documents(alike, scores, policy="greedy", num_documents=4)

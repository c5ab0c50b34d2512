"""Noise is left out and told; what is rare but real is not, and nothing changes where nobody asks."""

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.outliers import outlying
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.reasons import OUTLYING
from datamask_pipeline.selection.rows import MemoryRows

DIM = 96


def polluted(seed: int):
    """400 documents of twelve topics, one with a dozen alone, exact copies among them; a fifth of the pool is noise."""
    draws = np.random.default_rng(seed)
    topic = np.concatenate([draws.integers(1, 12, 373), np.zeros(12, int)])
    rows = (
        0.6 * draws.normal(size=DIM)
        + draws.normal(size=(12, DIM))[topic]
        + 0.5 * draws.normal(size=(385, DIM))
    )
    rows = np.concatenate([rows, np.repeat(rows[:1], 15, axis=0), draws.normal(size=(100, DIM))])
    rare, noise = np.zeros(500, bool), np.zeros(500, bool)
    rare[373:385] = noise[400:] = True
    return (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32),
        draws.random(500),
        rare,
        noise,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "Facility"])
def test_planted_noise_is_chosen_without_and_not_with_the_guard(name: str) -> None:
    rows, quality, _, noise = polluted(0)
    settings = {"diversity": name, "ratio": 0.1}
    before = select_documents(rows, quality, **settings)
    assert noise[before.mask].mean() > 0.3
    result = select_documents(rows, quality, outlier_deviations=6, **settings)
    assert not noise[result.mask].any()
    assert set(result.reasons[noise]) == {OUTLYING}
    assert result.record["rows_outlying"] == 100
    assert "among the documents that were not outlying" in result.certificate.method
    # Elsewhere nothing is lost: it is the selection from the pool that never had any noise.
    clean = select_documents(rows[~noise], quality[~noise], diversity=name, num_documents=50)
    assert result.objective.value == pytest.approx(clean.objective.value, abs=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_rare_topics_and_copies_stay(seed: int) -> None:
    rows, _, rare, noise = polluted(seed)
    with Workers(None) as workers:
        out = outlying(MemoryRows(torch.from_numpy(rows), 64), 6.0, 0, workers).numpy()
        assert np.array_equal(out, noise)
        clean = outlying(MemoryRows(torch.from_numpy(rows[~noise]), 64), 6.0, 0, workers)
        assert not clean.any()
        same = outlying(MemoryRows(torch.from_numpy(rows[:1].repeat(30, 0)), 64), 6.0, 0, workers)
        assert not same.any()
    assert rare.sum() == 12


def test_the_likeness_is_its_definition() -> None:
    rows = polluted(1)[0][::4]
    products = rows.astype(float) @ rows.T
    np.fill_diagonal(products, -2)
    likeness = np.clip(-np.sort(-products, axis=1)[:, :8], 0, None).mean(1)
    median = np.median(likeness)
    spread = 1.4826 * np.median(median - likeness[likeness < median])
    for deviations in (0.5, 1.0, 2.0, 4.0):
        with Workers(1) as workers:
            out = outlying(MemoryRows(torch.from_numpy(rows.copy()), 64), deviations, 0, workers).numpy()
        sure = np.abs(median - deviations * spread - likeness) > 0.01
        assert np.array_equal(out[sure], (likeness < median - deviations * spread)[sure])


def test_it_is_in_no_record_where_it_is_not_asked_for_and_refused_where_too_few_are_left() -> None:
    assert "outlier_deviations" not in SelectionConfig().result_config()
    assert SelectionConfig(outlier_deviations=6).result_config()["outlier_deviations"] == 6
    rows, quality, _, _ = polluted(0)
    with pytest.raises(
        ConfigurationError, match=r"outlier_deviations 6\.0 leaves 400 where the budget needs 450"
    ):
        select_documents(rows, quality, outlier_deviations=6, num_documents=450)
    with pytest.raises(ConfigurationError, match="outlier_deviations"):
        select_documents(rows, quality, outlier_deviations=0)

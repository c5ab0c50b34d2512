"""Selections along lambda and along the ratio: what must be monotone is, and none is worse than one made alone."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from datamask_pipeline import frontier, select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.moments import band

LAMBS = (0.8, 0.0, 1.0)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "Facility"])
def test_quality_never_falls_and_diversity_never_rises_with_lambda(name: str, clustered) -> None:
    found = frontier(*clustered, lambs=LAMBS, diversity=name, ratio=0.1)
    assert found.at == tuple(sorted(LAMBS))
    table = found.table().to_pydict()
    assert table["lamb"] == sorted(LAMBS)
    assert table["documents"] == [40] * 3
    for one, other in pairwise(range(3)):
        assert table["quality"][other] >= table["quality"][one]
        assert table["diversity"][other] <= table["diversity"][one]
    for lamb, result in zip(found.at, found.results, strict=True):
        alone = select_documents(*clustered, lamb=lamb, diversity=name, ratio=0.1)
        assert result.objective.value >= alone.objective.value - 2e-4
        assert result.certificate.bound >= alone.objective.value - 1e-6
        assert result.normalisation == found.results[0].normalisation
        value = lamb * result.objective.quality + (1 - lamb) * result.objective.diversity
        assert result.objective.value == pytest.approx(value, abs=1e-12)
        assert result.record["config"]["lamb"] == lamb


def test_a_mask_that_another_lambda_found_is_measured_anew() -> None:
    """A learner that has hardly begun misses what its neighbours find."""
    draws = np.random.default_rng(3)
    rows, quality = draws.normal(size=(9, 4)), draws.random(9)
    hardly = {"policy": "policy_gradient", "num_epochs": 3, "num_rollouts": 4, "partial": 1.0, "init": "same"}
    found = frontier(rows, quality, lambs=np.linspace(0, 1, 9), num_documents=3, dtype="float32", **hardly)
    assert any("mask_of_lamb" in result.record["learner"] for result in found.results)
    assert np.all(np.diff(found.table().column("quality").to_numpy()) >= 0)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for lamb, result in zip(found.at, found.results, strict=True):
        (zero_q, one_q), (zero_d, one_d) = (result.normalisation[name] for name in ("quality", "Pair_simi"))

        def value(
            mask: tuple[int, ...],
            lamb: float = lamb,
            ends: tuple[float, ...] = (zero_q, one_q, zero_d, one_d),
        ) -> float:
            products = unit[list(mask)] @ unit[list(mask)].T
            spread = -(products.sum() - 3) / 6
            mean = quality[list(mask)].mean()
            return lamb * (mean - ends[0]) / (ends[1] - ends[0]) + (1 - lamb) * (spread - ends[2]) / (
                ends[3] - ends[2]
            )

        values = {mask: value(mask) for mask in combinations(range(9), 3)}
        chosen = tuple(np.flatnonzero(result.mask).tolist())
        assert result.objective.value == pytest.approx(values[chosen], abs=1e-5)


@pytest.mark.slow
def test_coverage_never_falls_with_the_ratio(clustered) -> None:
    ratios = (0.2, 0.02, 0.1)
    found = frontier(*clustered, ratios=ratios, diversity="Facility", lamb=0.0)
    covered = [result.objective.raw["Facility"] for result in found.results]
    assert covered == sorted(covered)
    assert found.table().column("documents").to_pylist() == [8, 40, 80]
    moments = frontier(*clustered, ratios=ratios, quality_pruning=0.5)
    for ratio, result in zip(moments.at, moments.results, strict=True):
        alone = select_documents(*clustered, ratio=ratio, quality_pruning=0.5)
        assert result.objective.value >= alone.objective.value - 2e-4
        assert result.mask.sum() == alone.mask.sum()
        assert result.certificate.gap < 0.02


def test_what_is_no_frontier_is_refused(clustered) -> None:
    for given, said in (
        ({}, "give one of them"),
        ({"lambs": [0.1], "ratios": [0.1]}, "give one of them"),
        ({"lambs": []}, "different numbers"),
        ({"lambs": [0.1, 0.1]}, "different numbers"),
        ({"lambs": [0.1], "lamb": 0.5}, "is varied by"),
        ({"lambs": [0.1, 1.1]}, "lamb"),
        ({"ratios": [0.1], "num_documents": 5}, "one budget"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            frontier(*clustered, **given)


def test_what_the_frontier_does_not_take_is_told_as_that(clustered) -> None:
    rows = clustered[0]
    for name, value in {
        "target": rows[:3],
        "avoid": rows[:3],
        "given": None,
        "max_copies": 2,
        "ids": list(range(400)),
        "known_groups": (),
        "checkpoint_dir": "there",
        "progress": print,
    }.items():
        with pytest.raises(
            ConfigurationError, match=rf"a frontier takes no `{name}`; call select_documents at each lamb"
        ):
            frontier(*clustered, lambs=[0.5], **{name: value})
    for wrong in (0.5, None, "0.5", ["much"], [[0.5]]):
        given = {"ratios": wrong} if wrong is not None else {"ratios": [wrong]}
        with pytest.raises(ConfigurationError, match=r"ratios of a frontier must be .*numbers.*not"):
            frontier(*clustered, **given)


@pytest.mark.parametrize(
    "along", [{"lambs": (0.0, 0.5, 0.9), "ratio": 0.1}, {"ratios": (0.1, 0.9), "lamb": 0.3}]
)
def test_a_policy_that_reads_no_metric_keeps_its_own_masks(along, clustered) -> None:
    """By Pair_simi another lambda's mask, or a smaller one filled up, is better than what GIST chooses."""
    found = frontier(*clustered, policy="gist", **along)
    fixed = {name: value for name, value in along.items() if name in ("lamb", "ratio")}
    for value, result in zip(found.at, found.results, strict=True):
        alone = select_documents(*clustered, policy="gist", **fixed, **{found.along: value})
        assert result.mask.tolist() == alone.mask.tolist()
        assert result.record["learner"] == pytest.approx(alone.record["learner"])


@pytest.mark.slow
def test_a_term_without_a_range_is_refused_wherever_a_lambda_weighs_it(clustered) -> None:
    rows = clustered[0][:60]
    for lambs in ([0.0, 0.5], [0.3, 0.5], [0.0, 1.0]):
        with pytest.raises(ConfigurationError, match="'quality' cannot be normalised"):
            frontier(rows, np.ones(60), lambs=lambs)
    (alone,) = frontier(rows, np.ones(60), lambs=[0.0]).results
    assert alone.normalisation["quality"] == (1.0, 2.0)
    alike = np.ones((60, 4)) + 1e-12 * np.arange(60)[:, None]
    with pytest.raises(ConfigurationError, match="'Pair_simi' cannot be normalised"):
        frontier(alike, np.arange(60.0), lambs=[0.5, 1.0])


@pytest.mark.slow
def test_the_scale_of_a_frontier_is_that_of_its_lambdas_alone(clustered) -> None:
    found = frontier(*clustered, lambs=[0.0, 1.0])
    for lamb, result in zip(found.at, found.results, strict=True):
        alone = select_documents(*clustered, lamb=lamb)
        for name, ends in alone.normalisation.items():
            assert result.normalisation[name] == pytest.approx(ends, abs=1e-8)
        assert result.objective.value >= alone.objective.value - 2e-4
        assert result.record["config"]["lamb"] == lamb


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_masks_of_neighbours_are_measured_where_bands_are_learnt(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners of bands measure their mask: a point that takes a neighbour's must not tell what its own was worth."""
    monkeypatch.setattr(band, "LEAST_BAND", 128)
    monkeypatch.setattr(band, "LEAST_SELECTED", 16)
    taken = 0
    for seed in range(3):
        draws = np.random.default_rng(seed)
        rows, quality = draws.normal(size=(1_200, 8)), draws.random(1_200)
        found = frontier(
            rows, quality, lambs=np.linspace(0.4, 0.6, 9), ratio=0.1, diversity=name, num_steps=2
        )
        for result in found.results:
            zero, one = result.normalisation["quality"]
            mean = (quality[result.mask].mean() - zero) / (one - zero)
            assert result.objective.quality == pytest.approx(mean, abs=1e-9)
            taken += "mask_of_lamb" in result.record["learner"]
    assert taken, "no point took another's mask, so that nothing was tried"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("frozen", [False, True])
def test_random_masks_are_worth_at_each_lambda_what_they_are_worth_alone(frozen: bool, clustered) -> None:
    settings = {"diversity": "Pair_simi", "ratio": 0.1, "num_restarts": 0, "num_kicks": 0}
    settings |= (
        {"normalisation_constants": {"quality": (0.1, 0.7), "Pair_simi": (-0.4, -0.1)}} if frozen else {}
    )
    settings |= {} if frozen else {"normalisation": "none"}
    found = frontier(*clustered, lambs=(0.0, 0.3, 1.0), **settings)
    for lamb, result in zip(found.at, found.results, strict=True):
        alone = select_documents(*clustered, lamb=lamb, **settings)
        assert result.objective.random == pytest.approx(alone.objective.random, abs=1e-8)

"""Blocks on which a learner once went wrong without a word."""

from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.reasons import TOO_LONG


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "dim", "num_documents"),
    [("Pair_simi", 3, 20), ("DiSF_uncentred", 8, 2), ("Vendi", 8, 2), ("LogDet", 2, 20), ("DiSF", 3, 20)],
)
def test_few_directions_never_end_worse_than_random(metric: str, dim: int, num_documents: int) -> None:
    for seed in range(200, 206):
        rows = np.random.default_rng(seed).normal(size=(200, dim)).astype(np.float32)
        result = select_documents(
            rows,
            np.zeros(200),
            lamb=0.0,
            num_documents=num_documents,
            seed=seed,
            diversity=metric,
            num_kicks=2,
        )
        zero, one = result.normalisation[metric]
        assert one > zero
        assert result.objective.value >= result.objective.random


def test_a_scale_that_would_turn_a_term_round_is_refused(clustered) -> None:
    constants = {"quality": (0.0, 1.0), "Pair_simi": (1.0, 0.0)}
    with pytest.raises(ConfigurationError, match="Pair_simi"):
        select_documents(*clustered, normalisation_constants=constants)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", ["quality_topk", "datamask"])
def test_quotas_on_the_worse_group_take_its_best(policy: str) -> None:
    draws = np.random.default_rng(0)
    groups = np.array(["news", "forum"] * 300)
    quality = np.where(groups == "news", 0.8, 0.2) + 0.05 * draws.normal(size=600)
    rows = draws.normal(size=(600, 16)).astype(np.float32)
    result = select_documents(
        rows, quality, groups=list(groups), quotas={"news": 0.1, "forum": 0.9}, policy=policy, ratio=0.1
    )
    forum = groups == "forum"
    assert quality[result.mask & forum].mean() > quality[forum].mean() + 0.02
    assert result.objective.value > result.objective.random


@pytest.mark.slow
def test_the_value_of_random_masks_is_theirs_under_quotas() -> None:
    draws = np.random.default_rng(0)
    groups = ["news", "forum"] * 300
    quality = np.where(np.array(groups) == "news", 0.8, 0.2) + 0.05 * draws.normal(size=600)
    rows = draws.normal(size=(600, 16)).astype(np.float32)
    shares = {"groups": groups, "quotas": {"news": 0.3, "forum": 0.7}, "ratio": 0.2, "lamb": 1.0}
    found = [select_documents(rows, quality, policy="random", seed=seed, **shares) for seed in range(20)]
    reached = [result.objective.value for result in found]
    assert abs(np.mean(reached) - found[0].objective.random) < 4 * np.std(reached) / np.sqrt(20)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", ["datamask", "policy_gradient"])
@pytest.mark.parametrize("groups", [["a", "b"] * 150, ["a"] * 300])
def test_a_quota_of_nothing_takes_nothing(policy: str, groups: list[str]) -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.normal(size=(300, 8)).astype(np.float32), draws.normal(size=300)
    few = {"num_epochs": 5, "num_rollouts": 4, "partial": 0.5} if policy == "policy_gradient" else {}
    result = select_documents(rows, quality, groups=groups, quotas={"a": 1.0, "b": 0.0}, policy=policy, **few)
    assert result.mask.sum() == 30
    assert {group for group, chosen in zip(groups, result.mask, strict=True) if chosen} == {"a"}


def test_batches_hold_documents_of_many_small_quotas() -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.normal(size=(600, 8)).astype(np.float32), draws.normal(size=600)
    quotas = {f"d{number}": 1 / 30 for number in range(30)}
    result = select_documents(
        rows,
        quality,
        groups=[f"d{row % 30}" for row in range(600)],
        quotas=quotas,
        policy="policy_gradient",
        num_epochs=5,
        num_rollouts=8,
    )
    assert result.mask.reshape(20, 30).sum(0).tolist() == [2] * 30


@pytest.mark.parametrize("spoil", [lambda q: np.concatenate([[1e7], q[1:]]), lambda q: q + 1e8])
def test_an_outlier_or_an_offset_blurs_no_ranking(spoil) -> None:
    draws = np.random.default_rng(1)
    rows, quality = draws.normal(size=(300, 8)).astype(np.float32), spoil(draws.normal(size=300))
    result = select_documents(rows, quality, policy="quality_topk")
    assert set(np.flatnonzero(result.mask)) == set(np.argsort(-quality)[:30])


def test_equal_token_counts_are_a_budget_in_documents(clustered) -> None:
    rows, quality = clustered
    documents = select_documents(rows, quality, num_documents=40)
    tokens = select_documents(rows, quality, token_counts=np.full(400, 10.0), num_tokens=400)
    assert tokens.mask.sum() == 40
    assert tokens.objective.value > 0.98 * documents.objective.value


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["Pair_simi", "Facility", "DiSF"])
def test_with_tokens_the_default_is_no_worse_than_the_best_by_quality(metric: str) -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.normal(size=(80, 16)).astype(np.float32), draws.normal(size=80)
    tokens = draws.integers(50, 2000, 80).astype(float)
    for lamb in (0.5, 1.0):
        shared = {"diversity": metric, "lamb": lamb, "token_counts": tokens, "num_tokens": 10_000}
        ours, plain = (
            select_documents(rows, quality, policy=p, **shared) for p in ("datamask", "quality_topk")
        )
        assert ours.objective.value >= plain.objective.value


def test_tokens_are_filled_with_whatever_still_fits() -> None:
    rows = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    quality, tokens = np.linspace(1, 0, 100), np.full(100, 10.0)
    tokens[3] = 240.0
    result = select_documents(rows, quality, token_counts=tokens, num_tokens=500, policy="quality_topk")
    assert tokens[result.mask].sum() == 500
    tokens[3] = 260.0
    result = select_documents(rows, quality, token_counts=tokens, num_tokens=500, policy="quality_topk")
    assert tokens[result.mask].sum() == 500
    assert np.flatnonzero(result.reasons == TOO_LONG).tolist() == [3]
    with pytest.raises(InputError, match="token_counts"):
        select_documents(rows, quality, token_counts=tokens[:5])


FEW = {"num_restarts": 2, "num_kicks": 2}
LEARNERS = [
    {"diversity": "DiSF", "num_restarts": 1, "num_kicks": 0},
    {"diversity": "Pair_simi", **FEW},
    {"diversity": {"Facility": 1.0, "Pair_simi": 1.0}},
    {"policy": "semdedup"},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_copies_within_clusters_are_chosen_uniformly_over_seeds(learner) -> None:
    draws = np.random.default_rng(0)
    rows = np.repeat(draws.normal(size=(12, 6)).astype(np.float32), 5, axis=0)
    quality = np.repeat(draws.normal(size=12), 5)
    chosen = np.zeros((12, 5))
    for seed in range(60):
        result = select_documents(
            rows, quality, num_documents=12, lamb=0.2, normalisation="none", seed=seed, **learner
        )
        chosen += result.mask.reshape(12, 5)
    expected = chosen.mean(1, keepdims=True)
    open_clusters = (expected[:, 0] > 5) & (expected[:, 0] < 55)
    share = expected[open_clusters] / 60
    deviation = (chosen[open_clusters] - expected[open_clusters]) / np.sqrt(60 * share * (1 - share))
    assert np.abs(deviation).max() < 4


@pytest.mark.slow
def test_a_resumed_run_has_the_bound_of_an_undisturbed_one(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    rows, quality = draws.normal(size=(400, 24)).astype(np.float32), draws.random(400)
    settings = {"diversity": "Vendi", "dtype": "bfloat16", "gap_tolerance": 0.003, "num_steps": 30}

    class StoppedError(Exception):
        pass

    def stop(line: str, step: int, total: int | None) -> None:
        if step == 13:
            raise StoppedError

    whole = select_documents(rows, quality, **settings)
    assert whole.record["learner"]["steps"] > 13
    with pytest.raises(StoppedError):
        select_documents(
            rows, quality, checkpoint_dir=tmp_path, checkpoint_seconds=0, progress=stop, **settings
        )
    resumed = select_documents(rows, quality, checkpoint_dir=tmp_path, **settings)
    assert resumed.certificate == whole.certificate
    assert resumed.mask.tobytes() == whole.mask.tobytes()


def test_rows_beyond_the_range_of_squares_are_rows(clustered) -> None:
    rows, quality = clustered
    scaled = rows.copy()
    scaled[7] *= 1e25
    scaled[8] *= 1e-25
    plain, found = select_documents(rows, quality), select_documents(scaled, quality)
    assert found.objective.value == pytest.approx(plain.objective.value, abs=1e-4)
    assert found.marginals.diversity_N[7] == pytest.approx(plain.marginals.diversity_N[7], rel=1e-2)


@pytest.mark.parametrize("spoil", [lambda q: q.astype(str), lambda q: q.astype("M8[s]"), lambda q: q + 1j])
def test_what_is_no_number_is_no_score(spoil, clustered) -> None:
    rows, quality = clustered
    with pytest.raises(InputError, match="real numbers"):
        select_documents(rows, spoil(quality))


def test_arrays_of_any_byte_order_and_layout_are_the_same(clustered, tmp_path: Path) -> None:
    rows, quality = clustered
    plain = select_documents(rows, quality)
    for given in (rows.astype(">f4"), np.asfortranarray(rows)):
        found = select_documents(given, quality)
        assert found.logits.tobytes() == plain.logits.tobytes()
    with pytest.raises(InputError, match="no such file"):
        select_documents(tmp_path / "rows.npy", quality)
    (tmp_path / "rows.npy").write_bytes(b"junk")
    with pytest.raises(InputError, match=r"no \.npy that can be mapped"):
        select_documents(tmp_path / "rows.npy", quality)


def test_everything_selected_leaves_no_gap(clustered) -> None:
    result = select_documents(*clustered, num_documents=400, normalisation="none")
    assert result.certificate.gap == 0

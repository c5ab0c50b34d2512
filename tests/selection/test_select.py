"""The engine's one function: what it finds, proves and reports."""

import os
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from datamask_pipeline import hardware, select_documents
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.moments import moments_of
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.given import Given

CONCAVE = ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi"]
FAST = {"num_epochs": 40, "num_rollouts": 16, "partial": 0.5}


def fast(policy: str) -> dict[str, float]:
    return FAST if policy == "policy_gradient" else {}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("policy", POLICIES.names())
@pytest.mark.parametrize("metric", ["Pair_simi", "Facility"])
def test_every_policy_meets_the_budget_and_reports(policy, metric, clustered) -> None:
    rows, quality = clustered
    metric = "Pair_graph" if policy == "partitioned_greedy" else metric
    result = select_documents(rows, quality, policy=policy, diversity=metric, ratio=0.1, **fast(policy))
    assert result.mask.sum() == 40
    assert result.mask.dtype == bool
    assert result.logits.shape == result.probabilities.shape == (400,)
    assert np.isfinite(result.logits).all()
    assert ((result.probabilities >= 0) & (result.probabilities <= 1)).all()
    assert result.probabilities.sum() == pytest.approx(40, rel=0.01)
    assert sum(result.record["reasons"].values()) == 400
    assert result.objective.value == pytest.approx(
        0.5 * result.objective.quality + 0.5 * result.objective.diversity
    )
    assert result.certificate.bound is None or result.certificate.bound >= result.objective.value - 1e-9
    assert result.timings["total"] >= result.timings["learning"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("metric", sorted(METRICS.classes()))
def test_objective_without_normalisation_is_the_stated_sum(metric, clustered) -> None:
    rows, quality = clustered
    result = select_documents(
        rows, quality, diversity=metric, normalisation="none", lamb=0.3, ratio=0.1, num_restarts=1
    )
    value = METRICS.make(metric).values(torch.from_numpy(rows), torch.from_numpy(result.mask)[None])
    expected = 0.3 * quality[result.mask].mean() + 0.7 * float(value[0])
    assert result.objective.value == pytest.approx(expected, rel=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", CONCAVE)
def test_the_bound_holds_and_the_optimum_is_found_where_all_masks_can_be_tried(metric, clustered) -> None:
    rows, quality = clustered[0][:14], clustered[1][:14]
    result = select_documents(rows, quality, diversity=metric, num_documents=5)
    metric_object = METRICS.make(metric)
    masks = torch.zeros(2002, 14, dtype=torch.bool)
    for row, chosen in enumerate(combinations(range(14), 5)):
        masks[row, list(chosen)] = True
    raw = metric_object.values(torch.from_numpy(rows), masks).numpy()
    (zero, one), (q_zero, q_one) = result.normalisation[metric], result.normalisation["quality"]
    values = 0.5 * ((masks.numpy() @ quality / 5) - q_zero) / (q_one - q_zero)
    values += 0.5 * (raw - zero) / (one - zero)
    assert result.certificate.bound >= values.max() - 1e-6
    assert np.mean(values < result.objective.value + 1e-6) >= 0.999
    assert result.certificate.gap == pytest.approx(
        (result.certificate.bound - result.objective.value)
        / (result.certificate.bound - result.objective.random)
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", [*CONCAVE, "DiSF"])
def test_datamask_is_no_worse_than_greedy(metric, clustered) -> None:
    rows, quality = (values[::2] for values in clustered)
    ours = select_documents(rows, quality, diversity=metric).objective
    greedy = select_documents(rows, quality, diversity=metric, policy="greedy").objective
    assert ours.value >= greedy.value - 2e-3 * abs(greedy.value)
    assert ours.value > ours.random + 0.5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", ["datamask", "greedy", "policy_gradient"])
def test_a_planted_subset_is_found(policy) -> None:
    draws = np.random.default_rng(5)
    common = draws.standard_normal(32) + 0.02 * draws.standard_normal((300, 32))
    planted = draws.standard_normal((20, 32))
    rows = np.concatenate([common, planted]).astype(np.float32)
    quality = np.concatenate([draws.random(300) * 0.5, 0.8 + 0.1 * draws.random(20)])
    learner = {"num_epochs": 400, "partial": 1.0, "num_rollouts": 32, "min_lr": 0.5}
    settings = learner if policy == "policy_gradient" else {}
    result = select_documents(rows, quality, policy=policy, num_documents=20, **settings)
    assert result.mask[300:].mean() >= 0.95


@pytest.mark.slow
def test_identical_rows_are_chosen_uniformly_over_seeds() -> None:
    rows = np.tile(np.random.default_rng(0).standard_normal(24).astype(np.float32), (50, 1))
    quality = np.zeros(50)
    counts = np.zeros(50)
    repeats = 120
    for seed in range(repeats):
        result = select_documents(
            rows,
            quality,
            diversity="DiSF_uncentred",
            lamb=0.0,
            num_documents=10,
            normalisation="none",
            seed=seed,
        )
        counts += result.mask
    # Chi-squared of 49 degrees of freedom, shrunk by drawing without replacement: 99.9 % lies below 86.
    expected = repeats * 10 / 50
    assert float(((counts - expected) ** 2 / (expected * 0.8)).sum()) < 86


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "LogDet"])
def test_isotropic_rows_never_come_out_worse_than_random(metric, seed) -> None:
    rows = np.random.default_rng(seed).standard_normal((600, 12)).astype(np.float32)
    value = select_documents(rows, np.zeros(600), diversity=metric, lamb=0.0, seed=seed).objective
    assert value.value > value.random


@pytest.mark.sampled(4)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "DiSF"])
@pytest.mark.parametrize("policy", ["datamask", "policy_gradient", "greedy", "semdedup", "gist"])
def test_no_bit_depends_on_the_number_of_workers(metric, policy, clustered) -> None:
    rows, quality = clustered
    first, second = (
        select_documents(
            rows, quality, policy=policy, diversity=metric, num_workers=workers, chunk_rows=64, **fast(policy)
        )
        for workers in (1, 3)
    )
    assert first.logits.tobytes() == second.logits.tobytes()
    assert first.mask.tobytes() == second.mask.tobytes()
    assert first.marginals.diversity_N.tobytes() == second.marginals.diversity_N.tobytes()
    assert first.objective == second.objective


def test_the_seed_matters(clustered) -> None:
    rows, quality = clustered
    masks = [
        select_documents(rows, quality, policy="policy_gradient", seed=seed, **FAST).mask for seed in (0, 1)
    ]
    assert (masks[0] != masks[1]).any()


def test_threads_of_the_caller_are_left_as_they_were(clustered) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    select_documents(*clustered)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_maps_on_disk_give_the_same_mask_as_arrays(clustered, tmp_path) -> None:
    rows, quality = clustered
    np.save(tmp_path / "rows.npy", rows.astype(np.float16))
    settings = {"diversity": "DiSF_uncentred", "chunk_rows": 64, "num_restarts": 0, "num_kicks": 0}
    in_memory = select_documents(rows.astype(np.float16), quality, **settings)
    on_disk = select_documents(tmp_path / "rows.npy", quality, **settings)
    assert on_disk.mask.tobytes() == in_memory.mask.tobytes()
    assert on_disk.objective == in_memory.objective


def test_rows_of_other_norms_are_normalised_and_counted(clustered) -> None:
    rows, quality = clustered
    scaled = rows * np.linspace(0.5, 3, 400, dtype=np.float32)[:, None]
    plain, other = select_documents(rows, quality), select_documents(scaled, quality)
    assert plain.record["rows_normalised_to_unit"] == 0
    assert other.record["rows_normalised_to_unit"] > 390
    assert other.objective.value == pytest.approx(plain.objective.value, rel=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["Pair_simi", "Facility", "LogDet"])
def test_norms_that_are_nearly_one_are_brought_to_one(clustered, dtype: str, name: str, tmp_path) -> None:
    """Norms up to 1e-3 from 1 were taken as they were: values were off by twice that."""
    rows, quality = clustered
    nearly = (rows.astype(np.float64) * 1.0009).astype(dtype)
    np.save(tmp_path / "rows.npy", nearly)
    settings: dict[str, Any] = {"policy": "quality_topk", "normalisation": "none", "diversity": name}
    plain = select_documents(rows, quality, **settings)
    for vectors in (nearly, tmp_path / "rows.npy"):
        found = select_documents(vectors, quality, **settings)
        assert found.record["rows_normalised_to_unit"] == 400
        assert found.objective.raw[name] == pytest.approx(plain.objective.raw[name], rel=2e-6)
    assert Given.of(nearly, quality).squared == pytest.approx(400, rel=1e-6)


def test_unit_vectors_rounded_to_float16_are_left_as_they_are_stored() -> None:
    """Rounding moves a norm the most where few numbers make it."""
    angles = np.random.default_rng(0).random(2000) * 2 * np.pi
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float16)
    settings: dict[str, Any] = {"policy": "quality_topk"}
    assert np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1).max() > 2.5e-4
    found = select_documents(rows, np.random.default_rng(1).random(2000), **settings)
    assert found.record["rows_normalised_to_unit"] == 0


def test_a_budget_in_tokens_is_filled_and_not_exceeded(clustered) -> None:
    rows, quality = clustered
    tokens = np.random.default_rng(1).integers(20, 400, 400)
    for policy in ("datamask", "policy_gradient", "random", "quality_topk"):
        result = select_documents(
            rows, quality, policy=policy, num_tokens=9000, token_counts=tokens, **fast(policy)
        )
        assert 9000 - 400 < tokens[result.mask].sum() <= 9000
        assert result.record["selected_tokens"] == tokens[result.mask].sum()
        assert (result.certificate.bound is None) == (policy != "datamask")
        assert result.certificate.method.startswith("no bound") == (policy != "datamask")
        if policy == "datamask":
            assert 0 <= result.certificate.gap < 0.05
            assert result.objective.value > result.objective.random + 0.3


@pytest.mark.slow
def test_quotas_are_met_exactly(clustered) -> None:
    rows, quality = clustered
    groups = ["news" if row % 4 == 0 else "forum" for row in range(400)]
    quotas = {"news": 0.75, "forum": 0.25}
    for policy in POLICIES.names():
        metric = "Pair_graph" if policy == "partitioned_greedy" else "Pair_simi"
        budget = {"quotas": quotas, "groups": groups}
        result = select_documents(rows, quality, policy=policy, diversity=metric, **budget, **fast(policy))
        assert result.mask[::4].sum() == 30
        assert result.mask.sum() == 40
        assert policy != "datamask" or result.certificate.gap < 0.05


@pytest.mark.slow
def test_quality_pruning_leaves_the_worst_out(clustered) -> None:
    rows, quality = clustered
    result = select_documents(rows, quality, quality_pruning=0.45, lamb=0.0)
    worst = np.argsort(quality)[:180]
    assert not result.mask[worst].any()
    assert set(result.reasons[worst]) == {"pruned by quality"}
    assert result.record["rows_pruned_by_quality"] == 180
    assert np.isnan(result.marginals.quality_N[worst]).all()


def test_several_scores_and_metrics_with_weights(clustered) -> None:
    rows, quality = clustered
    scores = {"edu": quality, "wiki": 100 * quality[::-1]}
    result = select_documents(
        rows, scores, quality_weights={"edu": 3, "wiki": 1}, diversity={"Pair_simi": 1.0, "LogDet": 2.0}
    )
    assert set(result.normalisation) == {"edu", "wiki", "Pair_simi", "LogDet"}
    assert result.record["diversity"] == {"Pair_simi": pytest.approx(1 / 3), "LogDet": pytest.approx(2 / 3)}
    edu, wiki = (scores[name][result.mask].mean() for name in ("edu", "wiki"))
    only_wiki = select_documents(rows, scores, quality_weights={"edu": 0, "wiki": 1})
    assert only_wiki.mask.sum() == 40
    assert scores["wiki"][only_wiki.mask].mean() > wiki
    assert edu > quality.mean()


@pytest.mark.slow
def test_moment_and_coverage_metrics_together(clustered) -> None:
    rows, quality = clustered
    result = select_documents(rows, quality, diversity={"Pair_simi": 1, "Facility": 1})
    assert result.certificate.gap < 0.01
    assert result.objective.value > 0.4


class Blackbox(DiversityMetric):
    """Minus the largest coordinate of the mean: no marginals, no moments."""

    name = "Blackbox"

    def values(self, embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        return torch.stack([-embeddings_ND[mask_N].mean(0).abs().amax() for mask_N in masks_GN]).double()


def test_a_black_box_learns(clustered) -> None:
    rows, quality = clustered
    result = select_documents(
        rows,
        quality,
        policy="policy_gradient",
        diversity=Blackbox(),
        lamb=0.0,
        num_epochs=300,
        num_rollouts=32,
        partial=1.0,
        init="same",
    )
    assert result.objective.value > 0.5
    assert result.certificate.method.startswith("no bound")
    assert np.isnan(result.marginals.diversity_N).all()
    assert result.threshold == result.logits[result.mask].min()
    assert result.record["reasons"] == {"logit at or above threshold": 40, "logit below threshold": 360}


def test_frozen_constants_are_used_as_they_are(clustered) -> None:
    rows, quality = clustered
    constants = {"quality": (0.0, 2.0), "Pair_simi": (-1.0, 1.0)}
    result = select_documents(rows, quality, normalisation_constants=constants, num_kicks=0)
    assert result.normalisation == constants
    assert result.objective.quality == pytest.approx(quality[result.mask].mean() / 2)


def test_reasons_are_the_threshold_rule_and_its_exceptions(clustered) -> None:
    rows, quality = clustered
    result = select_documents(rows, quality)
    above = result.marginals.total_N >= result.threshold
    assert above.sum() == 40
    for row in range(400):
        reason = result.reasons[row]
        assert reason.startswith("exception") == (above[row] != result.mask[row])
        assert ("above" in reason) == above[row]


def test_learning_rate_init_and_convergence_are_heard(clustered) -> None:
    rows, quality = clustered
    learn = {"policy": "policy_gradient", **FAST}
    base = select_documents(rows, quality, **learn)
    assert base.curve.num_rows == 40
    rates = base.curve.column("learning_rate").to_pylist()
    assert (rates[0], rates[-1]) == (10.0, 1.0)
    assert np.allclose(np.diff(rates), np.diff(rates)[0])
    for change in (
        {"init": "same"},
        {"max_lr": 3.0},
        {"baseline": "leave_one_out"},
        {"log_prob": "plackett_luce"},
        {"partial": 0.25},
        {"num_rollouts": 8},
        {"estimator": "counterfactual"},
        {"estimator": "expected"},
    ):
        settings = {**learn, **change}
        if settings.get("estimator") == "expected":
            del settings["num_rollouts"]
        other = select_documents(rows, quality, **settings)
        assert (other.logits != base.logits).any(), change
    stopped = select_documents(rows, quality, convergence_epochs=5, convergence_tolerance=10.0, **learn)
    assert stopped.curve.num_rows == 10
    assert stopped.record["learner"]["converged"]


def test_progress_tells_objective_gap_and_time(clustered) -> None:
    lines = []
    select_documents(*clustered, progress=lambda line, step, total: lines.append((line, step, total)))
    assert "objective" in lines[-1][0]
    assert "gap" in lines[-1][0]
    steps = [step for _, step, _ in lines]
    assert steps[0] == 0
    assert (np.diff(steps) > 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees_with_the_processor(clustered) -> None:
    rows, quality = clustered
    here, there = (select_documents(rows, quality, diversity="LogDet", device=d) for d in ("cpu", "cuda:0"))
    assert there.objective.value == pytest.approx(here.objective.value, rel=1e-4)


def test_bfloat16_reaches_nearly_the_same(clustered) -> None:
    rows, quality = clustered
    few = {"diversity": "DiSF_uncentred", "num_restarts": 1, "num_kicks": 1}
    full = select_documents(rows, quality, dtype="float32", **few)
    scale = {"normalisation_constants": full.normalisation}
    half = select_documents(rows, quality, dtype="bfloat16", **few, **scale)
    assert half.objective.value == pytest.approx(full.objective.value, rel=5e-3)
    assert half.certificate.bound >= full.objective.value - 1e-6


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("diversity", ["DiSF", "Facility"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_dtype_means_the_same_whatever_the_machine_would_choose(
    diversity: str, dtype: str, clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for native in (True, False):
        monkeypatch.setattr(hardware, "_cpu_multiplies_bfloat16", lambda native=native: native)
        few = {"num_restarts": 1, "num_kicks": 1}
        found.append(select_documents(*clustered, diversity=diversity, dtype=dtype, **few))
    assert found[0].normalisation == found[1].normalisation
    assert found[0].logits.tobytes() == found[1].logits.tobytes()


@pytest.mark.slow
def test_the_record_tells_the_metrics_that_were_used(clustered) -> None:
    given = [(METRICS.make("Facility", {"num_landmarks": 50}), 1.0), ("Pair_simi", 3.0)]
    result = select_documents(*clustered, config=SelectionConfig(diversity="LogDet"), diversity=given)
    assert result.record["config"]["diversity"] == {"Facility": 1.0, "Pair_simi": 3.0}
    assert result.record["diversity_metrics"]["Facility"]["num_landmarks"] == 50


def test_importing_the_package_does_not_load_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, datamask_pipeline, datamask_pipeline.selection.config; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.parametrize("metric", ["LogDet", "Vendi", "DiSF_uncentred", "Pair_simi"])
def test_greedy_takes_the_largest_gain_of_the_objective(metric: str) -> None:
    draws = np.random.default_rng(4)
    rows = draws.standard_normal((40, 6)).astype(np.float32) + 0.3
    quality = draws.standard_normal(40)
    result = select_documents(rows, quality, diversity=metric, policy="greedy", num_documents=6, lamb=0.3)
    unit_ND = torch.nn.functional.normalize(torch.from_numpy(rows).double())
    measure = METRICS.make(metric)
    (zero, one), (low, high) = result.normalisation[metric], result.normalisation["quality"]
    chosen: list[int] = []
    for _ in range(6):
        values = np.full(40, -np.inf)
        for row in set(range(40)) - set(chosen):
            mask_N = torch.zeros(40, dtype=torch.bool)
            mask_N[[*chosen, row]] = True
            moments = replace(moments_of(unit_ND, mask_N, True), count=6.0)
            linear = float(((quality[mask_N.numpy()] - low) / (high - low)).sum()) / 6
            values[row] = 0.3 * linear + 0.7 * (measure.value(moments) - zero) / (one - zero)
        chosen.append(int(values.argmax()))
    assert sorted(chosen) == np.flatnonzero(result.mask).tolist()

"""The scale of a term: exact zeros, both terms at every lambda, ranges that float32 resolves, everything selected."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.moments import DrawnGroup, MomentMetric, moments_of, squared_norms
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget

METRIC_NAMES = METRICS.names()


def block(size: int = 300, dim: int = 24, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(size, dim)) + 1.5 * draws.normal(size=(5, dim))[draws.integers(5, size=size)]
    return rows.astype(np.float32), 3 + draws.normal(size=size)


@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
@pytest.mark.parametrize("held", [0, 3])
@pytest.mark.parametrize(
    "counts", [{9: 2}, {9: 3}, {9: 5}, {6: 2, 5: 3}, {1: 1, 7: 4}, {3: 1, 4: 1, 5: 2}], ids=str
)
def test_the_mean_over_random_masks_is_that_of_all_masks(
    name: str, held: int, counts: dict[int, int]
) -> None:
    """Groups of so many documents each, of which a mask holds so many."""
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    total = sum(counts)
    rows_ND = torch.from_numpy(block(total + held, 4)[0]).double()
    firsts = np.cumsum([0, *counts])
    choices = [
        combinations(range(first, first + size), count)
        for first, (size, count) in zip(firsts, counts.items(), strict=False)
    ]
    always = tuple(range(total, total + held))
    masks_GN = torch.stack(
        [
            torch.isin(torch.arange(total + held), torch.tensor(sum(chosen, always)))
            for chosen in product(*choices)
        ]
    )
    groups = [
        DrawnGroup(
            moments=moments_of(rows_nD, torch.ones(len(rows_nD), dtype=torch.bool), True),
            fourth=float(squared_norms(rows_nD).square().sum()),
            count=count,
        )
        for rows_nD, count in zip(torch.split(rows_ND[:total], list(counts)), counts.values(), strict=True)
    ]
    beside = moments_of(rows_ND, torch.arange(total + held) >= total, True) if held else None
    expected = float(metric.values(rows_ND, masks_GN).mean())
    assert metric.mean_over_masks(groups, beside) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_zero_is_exact_under_quotas(name: str) -> None:
    rows, quality = block(11, 5)
    groups, quotas = ["a"] * 4 + ["b"] * 7, {"a": 0.25, "b": 0.75}
    found = select_documents(
        rows, quality, groups=groups, quotas=quotas, num_documents=4, diversity=name, lamb=0.0
    )
    chosen = [
        [first, *others] for first, others in product(range(4), combinations(range(4, 11), 3))
    ]  # all masks there are
    masks_GN = torch.zeros(len(chosen), 11, dtype=torch.bool)
    for mask_N, places in zip(masks_GN, chosen, strict=True):
        mask_N[places] = True
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    unit_ND = torch.nn.functional.normalize(torch.from_numpy(rows).double())
    assert found.normalisation[name][0] == pytest.approx(
        float(metric.values(unit_ND, masks_GN).mean()), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_zero_is_exact_whatever_the_seed(name: str) -> None:
    rows, quality = block()
    zeros = [
        select_documents(rows, quality, diversity=name, policy="random", seed=seed).normalisation[name][0]
        for seed in range(4)
    ]
    assert max(zeros) - min(zeros) < 1e-6 * abs(zeros[0])
    reached = [
        select_documents(rows, quality, diversity=name, policy="random", seed=seed, normalisation="none")
        .objective.raw[name]
        for seed in range(200)
    ]  # fmt: skip
    assert abs(np.mean(reached) - zeros[0]) < 4 * np.std(reached) / np.sqrt(200)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", METRIC_NAMES)
def test_both_terms_are_on_their_scale_at_every_lambda(name: str) -> None:
    """One mask, measured at both ends of a lambda sweep and inside: the terms do not depend on lambda."""
    rows, quality = block()
    found = {
        lamb: select_documents(rows, quality, diversity=name, policy="quality_topk", lamb=lamb)
        for lamb in (0.0, 0.5, 1.0)
    }
    inside = found[0.5]
    for lamb, result in found.items():
        assert result.normalisation == inside.normalisation, lamb
        assert result.objective.quality == pytest.approx(inside.objective.quality, abs=1e-12)
        assert result.objective.diversity == pytest.approx(inside.objective.diversity, abs=1e-12)
    assert inside.objective.quality == pytest.approx(1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("lamb", "spoilt"), [(0.0, "quality"), (1.0, "Pair_simi")])
def test_a_term_of_no_weight_may_be_without_a_range(lamb: float, spoilt: str) -> None:
    rows, quality = block()
    if spoilt == "quality":
        quality = np.full(300, 7.5)
    else:
        rows = np.tile(rows[:1], (300, 1))
    result = select_documents(rows, quality, lamb=lamb)
    term = {"quality": result.objective.quality, "Pair_simi": result.objective.diversity}[spoilt]
    assert term == pytest.approx(0, abs=1e-6)
    with pytest.raises(ConfigurationError, match=f"term '{spoilt}' cannot be normalised"):
        select_documents(rows, quality, lamb=0.5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_a_value_is_right_or_its_range_is_refused(name: str, spread: float) -> None:
    """Nearly identical rows: an objective of float32 noise is not told as if it were one."""
    draws = np.random.default_rng(0)
    rows = draws.normal(size=64)[None] / 8 + spread * draws.normal(size=(300, 64)) / 8
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    settings: dict[str, Any] = {"diversity": name, "lamb": 0.0, "dtype": "float32", "num_steps": 6}
    settings |= {"num_restarts": 1, "num_kicks": 1}
    try:
        result = select_documents(rows, draws.random(300), **settings)
    except ConfigurationError as error:
        if "cannot be normalised" in str(error) and spread < 0.1:
            return
        raise
    zero, one = result.normalisation[name]
    exact = METRICS.make(name).values(torch.from_numpy(rows).double(), torch.from_numpy(result.mask)[None])
    assert (result.objective.raw[name] - float(exact[0])) / (one - zero) == pytest.approx(0, abs=0.05)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("budget", ["documents", "quotas", "tokens"])
@pytest.mark.parametrize("name", METRIC_NAMES)
def test_the_scale_of_few_documents_is_that_of_the_documents_not_of_their_order(
    name: str, budget: str
) -> None:
    """Other draws fell on them in another order: of 50 documents LogDet's range went from half to twice its mean."""
    rows, quality = block(50)
    groups, tokens = np.array(["a", "b"] * 25), np.arange(50) + 10
    settings: dict[str, Any] = {"diversity": name, "policy": "quality_topk"}
    found = []
    for seed in (0, 1):
        order = np.random.default_rng(seed).permutation(50)
        given: dict[str, Any] = {"ratio": 0.2}
        if budget == "quotas":
            given |= {"quotas": {"a": 0.7, "b": 0.3}, "groups": groups[order].tolist()}
        if budget == "tokens":
            given = {"num_tokens": 400, "token_counts": tokens[order]}
        found.append(select_documents(rows[order], quality[order], **given, **settings).normalisation[name])
    assert found[0] == found[1]


def test_a_metric_of_somebody_elses_may_know_rows_by_their_number() -> None:
    """Rows that have been put in another order for the scale would meet the wrong labels."""
    rows, quality = block(60)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = torch.arange(60) % 7

    def labels_held(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        assert torch.equal(embeddings_ND, torch.from_numpy(rows).to(embeddings_ND.dtype))
        return torch.tensor([float(len(labels[mask_N].unique())) for mask_N in masks_GN])

    result = select_documents(rows, quality, diversity=labels_held, policy="quality_topk")
    assert 0 < result.normalisation["labels_held"][0] <= 6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", METRIC_NAMES)
def test_a_frozen_range_that_float32_does_not_resolve_is_refused(name: str) -> None:
    """Accepted, such a range made values that were off by 2 to 36, with gaps from 0 on."""
    rows, quality = block(80)
    random = {"policy": "random", "diversity": name}
    zero, one = select_documents(rows, quality, **random).normalisation[name]
    for narrow in (2e-9, 1e-8, 1e-6):
        frozen = {"quality": (0.0, 1.0), name: (zero, zero + narrow * abs(zero))}
        with pytest.raises(ConfigurationError, match=f"normalisation_constants of '{name}'.*resolve"):
            select_documents(rows, quality, normalisation_constants=frozen, **random)
    frozen = {"quality": (0.0, 1.0), name: (zero, one)}
    kept = select_documents(rows, quality, normalisation_constants=frozen, **random)
    assert kept.normalisation[name] == (zero, one)


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("policy", ["datamask", "quality_topk"])
def test_everything_selected_is_the_one_mask_there_is(name: str, policy: str) -> None:
    rows, quality = block(60)
    result = select_documents(rows, quality, ratio=1.0, diversity=name, policy=policy)
    assert result.mask.all()
    assert result.objective.value == pytest.approx(result.objective.random, abs=1e-6)
    assert result.certificate.gap in (0.0, None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", METRIC_NAMES)
def test_the_scale_of_a_metric_is_the_same_whatever_the_seed(name: str) -> None:
    rows, quality = block()
    scales = [
        select_documents(rows, quality, diversity=name, policy="random", seed=seed).normalisation[name]
        for seed in range(2)
    ]
    assert scales[0] == scales[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi", "DiSF"])
def test_one_document_more_does_not_change_what_one_is(name: str) -> None:
    draws = np.random.default_rng(6)
    vectors_ND, quality_N = draws.standard_normal((1025, 16)).astype(np.float32), draws.random(1025)
    shared = {"diversity": name, "num_documents": 30, "policy": "quality_topk"}
    fewer, more = (
        np.ptp(select_documents(vectors_ND[:size], quality_N[:size], **shared).normalisation[name])
        for size in (1024, 1025)
    )
    assert more == pytest.approx(fewer, rel=0.1)


@pytest.mark.parametrize("name", ["LogDet", "Vendi"])
def test_one_document_more_does_not_change_what_zero_is(name: str) -> None:
    """Four of a thousand vectors without a negative number: random masks differ much, and a few of them tell no mean."""
    draws = np.random.default_rng(11)
    rows_ND = draws.exponential(size=(1025, 8)) * (draws.random((1025, 8)) < 0.4) + 1e-3
    shared = {"diversity": name, "num_documents": 4, "policy": "quality_topk"}
    (zero, one), (other, _) = (
        select_documents(rows_ND[:size], np.arange(size) / size, **shared).normalisation[name]
        for size in (1024, 1025)
    )
    assert abs(other - zero) < 0.2 * (one - zero)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi", "DiSF"])
def test_one_is_about_what_a_metric_reaches_alone_where_few_of_many_are_chosen(name: str) -> None:
    draws = np.random.default_rng(7)
    vectors_ND, quality_N = draws.standard_normal((3000, 64)).astype(np.float32), draws.random(3000)
    reached = select_documents(
        vectors_ND, quality_N, diversity=name, num_documents=40, lamb=0.0, num_restarts=0, num_kicks=0
    )
    assert 0.75 < reached.objective.diversity < 1.4, "ten steps and rounding reach a third"


@pytest.mark.parametrize("name", ["LogDet", "Vendi"])
def test_zero_of_few_wide_documents_is_the_mean_of_every_mask(name: str) -> None:
    draws = np.random.default_rng(3)
    rows = draws.normal(size=(5, 256)).astype(np.float32)
    rows[2:4] = rows[:2] + (1e-2 * draws.normal(size=(2, 256))).astype(np.float32)
    result = select_documents(rows, draws.random(5), num_documents=2, diversity=name, policy="random")
    unit_ND = torch.nn.functional.normalize(torch.from_numpy(rows).double())
    every_GN = torch.stack(
        [torch.isin(torch.arange(5), torch.tensor(two)) for two in combinations(range(5), 2)]
    )
    values_G = METRICS.make(name).values(unit_ND, every_GN)
    zero, one = result.normalisation[name]
    assert zero == pytest.approx(float(values_G.mean()), abs=1e-7)
    assert one == pytest.approx(float(values_G.max()), abs=1e-6)


def test_a_value_from_products_is_that_from_moments() -> None:
    rows_KD = torch.nn.functional.normalize(torch.from_numpy(block(7, 30)[0]).double())
    moments = moments_of(rows_KD, torch.ones(7, dtype=torch.bool), True)
    for name in METRIC_NAMES:
        metric = METRICS.make(name)
        if isinstance(metric, MomentMetric):
            value = metric.value_of_products(rows_KD @ rows_KD.T, 30)
            assert (value is None) == (name == "DiSF")  # which centres rows
            assert value is None or value == pytest.approx(metric.value(moments), abs=1e-12)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["LogDet", "Vendi"])
def test_of_few_wide_documents_as_many_masks_are_drawn_as_of_narrow_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    drawn = Budget.random
    monkeypatch.setattr(
        Budget, "random", lambda budget, *stream: seen.append(int(stream[-1])) or drawn(budget, *stream)
    )
    rows, quality = block(60, 768)
    select_documents(rows, quality, num_documents=3, diversity=name, policy="quality_topk")
    assert max(seen) == 63


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_where_zero_is_known_in_closed_form_no_mask_is_drawn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str | int, ...]] = []
    drawn = Budget.random
    monkeypatch.setattr(
        Budget, "random", lambda budget, *stream: seen.append(stream) or drawn(budget, *stream)
    )
    constants = {"quality": (3.0, 5.0), name: (0.0, 1.0)}
    settings: dict[str, Any] = {
        "diversity": name,
        "policy": "quality_topk",
        "normalisation_constants": constants,
    }
    select_documents(*block(), num_documents=30, **settings)
    assert not [stream for stream in seen if stream[0] == "normalisation"]


@pytest.mark.slow
def test_in_tokens_there_is_a_scale_wherever_there_is_a_choice() -> None:
    """Where all but one document fit; and where the best by quality leave room for most of the short rest."""
    draws = np.random.default_rng(0)
    rows, quality, lengths = draws.normal(size=(60, 8)), draws.random(60), draws.integers(5, 60, 60)
    settings = {"token_counts": lengths, "num_tokens": int(lengths.sum()) - 1, "num_restarts": 0}
    for metric in ("Pair_simi", "LogDet", "Facility"):
        found = select_documents(rows, quality, diversity=metric, **settings)
        assert 59 >= found.mask.sum() > 50
        zero, one = found.normalisation[metric]
        assert one > zero
    one_or_many = np.random.default_rng(1).choice([1, 100], size=60)
    worst_short = np.where(one_or_many == 1, 0.1, 0.9) * draws.random(60)
    settings = {"token_counts": one_or_many, "num_tokens": 300, "num_restarts": 0}
    found = select_documents(rows, worst_short, diversity="Pair_simi", **settings)
    assert found.normalisation["quality"][1] > found.normalisation["quality"][0]


def test_a_narrow_cone_is_refused_for_what_float32_tells() -> None:
    draws = np.random.default_rng(0)
    vectors, quality = draws.normal(size=8) + 0.003 * draws.normal(size=(40, 8)), draws.random(40)
    with pytest.raises(ConfigurationError, match=r"'DiSF' .*differ by less than its float32 products tell"):
        select_documents(vectors, quality, num_documents=8, diversity="DiSF")

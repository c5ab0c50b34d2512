"""Mixtures with Facility, which swap by marginals and are exchanged document by document at last; black boxes, by values;
budgets in both units."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.policies import datamask

MIXTURES = [["Facility", "Pair_simi"], ["Facility", "LogDet"], ["Facility", "DiSF_uncentred", "Pair_simi"]]


def block(seed: int, size: int = 40) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(size, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), draws.random(size)


def objectives(result: Any, rows: Any, quality: Any, names: list[str], masks_GN: torch.Tensor) -> Any:
    """What masks are worth on a result's scale, in float64."""
    zero, one = result.normalisation["quality"]
    total_G = 0.5 * (masks_GN.double().numpy() @ ((quality - zero) / (one - zero))) / masks_GN.sum(1).numpy()
    for name in names:
        zero, one = result.normalisation[name]
        values_G = METRICS.make(name).values(torch.from_numpy(rows).double(), masks_GN).numpy()
        total_G += 0.5 / len(names) * (values_G - zero) / (one - zero)
    return total_G


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", MIXTURES, ids="+".join)
@pytest.mark.parametrize("quotas", [None, {"a": 0.5, "b": 0.5}], ids=["free", "quotas"])
def test_no_exchange_of_two_documents_raises_a_mixture(
    names: list[str], quotas: dict[str, float] | None
) -> None:
    """Swaps of whole sets alone ended up to .04 of the distance from random below."""
    groups = np.array(["a", "b"] * 20)
    for seed in range(2):
        rows, quality = block(seed)
        settings: dict[str, Any] = {"num_documents": 8, "diversity": dict.fromkeys(names, 1.0), "seed": seed}
        if quotas is not None:
            settings |= {"quotas": quotas, "groups": groups.tolist()}
        result = select_documents(rows, quality, **settings)
        mask_N = torch.from_numpy(result.mask)
        assert int(mask_N.sum()) == 8
        if quotas is not None:
            assert int(mask_N[groups == "a"].sum()) == 4
        (value,) = objectives(result, rows, quality, names, mask_N[None])
        assert value == pytest.approx(result.objective.value, abs=1e-5)
        for leaves in mask_N.nonzero().flatten().tolist():
            same_N = torch.from_numpy(groups == groups[leaves]) if quotas else torch.ones_like(mask_N)
            into_C = (~mask_N & same_N).nonzero().flatten()
            masks_CN = mask_N.repeat(len(into_C), 1)
            masks_CN[:, leaves] = False
            masks_CN[torch.arange(len(into_C)), into_C] = True
            assert objectives(result, rows, quality, names, masks_CN).max() <= value + 1e-6, (seed, leaves)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["free", "quotas", "tokens"])
@pytest.mark.parametrize(
    "names", [["Facility"], ["Facility", "Pair_simi"], ["Facility", "LogDet"]], ids="+".join
)
def test_two_documents_are_the_best_two(names: list[str], kind: str) -> None:
    """Masks of two were not exchanged at all: nine of ten mixtures missed the best, once by more than random masks do."""
    pairs = np.array(list(itertools.combinations(range(30), 2)))
    groups = np.array(["a", "b"] * 15)
    settings: dict[str, Any] = {"diversity": dict.fromkeys(names, 1.0), "num_documents": 2}
    if kind == "quotas":
        settings |= {"quotas": {"a": 0.5, "b": 0.5}, "groups": groups.tolist()}
        pairs = pairs[groups[pairs[:, 0]] != groups[pairs[:, 1]]]
    for seed in range(3):
        rows, quality = block(seed, 30)
        if kind == "tokens":
            counts = np.random.default_rng(seed).integers(100, 110, 30)
            settings |= {"num_documents": None, "num_tokens": 230, "token_counts": counts}
        result = select_documents(rows, quality, **settings)
        masks_PN = torch.zeros(len(pairs), 30, dtype=torch.bool)
        masks_PN[torch.arange(len(pairs))[:, None], torch.from_numpy(pairs)] = True
        best = objectives(result, rows, quality, names, masks_PN).max()
        assert result.objective.value == pytest.approx(best, abs=1e-5), seed


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "names", [*MIXTURES, ["Pair_simi"], ["DiSF_uncentred"], ["Facility"], ["LogDet"]], ids="+".join
)
def test_of_few_documents_a_budget_in_tokens_finds_the_best(names: list[str]) -> None:
    """Against every mask that nothing more fits into, all but once in six: two exchanges at once are not tried."""
    missed = 0
    for seed in range(6):
        draws = np.random.default_rng(seed)
        rows, quality = block(seed, size=11)
        tokens = draws.integers(20, 120, size=11)
        most = int(0.4 * tokens.sum())
        result = select_documents(
            rows,
            quality,
            num_tokens=most,
            token_counts=tokens,
            diversity=dict.fromkeys(names, 1.0),
            seed=seed,
        )
        every = np.array(list(itertools.product([False, True], repeat=11)))
        spent_G = every @ tokens
        full = every[(spent_G <= most) & (spent_G + np.where(every, most, tokens).min(1) > most)]
        assert result.mask.tolist() in full.tolist()
        best = objectives(result, rows, quality, names, torch.from_numpy(full)).max()
        missed += result.objective.value < best - 1e-5
        assert result.objective.value > best - 0.05
    assert missed <= 1


def test_exchanges_may_be_left_out() -> None:
    rows, quality = block(1)
    settings: dict[str, Any] = {"diversity": {"Facility": 1.0, "Pair_simi": 1.0}, "lamb": 0.2}
    swapped, exchanged = (
        select_documents(rows, quality, num_documents=8, num_swap_rounds=rounds, **settings)
        for rounds in (0, 12)
    )
    assert exchanged.normalisation == swapped.normalisation
    assert exchanged.objective.value >= swapped.objective.value


def test_exchanges_begin_at_more_than_four_random_masks_where_these_take_little_time() -> None:
    draws = np.random.default_rng(0)
    rows, quality = draws.standard_normal((300, 24)).astype(np.float32), draws.random(300)
    settings: dict[str, Any] = {"diversity": {"Facility": 0.5, "Pair_simi": 0.5}, "lamb": 0.1}
    settings |= {"num_tokens": 400, "token_counts": draws.integers(20, 60, 300)}
    few, many = (select_documents(rows, quality, num_restarts=restarts, **settings) for restarts in (4, 32))
    assert many.normalisation == few.normalisation
    assert many.objective.value > few.objective.value + 0.01


def spread_of_the_first(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
    values_N, weights_GN = embeddings_ND[:, 0].double(), masks_GN.double()
    mean_G = weights_GN @ values_N / weights_GN.sum(1)
    return weights_GN @ values_N.square() / weights_GN.sum(1) - mean_G.square()


def drawn(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((size, 6)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), draws.random(size)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("quotas", [None, {"a": 0.5, "b": 0.5}])
@pytest.mark.parametrize("others", [{}, {"Facility": 1.0}])
def test_of_few_masks_the_best_is_found_by_values_alone(
    seed: int, quotas: dict[str, float] | None, others: dict[str, float]
) -> None:
    rows, quality = drawn(13, seed)
    groups = [*"aaabbbbbbbbbb"] if quotas else None
    settings = {"lamb": 0.3, "num_documents": 4, "quotas": quotas, "groups": groups, "seed": seed}
    metrics = {spread_of_the_first: 1.0, **others}
    found = select_documents(rows, quality, diversity=metrics, **settings)
    frozen = {"policy": "random", "normalisation_constants": found.normalisation}
    worth = {
        tuple(np.flatnonzero(one.mask)): one.objective.value
        for one in (
            select_documents(rows, quality, diversity=metrics, **settings | frozen | {"seed": draw})
            for draw in range(150)
        )
    }
    assert len(worth) > 90
    assert found.objective.value >= max(worth.values()) - 1e-6
    assert "all masks were tried" in str(found.certificate)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("lamb", [0.0, 0.5])
def test_exchanges_by_values_end_where_none_gains_and_the_scale_is_what_they_reach(lamb: float) -> None:
    rows, quality = drawn(60, 1)
    found = select_documents(rows, quality, diversity=spread_of_the_first, lamb=lamb, num_documents=12)
    mask_N = torch.from_numpy(found.mask)

    def value(masks_GN: torch.Tensor) -> np.ndarray:
        metric = {"quality": masks_GN.double() @ torch.from_numpy(quality) / 12}
        metric["spread_of_the_first"] = spread_of_the_first(torch.from_numpy(rows), masks_GN)
        scaled = {
            name: (metric[name] - zero) / (one - zero) for name, (zero, one) in found.normalisation.items()
        }
        return (lamb * scaled["quality"] + (1 - lamb) * scaled["spread_of_the_first"]).numpy()

    reached = value(mask_N[None])[0]
    assert reached == pytest.approx(found.objective.value, abs=1e-5)
    pairs = [(out, into) for out in np.flatnonzero(found.mask) for into in np.flatnonzero(~found.mask)]
    exchanged = mask_N.repeat(len(pairs), 1)
    for row, (out, into) in enumerate(pairs):
        exchanged[row, out], exchanged[row, into] = False, True
    assert value(exchanged).max() <= reached + 1e-5
    if lamb == 0:
        assert reached == pytest.approx(1.0, abs=0.02), "one is the best that the metric alone reaches"


@pytest.mark.parametrize(
    ("size", "count"),
    [(12, 3), *(pytest.param(*large, marks=pytest.mark.slow) for large in ((60, 12), (300, 30)))],
)
def test_the_one_of_a_functions_scale_is_within_its_reach(size: int, count: int) -> None:
    """Of a metric that is 0 or 1, and of one whose random values are wide beside what can be gained."""

    def pairs(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        sums_GD = masks_GN.float() @ embeddings_ND
        return (count - sums_GD.square().sum(1)) / (count * (count - 1))

    def apart(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        return (masks_GN.float() @ embeddings_ND[:, 0] > 0).float()

    rows, quality = drawn(size, 3)
    scales = []
    for function in (pairs, apart):
        found = select_documents(rows, quality, diversity=function, lamb=0, num_documents=count)
        assert found.objective.diversity == pytest.approx(1.0, abs=0.05)
        scales.append(found.normalisation[function.__name__])
    built_in = select_documents(rows, quality, diversity="Pair_simi", lamb=0, num_documents=count)
    zero, one = scales[0]
    assert one == pytest.approx(built_in.objective.raw["Pair_simi"], abs=0.05 * (one - zero))


def by_chance(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
    del embeddings_ND
    return torch.rand(len(masks_GN))


def by_the_others(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
    values_G = spread_of_the_first(embeddings_ND, masks_GN)
    return values_G - values_G.mean()


@pytest.mark.parametrize("function", [by_chance, by_the_others])
@pytest.mark.parametrize("size", [12, 60])
def test_a_function_whose_values_hang_on_more_than_the_mask_is_refused(function: Any, size: int) -> None:
    rows, quality = drawn(size, 0)
    with pytest.raises(ConfigurationError, match=f"'{function.__name__}' gave a mask .* on that mask alone"):
        select_documents(rows, quality, diversity=function, num_documents=3)


def test_what_a_function_raises_names_it_and_complex_values_are_refused() -> None:
    def broken(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        raise KeyError("lost")

    def complex_ones(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        return spread_of_the_first(embeddings_ND, masks_GN).to(torch.complex64)

    rows, quality = drawn(12, 0)
    with pytest.raises(KeyError) as raised:
        select_documents(rows, quality, diversity=broken, num_documents=3)
    assert raised.value.__notes__ == ["raised in diversity function 'broken'"]
    with pytest.raises(ConfigurationError, match="'complex_ones' returned no numbers: they are complex"):
        select_documents(rows, quality, diversity=complex_ones, num_documents=3)


@pytest.mark.slow
def test_a_function_may_change_what_it_is_given() -> None:
    def centred(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        centred_ND = embeddings_ND - embeddings_ND.mean(0)
        return -(masks_GN.float() @ centred_ND).square().sum(1)

    def in_place(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        embeddings_ND -= embeddings_ND.mean(0)
        values_G = -(masks_GN.float() @ embeddings_ND).square().sum(1)
        masks_GN[:] = False
        return values_G

    rows, quality = drawn(25, 0)
    given = rows.copy()
    pure, changing = (
        select_documents(
            given, quality, diversity={"Pair_simi": 1.0, function: 1.0}, num_documents=4, num_restarts=0
        )
        for function in (centred, in_place)
    )
    assert (given == rows).all()
    assert (pure.mask == changing.mask).all()
    assert pure.objective.value == changing.objective.value


@pytest.mark.parametrize(
    ("num_documents", "is_exchanged"), [(700, False), pytest.param(2_999, True, marks=pytest.mark.slow)]
)
def test_where_masks_are_large_not_all_are_tried_nor_exchanges_begun_that_would_not_suffice(
    num_documents: int, is_exchanged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mask is of the whole block: 2,999 of 3,000 are 3,000 masks, of more numbers than are looked at at once; with one
    document outside there is little to try in each place."""
    few = {"num_epochs": 3}
    monkeypatch.setattr(datamask, "PolicyGradientPolicy", lambda: POLICIES.make("policy_gradient", few))
    rows, quality = drawn(3_000, 3)
    shared = {"num_documents": num_documents, "diversity": spread_of_the_first}
    learnt = select_documents(rows, quality, policy="policy_gradient", **few, **shared)
    found = select_documents(rows, quality, normalisation_constants=learnt.normalisation, **shared)
    assert np.array_equal(found.mask, learnt.mask) != is_exchanged
    assert found.objective.value >= learnt.objective.value - 1e-9
    assert "all masks" not in str(found.certificate)


@pytest.mark.slow
def test_exchanges_by_values_keep_a_budget_in_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"num_epochs": 40}
    monkeypatch.setattr(datamask, "PolicyGradientPolicy", lambda: POLICIES.make("policy_gradient", few))
    rows, quality = drawn(60, 2)
    tokens = np.random.default_rng(2).integers(10, 400, 60)
    shared = {"lamb": 0.2, "num_tokens": 3_000, "token_counts": tokens, "diversity": spread_of_the_first}
    learnt = select_documents(rows, quality, policy="policy_gradient", **few, **shared)
    found = select_documents(rows, quality, normalisation_constants=learnt.normalisation, **shared)
    assert tokens[found.mask].sum() <= 3_000
    assert (tokens[~found.mask] > 3_000 - tokens[found.mask].sum()).all(), "nothing more fits"
    assert found.objective.value >= learnt.objective.value - 1e-9


@pytest.mark.slow
def test_few_documents_of_many_dimensions_fill_a_budget_in_tokens_as_well_as_any() -> None:
    """Spectra in all dimensions left no time for exchanges: masks ended .2 to .7 of the distance from random below."""
    names = ["DiSF_uncentred", "LogDet"]
    draws = np.random.default_rng(1)
    rows = draws.normal(size=(18, 600)) + 2 * draws.normal(size=(3, 600))[draws.integers(0, 3, 18)]
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    quality, lengths, budget = draws.random(18), np.exp(0.6 * draws.normal(size=18)) * 100, 600
    settings: dict[str, Any] = {"num_tokens": budget, "token_counts": lengths, "num_kicks": 0}
    result = select_documents(rows, quality, diversity=dict.fromkeys(names, 1.0), **settings)

    allowed_N = lengths <= budget / 2
    every_GN = np.array(list(itertools.product([False, True], repeat=18)))
    every_GN = every_GN[~every_GN[:, ~allowed_N].any(1)]
    spare_G = budget - every_GN @ lengths
    shortest_G = np.where(every_GN | ~allowed_N, np.inf, lengths).min(1)
    full_GN = every_GN[(spare_G >= 0) & (shortest_G > spare_G)]
    products_NN = rows.astype(np.float64) @ rows.T

    def worth(mask_N: Any) -> float:
        products_KK, count = products_NN[np.ix_(mask_N, mask_N)], int(mask_N.sum())
        raw = {
            "LogDet": np.linalg.slogdet(np.eye(count) + products_KK * 600 / count)[1] / 600,
            "DiSF_uncentred": -((products_KK / count) ** 2).sum(),
        }
        zero, one = result.normalisation["quality"]
        value = 0.5 * (quality[mask_N].mean() - zero) / (one - zero)
        for name in names:
            zero, one = result.normalisation[name]
            value += 0.5 / len(names) * (raw[name] - zero) / (one - zero)
        return float(value)

    assert result.objective.value == pytest.approx(worth(result.mask), abs=1e-4)
    assert result.objective.value == pytest.approx(max(map(worth, full_GN)), abs=1e-4)

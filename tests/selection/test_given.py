"""Beside documents held already: value, bound and marginals are those of the union, by enumeration and by full runs."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import Given, select_documents
from datamask_pipeline.diversity.moments import moments_of
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.normalisation import combined_quality

HELD, NEW, CHOSEN = 5, 9, 3
CONCAVE = ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi"]
EVERY = [*CONCAVE, "DiSF"]
FAST: dict[str, Any] = {"dtype": "float32", "num_workers": 1}


def vectors(num_rows: int, dim: int, seed: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((num_rows, dim)) + 0.7
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def objective_of(
    metric: str, union: NDArray[np.float32], quality: NDArray[np.float64], lamb: float, constants: Any
) -> float:
    """The objective of a set of documents by itself, from its own rows in float64."""
    made = METRICS.make(metric, {})
    raw = made.value(
        moments_of(torch.from_numpy(union).double(), torch.ones(len(union), dtype=torch.bool), True)
    )
    scaled = {name: (one - zero) for name, (zero, one) in constants.items()}
    mean = float(combined_quality({"quality": torch.from_numpy(quality)}, None, constants).mean())
    return lamb * mean + (1 - lamb) * (raw - constants[metric][0]) / scaled[metric]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("metric", EVERY)
def test_of_all_unions_none_exceeds_the_bound(metric: str, seed: int) -> None:
    held, new = vectors(HELD, 4, seed), vectors(NEW, 4, seed + 50)
    draws = np.random.default_rng(seed)
    q_held, q_new = draws.random(HELD), draws.random(NEW)
    result = select_documents(
        new,
        q_new,
        given=Given.of(held, q_held),
        diversity=metric,
        num_documents=CHOSEN,
        lamb=0.3,
        **FAST,
    )

    def value(chosen: Any) -> float:
        rows = np.concatenate([held, new[list(chosen)]])
        quality = np.concatenate([q_held, q_new[list(chosen)]])
        return objective_of(metric, rows, quality, 0.3, result.normalisation)

    found = {chosen: value(chosen) for chosen in itertools.combinations(range(NEW), CHOSEN)}
    best, mine = max(found.values()), found[tuple(np.flatnonzero(result.mask))]
    assert result.objective.value == pytest.approx(mine, abs=1e-5)
    if metric not in ("Vendi", "DiSF"):  # whose swaps are no exact ones
        assert mine == pytest.approx(best, abs=1e-5)
    if metric in CONCAVE:
        assert result.certificate.bound is not None
        assert result.certificate.bound >= best - 1e-6
    if metric in ("Pair_simi", "DiSF_uncentred"):  # whose mean over masks is no sample's
        assert np.mean(list(found.values())) == pytest.approx(0, abs=1e-5)
        assert result.objective.random == 0
    told = result.record["given"]
    alone = objective_of(metric, held, q_held, 0.3, result.normalisation)
    assert told["documents"] == HELD
    assert told["share"] == HELD / (HELD + CHOSEN)
    assert told["objective_alone"] == pytest.approx(alone, abs=1e-5)
    assert told["gain"] == pytest.approx(mine - alone, abs=2e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "budget", [{"num_tokens": 40}, {"num_documents": CHOSEN, "quotas": {"a": 2 / 3, "b": 1 / 3}}]
)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
def test_tokens_and_quotas_are_of_what_is_added(metric: str, budget: dict[str, Any], seed: int) -> None:
    """What is held counts towards neither, and of all unions that keep quotas none exceeds the bound."""
    held, new = vectors(HELD, 4, seed), vectors(NEW, 4, seed + 50)
    draws = np.random.default_rng(seed)
    q_held, q_new, tokens = draws.random(HELD), draws.random(NEW), draws.integers(5, 20, NEW)
    groups = np.array(list("aaaaabbbb"))
    result = select_documents(
        new,
        q_new,
        given=Given.of(held, q_held, token_counts=np.full(HELD, 1_000)),
        token_counts=tokens,
        groups=groups.tolist() if "quotas" in budget else None,
        diversity=metric,
        lamb=0.3,
        **budget,
        **FAST,
    )

    def value(chosen: Any) -> float:
        rows = np.concatenate([held, new[list(chosen)]])
        quality = np.concatenate([q_held, q_new[list(chosen)]])
        return objective_of(metric, rows, quality, 0.3, result.normalisation)

    mine = np.flatnonzero(result.mask)
    assert result.objective.value == pytest.approx(value(mine), abs=1e-5)
    if "num_tokens" in budget:
        assert 20 < tokens[mine].sum() <= 40
        every = [
            np.flatnonzero(chosen) for chosen in itertools.product([0, 1], repeat=NEW) if sum(chosen) > 1
        ]
        left = {tuple(chosen): 40 - tokens[chosen].sum() for chosen in every}
        full = [c for c, rest in left.items() if 0 <= rest < np.delete(tokens, c).min()]
        best = max(value(chosen) for chosen in full)
        assert result.objective.value == pytest.approx(best, abs=1e-5), "exchanges find the best of so few"
        assert best - 1e-6 <= result.certificate.bound <= best + 0.5
        return
    assert (groups[mine] == "a").sum() == 2
    assert len(mine) == CHOSEN
    every = itertools.combinations(range(NEW), CHOSEN)
    best = max(value(chosen) for chosen in every if (groups[list(chosen)] == "a").sum() == 2)
    assert result.certificate.bound is not None
    assert best - 1e-6 <= result.certificate.bound <= best + 0.15


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "LogDet"])
def test_marginals_are_changes_of_the_union(metric: str) -> None:
    """One document more or less, at the union's number of documents."""
    held, new = vectors(HELD, 4, 1).astype(np.float64), vectors(NEW, 4, 2)
    quality = np.linspace(0, 1, NEW)
    result = select_documents(
        new,
        quality,
        given=Given.of(held, np.full(HELD, 0.5)),
        diversity=metric,
        num_documents=CHOSEN,
        lamb=0.5,
        **FAST,
    )
    made, count = METRICS.make(metric, {}), float(HELD + CHOSEN)
    zero, one = result.normalisation[metric]

    def raw(mask: NDArray[np.bool_]) -> float:
        rows = torch.from_numpy(np.concatenate([held, new[mask]]))
        found = moments_of(rows, torch.ones(len(rows), dtype=torch.bool), True)
        return made.value(type(found)(**{**vars(found), "count": count}))

    for row in range(NEW):
        inside, outside = result.mask.copy(), result.mask.copy()
        inside[row], outside[row] = True, False
        change = 0.5 * (raw(inside) - raw(outside)) / (one - zero)
        assert result.marginals.diversity_N[row] == pytest.approx(change, abs=1e-5)
    zero, one = result.normalisation["quality"]
    expected = 0.5 * (quality - zero) / (one - zero) / count
    np.testing.assert_allclose(result.marginals.quality_N, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "budget", [{"num_documents": 40}, {"num_tokens": 4_000}, {"quotas": {"a": 0.3, "b": 0.7}}]
)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
def test_sums_are_all_that_is_needed_of_what_is_held(clustered, metric: str, budget: dict[str, Any]) -> None:
    """What is held in two steps, by an earlier result's own sums, is held as in one, by its vectors."""
    rows, quality = clustered
    tokens = np.arange(50, 450)
    first = select_documents(
        rows[:200], quality[:200], token_counts=tokens[:200], diversity=metric, num_documents=30, **FAST
    )
    assert first.held is not None
    chosen = np.flatnonzero(first.mask)
    direct = Given.of(rows[chosen], quality[chosen], token_counts=tokens[chosen])
    assert first.held.count == direct.count == 30
    assert first.held.tokens == direct.tokens
    np.testing.assert_allclose(first.held.first_D, direct.first_D, atol=1e-5)
    runs = [
        select_documents(
            rows[200:],
            quality[200:],
            given=given,
            token_counts=tokens[200:],
            groups=["a", "b"] * 100 if "quotas" in budget else None,
            diversity=metric,
            normalisation_constants=first.normalisation,
            **budget,
            **FAST,
        )
        for given in (first.held, direct)
    ]
    assert (runs[0].mask == runs[1].mask).all()
    union = runs[0].held
    assert union is not None
    everything = np.concatenate([chosen, 200 + np.flatnonzero(runs[0].mask)])
    assert union.count == len(everything)
    assert union.tokens == tokens[everything].sum()
    assert union.quality["quality"] == pytest.approx(quality[everything].sum())
    value = objective_of(metric, rows[everything], quality[everything], 0.5, first.normalisation)
    assert runs[0].objective.value == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
def test_a_large_block_starts_from_a_sample_beside_what_is_held(clustered, metric: str) -> None:
    rows, quality = clustered
    new, scores = np.tile(rows, (2, 1)) + 0.01 * vectors(800, 16, 3), np.tile(quality, 2)
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    given = Given.of(rows[:100], quality[:100])
    sampled = select_documents(new, scores, given=given, diversity=metric, sample_documents=256, **FAST)
    whole = select_documents(new, scores, given=given, diversity=metric, **FAST)
    assert sampled.certificate.gap is not None
    assert sampled.certificate.gap < 0.002
    scale = whole.objective.value - whole.objective.random
    assert abs(sampled.objective.value - whole.objective.value) < 0.005 * scale


@pytest.mark.slow
def test_what_is_held_changes_what_is_chosen(clustered) -> None:
    """Beside one side of the block, the other side is chosen."""
    rows, quality = clustered
    side = rows @ rows[0]
    near, far = np.argsort(-side)[:60], np.argsort(-side)[60:]
    settings: dict[str, Any] = {"lamb": 0.0, "num_documents": 40, **FAST}
    alone = select_documents(rows[far], quality[far], **settings)
    beside = select_documents(rows[far], quality[far], given=Given.of(rows[near], quality[near]), **settings)
    assert side[far][beside.mask].mean() < side[far][alone.mask].mean()


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", ["greedy", "random", "quality_topk", "semdedup"])
def test_other_policies_are_valued_with_what_is_held(clustered, policy: str) -> None:
    rows, quality = clustered
    given = Given.of(rows[:50], quality[:50])
    settings: dict[str, Any] = {"num_documents": 20, "diversity": "DiSF_uncentred", **FAST}
    best = select_documents(rows[50:], quality[50:], given=given, **settings)
    result = select_documents(
        rows[50:],
        quality[50:],
        given=given,
        policy=policy,
        normalisation_constants=best.normalisation,
        **settings,
    )
    assert best.certificate.bound is not None
    assert result.objective.value <= best.certificate.bound
    chosen = 50 + np.flatnonzero(result.mask)
    union = np.concatenate([np.arange(50), chosen])
    value = objective_of("DiSF_uncentred", rows[union], quality[union], 0.5, best.normalisation)
    assert result.objective.value == pytest.approx(value, abs=1e-5)
    if policy == "greedy":
        assert result.objective.value > 0.98 * best.objective.value


def test_what_cannot_be_taken_as_held_is_refused(clustered) -> None:
    rows, quality = clustered
    given = Given.of(rows[:50], quality[:50], second=False)
    with pytest.raises(ConfigurationError, match="'Facility' is none of moments"):
        select_documents(rows, quality, given=given, diversity="Facility", **FAST)
    with pytest.raises(
        ConfigurationError, match="policy 'policy_gradient' cannot choose beside what is held"
    ):
        select_documents(rows, quality, given=given, policy="policy_gradient", num_epochs=1, **FAST)
    with pytest.raises(InputError, match="second moments of what is held"):
        select_documents(rows, quality, given=given, diversity="DiSF_uncentred", **FAST)
    with pytest.raises(InputError, match=r"given\.first_D.*\(16,\)|\(16,\).*given\.first_D"):
        select_documents(rows, quality, given=Given.of(vectors(9, 4, 0), np.ones(9)), **FAST)
    whole: Any = select_documents(rows, quality, **FAST)
    with pytest.raises(InputError, match=r"SelectionResult.*an earlier result's `held`"):
        select_documents(rows, quality, given=whole, **FAST)
    with pytest.raises(InputError, match="scores held are"):
        select_documents(rows, {"edu": quality}, given=given, **FAST)


@pytest.mark.slow
def test_a_killed_run_goes_on_beside_the_same_documents_only(clustered, tmp_path) -> None:
    rows, quality = clustered
    settings: dict[str, Any] = {"diversity": "DiSF_uncentred", "checkpoint_seconds": 0, **FAST}

    class Killed(Exception):
        pass

    def kill(text: str, step: int, steps: int | None) -> None:
        if step == 2:
            raise Killed

    given, other = Given.of(rows[:50], quality[:50]), Given.of(rows[50:90], quality[50:90])
    with pytest.raises(Killed):
        select_documents(
            rows[100:], quality[100:], given=given, checkpoint_dir=tmp_path, progress=kill, **settings
        )
    with pytest.raises(ConfigurationError, match="checkpoint"):
        select_documents(rows[100:], quality[100:], given=other, checkpoint_dir=tmp_path, **settings)
    resumed = select_documents(rows[100:], quality[100:], given=given, checkpoint_dir=tmp_path, **settings)
    assert (resumed.mask == select_documents(rows[100:], quality[100:], given=given, **settings).mask).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"quality": np.zeros(39)}, "40 embeddings need as many scores"),
        ({"quality": np.zeros((40, 1))}, "40 embeddings need as many scores"),
        ({"quality": np.full(40, "a")}, "real numbers"),
        ({"quality": np.r_[np.zeros(39), np.nan]}, "row 39"),
        ({"quality": {1: np.zeros(40)}}, "name of a quality score"),
        ({"token_counts": [1, 2, 3]}, "40 embeddings need as many token counts"),
        ({"token_counts": np.r_[-1.0, np.ones(39)]}, "below 0.*row 0"),
        ({"embeddings": np.zeros(40)}, "two dimensions"),
        ({"embeddings": np.zeros((0, 8))}, "some of each"),
        ({"embeddings": np.r_[np.ones((39, 8)), np.zeros((1, 8))]}, "no direction.*row 39"),
        ({"embeddings": np.r_[np.ones((39, 8)), np.full((1, 8), 1e200)]}, "no direction.*row 39"),
        ({"embeddings": np.r_[np.full((1, 8), np.inf), np.ones((39, 8))]}, "no direction.*row 0"),
    ],
)
def test_sums_of_what_does_not_belong_together_are_refused(change: dict[str, Any], told: str) -> None:
    whole = {"embeddings": vectors(40, 8, 0), "quality": np.zeros(40)}
    with pytest.raises(InputError, match=told):
        Given.of(**(whole | change))


def test_the_digest_is_of_every_sum_that_decides() -> None:
    whole = Given.of(vectors(HELD, 4, 1), np.linspace(0, 1, HELD), token_counts=np.full(HELD, 9))
    assert whole.second_DD is not None
    others = [
        replace(whole, count=whole.count + 1),
        replace(whole, first_D=whole.first_D + 1e-9),
        replace(whole, second_DD=whole.second_DD * 2),
        replace(whole, second_DD=None),
        replace(whole, squared=whole.squared / 2),
        replace(whole, quality={"quality": 1.0}),
        replace(whole, in_part=True),
    ]
    assert len({whole.digest, *(other.digest for other in others)}) == 1 + len(others)
    assert replace(whole, tokens=None).digest == whole.digest


def test_sums_are_those_of_lists_and_of_files_too(tmp_path: Any) -> None:
    held, quality = vectors(40, 8, 0), np.arange(40.0)
    np.save(tmp_path / "held.npy", held)
    wanted = Given.of(held, quality, token_counts=np.ones(40))
    for each in (held.tolist(), str(tmp_path / "held.npy"), torch.from_numpy(held)):
        assert Given.of(each, quality.tolist(), token_counts=[1] * 40).digest == wanted.digest
    longer = Given(count=3, first_D=np.full(8, 100.0), second_DD=None, squared=3.0, quality={"quality": 1.0})
    with pytest.raises(InputError, match=r"given\.first_D"):
        select_documents(held, quality, given=longer, num_documents=5)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("metric", EVERY)
def test_a_share_of_what_is_held_spans_more_than_it_counts(metric: str) -> None:
    """A hundredth of 3,000 documents counts 30 and spans all 64 dimensions: no bound may go by the 30."""
    draws = np.random.default_rng(0)
    held, new = draws.standard_normal((3_000, 64)), draws.standard_normal((200, 64))
    given = Given.of(held, draws.random(3_000)).share(1 / 100)
    result = select_documents(
        new, draws.random(200), given=given, diversity=metric, num_documents=10, lamb=0.0, **FAST
    )
    if metric == "DiSF":
        assert result.certificate.bound is None
        return
    assert result.certificate.bound is not None
    assert result.certificate.gap > 0.05, "so near to the best nobody can be who has ten documents to choose"


def test_a_share_of_less_than_one_document_is_held() -> None:
    held, new = vectors(HELD, 4, 0), vectors(NEW, 4, 1)
    given = Given.of(held, np.linspace(0, 1, HELD)).share(1 / 10)
    result = select_documents(new, np.linspace(0, 1, NEW), given=given, num_documents=CHOSEN, **FAST)
    assert result.record["given"]["documents"] == pytest.approx(HELD / 10)

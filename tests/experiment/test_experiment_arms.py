"""What arms learn from: equal tokens, disjoint halves, matched lengths, planted doses."""

from dataclasses import replace

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.arms import chosen_places, engine_budget, learnt_texts
from datamask_pipeline.experiment.collection import Documents
from datamask_pipeline.experiment.config import ArmConfig, ExperimentConfig, PoolConfig
from datamask_pipeline.experiment.redraw import draws_of, half_of
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.sharded import ShardedVectors

END, SIZE = 0, 400


def encode(texts: list[str]) -> list[list[int]]:
    return [[int(word) for word in text.split()] for text in texts]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Documents of 5 to 200 words; of the first forty, each even one has a near-copy of higher quality after it."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(5, 200, SIZE)
    texts = [" ".join(map(str, generator.integers(1, 1_000, length))) for length in lengths]
    vectors = generator.normal(size=(SIZE, 32)).astype(np.float32)
    vectors[1:40:2] = vectors[0:40:2] + 0.001
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("vectors") / "v.npy"
    np.save(path, vectors)
    quality = generator.random(SIZE)
    quality[:40] = np.linspace(2.0, 3.0, 40)
    tokens = [np.array([*ids, END]) for ids in encode(texts)]
    rows = ShardedVectors([path], np.zeros(SIZE, np.int64), np.arange(SIZE))
    return Documents(tokens, texts, np.array([len(ids) for ids in tokens]), quality, rows)


BUDGET = 8_000


def places_of(arm: ArmConfig, half: Documents, seed: int = 0, **before: np.ndarray) -> np.ndarray:
    engine = None
    if arm.select:
        engine = SelectionConfig.of({**arm.select, "num_tokens": engine_budget(half, BUDGET), "seed": seed})
    return chosen_places(arm, engine, half, BUDGET, np.random.default_rng(seed), before)


ARMS = [
    ArmConfig(),
    ArmConfig(shuffled_share=0.25),
    ArmConfig(select={"policy": "quality_topk"}),
    ArmConfig(select={"policy": "quality_topk"}, collapse=0.98),
    ArmConfig(select={"policy": "datamask", "lamb": 0.5}),
]


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_learns_from_equally_many_tokens(arm: ArmConfig, half: Documents) -> None:
    places = places_of(arm, half)
    assert len(set(places.tolist())) == len(places)
    learnt = learnt_texts(arm, half, places, BUDGET, np.random.default_rng(1), encode, END)
    assert len(learnt.tokens_T) == BUDGET
    shuffled = 0
    for number, place in enumerate(places[: len(learnt.offsets_D) - 2]):
        mine = learnt.tokens_T[learnt.offsets_D[number] : learnt.offsets_D[number + 1]]
        assert sorted(mine) == sorted(half.tokens[place])
        shuffled += list(mine) != list(half.tokens[place])
    assert shuffled / len(places) == pytest.approx(arm.shuffled_share, abs=0.08)


def test_near_copies_are_collapsed_to_the_best(half: Documents) -> None:
    chosen = set(places_of(ARMS[3], half).tolist())
    assert chosen >= set(range(1, 40, 2))
    assert not chosen & set(range(0, 40, 2))
    assert set(places_of(ARMS[2], half).tolist()) >= set(range(40))


def test_random_documents_of_given_lengths(half: Documents) -> None:
    short = np.argsort(half.lengths_N)[:200][np.random.default_rng(5).permutation(200)[:150]]
    matched = places_of(ArmConfig(lengths_of="short"), half, short=short)
    usual = places_of(ArmConfig(), half)
    assert set(matched.tolist()) != set(short.tolist())
    assert np.median(half.lengths_N[matched]) == pytest.approx(np.median(half.lengths_N[short]), abs=12)
    assert np.median(half.lengths_N[usual]) > np.median(half.lengths_N[short]) + 20


def test_an_arm_that_chooses_more_learns_random_ones_of_them(half: Documents) -> None:
    """Twice as much is chosen by quality: what is learnt is a random half of it."""
    engine = SelectionConfig.of(
        {"policy": "quality_topk", "num_tokens": engine_budget(half, 2 * BUDGET), "seed": 0}
    )
    arm = ArmConfig(select={"policy": "quality_topk"}, ratio=0.5)
    places = chosen_places(arm, engine, half, BUDGET, np.random.default_rng(0), {})
    best = places_of(ARMS[2], half)
    assert abs(half.lengths_N[places].sum() - half.lengths_N[best].sum()) < 400
    order = np.argsort(-half.quality_N)
    allowed = set(order[: int(2.3 * len(best))].tolist())
    assert set(places.tolist()) <= allowed
    assert 0.25 < len(set(places.tolist()) & set(best.tolist())) / len(places) < 0.75


def test_scores_are_weighted_for_an_arm_alone(half: Documents) -> None:
    scores = {"a": half.quality_N, "b": -half.quality_N}
    both = replace(half, scores=scores)
    by_a, by_b = (
        set(places_of(ArmConfig(select={"policy": "quality_topk"}, weights={name: 1.0}), both).tolist())
        for name in scores
    )
    assert by_a == set(places_of(ARMS[2], half).tolist())
    assert not by_a & by_b


def test_arms_without_the_later_settings_are_the_same_as_before() -> None:
    """Their draws in a record stay what they are."""
    assert set(ArmConfig().result_config()) == {"select", "collapse", "lengths_of", "shuffled_share"}
    assert set(PoolConfig().result_config()) == {"first_tokens"}


def test_an_arm_with_too_few_tokens_is_refused(half: Documents) -> None:
    with pytest.raises(InputError, match=r"it has [\d,]+ tokens where 99,999,999 are needed"):
        chosen_places(ArmConfig(), None, half, 99_999_999, np.random.default_rng(0), {})


def test_an_arm_that_needs_nearly_all_tokens_takes_all_documents(half: Documents) -> None:
    """The engine is given a little more than is learnt, which may be more than there is."""
    total = int(half.lengths_N.sum())
    for num_tokens in (int(0.97 * total), total):
        engine = SelectionConfig(policy="quality_topk", num_tokens=engine_budget(half, num_tokens))
        places = chosen_places(
            ArmConfig(select={"policy": "quality_topk"}),
            engine,
            half,
            num_tokens,
            np.random.default_rng(0),
            {},
        )
        assert half.lengths_N[places].sum() >= num_tokens
        assert len(set(places.tolist())) == len(places)
    with pytest.raises(InputError, match=f"it has {total:,} tokens where {total + 1:,} are needed"):
        chosen_places(ArmConfig(), None, half, total + 1, np.random.default_rng(0), {})


def test_draws_come_in_halves_without_a_common_document() -> None:
    arms = {"random": {}, "random_again": {}}
    config = ExperimentConfig(
        name="x", question="?", contrast=("random", "random_again"), arms=arms, chain={}
    )
    halves = [half_of(config, 101, number) for number in range(4)]
    for one, other in (halves[:2], halves[2:]):
        assert sorted([*one, *other]) == list(range(101))
    assert set(halves[0]) not in (set(halves[2]), set(halves[3]))
    numbers = [draws_of(config, number, arm).random() for number in range(3) for arm in arms]
    assert len(set(numbers)) == 6
    assert numbers == [draws_of(config, number, arm).random() for number in range(3) for arm in arms]


@pytest.mark.parametrize("has_end", [True, False])
def test_shuffled_documents_end_as_the_others_do(half: Documents, has_end: bool) -> None:
    """In a pool whose documents are cut no arm has an end of text, its control neither: else that alone told them apart."""
    tokens = half.tokens if has_end else [ids[:-1] for ids in half.tokens]
    cut = replace(half, tokens=tokens, lengths_N=np.array([len(ids) for ids in tokens]))
    arm = ArmConfig(shuffled_share=1.0)
    places_n = places_of(arm, cut)
    learnt = learnt_texts(arm, cut, places_n, BUDGET, np.random.default_rng(0), encode, END)
    assert (END in learnt.tokens_T) is has_end


def test_a_control_is_shuffled_and_else_random() -> None:
    assert ArmConfig(shuffled_share=0.1).is_control
    assert not ArmConfig().is_control
    assert not ArmConfig(shuffled_share=0.1, select={"policy": "quality_topk"}).is_control
    assert not ArmConfig(shuffled_share=0.1, collapse=0.98).is_control

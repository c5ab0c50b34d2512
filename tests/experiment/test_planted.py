"""What is planted is what it is called, and what an arm found of it is counted as it was."""

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.planted import (
    KINDS,
    NONE,
    PlantConfig,
    Planted,
    found_of,
    originals_of,
    planted_texts,
)

TEXTS = [" ".join(f"w{number}x{place}" for place in range(60)) + f"\nend {number}" for number in range(30)]
CONFIG = PlantConfig(good_documents=3, copies=5, boilerplate=4, junk=6, dropped_share=0.1)


def planted(seed: int = 0) -> list[tuple[str, str]]:
    return list(planted_texts(CONFIG, TEXTS[:3], TEXTS, np.random.default_rng(seed)))


def test_copies_are_near_and_the_rest_is_not() -> None:
    made = planted()
    assert [kind for kind, _ in made] == ["near_copies"] * 15 + ["boilerplate"] * 4 + ["junk"] * 6
    assert len({text for _, text in made}) == len(made) == CONFIG.num_documents
    for number, (_, text) in enumerate(made):
        words = set(text.split())
        shares = [len(words & set(one.split())) / len(set(one.split())) for one in TEXTS]
        if number < 15:
            own = shares.pop(number // 5)
            assert 0.75 < own < 1.0
            assert text.split("\n")[-1].split()[-1:] in (["end"], [str(number // 5)])
        assert max(shares) < 0.5
    assert planted() == made
    assert planted(1) != made


def test_good_documents_are_of_the_best_that_are_offered() -> None:
    quality = np.arange(100.0)
    offered = np.arange(0, 100, 2)
    config = PlantConfig(good_documents=4, good_share=0.2)
    places = originals_of(config, quality, offered, np.random.default_rng(0))
    assert len(set(places.tolist())) == 4
    assert set(places.tolist()) <= set(range(80, 100, 2))
    with pytest.raises(InputError, match=r"4 good documents are to be copied, and the best 4% are 2"):
        originals_of(
            PlantConfig(good_documents=4, good_share=0.04), quality, offered, np.random.default_rng(0)
        )


def test_what_was_found_is_counted() -> None:
    near, menu, noise = range(len(KINDS))
    kinds = np.array([NONE, NONE, NONE, near, near, near, near, menu, menu, noise])
    contents = np.array([NONE, 0, 1, 0, 0, 1, 1, NONE, NONE, NONE])
    found = found_of(Planted(kinds, contents), np.array([0, 1, 3, 4, 7]))
    assert found == {
        "precision_near_copies": 2 / 5,
        "recall_near_copies": 2 / 4,
        "precision_boilerplate": 1 / 5,
        "recall_boilerplate": 1 / 2,
        "precision_junk": 0.0,
        "recall_junk": 0.0,
        "precision_good": 1 / 5,
        "recall_good": 1 / 2,
        "times_good": 3.0,
    }
    none = found_of(Planted(np.full(2, NONE), np.full(2, NONE)), np.array([0]))
    assert none["recall_good"] is None
    assert none["times_good"] is None

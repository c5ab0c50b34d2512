"""Planted documents are refused where encoder or scorers are not those that the collection was made by."""

from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.collection import Documents, combined_quality
from datamask_pipeline.experiment.controlled import Made, refuse_others
from datamask_pipeline.selection.sharded import ShardedVectors

SIZE = 12
KNOWN = np.array([0, 5, 11])


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(SIZE, 8)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    scores = {"rules": generator.random(SIZE), "edu": generator.random(SIZE)}
    return Documents(
        [np.array([1, 0])] * SIZE,
        ["a"] * SIZE,
        np.full(SIZE, 2),
        combined_quality(scores),
        ShardedVectors([tmp_path / "v.npy"], np.zeros(SIZE, np.int64), np.arange(SIZE)),
        scores,
    )


def again(documents: Documents) -> Made:
    return Made(documents.vectors[KNOWN], {name: values[KNOWN] for name, values in documents.scores.items()})


def test_the_same_encoder_and_scorers_pass(documents: Documents) -> None:
    refuse_others(documents, KNOWN, again(documents))


def test_another_encoder_is_refused(documents: Documents) -> None:
    made = again(documents)
    made.vectors_PD[1] = np.roll(made.vectors_PD[1], 1)
    with pytest.raises(InputError, match="the encoder that embeds planted documents is not the collection's"):
        refuse_others(documents, KNOWN, made)


def test_another_scorer_is_refused(documents: Documents) -> None:
    made = again(documents)
    made.scores["edu"][2] += 0.25
    with pytest.raises(InputError, match=r"scorer 'edu' gives 3 documents .* by up to 0.2500"):
        refuse_others(documents, KNOWN, made)


def test_quality_is_the_weighted_mean_of_ranks() -> None:
    scores = {"a": np.array([3.0, 1.0, 2.0]), "b": np.array([10.0, 30.0, 20.0])}
    assert combined_quality(scores) == pytest.approx([0.5, 0.5, 0.5])
    assert combined_quality(scores, {"a": 1.0}) == pytest.approx([1.0, 0.0, 0.5])
    assert combined_quality(scores, {"a": 1.0, "b": 3.0}) == pytest.approx([0.25, 0.75, 0.5])

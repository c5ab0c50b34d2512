"""Scores along few directions: near exact ones where few directions matter, and left alone where all do."""

from typing import Any

import numpy as np
import pytest
import second_device
import torch
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.coarse_form import DIRECTIONS, FEWER, CoarseForm, coarse_form
from datamask_pipeline.diversity.moments import LinearForm
from datamask_pipeline.selection.moments import statistics

DIM = FEWER * DIRECTIONS
SHOWN = 500


def in_a_cone(size: int, seed: int, noise: float = 0.3) -> NDArray[np.float32]:
    """Unit vectors around twenty directions that share most of a mean, as embeddings of texts do."""
    fixed, draws = np.random.default_rng(1), np.random.default_rng(seed)
    mean_D, topics_TD = fixed.normal(size=DIM), fixed.normal(size=(20, DIM))
    rows_ND = mean_D + 0.7 * draws.normal(size=(size, 20)) @ topics_TD / 20**0.5
    rows_ND += noise * draws.normal(size=(size, DIM))
    return (rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True)).astype(np.float32)


def isotropic(size: int, seed: int) -> NDArray[np.float32]:
    rows_ND = np.random.default_rng(seed).normal(size=(size, DIM))
    return (rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True)).astype(np.float32)


def energy(rows_ND: NDArray[np.float32], vector: float = 0.0) -> LinearForm:
    """What DiSF_uncentred gives documents beside these, and a vector."""
    second_DD = rows_ND.astype(np.float64).T @ rows_ND.astype(np.float64) / len(rows_ND)
    vector_D = torch.from_numpy(vector * np.random.default_rng(2).normal(size=rows_ND.shape[1]))
    return LinearForm(vector_D=vector_D, matrix_DD=torch.from_numpy(-2 * second_DD), squared=0.25)


def tried(form: LinearForm, rows_ND: NDArray[np.float32]) -> LinearForm | CoarseForm:
    rows = torch.from_numpy(rows_ND)
    return coarse_form(form, rows, rows.double().square().sum(1))


@pytest.mark.parametrize("vector", [0.0, 0.3])
def test_documents_that_were_not_tried_have_nearly_their_scores(vector: float) -> None:
    form = energy(in_a_cone(3_000, seed=3), vector)
    coarse = tried(form, in_a_cone(SHOWN, seed=4))
    assert isinstance(coarse, CoarseForm)
    others_ND = in_a_cone(2_000, seed=5).astype(np.float64)
    assert form.matrix_DD is not None
    exact_n = np.einsum("nd,de,ne->n", others_ND, form.matrix_DD.numpy(), others_ND)
    spread = exact_n.std()
    exact_n += others_ND @ form.vector_D.numpy() + 0.25 * np.square(others_ND).sum(1)
    rows = torch.from_numpy(others_ND.astype(np.float32))
    found_n = coarse.scores(rows, torch.from_numpy(np.square(others_ND).sum(1)))
    assert np.abs(found_n.numpy() - exact_n).max() < spread / 100


def test_a_matrix_that_is_a_number_but_along_a_few_directions_is_scored_right() -> None:
    basis_DD = np.linalg.qr(np.random.default_rng(0).normal(size=(DIM, DIM))).Q
    values_D = np.where(np.arange(DIM) < DIRECTIONS, np.linspace(9.0, 2.0, DIM), 0.05)
    matrix_DD = torch.from_numpy((basis_DD * values_D) @ basis_DD.T)
    form = LinearForm(vector_D=torch.zeros(DIM, dtype=torch.float64), matrix_DD=matrix_DD, squared=0.25)
    rows_ND = isotropic(SHOWN, seed=1)
    coarse = tried(form, rows_ND)
    assert isinstance(coarse, CoarseForm)
    squared_N = np.square(rows_ND.astype(np.float64)).sum(1)
    exact_N = np.square(rows_ND.astype(np.float64) @ basis_DD) @ values_D + 0.25 * squared_N
    found_N = coarse.scores(torch.from_numpy(rows_ND), torch.from_numpy(squared_N))
    np.testing.assert_allclose(found_N.numpy(), exact_N, atol=5e-4)


def test_a_form_is_left_alone_where_all_directions_matter_alike() -> None:
    form = energy(isotropic(3_000, seed=3))
    assert tried(form, isotropic(SHOWN, seed=4)) is form


def test_a_form_is_left_alone_where_documents_differ_in_what_is_left_out() -> None:
    """Documents outside of all that those share of which the form is."""
    shared_ND = in_a_cone(3_000, seed=3)
    main_TD = np.linalg.svd(shared_ND, full_matrices=False)[2][:21]
    rows_ND = isotropic(SHOWN, seed=4)
    rows_ND -= rows_ND @ main_TD.T @ main_TD
    form = energy(shared_ND)
    assert tried(form, rows_ND) is form


@pytest.mark.parametrize("of", ["few dimensions", "no matrix", "no numbers"])
def test_a_form_is_left_alone_where_there_is_nothing_to_gain(of: str) -> None:
    rows_ND = in_a_cone(SHOWN, seed=3)
    if of == "few dimensions":
        rows_ND = rows_ND[:, : DIM - 1]
    form = energy(rows_ND)
    assert form.matrix_DD is not None
    if of == "no matrix":
        form = LinearForm(vector_D=form.vector_D, matrix_DD=None, squared=1.0)
    elif of == "no numbers":
        form = LinearForm(vector_D=form.vector_D, matrix_DD=form.matrix_DD * float("nan"), squared=1.0)
    assert tried(form, rows_ND) is form


@pytest.mark.parametrize("budget", ["documents", "quotas"])
def test_a_selection_led_by_them_ends_where_exact_ones_lead(
    budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bands and by whole passes, in float32: proved by exact scores, the same by one thread and by two."""
    rows_ND, draws = in_a_cone(2_000, seed=6), np.random.default_rng(7)
    quality_N = rows_ND @ draws.normal(size=DIM) + 0.1 * draws.normal(size=len(rows_ND))
    settings: dict[str, Any] = {"diversity": "DiSF_uncentred", "num_documents": 450, "dtype": "float32"}
    if budget == "quotas":
        settings |= {"groups": ["a", "b"] * (len(rows_ND) // 2), "quotas": {"a": 0.4, "b": 0.6}}
    exact = select_documents(rows_ND, quality_N, num_workers=1, **settings)
    monkeypatch.setattr(statistics, "COARSE_ROWS", 600)
    scored: list[int] = []
    scores = CoarseForm.scores

    def counted(form: CoarseForm, rows_nD: torch.Tensor, *more: Any) -> torch.Tensor:
        scored.append(len(rows_nD))
        return scores(form, rows_nD, *more)

    monkeypatch.setattr(CoarseForm, "scores", counted)
    coarse = select_documents(rows_ND, quality_N, num_workers=1, **settings)
    assert scored
    again = select_documents(rows_ND, quality_N, num_workers=2, **settings)
    np.testing.assert_array_equal(coarse.mask, again.mask)
    assert coarse.normalisation == exact.normalisation
    distance = exact.certificate.bound - exact.objective.random
    assert abs(coarse.objective.value - exact.objective.value) < 5e-4 * distance
    assert abs(coarse.certificate.bound - exact.certificate.bound) < 5e-4 * distance
    mask_N = np.asarray(coarse.mask)
    chosen_KD = rows_ND[mask_N].astype(np.float64)
    second_DD = chosen_KD.T @ chosen_KD / len(chosen_KD)
    zero, one = coarse.normalisation["DiSF_uncentred"]
    low, high = coarse.normalisation["quality"]
    lamb = 0.5
    value = lamb * (quality_N[mask_N].mean() - low) / (high - low)
    value += (1 - lamb) * (-np.square(second_DD).sum() - zero) / (one - zero)
    assert coarse.objective.value == pytest.approx(value, abs=1e-5)
    assert value <= coarse.certificate.bound + 1e-6


def test_neither_another_device_nor_bfloat16_looks_along_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows_ND, quality_N = in_a_cone(700, seed=6), np.random.default_rng(7).normal(size=700)
    monkeypatch.setattr(statistics, "COARSE_ROWS", 600)
    monkeypatch.setattr(CoarseForm, "scores", lambda *_: pytest.fail("scores along directions"))
    settings: dict[str, Any] = {"diversity": "DiSF_uncentred", "num_documents": 400, "dtype": "float32"}
    with second_device.second_device():
        select_documents(rows_ND, quality_N, device=second_device.NAME, **settings)
    select_documents(rows_ND, quality_N, **settings | {"dtype": "bfloat16"})
    with pytest.raises(pytest.fail.Exception):
        select_documents(rows_ND, quality_N, **settings)

"""The engine in scikit-learn's manner: its own checks, and the same masks as the function's."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from datamask_pipeline import DataMaskSelector, select_documents
from datamask_pipeline.errors import ConfigurationError

REFUSED = {"check_estimators_dtypes": "it draws a row of zeros, which has no direction"}
TOO_FEW = {
    "check_estimators_nan_inf": "its ten rows are one at the default ratio, and the engine chooses two at least"
}

QUICK = {"num_restarts": 0, "num_kicks": 0}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("num_documents", "refused"), [(2, REFUSED), (None, REFUSED | TOO_FEW)], ids=["documents", "ratio"]
)
def test_scikit_learns_checks_pass_but_those_that_the_documents_name(num_documents, refused) -> None:
    selector = DataMaskSelector(
        num_documents=num_documents, settings={"num_steps": 3, "num_swap_rounds": 1, "num_restarts": 0}
    )
    found = check_estimator(selector, on_skip=None, on_fail=None)
    assert {one["check_name"] for one in found if one["status"] == "failed"} == {*refused}
    assert {one["check_name"] for one in found if one["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(found) > 30


@pytest.mark.slow
def test_it_chooses_what_the_function_chooses(clustered) -> None:
    rows, quality = clustered
    selector = clone(
        DataMaskSelector(diversity="Facility", ratio=0.2, lamb=0.3, settings={"quality_pruning": 0.1})
    )
    with pytest.raises(NotFittedError):
        selector.get_support()
    expected = select_documents(rows, quality, diversity="Facility", ratio=0.2, lamb=0.3, quality_pruning=0.1)
    assert np.array_equal(selector.fit(rows, quality).get_support(), expected.mask)
    assert np.array_equal(selector.get_support(indices=True), np.flatnonzero(expected.mask))
    assert selector.result_.certificate == expected.certificate
    alone = select_documents(rows, np.zeros(400), lamb=0.0, num_documents=30)
    assert np.array_equal(DataMaskSelector(num_documents=30).fit(rows).get_support(), alone.mask)
    tokens = np.arange(400) + 10
    spent = DataMaskSelector(settings={"num_tokens": 3000}).fit(rows, quality, token_counts=tokens)
    assert tokens[spent.get_support()].sum() <= 3000


def test_a_tensor_of_bfloat16_is_taken_as_its_numbers(clustered) -> None:
    rows, quality = clustered
    half = torch.from_numpy(np.asarray(rows)).to(torch.bfloat16)
    made, expected = (
        DataMaskSelector(num_documents=30, settings=QUICK).fit(X, quality)
        for X in (half, half.float().numpy())
    )
    assert np.array_equal(made.get_support(), expected.get_support())


def test_a_tensor_that_takes_part_in_training_is_taken_as_its_numbers(clustered) -> None:
    rows, quality = clustered
    trained = torch.from_numpy(np.asarray(rows)).requires_grad_()
    made, expected = (
        DataMaskSelector(num_documents=30, settings=QUICK).fit(X, quality) for X in (trained, rows)
    )
    assert np.array_equal(made.get_support(), expected.get_support())


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (
            {"settings": {"lamb": 0.9}},
            {},
            r"settings of DataMaskSelector name 'lamb'.*DataMaskSelector\(lamb=",
        ),
        ({"ratio": 0.3, "settings": {"ratio": 0.5}}, {}, r"name 'ratio'.*DataMaskSelector\(ratio="),
        ({"settings": {"embeddings": 1}}, {}, r"name 'embeddings'.*fit"),
        ({"num_documents": 7, "ratio": 0.5}, {}, r"one budget, not 2: num_documents, ratio; leave one"),
        (
            {"ratio": 0.5, "settings": {"num_tokens": 50}},
            {},
            r"one budget, not 2: num_tokens, ratio; leave one",
        ),
        ({"settings": [1]}, {}, r"a dict by their names, not \[1\]"),
        ({}, {"lamb": 0.9}, r"fit takes no 'lamb'.*DataMaskSelector\(lamb="),
        ({"settings": {"num_steps": 3}}, {"num_steps": 4}, r"fit takes no 'num_steps'.*settings"),
    ],
)
def test_settings_given_twice_or_wrongly_are_refused(made, given, said, clustered) -> None:
    with pytest.raises(ConfigurationError, match=said):
        DataMaskSelector(**made).fit(*clustered, **given)


def test_the_ratio_is_the_engine_s_unless_another_budget_is_given(clustered) -> None:
    few = {"num_kicks": 0}
    assert DataMaskSelector(settings=few).fit(*clustered).get_support().sum() == 40
    assert DataMaskSelector(num_documents=7, settings=few).fit(*clustered).get_support().sum() == 7


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("diversity", ["Pair_simi", "Facility"])
@pytest.mark.parametrize("name", ["target", "avoid"])
def test_likeness_alone_is_the_quality_where_no_other_is_given(diversity: str, name: str) -> None:
    draws = np.random.default_rng(0)
    X, shown = draws.normal(size=(400, 24)), draws.normal(size=(3, 24))
    unit_ND, unit_TD = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (X, shown))
    like_N = (unit_ND @ unit_TD.T).max(1) * (1 if name == "target" else -1)
    few = {"num_restarts": 0, "num_kicks": 0}
    made = [
        DataMaskSelector(diversity=diversity, lamb=lamb, num_documents=30, settings=few)
        for lamb in (0.0, 0.5, 0.9, 1.0)
    ]
    means = [like_N[each.fit(X, **{name: shown}).get_support()].mean() for each in made]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(np.sort(like_N)[-30:].mean())
    assert means[2] > means[0] + 0.05
    weighed = DataMaskSelector(
        diversity=diversity, num_documents=30, settings={"quality_weights": {name: 2.0}, **few}
    )
    assert (weighed.fit(X, **{name: shown}).get_support() == made[1].get_support()).all()


@pytest.mark.slow
def test_it_fits_at_the_end_of_a_pipeline(clustered) -> None:
    pipeline = make_pipeline(StandardScaler(), DataMaskSelector(num_documents=30)).fit(*clustered)
    assert pipeline[-1].get_support().sum() == 30
    assert not hasattr(pipeline, "transform")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("made", [{"policy": "quality_topk"}, {"settings": {"quality_pruning": 0.5}}])
def test_what_goes_by_quality_needs_some(made, clustered) -> None:
    with pytest.raises(ConfigurationError, match=r"goes by quality.*y of fit"):
        DataMaskSelector(**made).fit(clustered[0])
    DataMaskSelector(**made).fit(clustered[0], target=clustered[0][:3])

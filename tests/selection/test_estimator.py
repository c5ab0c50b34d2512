"""The engine in scikit-learn's manner: its own checks, and the same masks as the function's."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from datamask_pipeline import DataMaskSelector, select_documents

REFUSED = {"check_estimators_dtypes": "it draws a row of zeros, which has no direction"}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass() -> None:
    selector = DataMaskSelector(num_documents=2, settings={"num_steps": 3, "num_swap_rounds": 1})
    found = check_estimator(selector, expected_failed_checks=REFUSED, on_skip=None)
    assert {one["check_name"] for one in found if one["status"] != "passed"} <= {
        *REFUSED, "check_array_api_input",
    }  # fmt: skip
    assert len(found) > 30


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

"""The report says where arms could not choose from the same documents."""

from typing import Any

import pytest

from datamask_pipeline.report.arms import _about_pools


@pytest.mark.parametrize(
    ("redundancy", "told"),
    [
        ({"random": {"pool_documents": 718}, "datamask": {"pool_documents": 718}}, None),
        ({"random": {"pool_documents": 257}, "datamask": {"pool_documents": 1718}}, "random 257, datamask 1,718;"),
        ({"random": {"pool_documents": 257}, "datamask": {}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_arms_of_other_documents_are_called_so(
    redundancy: dict[str, dict[str, Any]], told: str | None
) -> None:
    lines = _about_pools(redundancy, [{"arm": "random"}, {"arm": "datamask"}], "random")
    assert len(lines) == (told is not None)
    assert told is None or (told in lines[0])

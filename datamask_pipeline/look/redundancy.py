"""Copies among the chosen documents and what these stand for, where the record has measured it. Measures nothing itself."""

from typing import Any, Final

from datamask_pipeline.look.selected import Selected

#: The record's stage, and what of its figures is shown.
_STAGE: Final = "redundancy"
SHOWN: Final = {
    "documents": "documents",
    "exact_copies": "exact copies",
    "near_copies": "near-copies",
    "quality_rank": "mean quality rank",
    "coverage": "coverage of the pool",
}


def redundancy(about: Selected) -> dict[str, dict[str, Any]]:
    """The figures of each arm of the release that has been measured, by arm."""
    found = {}
    for name, arm in about.arms.items():
        if (ref := arm.made_with(_STAGE)) is not None:
            found[name] = about.store.manifest(ref)["metadata"]
    return found

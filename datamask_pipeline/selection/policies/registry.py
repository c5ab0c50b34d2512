"""Finding a selection policy by its name. Knows no policy: members are files here, or entry points elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.members import Family

if TYPE_CHECKING:
    from datamask_pipeline.selection.policies.base import SelectionPolicy

POLICIES: Family[SelectionPolicy] = Family(
    package="datamask_pipeline.selection.policies",
    attribute="POLICY",
    base="datamask_pipeline.selection.policies.base:SelectionPolicy",
    kind="selection policy",
)


def make_policy(name: str) -> SelectionPolicy:
    """The policy of that name.

    Raises:
        UnknownNameError: no such policy.
    """
    return POLICIES.find(name)()

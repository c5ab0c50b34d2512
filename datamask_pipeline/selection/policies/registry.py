"""Finding a selection policy by its name. Knows no policy."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import datamask_pipeline.selection.policies as package
from datamask_pipeline.errors import UnknownNameError

if TYPE_CHECKING:
    from datamask_pipeline.selection.policies.base import SelectionPolicy

NOT_MEMBERS = frozenset({"base", "registry"})


def policy_names() -> list[str]:
    """Every policy there is; imports none."""
    return sorted(module.name for module in iter_modules(package.__path__) if module.name not in NOT_MEMBERS)


def create_policy(name: str) -> SelectionPolicy:
    """The policy of that name.

    Raises:
        UnknownNameError: no such policy.
    """
    if name not in policy_names():
        raise UnknownNameError("selection policy", name, policy_names())
    policy: SelectionPolicy = import_module(f"{package.__name__}.{name}").POLICY()
    return policy

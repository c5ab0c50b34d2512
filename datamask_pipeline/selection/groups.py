"""Groups of documents by their names, and the places of their quotas. Knows no budget.

Shape suffixes: N documents.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from datamask_pipeline.errors import ConfigurationError, InputError, suggestion
from datamask_pipeline.selection.config import OTHER_GROUPS

logger = logging.getLogger(__name__)

MOST_NAMES = 10_000
"""Among more names the nearest one is not sought."""


def names_of(groups: Iterable[Any]) -> list[str]:
    """The name of each document's group: text as it is, bytes as UTF-8, whole numbers in decimal.

    Args:
        groups: N of them: any sequence, an array, a tensor, or a column of Arrow or pandas.

    Raises:
        InputError: a group that is null or neither text nor a whole number, by its row.
    """
    if isinstance(groups, pa.Array | pa.ChunkedArray):
        groups = groups.to_pylist()
    elif isinstance(groups, Tensor):
        groups = groups.tolist()
    return [one if type(one) is str else _name_of(one, row) for row, one in enumerate(groups)]


def known_names(known_groups: Iterable[Any]) -> set[str]:
    """The names of groups that other blocks have, read as the documents' are.

    Raises:
        ConfigurationError: no list of names; of a string alone each letter would be one.
    """
    if isinstance(known_groups, str | bytes) or not isinstance(known_groups, Iterable):
        raise ConfigurationError(f"known_groups must be a list of groups' names, not {known_groups!r:.120}")
    try:
        return {*names_of(known_groups)}
    except InputError as error:
        raise ConfigurationError(
            f"known_groups must be strings, bytes or whole numbers, not {error.value!r:.120}"
        ) from None


def _name_of(group: Any, row: int) -> str:
    if isinstance(group, pa.Scalar):
        group = group.as_py()
    if isinstance(group, str):
        return str(group)
    if isinstance(group, int | np.integer) and not isinstance(group, bool):
        return str(int(group))
    problem = "a document's group is null" if group is None else "a document's group is no name"
    if isinstance(group, bytes):
        try:
            return group.decode()
        except UnicodeDecodeError:
            problem = "a document's group is no UTF-8"
    raise InputError(
        problem, row=row, field="groups", value=group, remedy="give each document a string or a whole number"
    )


def groups_of(quotas: Mapping[str, float], groups: Iterable[Any]) -> Tensor:
    """The place of each document's quota among the sorted names: int64 of shape (N,).

    Raises:
        InputError: a document's group is no name, or has no quota.
    """
    places = {name: place for place, name in enumerate(sorted(quotas))}
    others = places.get(OTHER_GROUPS)
    names = names_of(groups)
    found = [places.get(name, others) for name in names]
    if None in found:
        row = found.index(None)
        raise InputError(
            "a document's group has no quota",
            row=row,
            field="groups",
            value=names[row],
            remedy=f"name it in `quotas`, or give all others one as {OTHER_GROUPS!r}",
        )
    return torch.tensor(found, dtype=torch.int64)


def tell_of_unmet(quotas: Iterable[str], names: Collection[str], where: str = "") -> None:
    """Log a warning of each quota whose group no document has, with the nearest name that one has.

    Args:
        quotas: Groups that have one.
        names: The documents' groups, each once.
        where: What the message begins with.
    """
    for name in sorted({*quotas} - {*names, OTHER_GROUPS}):
        logger.warning(
            "%sno document has the group %r that quotas name%s; its quota changes nothing",
            where,
            name,
            nearest(name, names),
        )


def nearest(name: str, names: Collection[str]) -> str:
    """The nearest of the documents' groups to a quota's name, in brackets; empty where none is near.

    Args:
        name: What the quota names.
        names: The groups, each once.
    """
    return suggestion(name, names) if len(names) <= MOST_NAMES else ""

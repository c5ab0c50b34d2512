"""What a row of a mask was compared with, in SQL, on the scale of what was compared. Reads nothing."""

from collections.abc import Mapping
from typing import Any

from datamask_pipeline import duck
from datamask_pipeline.audit.cuts import Cut, cuts_of
from datamask_pipeline.selection.config import OTHER_GROUPS


def cut_sql(mask: Mapping[str, Any], domain: str) -> str:
    """The cut of a row's block or, under quotas, of its group there, out of `threshold`, `reason` and `crawl`.

    Args:
        mask: Its manifest.
        domain: The row's host, as SQL; read where quotas are of hosts.

    Returns:
        A number; a quality where qualities were compared. Null: no threshold decided, or none of the group was chosen.
    """
    config = mask["basis"]["config"]
    group = "''"
    if quotas := config.get("quotas"):
        by = domain if config["quota_by"] == "domain" else "crawl"
        named = ", ".join(map(duck.literal, sorted(quotas)))
        group = f"CASE WHEN {by} IN ({named}) THEN {by} ELSE {duck.literal(OTHER_GROUPS)} END"
    cases = [
        f"WHEN threshold = {_number(cut.threshold)} AND {group} = {duck.literal(cut.group or '')} THEN {_value(cut)}"
        for cut in cuts_of(mask)
    ]
    return f"(CASE {' '.join(cases)} END)" if cases else "NULL::DOUBLE"


def _value(cut: Cut) -> str:
    if cut.value is None:
        return "NULL"
    zero, one = cut.scale
    quality = _number(zero + cut.value * (one - zero))
    return f"CASE WHEN contains(reason, 'quality') THEN {quality} ELSE {_number(cut.value)} END"


def _number(value: float) -> str:
    return f"{duck.literal(repr(value))}::DOUBLE"

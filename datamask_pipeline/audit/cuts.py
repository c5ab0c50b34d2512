"""What an arm's documents were compared with: the cut of their block or, under quotas, of their group in it. Reads no row.

A mask's rows have the threshold of their block, the groups' stand in the manifest. Both are on the scale of what was
compared: a quality there is what the objective makes of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from datamask_pipeline.selection.config import OTHER_GROUPS


@dataclass(frozen=True)
class Cut:
    """One cut of a mask.

    Attributes:
        threshold: The block's threshold, by which its rows are known.
        group: The group under quotas; none without quotas.
        value: What the documents were compared with; none where none of the group was chosen.
        scale: The zero and the one of quality in the block's objective.
    """

    threshold: float
    group: str | None
    value: float | None
    scale: tuple[float, float]


def cuts_of(mask: Mapping[str, Any]) -> Iterator[Cut]:
    """Every cut of a mask, by its manifest; none where no threshold decided."""
    quotas = mask["basis"]["config"].get("quotas")
    for block in mask["metadata"]["blocks"]:
        threshold = block["threshold"]
        if threshold is None:
            continue
        zero, one = block["normalisation"].get("quality", (0.0, 1.0))
        if not quotas:
            yield Cut(threshold, None, threshold, (zero, one))
            continue
        found = block["record"]["group_thresholds"]
        yield from (Cut(threshold, group, found.get(group), (zero, one)) for group in sorted(quotas))


def group_in(quotas: Mapping[str, float], value: str) -> str:
    """The quota that documents of such a crawl or host are under."""
    return value if value in quotas else OTHER_GROUPS

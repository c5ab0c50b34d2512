"""How a document's scores became its quality, and where an arm's cut by quality lies. Knows no learner.

Shape suffixes: N rows of the release's index with every score of the arm.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datamask_pipeline.audit.cuts import group_in
from datamask_pipeline.audit.reader import Reader, Row
from datamask_pipeline.quality.combine import combine_scores
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.selection.reasons import BY_QUALITY


def used_scores(config: Mapping[str, Any], index_row: Mapping[str, Any] | None) -> list[Row]:
    """The scores that an arm reads of a document, with their weights, as its index has them.

    Args:
        config: The arm's settings.
        index_row: The document's row in the index that the mask was learnt from; ``None`` where it has none.
    """
    if index_row is None:
        return []
    known = {name.removeprefix(SCORE_PREFIX): name for name in index_row if name.startswith(SCORE_PREFIX)}
    weights = dict(sorted(config["scorers"].items())) or dict.fromkeys(known, 1.0)
    return [
        {"scorer": name, "score": index_row[known[name]], "weight": weight}
        for name, weight in weights.items()
        if name in known
    ]


def normalised_scores(
    reader: Reader, location: str, row: int, scores: Sequence[Mapping[str, Any]], normalisation: str
) -> list[float] | None:
    """What each score became before it was weighted, by the engine's own function over the whole index.

    Args:
        reader: Of the record.
        location: The index that the mask was learnt from.
        row: The document's row in it, over all parts.
        scores: As ``used_scores`` gives them.
        normalisation: The arm's.

    Returns:
        One number a score; ``None`` where the document lacks one.
    """
    names = [SCORE_PREFIX + score["scorer"] for score in scores]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for batch in reader.tables.batches(location, names):
        for name in names:
            columns[name].append(batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64))
    values = {name: np.concatenate(found) for name, found in columns.items()}
    scored = ~np.any([np.isnan(values_R) for values_R in values.values()], axis=0)
    if not scored[row]:
        return None
    place = int(scored[:row].sum())
    alone = (
        combine_scores({name: values[name][scored]}, {name: 1.0}, normalisation=normalisation)  # type: ignore[arg-type]
        for name in names
    )
    return [float(normalised_N[place]) for normalised_N in alone]


def is_by_quality(selection: Mapping[str, Any]) -> bool:
    """Whether an arm compared the document's quality alone."""
    words = (BY_QUALITY.out, BY_QUALITY.into, BY_QUALITY.out_all_the_same, BY_QUALITY.in_all_the_same)
    return selection["reason"] in words


def cut(
    reader: Reader, location: str, selection: Mapping[str, Any], quotas: Mapping[str, float]
) -> Row | None:
    """Where the cut lies of an arm that takes the best by quality: between the last chosen and the first not chosen.

    Args:
        reader: Of the record.
        location: The mask.
        selection: The document's row in it: its threshold says which block's cut is asked for.
        quotas: Those of crawls; empty where there are none.

    Returns:
        ``last_chosen`` (``None``: none was chosen) and ``first_not_chosen`` (``None``: all were chosen); ``None`` for an
        arm that decides otherwise.
    """
    if not is_by_quality(selection):
        return None
    last, first = np.inf, -np.inf
    group = group_in(quotas, selection["crawl"]) if quotas else None
    for batch in reader.tables.batches(location, ["quality", "selected", "threshold", "crawl"]):
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names[:3]}
        mine_n = columns["threshold"] == selection["threshold"]
        if group is not None:
            mine_n &= [group_in(quotas, crawl) == group for crawl in batch.column("crawl").to_pylist()]
        chosen_n = columns["selected"]
        last = min(last, columns["quality"][mine_n & chosen_n].min(initial=np.inf))
        first = max(first, columns["quality"][mine_n & ~chosen_n].max(initial=-np.inf))
    return {
        "last_chosen": float(last) if np.isfinite(last) else None,
        "first_not_chosen": float(first) if np.isfinite(first) else None,
    }

"""Counts instead of a mask: every document stands so many times in the block, and may be taken as often. Knows no learner.

The copies are documents to the engine, so that objective, certificate, budget and quotas are those of the copies taken.

Shape suffixes: N documents, n of those left by pruning, M of their copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.pruning import COUNTED, Pruned
from datamask_pipeline.selection.result import Marginals, SelectionResult, log_odds


def checked_copies(max_copies: Any) -> int:
    """The number.

    Raises:
        ConfigurationError: it is no whole number above 0.
    """
    if isinstance(max_copies, bool) or not isinstance(max_copies, int | np.integer) or max_copies < 1:
        raise ConfigurationError(f"max_copies must be a whole number above 0, not {max_copies!r}")
    return int(max_copies)


def copied(pruned: Pruned, copies: int) -> Pruned:
    """The block with every document that is left so many times, one after another."""
    if copies == 1:
        return pruned
    index_M = torch.arange(pruned.rows.num_rows).repeat_interleave(copies)
    return Pruned(
        rows=pruned.rows.chosen(index_M),
        scores={name: scores_n[index_M] for name, scores_n in pruned.scores.items()},
        budget=pruned.budget.repeated(copies),
        why_N=np.repeat(pruned.why_N, copies),
    )


def repeated(values: Sequence[Any] | None, copies: int) -> Any:
    """What was given for each document, for each of its copies."""
    return values if values is None or copies == 1 else np.repeat(np.asarray(values), copies)


def folded(result: SelectionResult, copies: int) -> SelectionResult:
    """The result of the copies, told of their documents.

    A document's probability is the mean of its copies', its marginals are those of one copy more (of the last one where
    all are taken), and its reason is that of a copy taken, where there is one.
    """
    if copies == 1:
        return result
    mask_Nr = result.mask.reshape(-1, copies)
    rows, counts_N = np.arange(len(mask_Nr)), mask_Nr.sum(1)
    probabilities_Nr, logits_Nr = (
        values.reshape(-1, copies) for values in (result.probabilities, result.logits)
    )
    probabilities_N, judged_N = probabilities_Nr.mean(1), np.isfinite(logits_Nr[:, 0])
    logits_N = np.full(len(rows), -np.inf)
    logits_N[judged_N] = log_odds(probabilities_N[judged_N], logits_Nr.max(1)[judged_N])

    def one_more(values_M: NDArray[np.float64]) -> NDArray[np.float64]:
        values_N: NDArray[np.float64] = values_M.reshape(-1, copies)[rows, mask_Nr.argmin(1)]
        return values_N

    reasons_N = result.reasons.reshape(-1, copies)[rows, mask_Nr.argmax(1)]
    record = {
        name: value // copies if name in ("rows", *COUNTED.values()) else value
        for name, value in result.record.items()
    }
    record |= {
        "max_copies": copies,
        "selected": int((counts_N > 0).sum()),
        "selected_copies": int(counts_N.sum()),
        "reasons": dict(sorted(Counter(reasons_N).items())),
    }
    return replace(
        result,
        mask=counts_N > 0,
        counts=counts_N,
        probabilities=probabilities_N,
        logits=logits_N,
        marginals=Marginals(
            quality_N=one_more(result.marginals.quality_N), diversity_N=one_more(result.marginals.diversity_N)
        ),
        reasons=reasons_N,
        certified_at={
            name: values.reshape(-1, copies).sum(1)
            if name == "tangent"
            else values.reshape(-1, copies).mean(1)
            for name, values in result.certified_at.items()
        },
        cliques=None if result.cliques is None else _of_documents(result.cliques, copies),
        record=record,
    )


def _of_documents(cliques: pa.Table, copies: int) -> pa.Table:
    """Cliques of copies, each member by the row of its document."""
    rows = pa.array(cliques.column("row").to_numpy() // copies)
    return cliques.set_column(cliques.schema.get_field_index("row"), "row", rows)

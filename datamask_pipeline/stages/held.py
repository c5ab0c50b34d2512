"""What an arm of an earlier release holds, as a later release that goes on from it takes it in. Knows no learner.

Of the earlier release its mask, its manifest and the sums beside it are read. Vectors of what is held are read only where
these sums are not there, or are those of other documents: when some were withdrawn, or a crawl was embedded again.

Shape suffixes: R rows of the release's index, N documents with every score of the arm, D embedding dimensions.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline import duck
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.config import SelectionConfig, require_beside
from datamask_pipeline.stages.release_rows import ReleaseRows
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    from datamask_pipeline.selection.given import Given

#: Sums over the vectors of all that a mask holds: the first row their sum, the others the sum of their outer products,
#: where a metric of the arm needs it.
SUMS_FILE: Final = "held.npy"
#: Settings that have to be alike for the scale of an earlier release to be that of a later one.
_SCALED_BY: Final = ("scorers", "score_normalisation", "diversity", "diversity_options", "normalisation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """What a release begins with under one arm.

    Attributes:
        release: The earlier release.
        held_N: Which documents it holds.
        past_N: Which it could have selected and did not, or did not take among its candidates: they are not judged again.
        gone: How many it holds that this release may not have: withdrawn, held out, changed or without a score.
        given: Sums over those held; ``None`` where none is.
        constants: The scale of the earlier release, where it fits this one's settings.
        read_vectors: Whether vectors of what is held had to be read.
    """

    release: str
    held_N: NDArray[np.bool_]
    past_N: NDArray[np.bool_]
    gone: int
    given: Given | None
    constants: dict[str, tuple[float, float]] | None
    read_vectors: bool

    @property
    def new_N(self) -> NDArray[np.bool_]:
        """Which documents the arm may select."""
        return ~(self.held_N | self.past_N)


def held_of(
    store: Store,
    held: Ref,
    index: Ref,
    embeddings: Mapping[str, Ref],
    rows: ReleaseRows,
    config: SelectionConfig,
    scratch: Path,
) -> Held:
    """What a release begins with.

    Args:
        store: The record.
        held: The arm's mask in the earlier release.
        index: This release's index.
        embeddings: Embeddings of each crawl, those that the index was made from.
        rows: What was read of the index.
        config: The arm's settings.
        scratch: For DuckDB.

    Raises:
        ConfigurationError: the arm's metric or policy cannot take anything as held.
        IntegrityError: the sums beside the mask are not whole.
    """
    made = store.manifest(held)
    crawls = [name.partition("/")[2] for name in made["basis"]["inputs"] if name.startswith("embeddings/")]
    old_R, held_R = np.zeros(index.rows, bool), np.zeros(index.rows, bool)
    with duck.connect(store, scratch) as connection:
        kept = duck.parts_sql(store, [held], "crawl, id, selected")
        found = connection.execute(
            f"""
            SELECT i.artefact_row, coalesce(s.selected, false)
            FROM {duck.parts_sql(store, [index], "crawl, id")} AS i
            LEFT JOIN (SELECT crawl, id, selected FROM {kept} WHERE selected) AS s USING (crawl, id)
            WHERE i.crawl IN (SELECT unnest(?))
        """,
            [crawls],
        ).fetchnumpy()
    places, selected = (np.asarray(values) for values in found.values())
    old_R[places], held_R[places] = True, selected.astype(bool)
    held_N = held_R[rows.scored_R]
    num_before, num_held = int(made["counts"]["kept"]), int(held_N.sum())
    given, read_vectors = None, False
    if num_held:
        second = _needs_second(config)
        sums = None
        if num_held == num_before and _same_vectors(made, embeddings, crawls):
            sums = _stored_sums(store, held, made, second)
        read_vectors = sums is None
        given = _summed(rows, held_N, second) if sums is None else sums
        tokens_n = rows.token_counts_N[held_N]
        given = dataclasses.replace(
            given,
            quality={"quality": float(rows.quality_N[held_N].sum())},
            tokens=None if np.isnan(tokens_n).any() else float(tokens_n.sum()),
        )
    return Held(
        release=held.key.partition("/")[0],
        held_N=held_N,
        past_N=old_R[rows.scored_R] & ~held_N,
        gone=num_before - num_held,
        given=given,
        constants=_scale(made, config),
        read_vectors=read_vectors,
    )


def sums_array(given: Given) -> NDArray[np.float64]:
    """The sums over vectors as they stand in `SUMS_FILE`: shape (1, D), or (1 + D, D) with outer products."""
    first_1D = given.first_D[None]
    return first_1D if given.second_DD is None else np.concatenate([first_1D, given.second_DD])


def _needs_second(config: SelectionConfig) -> bool:
    metrics = {name: METRICS.find(name) for name in config.diversity_weights}
    require_beside(config.policy, POLICIES.find(config.policy), metrics)
    return any(hasattr(metric, "needs_second") and metric.needs_second for metric in metrics.values())


def _same_vectors(made: Mapping[str, Any], embeddings: Mapping[str, Ref], crawls: list[str]) -> bool:
    """Whether the earlier mask read these very vectors."""
    digests = made["basis"]["inputs"]
    return all(
        crawl in embeddings and digests[f"embeddings/{crawl}"] == embeddings[crawl].content_digest
        for crawl in crawls
    )


def _stored_sums(store: Store, held: Ref, made: Mapping[str, Any], second: bool) -> Given | None:
    """The sums beside a mask; ``None`` where there are none, or not those that are needed."""
    from datamask_pipeline.selection.given import Given

    about = made["metadata"].get("holds")
    if about is None or (second and not about["second_moments"]):
        return None
    path = store.file_path(held, SUMS_FILE)
    array = np.load(io.BytesIO(store.fs.cat_file(path)), allow_pickle=False)
    wanted = 1 + array.shape[1] if array.ndim == 2 and about["second_moments"] else 1
    if array.ndim != 2 or array.dtype != np.float64 or len(array) != wanted:
        raise IntegrityError(f"{path} holds {array.dtype} of shape {array.shape}; run stage 'select' again")
    return Given(
        count=float(about["documents"]),
        first_D=array[0],
        second_DD=array[1:] if second else None,
        squared=float(about["squared_norms"]),
        quality={},
    )


def _summed(rows: ReleaseRows, held_N: NDArray[np.bool_], second: bool) -> Given:
    """The sums, from the vectors of what is held."""
    from datamask_pipeline.selection.given import Given

    assert rows.vectors is not None
    return Given.of(rows.vectors.chosen(np.flatnonzero(held_N)), {}, second=second)


def _scale(made: Mapping[str, Any], config: SelectionConfig) -> dict[str, tuple[float, float]] | None:
    """The earlier mask's scale, a mean over its blocks; ``None`` where the settings that it follows from differ."""
    ours, theirs = config.result_config(), made["basis"]["config"]
    if config.normalisation == "none" or config.normalisation_constants is not None:
        return None
    if any(ours[name] != theirs.get(name) for name in _SCALED_BY):
        return None
    blocks = made["metadata"]["blocks"]
    weights = [block["record"]["selected"] for block in blocks]
    names = blocks[0]["normalisation"]
    scale = {}
    for name in names:
        ends = [block["normalisation"][name] for block in blocks]
        zero, one = np.average(ends, axis=0, weights=weights).tolist()
        scale[name] = (zero, one)
    return scale

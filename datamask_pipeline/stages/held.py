"""What an arm of an earlier release holds, as a later release that goes on from it takes it in. Knows no learner.

Of the earlier release its mask, its manifest, the sums and the reserve beside it are read. Vectors of what is held are read
only where these sums are not there, or are those of other documents: some were withdrawn, or a crawl was embedded again.

Shape suffixes: R rows of the release's index, P places in the earlier release's order, N documents with every score of the
arm, K of a reserve, D embedding dimensions.
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
from datamask_pipeline.disk import new_array, save_array
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.config import SelectionConfig, require_beside
from datamask_pipeline.selection.ratio import documents_of
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.stages.release_rows import ReleaseRows
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import MANIFEST, ref_of

if TYPE_CHECKING:
    from datamask_pipeline.selection.given import Given

#: Sums over the vectors of all that a mask holds: the first row their sum, the others the sum of their outer products,
#: where a metric of the arm needs it.
SUMS_FILE: Final = "held.npy"
#: Beside the mask: the vectors and the positions of the documents nearest below the threshold, in the release's order.
RESERVE: Final = "reserve"
RESERVE_VECTORS, RESERVE_POSITIONS = "vectors.npy", "positions.npy"
_RESERVE_ROWS: Final = 4_096
#: What a mask's manifest tells of how it was chosen.
OF_CHOICE: Final = ("objective", "objective_random", "quality_term", "diversity_term", "blocks")
#: Settings that have to be alike for the scale of an earlier release to be that of a later one.
_SCALED_BY: Final = ("scorers", "score_normalisation", "diversity", "diversity_options", "normalisation")


def documents_in(record: Mapping[str, Any]) -> float:
    """Of how many documents a block's objective is: those it selected, and its share of those held."""
    return float(record["selected"] + record.get("given", {}).get("documents", 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """What a release begins with under one arm.

    Attributes:
        release: The earlier release.
        held_N: Which documents it holds.
        past_N: Which it could have selected and did not, or did not take among its candidates: they are not judged again.
        reserve_N: Row of each document in the earlier release's reserve; -1: it is not of it. Those are judged again.
        reserve: The vectors of that reserve, a `.npy`; ``None`` where there is none.
        gone: How many it holds that this release may not have: withdrawn, held out, changed or without a score.
        given: Sums over those held; ``None`` where none is.
        constants: The scale of the earlier release, where it fits this one's settings.
        read_vectors: Whether vectors of what is held had to be read.
        chosen: What the earlier mask says of its choice: objective, certificate and blocks.
    """

    release: str
    held_N: NDArray[np.bool_]
    past_N: NDArray[np.bool_]
    reserve_N: NDArray[np.int64]
    reserve: Path | None
    gone: int
    given: Given | None
    constants: dict[str, tuple[float, float]] | None
    read_vectors: bool
    chosen: Mapping[str, Any]

    @property
    def open_N(self) -> NDArray[np.bool_]:
        """Which documents the arm may select: the reserve, and those of the added crawls."""
        return ~(self.held_N | self.past_N)

    @property
    def num_added(self) -> int:
        """Documents of the added crawls that the arm may select: a ratio is of these."""
        return int((self.open_N & (self.reserve_N < 0)).sum())

    def with_reserve(self, rows: ReleaseRows) -> ReleaseRows:
        """The rows, with the vectors of the reserve where that keeps them."""
        if self.reserve is None or rows.vectors is None:
            return rows
        kept_N, of = self.reserve_N >= 0, rows.vectors
        files_N = np.where(kept_N, len(of.files), of.files_N).astype(of.files_N.dtype)
        rows_N = np.where(kept_N, self.reserve_N, of.rows_N)
        return dataclasses.replace(rows, vectors=ShardedVectors([*of.files, self.reserve], files_N, rows_N))


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
    same_vectors = _same_vectors(made, embeddings, crawls)
    places_R = _places(store, made, index, embeddings, crawls) if same_vectors else None
    reserve, reserve_R = None, np.full(index.rows, -1)
    if places_R is None:
        old_R, held_R = _found(store, held, made, index, crawls, scratch)
    else:
        old_R, held_R = places_R >= 0, np.zeros(index.rows, bool)
        held_R[old_R] = _selected(store, held, made, embeddings)[places_R[old_R]]
        if takes_reserve(config) and (folder := _reserve(store, held, made, scratch)) is not None:
            reserve = folder / RESERVE_VECTORS
            of_places_P = np.full(int(places_R.max()) + 1, -1)
            positions_K = np.load(folder / RESERVE_POSITIONS)
            there_K = positions_K < len(of_places_P)
            of_places_P[positions_K[there_K]] = np.flatnonzero(there_K)
            reserve_R[old_R] = of_places_P[places_R[old_R]]
    held_N, reserve_N = held_R[rows.scored_R], reserve_R[rows.scored_R]
    num_before, num_held = int(made["counts"]["kept"]), int(held_N.sum())
    given, read_vectors = None, False
    if num_held:
        second = _needs_second(config)
        sums = None
        if num_held == num_before and same_vectors:
            sums = _stored_sums(store, held, made, second)
        read_vectors = sums is None
        given = _summed(rows, held_N, second) if sums is None else sums
        tokens_n = rows.token_counts_N[held_N]
        given = dataclasses.replace(
            given,
            quality={"quality": float(rows.quality_N[held_N].sum())},
            tokens=None if np.isnan(tokens_n).any() else float(tokens_n.sum()),
        )
    old_N = old_R[rows.scored_R]
    if not adds_any(config, int((~old_N).sum())):  # then the reserve is not judged either
        reserve, reserve_N, old_N = None, np.full(len(rows), -1), np.ones(len(rows), bool)
    return Held(
        release=held.key.partition("/")[0],
        held_N=held_N,
        past_N=old_N & ~held_N & (reserve_N < 0),
        reserve_N=reserve_N,
        reserve=reserve,
        gone=num_before - num_held,
        given=given,
        constants=_scale(made, config),
        read_vectors=read_vectors,
        chosen={name: made["metadata"][name] for name in OF_CHOICE},
    )


def adds_any(config: SelectionConfig, num_added: int) -> bool:
    """Whether so many documents that an arm may add let it add any: a selection has two at least."""
    return num_added >= 2 and (config.budget != "ratio" or documents_of(config.ratio, num_added) >= 2)


def takes_reserve(config: SelectionConfig) -> bool:
    """Whether the arm judges a reserve again: its own threshold said who is near, and no quota says whose they are."""
    return POLICIES.find(config.policy).decision.compared == "marginals" and config.quotas is None


def write_reserve(
    folder: Path, rows: ReleaseRows, positions_N: NDArray[np.int64], totals_N: NDArray[np.float64], count: int
) -> int:
    """Write the runners-up: those of the largest total marginal among what was judged and is out.

    Args:
        folder: Where; made here.
        rows: The arm's rows, with vectors.
        positions_N: Of the documents in the release's order.
        totals_N: Their total marginals; NaN where one is in, or was not judged.
        count: How many at most.

    Returns:
        How many there are.
    """
    places_K = reserve_places(totals_N, count)
    assert rows.vectors is not None
    vectors, (_, dim) = rows.vectors, rows.vectors.shape
    folder.mkdir(parents=True, exist_ok=True)
    save_array(folder / RESERVE_POSITIONS, positions_N[places_K])
    kept_KD = new_array(folder / RESERVE_VECTORS, vectors.dtype, (len(places_K), dim))
    for start in range(0, len(places_K), _RESERVE_ROWS):
        part = slice(start, start + _RESERVE_ROWS)
        kept_KD[part] = vectors[places_K[part]]
    kept_KD.flush()
    return len(places_K)


def reserve_places(totals_N: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The rows of the largest total marginals, ascending; of equals the first."""
    near_N = ~np.isnan(totals_N)
    known_n = totals_N[near_N]
    if 0 < count < len(known_n):
        known_n.partition(len(known_n) - count)
        near_N &= totals_N >= known_n[len(known_n) - count]
    near_n = np.flatnonzero(near_N)
    order_n = np.argsort(-totals_N[near_n], kind="stable")
    return np.sort(near_n[order_n[:count]])


def _places(
    store: Store, made: Mapping[str, Any], index: Ref, embeddings: Mapping[str, Ref], crawls: list[str]
) -> NDArray[np.int64] | None:
    """The place in the earlier release's order of each row of the index, -1: it had none.

    The same as in this one's, where its crawls come first and are the same documents; else ``None``.
    """
    ours = store.manifest(index)["metadata"]["crawls"][: len(crawls)]
    location = made["inputs"]["index"]["location"]
    if not store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
        return None
    if store.manifest_at(location)["metadata"]["crawls"] != ours:
        return None
    batches = store.iter_batches(index, ["position"])
    positions_R = np.concatenate([batch.column("position").to_numpy() for batch in batches])
    return np.where(positions_R < sum(embeddings[crawl].rows for crawl in ours), positions_R, -1)


def _selected(
    store: Store, held: Ref, made: Mapping[str, Any], embeddings: Mapping[str, Ref]
) -> NDArray[np.bool_]:
    """Whether the earlier mask holds the document at each place of its release's order."""
    names = (name.partition("/")[2] for name in made["inputs"] if name.startswith("embeddings/"))
    selected_P = np.zeros(sum(embeddings[crawl].rows for crawl in names), bool)
    for batch in store.iter_batches(held, ["position", "selected"]):
        selected_n = batch.column("selected").to_numpy(zero_copy_only=False)
        selected_P[batch.column("position").to_numpy()[selected_n]] = True
    return selected_P


def _found(
    store: Store, held: Ref, made: Mapping[str, Any], index: Ref, crawls: list[str], scratch: Path
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of the index the earlier release knew, and which of them its mask holds: by crawl, id and text.

    A document that came into one of its crawls since, or whose text is another, is new. Where the earlier candidates do
    not stand in the record any more, crawl and id have to do.
    """
    old_R, held_R = np.zeros(index.rows, bool), np.zeros(index.rows, bool)
    then, now = (_candidates(store, at) for at in (made["inputs"]["index"]["location"], index.location))
    join = ""
    if then is not None and now is not None:
        same = f"SELECT n.crawl, n.id FROM {now} AS n SEMI JOIN {then} AS t USING (crawl, id, content_hash)"
        join = f"SEMI JOIN ({same}) AS s USING (crawl, id)"
    with duck.connect(store, scratch, memory_limit=duck.STAGE_MEMORY) as connection:
        kept = duck.parts_sql(store, [held], "crawl, id, selected")
        found = connection.execute(
            f"""
            SELECT i.artefact_row, coalesce(s.selected, false)
            FROM (SELECT * FROM {duck.parts_sql(store, [index], "crawl, id")} AS o {join}) AS i
            LEFT JOIN (SELECT crawl, id, selected FROM {kept} WHERE selected) AS s USING (crawl, id)
            WHERE i.crawl IN (SELECT unnest(?))
        """,
            [crawls],
        ).fetchnumpy()
    places, selected = (np.asarray(values) for values in found.values())
    old_R[places], held_R[places] = True, selected.astype(bool)
    return old_R, held_R


def _candidates(store: Store, location: str) -> str | None:
    """SQL of the candidates that an index was made from; ``None`` where one of both is gone."""
    if not store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
        return None
    location = store.manifest_at(location)["inputs"]["candidates"]["location"]
    if not store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
        return None
    return duck.parts_sql(store, [ref_of(store.manifest_at(location))], "crawl, id, content_hash")


def _reserve(store: Store, held: Ref, made: Mapping[str, Any], scratch: Path) -> Path | None:
    """The folder of the earlier mask's reserve; ``None`` where it kept none."""
    there = {file["name"] for file in made["files"]}
    if f"{RESERVE}/{RESERVE_VECTORS}" not in there:
        return None
    return store.local_copy(held, RESERVE, scratch / "held")


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
        ends = np.array([block["normalisation"][name] for block in blocks])
        # From the first block's on: weighing alone would move the last bit of a single one's.
        zero, one = (ends[0] + np.average(ends - ends[0], axis=0, weights=weights)).tolist()
        scale[name] = (zero, one)
    return scale

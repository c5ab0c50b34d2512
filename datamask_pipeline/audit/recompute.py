"""Computes a selection's figures again from its mask and inputs, and learns nothing: quality, budget, scale, objective,
marginals, threshold, reasons, bound. Knows the engine's problem and no policy's way of choosing.

Shape suffixes: R rows of the selection, n rows of a block, m of those that pruning left, M members of all cliques.
"""

import io
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.audit.figures import EXACT, TOLERANCE, differing, near
from datamask_pipeline.audit.findings import Finding, contradiction
from datamask_pipeline.audit.recompute_block import check_block
from datamask_pipeline.audit.recompute_bound import Bounded
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages.held import (
    RESERVE,
    RESERVE_POSITIONS,
    RESERVE_VECTORS,
    SUMS_FILE,
    Held,
    documents_in,
    held_of,
    reserve_places,
    sums_array,
)
from datamask_pipeline.stages.mask_columns import judged_before, runners_up
from datamask_pipeline.stages.release_rows import ReleaseRows, read_rows
from datamask_pipeline.stages.select import (
    SelectConfig,
    blocks_of,
    budgets_of,
    counts_of,
    given_block,
    reserve_size,
)
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.aligned import Aligned
from datamask_pipeline.storage.ref import MANIFEST

_COLUMNS: Final = tuple(
    "position selected logit probability quality quality_marginal diversity_marginal threshold".split()
)

_NAMES: Final = ("crawl", "id")

#: The version of `select` from which on budgets in tokens have a bound.
_FIRST_IN_TOKENS: Final = 34
#: That from which on coverage beside metrics of moments has one.
_FIRST_OF_MIXTURES: Final = 53


def check_selection(
    store: Store,
    ref: Ref,
    manifest: Mapping[str, Any],
    index: Ref,
    embeddings: Mapping[str, Ref],
    held: Ref | None = None,
) -> Iterator[Finding]:
    """Hold a selection against what it was made from.

    Args:
        store: The record.
        ref: The selection.
        manifest: Its manifest.
        index: The release's index that it read.
        embeddings: The crawls' vectors that it read.
        held: The mask of the release that this one goes on from, if it does.
    """
    said = f"{ref.location}/{MANIFEST}"
    basis = manifest["basis"]
    config = SelectConfig.of(given_settings(basis["config"]))
    if config.result_config() != dict(basis["config"]):
        yield contradiction(said, "`basis.config` are no settings that this version writes")
        return
    group_by = config.quota_by if config.quotas else None
    rows = read_rows(store, index, embeddings, config.scorers, config.score_normalisation, group_by)
    (part,) = store.part_names(ref)
    file = f"{ref.location}/{part}.parquet"
    table = store.read_table(ref, [*_COLUMNS, "reason"])
    stored = {name: table.column(name).to_numpy() for name in (*_COLUMNS, "reason")}
    stored |= _certified_at(store, ref, manifest, len(table))
    positions = np.concatenate(
        [b.column("position").to_numpy() for b in store.iter_batches(index, ["position"])]
    )
    if not np.array_equal(positions[rows.scored_R], stored["position"]):
        yield contradiction(file, "its documents are not those of the index that have every score")
        return
    yield from _check_named(store, ref, index, file)
    yield from differing(file, "quality", stored["quality"], rows.quality_N, EXACT)
    before = None
    if held is not None:
        with tempfile.TemporaryDirectory() as scratch:
            before = held_of(store, held, index, embeddings, rows, config, Path(scratch))
        yield from _check_held(before, stored, manifest, file, said)
    yield from _check_sums(store, ref, manifest, rows, stored["selected"])
    yield from _check_reserve(store, ref, manifest, rows, stored, reserve_size(config, stored, before))
    blocks = blocks_of(len(rows), config, None if before is None else before.open_N)
    found = manifest["metadata"]["blocks"]
    if before is not None and not blocks:
        if any(manifest["metadata"][name] != value for name, value in before.chosen.items()):
            yield contradiction(said, f"adds nothing, and tells of another choice than {before.release!r}")
        yield from _check_totals(manifest, stored, index, before, said)
        return
    if len(found) != len(blocks):
        yield contradiction(said, f"tells of {len(found)} blocks where its settings make {len(blocks)}")
        return
    # Over shards, and by earlier versions, no bound is computed where the budget is in tokens.
    version = int(basis["version"])
    bounded = Bounded(config.over == "blocks" and version >= _FIRST_IN_TOKENS, version >= _FIRST_OF_MIXTURES)
    for number, (block, budgeted) in enumerate(
        zip(blocks, budgets_of(config, blocks, before, rows.token_counts_N), strict=True)
    ):
        of_block = given_block(before, block)
        yield from check_block(budgeted, rows, block, of_block, stored, found[number], file, said, bounded)
    yield from _check_totals(manifest, stored, index, before, said)


def _check_named(store: Store, ref: Ref, index: Ref, file: str) -> Iterator[Finding]:
    """Each row is of the document that the index has at its position."""
    named, first = Aligned(store, index), 0
    for batch in store.iter_batches(ref, ["position", *_NAMES]):
        rows, _ = named.at(batch.column("position").to_numpy(), _NAMES)
        for name in _NAMES:
            same = pc.equal(batch.column(name), rows.column(name).combine_chunks()).fill_null(False)
            if not pc.all(same).as_py():
                row = same.to_pylist().index(False)
                yield contradiction(file, f"`{name}` is not that of the index at its position", first + row)
                return
        first += batch.num_rows


def _check_held(
    before: Held, stored: Mapping[str, NDArray[Any]], manifest: Mapping[str, Any], file: str, said: str
) -> Iterator[Finding]:
    """What an earlier release judged is as that one left it, and is counted."""
    old_N = ~before.open_N
    for name, values_N in judged_before(len(old_N), before):
        others_N = old_N & (stored[name] != values_N)
        if values_N.dtype.kind == "f":
            others_N &= ~(np.isnan(values_N) & np.isnan(stored[name]))
        if others_N.any():
            row = int(np.argmax(others_N))
            problem = (
                f"`{name}` is {stored[name][row]}, and release {before.release!r} makes it {values_N[row]}"
            )
            yield contradiction(file, problem, row)
    told = manifest["metadata"].get("given", {})
    wanted = {
        "release": before.release,
        "held": int(before.held_N.sum()),
        "gone": before.gone,
        "passed_over": int(before.past_N.sum()),
        "reserve": int((before.reserve_N >= 0).sum()),
        "from_reserve": int((stored["selected"] & (before.reserve_N >= 0)).sum()),
    }
    for name, value in wanted.items():
        if told.get(name) != value:
            yield contradiction(said, f"`given.{name}` is {told.get(name)}, and its inputs give {value}")


def _check_sums(
    store: Store, ref: Ref, manifest: Mapping[str, Any], rows: ReleaseRows, selected_N: NDArray[np.bool_]
) -> Iterator[Finding]:
    """The sums that later releases are conditioned on are those of what the mask holds."""
    from datamask_pipeline.selection.given import Given

    if (about := manifest["metadata"].get("holds")) is None or rows.vectors is None:
        return
    path = store.file_path(ref, SUMS_FILE)
    have = np.load(io.BytesIO(store.fs.cat_file(path)), allow_pickle=False)
    again = Given.of(rows.vectors.chosen(np.flatnonzero(selected_N)), {}, second=about["second_moments"])
    want = sums_array(again)
    if have.shape != want.shape or not np.allclose(have, want, rtol=0, atol=TOLERANCE * again.count):
        yield contradiction(
            f"{ref.location}/{SUMS_FILE}", "holds other sums than the vectors of its mask have"
        )
    for name, value in (("documents", again.count), ("squared_norms", again.squared)):
        if not near(about[name], value, TOLERANCE * again.count):
            yield contradiction(
                f"{ref.location}/{MANIFEST}", f"`holds.{name}` is {about[name]}, and its mask's is {value}"
            )


def _check_reserve(
    store: Store,
    ref: Ref,
    manifest: Mapping[str, Any],
    rows: ReleaseRows,
    stored: Mapping[str, NDArray[Any]],
    count: int,
) -> Iterator[Finding]:
    """The reserve is of the runners-up, with the vectors that their crawls have."""
    if (told := manifest["metadata"].get("reserve")) is None or rows.vectors is None:
        return
    places = reserve_places(runners_up(stored), count)
    if told != len(places):
        said = f"{ref.location}/{MANIFEST}"
        yield contradiction(said, f"`reserve` is {told}, and its mask has {len(places)} runners-up to keep")
        return
    for name, want in (
        (RESERVE_POSITIONS, stored["position"][places]),
        (RESERVE_VECTORS, rows.vectors[places]),
    ):
        file = f"{RESERVE}/{name}"
        have = np.load(io.BytesIO(store.fs.cat_file(store.file_path(ref, file))), allow_pickle=False)
        if have.dtype != want.dtype or not np.array_equal(have, want):
            yield contradiction(f"{ref.location}/{file}", "is not that of the runners-up of its mask")


def _certified_at(store: Store, ref: Ref, manifest: Mapping[str, Any], num_rows: int) -> dict[str, Any]:
    """What the bound was computed from, by name; NaN where the record has none.

    Raises:
        IntegrityError: a file holds something else than a number for each row, or than cliques of such rows.
    """
    there = {file["name"] for file in manifest.get("files", ())}
    found: dict[str, Any] = {}
    for name in schema.CERTIFICATE.names:
        values = np.full(num_rows, np.nan)
        if f"{name}.npy" in there:
            data = store.fs.cat_file(store.file_path(ref, f"{name}.npy"))
            values = np.load(io.BytesIO(data), allow_pickle=False)
        if values.dtype != np.float64 or values.shape != (num_rows,):
            raise IntegrityError(
                f"{name}.npy holds {values.dtype} of shape {values.shape}, and its part has {num_rows} rows"
            )
        found[name] = values
    if "cliques.parquet" in there:
        found["cliques"] = _cliques_at(store, ref, num_rows)
    return found


def _cliques_at(store: Store, ref: Ref, num_rows: int) -> pa.Table:
    """The members of cliques.

    Raises:
        IntegrityError: they are none, or not of rows of the part.
    """
    data = store.fs.cat_file(store.file_path(ref, "cliques.parquet"))
    cliques = pq.read_table(io.BytesIO(data))
    if cliques.schema != schema.CLIQUES:
        raise IntegrityError("cliques.parquet has other columns than clique, row, weight and slope")
    for name in cliques.column_names:
        if cliques.column(name).null_count:
            raise IntegrityError(f"cliques.parquet has a null in its column {name!r}")
    rows_M = cliques.column("row").to_numpy()
    outside_M = (rows_M < 0) | (rows_M >= num_rows)
    if outside_M.any():
        named = int(rows_M[np.argmax(outside_M)])
        raise IntegrityError(f"cliques.parquet names row {named}, and its part has {num_rows} rows")
    return cliques


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a user gives them: a manifest has the default of a budget beside the one that was chosen."""
    chosen = any(settings.get(name) is not None for name in ("num_documents", "num_tokens"))
    return {name: value for name, value in settings.items() if not (chosen and name == "ratio")}


def _check_totals(
    manifest: Mapping[str, Any],
    stored: Mapping[str, NDArray[Any]],
    index: Ref,
    before: Held | None,
    said: str,
) -> Iterator[Finding]:
    """What the manifest says of all blocks together."""
    selected = int(stored["selected"].sum())
    counts = counts_of(index.rows, stored["selected"], before)
    metadata, blocks = manifest["metadata"], manifest["metadata"]["blocks"]
    if dict(manifest["counts"]) != counts or metadata["selected"] != selected:
        yield contradiction(said, f"`counts` are not {counts}")
    weights = [documents_in(block["record"]) for block in blocks]
    for name, key in (
        ("objective", "value"),
        ("objective_random", "random"),
        ("quality_term", "quality"),
        ("diversity_term", "diversity"),
    ):
        mean = float(np.average([block["objective"][key] for block in blocks], weights=weights))
        if not near(metadata[name], mean, EXACT):
            yield contradiction(said, f"`{name}` is {metadata[name]}, and that of its blocks {mean}")

"""Select: learn the mask of one release under one arm, and record every document's reason.

Knows the record and the engine's one function; knows no metric and no learner.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.disk import save_array
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.families import METRICS, POLICIES, with_members
from datamask_pipeline.hardware import device_kind, give_free_pages_back, present_device
from datamask_pipeline.selection.config import SelectionConfig, require_fitting_policy
from datamask_pipeline.selection.ratio import documents_of
from datamask_pipeline.selection.reasons import HELD, PASSED_OVER
from datamask_pipeline.spill import Room
from datamask_pipeline.stages.held import (
    RESERVE,
    SUMS_FILE,
    Held,
    documents_in,
    held_of,
    sums_array,
    takes_reserve,
    write_reserve,
)
from datamask_pipeline.stages.mask_columns import BlockTold, MaskColumns, runners_up
from datamask_pipeline.stages.release_rows import (
    Column,
    ReleaseRows,
    naming_documents,
    positions,
    read_rows,
    require_token_counts,
    with_index,
)
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, npy_bytes

if TYPE_CHECKING:
    from datamask_pipeline.diversity.moments import Moments
    from datamask_pipeline.selection.given import Given
    from datamask_pipeline.selection.result import SelectionResult
    from datamask_pipeline.selection.shards.result import ShardedSelection
    from datamask_pipeline.selection.shards.source import Shard

Constants = dict[str, tuple[float, float]]
#: What a block is conditioned on, and the scale that it is measured on; none of either is the rule.
BlockGiven = tuple["Given | None", Constants | None]

STAGE: Final = "select"
#: Columns of the mask whose values hardly repeat, or are cheap to spell; not `position`, whose bounds are read.
_PLAIN: Final = ("id", "logit", "probability", "quality", "quality_marginal", "diversity_marginal")
CURVE_STAGE: Final = "learning_curve"
_READ_ROWS: Final = 1 << 16
VERSION: Final = "54"


class Compute(Protocol):
    """Who works beside this process, as `pipeline.config.ComputeConfig` says."""

    @property
    def engine(self) -> Literal["processes", "ray"]:
        """Local processes or Ray."""

    @property
    def workers(self) -> int:
        """How many."""

    @property
    def address(self) -> str | None:
        """Of a Ray cluster."""


class SelectConfig(SelectionConfig):
    """One arm: the engine's settings, and which scores are the quality."""

    scorers: dict[str, float] = pydantic.Field(
        default_factory=dict,
        description="Weight of each quality scorer by name; none means every scorer of the pipeline, equally.",
    )
    score_normalisation: Literal["none", "zscore", "rank"] = pydantic.Field(
        "rank", description="How scores are made comparable before they are weighted and added."
    )
    quota_by: Literal["crawl", "domain"] = pydantic.Field(
        "crawl", description="What `quotas` names: crawls, or hosts of the documents' URLs (without `www.`)."
    )
    block_rows: int = pydantic.Field(
        1_000_000, ge=2, description="Documents selected together; more are cut into random blocks."
    )
    reserve: float = pydantic.Field(
        1.0,
        ge=0,
        description="Runners-up kept with their vectors beside the mask, as a share of what was added: a release that "
        "goes on from this one judges them again. Of arms that decide by marginals, without quotas.",
    )
    over: Literal["blocks", "shards"] = pydantic.Field(
        "blocks",
        description="blocks: each block is selected from by itself; shards: one objective over all documents, which stay "
        "with `compute.workers` processes or Ray actors. For metrics of moments, or Facility alone.",
    )

    def result_config(self) -> dict[str, Any]:
        """Every setting that can change the mask; blocks, which were all there was, are not named."""
        found = super().result_config()
        if self.over == "blocks":
            del found["over"]
        return found

    @pydantic.field_validator("quality_weights")
    @classmethod
    def _one_score(cls, weights: dict[str, float] | None) -> dict[str, float] | None:
        if weights is not None and {*weights} != {"quality"}:
            raise ValueError(
                "an arm has one score, `quality`, which `scorers` adds up: give the weights of scorers there"
            )
        return weights

    @pydantic.field_validator("scorers")
    @classmethod
    def _some_weight(cls, scorers: dict[str, float]) -> dict[str, float]:
        if scorers and not any(scorers.values()):
            raise ValueError(
                "the weights are all 0; give a scorer another, or leave `scorers` empty for all alike"
            )
        return scorers

    @classmethod
    def of_arm(cls, base: Mapping[str, Any], own: Mapping[str, Any], where: str) -> Self:
        """The settings of one arm.

        Args:
            base: What every arm starts from. What nothing in this arm reads is left out: it is not the arm's.
            own: What this arm changes; nothing of it may go unread.
            where: Path of `own` in what the user wrote.

        Raises:
            UnknownNameError: no policy has that name.
            ConfigurationError: a setting is wrong, or nothing reads one of the arm's own.
        """
        model = with_members(cls, {**base, **own}, where)
        taken = {
            name: value for name, value in cls.inherited(base, own).items() if name in model.model_fields
        }
        if isinstance(options := taken.get("diversity_options"), Mapping):
            used = _metrics_named({**taken, **own}.get("diversity", cls.model_fields["diversity"].default))
            taken["diversity_options"] = {name: value for name, value in options.items() if name in used}
        return cls.of({**taken, **own}, where, dict.fromkeys(taken, "select"))


def _metrics_named(diversity: Any) -> list[str]:
    return list(diversity) if isinstance(diversity, Mapping) else [str(diversity)]


def check(config: SelectConfig, where: Callable[[str], str]) -> None:
    """Refuse settings that the engine would refuse; loads no learner.

    Args:
        config: The arm's settings.
        where: The path of a setting in what the user wrote.

    Raises:
        UnknownNameError: no policy or metric has that name.
        ConfigurationError: a metric's option is wrong, budget or metrics do not fit the policy, or the device is not there.
    """
    policy = POLICIES.beside(config.policy, config)
    metrics = METRICS.make_each(
        config.diversity_weights, config.diversity_options, where("diversity_options"), where("diversity")
    )
    require_fitting_policy(config, policy, {metric.name: metric for metric in metrics}, where)
    if config.over == "shards":
        from datamask_pipeline.selection.shards.api import over_shards

        try:
            over_shards(None, _engine(config))
        except ConfigurationError as error:
            raise ConfigurationError(f"{where('over')}: {error}") from error
    if config.device != "cpu":  # sparing the import of torch
        try:
            present_device(config.device)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where('device')}: {error}") from error


def run(
    config: SelectConfig,
    *,
    store: Store,
    release: str,
    arm: str,
    index: Ref,
    embeddings: Mapping[str, Ref],
    given: str | None = None,
    held: Ref | None = None,
    compute: Compute | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> tuple[Ref, Ref]:
    """Learn one mask.

    Of a release that goes on from an earlier one, the mask holds what the arm selected there, and what is selected from
    the added crawls beside it: the budget, too, is that of the added documents.

    Args:
        config: The arm's settings.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        index: The release's index: its eligible documents, their scores, and where their vectors lie.
        embeddings: Embeddings of each crawl, those that the index was made from.
        given: The release that this one goes on from, if it does.
        held: The arm's mask there.
        compute: Who holds the documents of a selection over shards; this process alone by default.
        progress: Told of the learner's steps.

    Returns:
        The selection, one row per eligible document in canonical order, and its learning curve.

    Raises:
        ConfigurationError: nothing is eligible, or the earlier release has no mask of this arm.
        UnknownNameError: a scorer has no scores in the record.
        InputError: the budget is in tokens and a document has no token count.
        IntegrityError: the index was made from other vectors.
    """
    key = f"{release}/{arm}"
    inputs: dict[str, Ref | str] = {"index": index}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    if held is not None:
        inputs["held"] = held
    elif given is not None:
        raise ConfigurationError(
            f"release {release!r} goes on from {given!r}, which has no mask of arm {arm!r}; run {given!r} with it first"
        )
    settings = config.result_config()
    builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs)
    curve_builder = store.begin(CURVE_STAGE, key, version=VERSION, config=settings, inputs=inputs)
    done, curve_done = builder.finished(), curve_builder.finished()
    if done is not None and curve_done is not None:
        return done, curve_done

    group_by = config.quota_by if config.quotas else None
    scorers, scratch = config.scorers, builder.scratch()
    room = Room(scratch)
    rows = read_rows(store, index, embeddings, scorers, config.score_normalisation, group_by, room)
    if len(rows) == 0:
        raise ConfigurationError(f"release {release!r} has no eligible document with every score of {arm!r}")
    kind, where = device_kind(config.device), f"arm {arm!r} of release {release!r}"
    try:
        if config.num_tokens is not None:
            require_token_counts(store, index, rows)
        before = None
        if held is not None:
            before = held_of(store, held, index, embeddings, rows, config, scratch)
        blocks = blocks_of(len(rows), config, None if before is None else before.open_N, room)
        budgets = budgets_of(config, blocks, before, rows.token_counts_N)
        _tell_of_unmet_quotas(config, rows, blocks, f"{where}: ")
        rows = rows if before is None else before.with_reserve(rows)
        columns = MaskColumns(scratch / "columns", len(rows), before)
        told_of, held_now = [], _Sums()
        for number, (block, budgeted) in enumerate(zip(blocks, budgets, strict=True)):
            folder = scratch / f"{kind}-{number:05d}"
            give_free_pages_back()
            with naming_documents(store, index, rows, block):
                of_block = given_block(before, block)
                told_of_block, held_by = _choose(
                    budgeted, rows, block, of_block, folder, columns, room, compute, progress
                )
            told_of.append(told_of_block)
            held_now.add(held_by)
        give_free_pages_back()
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    except InputError as error:
        raise error.within(where) from error
    values = columns.values
    told_columns: dict[str, Column] = {"quality": rows.quality_N, **values, "reason": columns.reasons}
    batches = with_index(store, index, rows, told_columns)
    part = builder.write_part("00000", batches, schema.SELECTION, plain=_PLAIN)
    curve = _curve_table(told_of)
    curve_part = curve_builder.write_part("00000", curve.to_batches(), curve.schema)
    selected, unscored = int(values["selected"].sum()), index.rows - len(rows)
    sums = held_now.given() if told_of or before is None else before.given
    metadata = _metadata(told_of, before) | {
        "arm": arm,
        "release": release,
        "unscored": unscored,
        "selected": selected,
    }
    if sums is not None:
        metadata["holds"] = {
            "documents": selected,
            "squared_norms": sums.squared,
            "second_moments": sums.second_DD is not None,
        }
    if before is not None:
        metadata["given"] = {
            "release": before.release,
            "held": int(before.held_N.sum()),
            "gone": before.gone,
            "passed_over": int(before.past_N.sum()),
            "vectors_read": before.read_vectors,
            "reserve": int((before.reserve_N >= 0).sum()),
            "from_reserve": int((values["selected"] & (before.reserve_N >= 0)).sum()),
        }
    about_curve = {"arm": arm, "release": release, "num_blocks": len(blocks)}
    curve_ref = curve_builder.commit([curve_part], metadata=about_curve)
    counts = counts_of(index.rows, values["selected"], before)
    _write_plot(builder, curve)
    if sums is not None:
        builder.write_file(SUMS_FILE, npy_bytes(sums_array(sums)))
        if (count := reserve_size(config, values, before)) and takes_reserve(config):
            folder = scratch / RESERVE
            positions_N = positions(store, index, rows, room)
            metadata["reserve"] = write_reserve(folder, rows, positions_N, runners_up(values), count)
            builder.write_folder(RESERVE, folder)
    for name, path in columns.certificates():
        builder.write_file(name, path)
    rows_of = None if unscored else index
    return builder.commit([part], counts=counts, metadata=metadata, rows_of=rows_of), curve_ref


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a release that goes on from an earlier one holds of it."""
    if (given := manifest["metadata"].get("given")) is None:
        return
    added = manifest["counts"]["kept"] - given["held"]
    arm = manifest["metadata"]["arm"]
    if not added:
        yield (
            f"{arm} holds {given['held']} documents of {given['release']} and adds none: the added crawls have too few "
            "eligible documents of their own"
        )
        return
    again = f", {given['from_reserve']} of them from its reserve" if given.get("from_reserve") else ""
    yield f"{arm} holds {given['held']} documents of {given['release']} and adds {added}, given those{again}"
    if given["gone"]:
        yield (
            f"{given['gone']} documents of {given['release']} are not eligible any more, or have another text, and are not "
            "held; the vectors of "
            "those that are were read for their sums"
        )


def blocks_of(
    num_rows: int, config: SelectConfig, open_N: NDArray[np.bool_] | None = None, room: Room | None = None
) -> list[NDArray[np.int64]]:
    """Random blocks of nearly equal size; one block, as over shards, keeps the canonical order. What the arm may not select,
    as it was judged before and is not of the reserve, is in none; where nothing is added there is no block. The places lie
    in a room.
    """
    open_n = None if open_N is None else np.flatnonzero(open_N)
    num_open = num_rows if open_n is None else len(open_n)
    if not num_open:
        return []
    order_n = (room or Room()).array(num_open, np.int64)
    order_n[:] = np.arange(num_open) if open_n is None else open_n
    num_blocks = 1 if config.over == "shards" else -(-num_open // config.block_rows)
    if num_blocks == 1:
        return [order_n]
    np.random.default_rng(config.seed).shuffle(order_n)
    blocks = np.array_split(order_n, num_blocks)
    for block in blocks:
        block.sort()
    return blocks


def judged_in(reasons_N: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which rows of a mask were judged in it, by their reasons: those of its blocks."""
    judged_N: NDArray[np.bool_] = np.asarray(
        pc.invert(pc.is_in(reasons_N, pa.array([HELD, PASSED_OVER]))), bool
    )
    return judged_N


def given_block(before: Held | None, block: NDArray[np.int64]) -> BlockGiven:
    """What a block is conditioned on: the share of what is held that it is of all blocks; and the scale."""
    if before is None or before.given is None:
        return None, None
    share = len(block) / int(before.open_N.sum())
    return before.given if share == 1 else before.given.share(share), before.constants


def budgets_of(
    config: SelectConfig,
    blocks: list[NDArray[np.int64]],
    before: Held | None,
    token_counts_N: NDArray[np.float64],
) -> list[SelectConfig]:
    """Each block's settings: what one block would select of all is shared out by the blocks' sizes. A ratio is of what was
    added: a reserve that is judged again adds nothing to the budget. Whoever goes on from a release adds what there is,
    where a budget in documents or tokens asks for more.

    Raises:
        ConfigurationError: a block would select fewer than two documents.
    """
    from datamask_pipeline.selection.budget import shared_out

    sizes = np.array([len(block) for block in blocks])
    name = "num_tokens" if config.budget == "num_tokens" else "num_documents"
    by_ratio = config.budget == "ratio"
    added = int(sizes.sum()) if before is None else before.num_added
    whole = documents_of(config.ratio, added) if by_ratio else getattr(config, name)
    if before is not None and blocks and not by_ratio:
        there = sizes.sum() if name == "num_documents" else token_counts_N[np.concatenate(blocks)].sum()
        whole = min(whole, int(there))
    as_it_is = added == sizes.sum() if by_ratio else whole == getattr(config, name)
    if not blocks or (len(blocks) == 1 and as_it_is):
        return [config] * len(blocks)
    shares = shared_out((whole * sizes / sizes.sum()).tolist(), whole)
    for size, share in zip(sizes, shares, strict=True):
        if name == "num_documents" and share < 2:
            raise ConfigurationError(
                f"a block of {size} documents would select {share} where at least 2 are needed; raise "
                f"`{config.budget}`, which is {getattr(config, config.budget)}, or `block_rows`, which is "
                f"{config.block_rows}"
            )
    values = config.inherited(config.model_dump(exclude_unset=True), {name: whole})
    return [config.model_validate({**values, name: share}) for share in shares]


def _tell_of_unmet_quotas(
    config: SelectConfig, rows: ReleaseRows, blocks: list[NDArray[np.int64]], where: str
) -> None:
    """Warn of quotas whose group no document of any block has; over shards the engine does."""
    if config.quotas and rows.groups is not None and blocks and config.over == "blocks":
        from datamask_pipeline.selection.groups import tell_of_unmet

        tell_of_unmet(config.quotas, rows.groups.among(np.concatenate(blocks)), where)


def _choose(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    of_block: BlockGiven,
    folder: Path,
    columns: MaskColumns,
    room: Room,
    compute: Compute | None,
    progress: Callable[[str, int, int | None], None] | None,
) -> "tuple[BlockTold, Given | None]":
    """Learn a block and write its columns; what is told of it, and what it holds now. Nothing of it stays in memory."""
    if config.over == "blocks":
        result = _select_block(config, rows, block, of_block, folder, room, progress)
        columns.take(block, result)
        return BlockTold.of(result), result.held
    found = _select_shards(config, rows, block, of_block, folder, room, compute, progress)
    for start in range(0, len(block), _READ_ROWS):
        places = slice(start, start + _READ_ROWS)
        columns.take(block[places], found.in_memory(places))
    return BlockTold.of(found), found.held


def _select_block(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    of_block: BlockGiven,
    checkpoint_dir: Path,
    room: Room,
    progress: Callable[[str, int, int | None], None] | None,
) -> "SelectionResult":
    """One block's selection, given what is held; its vectors are read where they lie."""
    from datamask_pipeline.selection.api import select_documents

    assert rows.vectors is not None
    tokens_n = room.taken(rows.token_counts_N, block)
    given, constants = of_block
    engine = _engine(config, constants)
    return select_documents(
        rows.vectors.chosen(block, room),
        room.taken(rows.quality_N, block),
        token_counts=None if np.isnan(tokens_n).any() else tokens_n,
        groups=None if rows.groups is None else rows.groups.at(block),
        known_groups=config.quotas or (),
        given=given,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
        **engine,
    )


def _engine(config: SelectConfig, constants: Constants | None = None) -> dict[str, Any]:
    """The engine's own settings, on a frozen scale where there is one."""
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    engine = {name: getattr(config, name) for name in config.model_fields_set - of_stage}
    return engine if constants is None else engine | {"normalisation_constants": constants}


def _select_shards(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    of_block: BlockGiven,
    folder: Path,
    room: Room,
    compute: Compute | None,
    progress: Callable[[str, int, int | None], None] | None,
) -> "ShardedSelection":
    """One selection over all documents, each process at those that it was dealt; vectors are read where they lie."""
    from datamask_pipeline.selection.shards.api import select_over_shards

    given, constants = of_block
    found = select_over_shards(
        shards_of(rows, block, folder, room),
        folder / "columns",
        workers=1 if compute is None else compute.workers,
        engine="processes" if compute is None else compute.engine,
        address=None if compute is None else compute.address,
        given=given,
        progress=progress,
        **_engine(config, constants),
    )
    tokens_n = rows.token_counts_N[block]
    if not np.isnan(tokens_n).any():
        found.record["selected_tokens"] = int(tokens_n[found.column("mask")].sum())
    return found


def shards_of(rows: ReleaseRows, block: NDArray[np.int64], folder: Path, room: Room) -> "list[Shard]":
    """The documents as shards, one for each file of vectors; their numbers are written to a folder, for every process."""
    from datamask_pipeline.selection.shards.source import Shard

    assert rows.vectors is not None
    vectors = rows.vectors.chosen(block, room)
    columns: dict[str, NDArray[Any]] = {"rows": vectors.rows_N, "quality": rows.quality_N[block]}
    if not np.isnan(rows.token_counts_N[block]).any():
        columns["token_counts"] = rows.token_counts_N[block]
    if rows.groups is not None:
        names = np.array([name.encode() for name in rows.groups.names])  # a quarter as long as text
        columns["groups"] = room.taken(names, room.taken(rows.groups.places_N, block))
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in columns.items():
        save_array(folder / f"{name}.npy", values)
    edges = [*np.flatnonzero(np.diff(vectors.files_N, prepend=-1)).tolist(), len(block)]
    return [
        Shard(
            vectors=vectors.files[vectors.files_N[start]],
            rows=folder / "rows.npy",
            quality={"quality": folder / "quality.npy"},
            token_counts=folder / "token_counts.npy" if "token_counts" in columns else None,
            groups=None if rows.groups is None else folder / "groups.npy",
            start=start,
            num_rows=stop - start,
        )
        for start, stop in itertools.pairwise(edges)
    ]


def reserve_size(config: SelectConfig, columns: Mapping[str, NDArray[Any]], before: Held | None) -> int:
    """How many runners-up are kept at most."""
    held = 0 if before is None else int(before.held_N.sum())
    return round(config.reserve * (int(columns["selected"].sum()) - held))


class _Sums:
    """Sums over all that the mask holds, added up block by block: each block's are a matrix of its own."""

    def __init__(self) -> None:
        self._total: Moments | None = None
        self._known = True

    def add(self, held: "Given | None") -> None:
        """What one block holds."""
        self._known = self._known and held is not None
        if held is None or not self._known:
            self._total = None
        else:
            moments = held.moments(needs_second=True)
            self._total = moments if self._total is None else self._total.plus(moments)

    def given(self) -> "Given | None":
        """Of all blocks; ``None`` where a metric is none of moments."""
        from datamask_pipeline.selection.given import Given

        return None if self._total is None else Given.of_moments(self._total, {}, None)


def _curve_table(results: list[BlockTold]) -> pa.Table:
    """The curves of all blocks; wall time is left out, so that the same run gives the same bytes."""
    if not results:
        return schema.curve_schema([]).empty_table()
    rows = [
        row | {"block": number} for number, result in enumerate(results) for row in result.curve.to_pylist()
    ]
    told = [name for name in results[0].curve.column_names if name != "wall_seconds"]
    return pa.Table.from_pylist(rows, schema=schema.curve_schema(told))


def counts_of(rows_in: int, selected_N: NDArray[np.bool_], before: Held | None) -> dict[str, int]:
    """The counters of a mask over the documents with every score; what is held counts as kept."""
    kept, passed_over = int(selected_N.sum()), 0 if before is None else int(before.past_N.sum())
    counts = {
        "rows_in": rows_in,
        "kept": kept,
        "dropped_not_selected": len(selected_N) - kept - passed_over,
        "dropped_no_score": rows_in - len(selected_N),
    }
    return counts if before is None else counts | {"dropped_passed_over": passed_over}


def _metadata(results: list[BlockTold], before: Held | None) -> dict[str, Any]:
    """Objective, certificate, constants and record of every block; means over blocks for the headline.

    A block weighs what its objective is of: the documents it selected, and its share of those held.
    Where nothing was added, those of the choice that the mask holds still.
    """
    if not results and before is not None:
        return dict(before.chosen)
    weights = np.array([documents_in(result.record) for result in results])

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    return {
        "objective": mean([result.objective.value for result in results]),
        "objective_random": mean([result.objective.random for result in results]),
        "quality_term": mean([result.objective.quality for result in results]),
        "diversity_term": mean([result.objective.diversity for result in results]),
        "blocks": [
            {
                "objective": vars(result.objective),
                "certificate": vars(result.certificate),
                "threshold": None if np.isnan(result.threshold) else result.threshold,
                "normalisation": result.normalisation,
                "timings": result.timings,
                "record": result.record,
            }
            for result in results
        ],
    }


def _write_plot(builder: ArtefactBuilder, curve: pa.Table) -> None:
    from datamask_pipeline.report.plots import learning_curve_figure, png

    if curve.num_rows > 1:
        builder.write_file("learning_curve.png", png(learning_curve_figure(curve)))

"""Select: learn the mask of one release under one arm, and record every document's reason.

Knows the record and the engine's one function; knows no metric and no learner.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS, POLICIES, with_members
from datamask_pipeline.hardware import device_kind, present_device
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.stages.release_rows import (
    ReleaseRows,
    naming_documents,
    read_rows,
    require_token_counts,
    with_index,
)
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, npy_bytes

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import SelectionResult

STAGE: Final = "select"
CURVE_STAGE: Final = "learning_curve"
VERSION: Final = "14"


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
        ConfigurationError: a metric's option is wrong, or the device is not there.
    """
    POLICIES.beside(config.policy, config)
    METRICS.make_each(
        config.diversity_weights, config.diversity_options, where("diversity_options"), where("diversity")
    )
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
    progress: Callable[[str, int, int | None], None] | None = None,
) -> tuple[Ref, Ref]:
    """Learn one mask.

    Args:
        config: The arm's settings.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        index: The release's index: its eligible documents, their scores, and where their vectors lie.
        embeddings: Embeddings of each crawl, those that the index was made from.
        progress: Told of the learner's steps.

    Returns:
        The selection, one row per eligible document in canonical order, and its learning curve.

    Raises:
        ConfigurationError: nothing is eligible.
        UnknownNameError: a scorer has no scores in the record.
        InputError: the budget is in tokens and a document has no token count.
        IntegrityError: the index was made from other vectors.
    """
    key = f"{release}/{arm}"
    inputs: dict[str, Ref | str] = {"index": index}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    settings = config.result_config()
    builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs)
    curve_builder = store.begin(CURVE_STAGE, key, version=VERSION, config=settings, inputs=inputs)
    done, curve_done = builder.finished(), curve_builder.finished()
    if done is not None and curve_done is not None:
        return done, curve_done

    group_by = config.quota_by if config.quotas else None
    rows = read_rows(store, index, embeddings, config.scorers, config.score_normalisation, group_by)
    if len(rows) == 0:
        raise ConfigurationError(f"release {release!r} has no eligible document with every score of {arm!r}")
    if config.num_tokens is not None:
        require_token_counts(store, index, rows)
    blocks, kind = blocks_of(len(rows), config), device_kind(config.device)
    try:
        budgets = budgets_of(config, blocks)
        results = []
        for number, (block, budgeted) in enumerate(zip(blocks, budgets, strict=True)):
            folder = builder.scratch() / f"{kind}-{number:05d}"
            with naming_documents(store, index, rows, block):
                results.append(_select_block(budgeted, rows, block, folder, progress))
    except ConfigurationError as error:
        raise ConfigurationError(f"arm {arm!r} of release {release!r}: {error}") from error
    columns = {"quality": rows.quality_N, **_columns(blocks, results)}
    part = builder.write_part("00000", with_index(store, index, rows, columns), schema.SELECTION)
    curve = _curve_table(results)
    curve_part = curve_builder.write_part("00000", curve.to_batches(), curve.schema)
    selected, unscored = int(columns["selected"].sum()), index.rows - len(rows)
    metadata = _metadata(results) | {
        "arm": arm,
        "release": release,
        "unscored": unscored,
        "selected": selected,
    }
    curve_ref = curve_builder.commit([curve_part], metadata={"arm": arm, "release": release})
    counts = {
        "rows_in": index.rows,
        "kept": selected,
        "dropped_not_selected": len(rows) - selected,
        "dropped_no_score": unscored,
    }
    _write_plot(builder, curve)
    for name in schema.CERTIFICATE.names:
        if (values := _certified_at(name, blocks, results)) is not None:
            builder.write_file(f"{name}.npy", npy_bytes(values))
    return builder.commit([part], counts=counts, metadata=metadata), curve_ref


def blocks_of(num_rows: int, config: SelectConfig) -> list[NDArray[np.int64]]:
    """Random blocks of nearly equal size; one block keeps the canonical order."""
    num_blocks = -(-num_rows // config.block_rows)
    if num_blocks == 1:
        return [np.arange(num_rows)]
    order = np.random.default_rng(config.seed).permutation(num_rows)
    return [np.sort(block) for block in np.array_split(order, num_blocks)]


def budgets_of(config: SelectConfig, blocks: list[NDArray[np.int64]]) -> list[SelectConfig]:
    """Each block's settings: what one block would select of all is shared out by the blocks' sizes.

    Raises:
        ConfigurationError: a block would select fewer than two documents.
    """
    from datamask_pipeline.selection.budget import shared_out

    if len(blocks) == 1:
        return [config]
    sizes = np.array([len(block) for block in blocks])
    name = "num_tokens" if config.budget == "num_tokens" else "num_documents"
    whole = round(config.ratio * int(sizes.sum())) if config.budget == "ratio" else getattr(config, name)
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


def _select_block(
    config: SelectConfig,
    rows: ReleaseRows,
    block: NDArray[np.int64],
    checkpoint_dir: Path,
    progress: Callable[[str, int, int | None], None] | None,
) -> "SelectionResult":
    """One block's selection; its vectors are read where they lie."""
    from datamask_pipeline.selection.api import select_documents

    assert rows.vectors is not None
    tokens_n = rows.token_counts_N[block]
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    engine = {name: getattr(config, name) for name in config.model_fields_set - of_stage}
    return select_documents(
        rows.vectors.chosen(block),
        rows.quality_N[block],
        token_counts=None if np.isnan(tokens_n).any() else tokens_n,
        groups=[rows.groups[place] for place in block] if rows.groups else None,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
        **engine,
    )


def _columns(blocks: list[NDArray[np.int64]], results: "list[SelectionResult]") -> dict[str, NDArray[Any]]:
    """What the blocks' results say of each document, in canonical order."""
    order = np.argsort(np.concatenate(blocks), kind="stable")
    thresholds = [
        np.full(len(block), result.threshold) for block, result in zip(blocks, results, strict=True)
    ]
    of_blocks: dict[str, list[Any]] = {
        "selected": [result.mask for result in results],
        "logit": [result.logits for result in results],
        "probability": [result.probabilities for result in results],
        "quality_marginal": [result.marginals.quality_N for result in results],
        "diversity_marginal": [result.marginals.diversity_N for result in results],
        "threshold": thresholds,
        "reason": [result.reasons for result in results],
    }
    return {name: np.concatenate(values)[order] for name, values in of_blocks.items()}


def _certified_at(
    name: str, blocks: list[NDArray[np.int64]], results: "list[SelectionResult]"
) -> NDArray[np.float64] | None:
    """What the bounds of the blocks were computed from, in canonical order; NaN where a block has none of that kind."""
    if not any(name in result.certified_at for result in results):
        return None
    values = np.full(sum(map(len, blocks)), np.nan)
    for block, result in zip(blocks, results, strict=True):
        values[block] = result.certified_at.get(name, np.nan)
    return values


def _curve_table(results: "list[SelectionResult]") -> pa.Table:
    """The curves of all blocks; wall time is left out, so that the same run gives the same bytes."""
    rows = [
        row | {"block": number} for number, result in enumerate(results) for row in result.curve.to_pylist()
    ]
    told = [name for name in results[0].curve.column_names if name != "wall_seconds"]
    return pa.Table.from_pylist(rows, schema=schema.curve_schema(told))


def _metadata(results: "list[SelectionResult]") -> dict[str, Any]:
    """Objective, certificate, constants and record of every block; means over blocks for the headline."""
    weights = np.array([float(result.mask.sum()) for result in results])

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

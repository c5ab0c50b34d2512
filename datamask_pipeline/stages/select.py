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

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError, UnknownNameError
from datamask_pipeline.families import METRICS, POLICIES, with_members
from datamask_pipeline.hardware import device_kind
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.settings import execution_field
from datamask_pipeline.storage import ROW_GROUP_ROWS, ArtefactBuilder, Ref, Store, new_map, open_array

if TYPE_CHECKING:
    from datamask_pipeline.selection.result import SelectionResult

STAGE: Final = "select"
CURVE_STAGE: Final = "learning_curve"
VERSION: Final = "5"


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
        "crawl", description="What `quotas` names: crawls, or registered domains of the documents' URLs."
    )
    block_rows: int = pydantic.Field(
        1_000_000, ge=2, description="Documents selected together; more are cut into random blocks."
    )
    memory_limit: str = execution_field("2GB", description="Memory DuckDB may use before it spills to disk.")

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
            name: value for name, value in base.items() if name in model.model_fields and name not in own
        }
        if isinstance(options := taken.get("diversity_options"), Mapping):
            used = _metrics_named({**taken, **own}.get("diversity", cls.model_fields["diversity"].default))
            taken["diversity_options"] = {name: value for name, value in options.items() if name in used}
        return cls.of({**taken, **own}, where, dict.fromkeys(taken, "select"))


def _metrics_named(diversity: Any) -> list[str]:
    return list(diversity) if isinstance(diversity, Mapping) else [str(diversity)]


def check(config: SelectConfig) -> None:
    """Refuse settings that the engine would refuse; loads no learner.

    Raises:
        UnknownNameError: no policy or metric has that name.
        ConfigurationError: a metric's option is wrong.
    """
    POLICIES.beside(config.policy, config)
    METRICS.make_each(config.diversity_weights, config.diversity_options, "diversity_options")


def run(
    config: SelectConfig,
    *,
    store: Store,
    release: str,
    arm: str,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    scores: Mapping[str, Ref],
    progress: Callable[[str, int, int | None], None] | None = None,
) -> tuple[Ref, Ref]:
    """Learn one mask.

    Args:
        config: The arm's settings.
        store: The record.
        release: The release's name.
        arm: The arm's name.
        candidates: The release's candidates.
        embeddings: Embeddings of each crawl, in the release's order.
        scores: Quality scores of each crawl, in the same order.
        progress: Told of the learner's steps.

    Returns:
        The selection, one row per eligible document in canonical order, and its learning curve.

    Raises:
        ConfigurationError: nothing is eligible.
        UnknownNameError: a scorer has no scores in the record.
    """
    key = f"{release}/{arm}"
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    inputs |= {f"scores/{crawl}": ref for crawl, ref in scores.items()}
    settings = config.result_config()
    builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs)
    curve_builder = store.begin(CURVE_STAGE, key, version=VERSION, config=settings, inputs=inputs)
    done, curve_done = builder.finished(), curve_builder.finished()
    if done is not None and curve_done is not None:
        return done, curve_done

    rows = _eligible_rows(config, store, builder.scratch(), candidates, scores)
    if rows.num_rows == 0:
        raise ConfigurationError(f"release {release!r} has no eligible document with every score of {arm!r}")
    unscored = candidates_kept(store, candidates) - rows.num_rows
    vectors = _gather_embeddings(store, builder.scratch(), rows, embeddings)
    blocks, kind = _blocks(rows.num_rows, config), device_kind(config.device)
    results = [
        _select_block(budgeted, rows, vectors, block, builder.scratch() / f"{kind}-{number:05d}", progress)
        for number, (block, budgeted) in enumerate(zip(blocks, _budgets(config, blocks), strict=True))
    ]
    table = _selection_table(rows, blocks, results)
    part = builder.write_part("00000", table.to_batches(ROW_GROUP_ROWS), schema.SELECTION)
    curve = _curve_table(results)
    curve_part = curve_builder.write_part("00000", curve.to_batches(), curve.schema)
    selected = int(table.column("selected").combine_chunks().true_count)
    metadata = _metadata(results) | {
        "arm": arm,
        "release": release,
        "unscored": unscored,
        "selected": selected,
    }
    curve_ref = curve_builder.commit([curve_part], metadata={"arm": arm, "release": release})
    counts = {
        "rows_in": candidates_kept(store, candidates),
        "kept": selected,
        "dropped_not_selected": rows.num_rows - selected,
        "dropped_no_score": unscored,
    }
    _write_plot(builder, curve)
    return builder.commit([part], counts=counts, metadata=metadata), curve_ref


def candidates_kept(store: Store, candidates: Ref) -> int:
    """How many documents the pool left eligible."""
    return int(store.manifest(candidates)["counts"]["kept"])


def _eligible_rows(
    config: SelectConfig, store: Store, scratch: Path, candidates: Ref, scores: Mapping[str, Ref]
) -> pa.Table:
    """position, crawl, id, domain, token_count and combined quality of every eligible, scored document."""
    from datamask_pipeline.quality.combine import combine_scores

    refs = list(scores.values())
    with duck.connect(store, scratch, memory_limit=config.memory_limit) as connection:
        score_rows = duck.parts_sql(store, refs, "id, scorer, score")
        known = [
            name for (name,) in connection.execute(f"SELECT DISTINCT scorer FROM {score_rows}").fetchall()
        ]
        weights = dict(sorted(config.scorers.items())) or dict.fromkeys(sorted(known), 1.0)
        for name in weights:
            if name not in known:
                raise UnknownNameError("quality scorer with stored scores", name, known)
        crawl_order = " ".join(f"WHEN {i} THEN {duck.literal(crawl)}" for i, crawl in enumerate(scores))
        joins = " ".join(
            f"LEFT JOIN named AS s{i} ON s{i}.crawl = c.crawl AND s{i}.id = c.id AND s{i}.scorer = {duck.literal(name)}"
            for i, name in enumerate(weights)
        )
        picked = ", ".join(f"s{i}.score AS score_{i}" for i in range(len(weights)))
        table = connection.sql(
            f"""
            WITH named AS (SELECT *, CASE artefact_order {crawl_order} END AS crawl FROM {score_rows})
            SELECT c.position, c.crawl, c.id, c.domain, c.token_count, {picked}
            FROM {duck.parts_sql(store, [candidates])} AS c {joins}
            WHERE c.eligible ORDER BY c.position
            """
        ).to_arrow_table()
    columns = {name: table.column(f"score_{i}") for i, name in enumerate(weights)}
    present = np.ones(table.num_rows, np.bool_)
    for column in columns.values():
        present &= column.is_valid().to_numpy()
    table = table.filter(pa.array(present))
    arrays = {name: table.column(f"score_{i}").to_numpy() for i, name in enumerate(weights)}
    quality = combine_scores(arrays, weights, normalisation=config.score_normalisation)
    kept = table.select(["position", "crawl", "id", "domain", "token_count"])
    return kept.append_column("quality", pa.array(quality, pa.float64()))


def _gather_embeddings(
    store: Store, scratch: Path, rows: pa.Table, embeddings: Mapping[str, Ref]
) -> NDArray[np.float16]:
    """The rows' vectors in a memory-mapped file, so that memory does not grow with the corpus."""
    vectors = new_map(scratch / "embeddings.f16", np.float16, (rows.num_rows, schema.EMBEDDING_DIM))
    crawls = np.asarray(rows.column("crawl").to_pylist(), dtype=object)
    ids = rows.column("id").to_pylist()
    for crawl, ref in embeddings.items():
        wanted = {ids[index]: index for index in np.flatnonzero(crawls == crawl)}
        for name in store.part_names(ref):
            matrix = open_array(store, ref, name)
            with store.part_file(ref, name) as part:
                names = part.read(columns=["id"]).column("id").to_pylist()
            pairs = [(wanted.pop(name), row) for row, name in enumerate(names) if name in wanted]
            if pairs:
                targets, sources = np.array(pairs).T
                vectors[targets] = matrix[sources]
        if wanted:
            raise IntegrityError(
                f"{len(wanted)} documents of crawl {crawl!r} have no embedding, the first {next(iter(wanted))!r}; "
                "embed that crawl again"
            )
    return vectors


def _blocks(num_rows: int, config: SelectConfig) -> list[NDArray[np.int64]]:
    """Random blocks of nearly equal size; one block keeps the canonical order."""
    num_blocks = -(-num_rows // config.block_rows)
    if num_blocks == 1:
        return [np.arange(num_rows)]
    order = np.random.default_rng(config.seed).permutation(num_rows)
    return [np.sort(block) for block in np.array_split(order, num_blocks)]


def _budgets(config: SelectConfig, blocks: list[NDArray[np.int64]]) -> list[SelectConfig]:
    """Each block's settings: a budget in documents or tokens is shared out by the blocks' sizes."""
    ends = np.cumsum([len(block) for block in blocks])
    settings = []
    for name in ("num_documents", "num_tokens"):
        whole = getattr(config, name)
        if whole is not None and len(blocks) > 1:
            shares = np.diff(np.round(whole * ends / ends[-1]).astype(int), prepend=0)
            values = config.model_dump(exclude_unset=True)
            settings = [config.model_validate({**values, name: int(share)}) for share in shares]
    return settings or [config] * len(blocks)


def _select_block(
    config: SelectConfig,
    rows: pa.Table,
    vectors: NDArray[np.float16],
    block: NDArray[np.int64],
    checkpoint_dir: Path,
    progress: Callable[[str, int, int | None], None] | None,
) -> "SelectionResult":
    from datamask_pipeline.selection.api import select_documents

    taken = rows.take(pa.array(block))
    whole = len(block) == rows.num_rows
    of_stage = SelectConfig.model_fields.keys() - SelectionConfig.model_fields.keys()
    engine = {name: getattr(config, name) for name in config.model_fields_set - of_stage}
    return select_documents(
        vectors if whole else vectors[block],
        taken.column("quality").to_numpy(),
        ids=taken.column("id").to_pylist(),
        token_counts=_token_counts(config, taken),
        groups=taken.column(config.quota_by).to_pylist() if config.quotas else None,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
        **engine,
    )


def _token_counts(config: SelectConfig, rows: pa.Table) -> NDArray[np.int64] | None:
    """Tokens of each row; none where a count is missing, unless the budget is counted in tokens.

    Raises:
        InputError: a document has no token count and the budget needs one.
    """
    counts = rows.column("token_count")
    if not counts.null_count:
        return counts.to_numpy()
    if config.num_tokens is None:
        return None
    row = int(np.flatnonzero(counts.is_null().to_numpy())[0])
    raise InputError(
        f"{counts.null_count} documents have no token count",
        row=rows.column("position")[row].as_py(),
        field="token_count",
        value=rows.column("id")[row].as_py(),
        remedy="fill token_count, or give the budget as ratio or num_documents",
    )


def _selection_table(
    rows: pa.Table, blocks: list[NDArray[np.int64]], results: "list[SelectionResult]"
) -> pa.Table:
    order = np.argsort(np.concatenate(blocks), kind="stable")

    def column(values: list[Any]) -> Any:
        joined = np.concatenate(values)[order]
        if joined.dtype.kind != "f":
            return joined
        return pa.array(joined, pa.float64(), mask=~np.isfinite(joined))  # null, with the reason beside it

    thresholds = [
        np.full(len(block), result.threshold) for block, result in zip(blocks, results, strict=True)
    ]
    return pa.table(
        {
            "crawl": rows.column("crawl"),
            "id": rows.column("id"),
            "selected": column([result.mask for result in results]),
            "logit": column([result.logits for result in results]),
            "probability": column([result.probabilities for result in results]),
            "quality": rows.column("quality"),
            "quality_marginal": column([result.marginals.quality_N for result in results]),
            "diversity_marginal": column([result.marginals.diversity_N for result in results]),
            "threshold": column(thresholds),
            "reason": column([result.reasons for result in results]),
        },
        schema=schema.SELECTION,
    )


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
                "threshold": result.threshold,
                "normalisation": result.normalisation,
                "timings": result.timings,
                "record": result.record,
            }
            for result in results
        ],
    }


def _write_plot(builder: ArtefactBuilder, curve: pa.Table) -> None:
    from datamask_pipeline.report.plots import learning_curve_png

    if curve.num_rows > 1:
        builder.write_file("learning_curve.png", learning_curve_png(curve))

"""Score: one row per document and scorer. Knows the record and the family of scorers; knows no scorer's formula.

A document that a scorer cannot score gets a null and the reason, never a number.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.disk import sync
from datamask_pipeline.errors import InputError, IntegrityError
from datamask_pipeline.families import SCORERS
from datamask_pipeline.lineage import plain
from datamask_pipeline.quality import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.trained import TrainedScorer
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.stages import probe
from datamask_pipeline.stages.probe_examples import check_examples
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.stages.windows import windows_of
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, open_array

STAGE: Final = "score"
VERSION: Final = "2"

Progress = Callable[[str, int, int | None], None]


class ScoreConfig(Settings):
    """Which scorers, and their options."""

    scorers: tuple[str, ...] = pydantic.Field(
        ("rules",),
        min_length=1,
        description="Quality scorers by name. One that is used several times takes a label each time: "
        "`column:edu`, `column:toxicity`.",
    )
    options: dict[str, dict[str, Any]] = pydantic.Field(
        default_factory=dict,
        description="Options of each scorer, by its name and label as in `scorers`; those not named take defaults.",
    )
    window_documents: int = execution_field(
        1_024,
        ge=1,
        description="Documents scored together. Also the checkpoint interval: a kill repeats at most one.",
    )

    @pydantic.field_validator("scorers")
    @classmethod
    def _each_once(cls, scorers: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in scorers if scorers.count(name) > 1})
        if twice:
            raise ValueError(f"{twice} stand twice; tell them apart by a label, as in {twice[0]}:first")
        return scorers


def compared(config: ScoreConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now; reads no file that a scorer names."""
    known = {about["name"]: about for about in recorded["scorers"]}
    yield "scorers", list(known), list(config.scorers)
    for scorer in config.scorers:
        about = known.get(scorer, {})
        options = SCORERS.config(scorer, config.options.get(scorer), "score.options").result_config()
        for name in sorted(options.keys() & about.keys() - {"name", "model", "revision"}):
            yield f"options.{scorer}.{name}", about[name], options[name]


def check(config: ScoreConfig) -> None:
    """Refuse settings that scoring would refuse; reads no document.

    Raises:
        UnknownNameError: no scorer has that name.
        ConfigurationError: a scorer's option is wrong, or options are given for a scorer that is not used.
        InputError: a scorer's file cannot be used.
    """
    for scorer in SCORERS.make_each(config.scorers, config.options, "score.options", "score.scorers"):
        scorer.check()
        if isinstance(scorer, TrainedScorer):
            check_examples(scorer.config)


def begin(
    config: ScoreConfig,
    *,
    store: Store,
    crawl: str,
    documents: Ref,
    embeddings: Ref,
    progress: Progress | None = None,
) -> "_Scoring":
    """The work on one crawl, shard by shard; arguments and errors as of `run`."""
    scorers = SCORERS.make_each(config.scorers, config.options, "score.options", "score.scorers")
    inputs: dict[str, Ref | str] = {"documents": documents}
    for scorer in scorers:
        if isinstance(scorer, TrainedScorer):
            space = probe.space_of_embeddings(store, embeddings)
            inputs[scorer.name] = probe.run(scorer, store=store, space=space, progress=progress)
    heads = _heads(store, embeddings, scorers)
    if heads or any(scorer.needs_embeddings for scorer in scorers):
        inputs["embeddings"] = embeddings
    settings: dict[str, Any] = {"scorers": [scorer.identity() for scorer in scorers]}
    if any(scorer.batch_dependent and scorer.name not in heads for scorer in scorers):
        settings["window_documents"] = config.window_documents
    builder = store.begin(STAGE, crawl, version=VERSION, config=settings, inputs=inputs)
    return _Scoring(config, builder, documents, embeddings, scorers, heads, progress)


def run(
    config: ScoreConfig,
    *,
    store: Store,
    crawl: str,
    documents: Ref,
    embeddings: Ref,
    progress: Progress | None = None,
) -> Ref:
    """Score one crawl.

    Args:
        config: The scorers.
        store: The record.
        crawl: The crawl.
        documents: Its ingested documents.
        embeddings: Their vectors.
        progress: Told of documents done.

    Returns:
        Rows in the documents' order, each document's scorers in the configured order. The manifest's metadata
        has each scorer's identity, report and distribution.

    Raises:
        UnknownNameError: no scorer has that name.
        ConfigurationError: a scorer's option is wrong, or options are given for a scorer that is not used.
        InputError: a column that a scorer reads is missing.
    """
    given: dict[str, Any] = {"documents": documents, "embeddings": embeddings, "progress": progress}
    return begin(config, store=store, crawl=crawl, **given).complete()


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a log says of scores that were made: how each trained scorer did on held-out labels."""
    for name, scorer in sorted(manifest["metadata"]["scorers"].items()):
        if scorer["report"].get("held_out"):
            yield f"{name}: {probe.held_out_line(scorer['report'])}"


class _Scoring(ShardWork[Ref]):
    """A crawl's scores in the making."""

    def __init__(
        self,
        config: ScoreConfig,
        builder: ArtefactBuilder,
        documents: Ref,
        embeddings: Ref,
        scorers: Sequence[Scorer],
        heads: Sequence[str],
        progress: Progress | None,
    ) -> None:
        super().__init__(builder, builder.store.part_names(documents), by_parts=["documents", "embeddings"])
        self._config, self._store, self._progress = config, builder.store, progress
        self._documents, self._embeddings, self._scorers = documents, embeddings, scorers
        self._columns = list(dict.fromkeys(["id", *(c for scorer in scorers for c in scorer.columns)]))
        self._heads = heads
        self._reads_vectors = bool(self._heads) or any(scorer.needs_embeddings for scorer in scorers)
        self._scored = 0

    def finished(self) -> Ref | None:
        return self.builder.finished()

    def has(self, name: str) -> bool:
        return self.builder.part(name) is not None

    def write(self, name: str) -> None:
        # Windows of another size hold other documents under the same number.
        checkpoints = self.builder.scratch() / f"{self._config.window_documents} documents" / name
        part = self.builder.write_part(name, self._rows(name, checkpoints), schema.SCORES)
        self._scored += part["rows"] // len(self._scorers)
        if self._progress is not None:
            self._progress(f"score {self.builder.key}", self._scored, self._documents.rows)

    def finish(self) -> Ref:
        parts = self.builder.parts(self.names)
        rows_in = self._documents.rows * len(self._scorers)
        counts = {"rows_in": rows_in, "kept": sum(part["rows"] for part in parts)}
        metadata = {"scorers": {scorer.name: _about(scorer) for scorer in self._scorers}}
        for name, summary in summaries(self._store, [*map(self.builder.part_path, self.names)]).items():
            metadata["scorers"][name] |= summary
        return self.builder.commit(parts, counts=counts, metadata=metadata)

    def _rows(self, name: str, checkpoints: Path) -> Iterator[pa.RecordBatch]:
        """Scores of one part; windows that an earlier attempt finished are read back.

        Raises:
            IntegrityError: a checkpoint holds other rows than its window's.
        """
        checkpoints.mkdir(parents=True, exist_ok=True)
        for number, batch in enumerate(self._batches(name)):
            path = checkpoints / f"window-{number:06d}.arrow"
            if not path.exists():
                private = path.with_suffix(".tmp")
                with pa.ipc.new_file(private, schema.SCORES) as stream:
                    stream.write_batch(self._score(batch, name))
                sync(private)
                private.replace(path)
            with pa.ipc.open_file(path) as stored:
                table = stored.read_all()
            documents = np.repeat(np.arange(batch.documents.num_rows), len(self._scorers))
            ids = batch.documents.column("id").take(pa.array(documents))
            if table.column("id") != ids:
                raise IntegrityError(
                    f"{path} holds {table.num_rows} scores, not those of its window's "
                    f"{batch.documents.num_rows} documents; delete {checkpoints}; run again"
                )
            yield from table.to_batches()

    def _batches(self, name: str) -> Iterator[ScoreBatch]:
        rows = self._config.window_documents
        with self._store.part_file(self._documents, name) as part:
            for column in self._columns:
                if column not in part.schema_arrow.names:
                    raise InputError(
                        f"a scorer reads a column that part {name} lacks; there are: "
                        f"{', '.join(part.schema_arrow.names)}",
                        field=column,
                        remedy="name another column, or leave the scorer out; of a crawl whose files were mended since, run "
                        "all steps, as the documents are those of the files before",
                    )
            windows = windows_of(part, self._columns, rows)
            if not self._reads_vectors:
                yield from map(ScoreBatch, windows)
                return
            vectors_ND, first = open_array(self._store, self._embeddings, name), 0
            with self._store.part_file(self._embeddings, name) as keys:
                read = ["id", *(SCORE_PREFIX + name for name in self._heads)]
                for documents, embedded in zip(windows, windows_of(keys, read, rows), strict=True):
                    if documents.column("id") != embedded.column("id"):
                        raise IntegrityError(
                            f"part {name}: documents and embeddings are not in the same order; embed again"
                        )
                    heads = {name: embedded.column(SCORE_PREFIX + name).to_numpy() for name in self._heads}
                    block_ND = vectors_ND[first : first + rows].astype(np.float32)
                    yield ScoreBatch(documents, block_ND, heads)
                    first += rows

    def _score(self, batch: ScoreBatch, part: str) -> pa.RecordBatch:
        """Rows of one window: documents in order, and for each its scorers in order."""
        num_documents = batch.documents.num_rows
        tables = []
        for order, scorer in enumerate(self._scorers):
            values_N, reasons = _checked(scorer.score(batch), num_documents, scorer, part)
            low, high = scorer.scale
            columns = {
                "id": batch.documents.column("id"),
                "scorer": pa.repeat(scorer.name, num_documents),
                "score": pa.array(values_N, pa.float64(), mask=~np.isfinite(values_N)),
                "scale_min": pa.array([low] * num_documents, pa.float64()),
                "scale_max": pa.array([high] * num_documents, pa.float64()),
                "model": pa.repeat(scorer.model, num_documents),
                "revision": pa.repeat(scorer.revision, num_documents),
                "reason": pa.array(reasons, pa.string()),
                "document": pa.array(range(num_documents)),
                "order": pa.array([order] * num_documents),
            }
            tables.append(pa.table(columns))
        table = pa.concat_tables(tables).sort_by([("document", "ascending"), ("order", "ascending")])
        (ordered,) = table.select(schema.SCORES.names).cast(schema.SCORES).combine_chunks().to_batches()
        return ordered


def _heads(store: Store, embeddings: Ref, scorers: Sequence[Scorer]) -> list[str]:
    """Scorers whose scores the embedding pass computed along the way, with these very settings."""
    known = store.manifest(embeddings)["metadata"].get("heads", {})
    return [scorer.name for scorer in scorers if known.get(scorer.name) == plain(scorer.identity())]


def _checked(
    scores: Scores, num_documents: int, scorer: Scorer, part: str
) -> tuple[NDArray[np.float64], list[str | None]]:
    """The values with NaN where there is none; a scorer that breaks its contract is an error."""
    values_N = np.array(scores.values_N, dtype=np.float64)
    if values_N.shape != (num_documents,):
        raise IntegrityError(
            f"scorer {scorer.name!r} gave {values_N.shape} scores for {num_documents} documents of part {part}"
        )
    reasons: list[str | None] = [None] * num_documents
    for row, reason in scores.missing.items():
        values_N[row], reasons[row] = np.nan, reason
    unexplained = [int(row) for row in np.flatnonzero(~np.isfinite(values_N)) if reasons[row] is None]
    if unexplained:
        raise IntegrityError(
            f"scorer {scorer.name!r} gave no finite score and no reason for {len(unexplained)} documents of "
            f"part {part}, the first in row {unexplained[0]} of its window"
        )
    return values_N, reasons


def _about(scorer: Scorer) -> dict[str, Any]:
    low, high = scorer.scale
    return {
        "model": scorer.model,
        "revision": scorer.revision,
        "scale_min": low,
        "scale_max": high,
        "report": scorer.report(),
    }


def summaries(store: Store, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each scorer's distribution, and how many documents have no score for which reason, summed part by part."""
    sums: dict[str, list[float]] = {}
    unscored: dict[str, Counter[str]] = {}
    for path in paths:
        with store.open_parquet(path) as opened:
            for batch in opened.iter_batches(columns=["scorer", "score", "reason"]):
                for name in pc.unique(batch.column("scorer")).to_pylist():
                    rows = batch.filter(pc.equal(batch.column("scorer"), name))
                    reasons = rows.column("reason").drop_null().to_pylist()
                    unscored.setdefault(name, Counter()).update(reasons)
                    values = rows.column("score")
                    known = values.drop_null().to_numpy()
                    total = sums.setdefault(name, [0.0, 0.0, 0.0, np.inf, -np.inf])
                    total[0] += len(values)
                    total[1] += len(known)
                    total[2] += float(known.sum())
                    total[3] = min(total[3], float(known.min(initial=np.inf)))
                    total[4] = max(total[4], float(known.max(initial=-np.inf)))
    return {
        name: {
            "rows": int(rows),
            "scored": int(n),
            "unscored": dict(sorted(unscored[name].items())),
            "mean": total / n if n else None,
            "min": low,
            "max": high,
        }
        for name, (rows, n, total, low, high) in sums.items()
    }

"""Embed: one unit vector of 768 numbers per document, one array per shard, in the documents' order.

Knows the record and an encoder; knows no source and no scorer. Vectors that exist already can be imported. The part
beside a shard's array says whose vectors they are, row by row; all that reads vectors maps the array.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.embedding.config import EncoderConfig, model_directory, model_identity, stated_dim
from datamask_pipeline.embedding.imported import ImportedVectors
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import resolve_batch_tokens
from datamask_pipeline.stages.heads import attach, make_heads
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.stages.windows import windows_of
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store

if TYPE_CHECKING:
    from datamask_pipeline.embedding.encoder import Encoder

STAGE: Final = "embed"
VERSION: Final = "5"

_OF_IMPORTED: Final = ("imported_id_column", "imported_vector_column", "imported_model", "imported_revision")
_A_DIRECTORY: Final = "a model in a directory or package"

Progress = Callable[[str, int, int | None], None]


class EmbedConfig(EncoderConfig):
    """Which model embeds; or which file already holds the vectors."""

    heads: tuple[str, ...] = pydantic.Field(
        (),
        description="Quality scorers that read their score off the same forward pass (`fineweb_edu`); their encoder "
        "must equal the embedding's.",
    )
    head_options: dict[str, dict[str, Any]] = pydantic.Field(
        default_factory=dict, description="Options of those scorers, by name."
    )
    imported_file: str | None = pydantic.Field(
        None,
        description="A Parquet file or folder with ids and vectors that are taken instead of being computed.",
    )
    imported_id_column: str = pydantic.Field("id", description="Its column of document ids.")
    imported_vector_column: str = pydantic.Field("embedding", description="Its column of vectors.")
    imported_model: str = pydantic.Field("", description="The model that made them, for the lineage.")
    imported_revision: str = pydantic.Field("", description="That model's revision, for the lineage.")

    def encoder_config(self) -> EncoderConfig:
        """The encoder's part of the settings."""
        return EncoderConfig(**{name: getattr(self, name) for name in EncoderConfig.model_fields})


def check(config: EmbedConfig) -> None:
    """Refuse settings that embedding would refuse; loads no model.

    Raises:
        ConfigurationError: heads or the encoder are not there, or an option is wrong.
        InputError: the file of imported vectors cannot be used.
    """
    for scorer in make_heads(config.heads, config.head_options).values():
        scorer.check()
    if config.imported_file:
        imported_vectors(config)
        for name in ("encoder", "revision", "prefix", "max_tokens", "dtype", "batch_tokens"):
            if name in config.model_fields_set:
                raise ConfigurationError(
                    f"embed.{name}: not read, as the vectors come from embed.imported_file; leave one of the two out"
                )
        return
    config.check()
    directory = model_directory(spec := config.spec())
    if directory is not None and spec.pooling == "own" and (dim := stated_dim(directory)) is not None:
        _require_width(config, dim)


def _require_width(config: EmbedConfig, dim: int) -> None:
    if dim != schema.EMBEDDING_DIM:
        raise ConfigurationError(
            f"embed.encoder: encoder {config.encoder!r} gives {dim} numbers per document, {schema.EMBEDDING_DIM} are "
            "needed; choose a base-size model"
        )


def compared(config: EmbedConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now, but for those that a machine chooses.

    Loads no model and reads no file: of two models in directories nothing is said.
    """
    if config.imported_file or "imported_model" in recorded:
        before = "some" if "imported_model" in recorded else None
        yield "imported_file", before, "some" if config.imported_file else None
        if config.imported_file and before:
            for name in _OF_IMPORTED:
                yield name, recorded[name], getattr(config, name)
        return
    spec = config.spec()
    model = _A_DIRECTORY if model_directory(spec) is not None else f"{spec.model}@{spec.revision}"
    named = recorded["model"]
    yield "encoder", _A_DIRECTORY if named.startswith("sha256:") else named, model
    yield from ((name, recorded[name], getattr(spec, name)) for name in ("pooling", "prefix", "max_tokens"))
    for name, by_machine in (("dtype", "auto"), ("batch_tokens", None), ("window_documents", None)):
        if getattr(config, name) != by_machine and name in recorded:
            yield name, recorded[name], getattr(config, name)
    yield "heads", sorted(recorded.get("heads", ())), sorted(config.heads)


def imported_vectors(config: EmbedConfig) -> ImportedVectors:
    """The vectors that stand in a file already.

    Raises:
        ConfigurationError: heads are asked for, too.
        InputError: the file cannot be used.
    """
    if config.heads:
        raise ConfigurationError(
            "embed.heads: imported embeddings have no forward pass to read heads off; empty `heads`, and score in the "
            "score stage"
        )
    return ImportedVectors(
        str(config.imported_file), config.imported_id_column, config.imported_vector_column
    )


def begin(
    config: EmbedConfig, *, store: Store, crawl: str, documents: Ref, progress: Progress | None = None
) -> "_Embedding":
    """The work on one crawl, shard by shard; arguments and errors as of `run`."""
    vectors: _Computed | _Imported
    if config.imported_file:
        vectors = _Imported(config, store, documents)
    else:
        vectors = _Computed(config, store, documents, f"embed {crawl}", progress)
    inputs: dict[str, Ref | str] = {"documents": documents, "vectors": vectors.digest}
    builder = store.begin(STAGE, crawl, version=VERSION, config=vectors.settings, inputs=inputs)
    return _Embedding(builder, documents, vectors)


def run(
    config: EmbedConfig, *, store: Store, crawl: str, documents: Ref, progress: Progress | None = None
) -> Ref:
    """Embed one crawl.

    Args:
        config: The model and how its batches are composed.
        store: The record.
        crawl: The crawl.
        documents: Its ingested documents.
        progress: Told of documents done.

    Returns:
        One row per document, in the documents' order, and its vector in the same row of the part's array; the
        manifest names model and revision.

    Raises:
        ConfigurationError: the model's vectors are not 768 wide, or it cannot be loaded.
        InputError: the imported file lacks vectors of some documents.
    """
    return begin(config, store=store, crawl=crawl, documents=documents, progress=progress).complete()


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What a log says of embeddings that were made: how many imported vectors were not of unit norm."""
    if count := manifest["metadata"].get("normalised", 0):
        yield f"{count} imported vectors were not of unit norm and have been normalised (crawl {manifest['key']})"


class _Computed:
    """Vectors out of the forward pass, a window at a time."""

    def __init__(
        self, config: EmbedConfig, store: Store, documents: Ref, label: str, progress: Progress | None
    ) -> None:
        self._config, self._store, self._documents = config, store, documents
        self._label, self._progress, self._done = label, progress, 0
        self._heads = make_heads(config.heads, config.head_options)
        self.settings = config.encoder_config().result_config()
        if self._heads:
            self.settings["heads"] = {name: scorer.identity() for name, scorer in self._heads.items()}
        self.model, self.digest = model_identity(config.spec())
        self.schema = pa.schema([*schema.EMBEDDINGS, *map(schema.score_column, self._heads)])

    @functools.cached_property
    def encoders(self) -> "list[Encoder]":
        from datamask_pipeline.embedding.encoder import load_encoders

        encoders = load_encoders(self._config, lambda encoder: attach(encoder, self._heads))
        _require_width(self._config, encoders[0].dim)
        return encoders

    def windows(self, name: str, checkpoints: Path, counts: dict[str, int]) -> "Iterator[list[NDArray[Any]]]":
        from datamask_pipeline.embedding.encode import embed_windows

        with self._store.part_file(self._documents, name) as part:
            texts = (
                table.column("text").to_pylist()
                for table in windows_of(part, ["text"], self._config.window_documents)
            )
            for window in embed_windows(
                self.encoders,
                texts,
                batch_tokens=resolve_batch_tokens(self._config.batch_tokens, self._config.device),
                checkpoints=checkpoints,
                on_documents=self._tell,
            ):
                yield [window.vectors_ND, *window.head_scores_N.values()]

    def metadata(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        about = {"model": self.model, "revision": self.digest, "dtype": self.settings["dtype"]}
        encoder = self._config.encoder_config().loadable()
        return about | {"heads": self.settings.get("heads", {}), "encoder": encoder}

    def _tell(self, num_documents: int) -> None:
        self._done += num_documents
        if self._progress is not None:
            self._progress(self._label, self._done, self._documents.rows)


class _Imported:
    """Vectors that stand in a file already."""

    def __init__(self, config: EmbedConfig, store: Store, documents: Ref) -> None:
        self._config, self._store, self._documents = config, store, documents
        self._file = imported_vectors(config)
        self.schema = schema.EMBEDDINGS
        self.settings = {name: getattr(config, name) for name in _OF_IMPORTED}
        self.digest = self._file.digest

    def windows(self, name: str, checkpoints: Path, counts: dict[str, int]) -> "Iterator[list[NDArray[Any]]]":
        with self._store.part_file(self._documents, name) as part:
            ids = part.read(columns=["id"]).column("id")
        target = checkpoints / "imported.f16"
        vectors, counts["normalised"] = self._file.gather(ids, target)
        for first in range(0, len(ids), self._config.window_documents):
            yield [vectors[first : first + self._config.window_documents]]

    def metadata(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "model": self._config.imported_model,
            "revision": self._config.imported_revision,
            "imported_digest": self.digest,
            "normalised": sum(part["counts"]["normalised"] for part in parts),
        }


class _Embedding(ShardWork[Ref]):
    """A crawl's vectors in the making."""

    def __init__(self, builder: ArtefactBuilder, documents: Ref, vectors: _Computed | _Imported) -> None:
        super().__init__(builder, builder.store.part_names(documents), by_parts=["documents"])
        self._documents, self._vectors = documents, vectors

    def finished(self) -> Ref | None:
        return self.builder.finished()

    def has(self, name: str) -> bool:
        return self.builder.part(name) is not None

    def write(self, name: str) -> None:
        """One shard's vectors in their order, then the ids they belong to with the scores of the heads."""
        builder, vectors = self.builder, self._vectors
        with builder.store.part_file(self._documents, name) as part:
            keys = part.read(columns=schema.EMBEDDINGS.names)
        counted: dict[str, int] = {}
        scores: list[Sequence[NDArray[Any]]] = []

        def blocks() -> Iterator[NDArray[Any]]:
            for block, *head_scores in vectors.windows(name, builder.scratch() / name, counted):
                scores.append(head_scores)
                yield block

        shape = (keys.num_rows, schema.EMBEDDING_DIM)
        array = builder.write_array(name, blocks(), dtype=schema.EMBEDDING_DTYPE, shape=shape)
        num_heads = len(vectors.schema) - len(schema.EMBEDDINGS)
        heads = [np.concatenate([np.empty(0), *(row[head] for row in scores)]) for head in range(num_heads)]
        table = pa.table([*keys.columns, *heads], schema=vectors.schema)
        builder.write_part(name, [table], vectors.schema, counts=counted, array=array)

    def finish(self) -> Ref:
        parts = self.builder.parts(self.names)
        counts = {"rows_in": self._documents.rows, "kept": sum(part["rows"] for part in parts)}
        return self.builder.commit(parts, counts=counts, metadata=self._vectors.metadata(parts))

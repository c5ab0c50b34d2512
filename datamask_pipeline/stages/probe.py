"""Train a scorer: examples become a model in the record, with its held-out figures where labels are measured.

Knows the record, the examples and an encoder; knows no crawl, so every crawl is scored by the same model.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.embedding.config import EncoderConfig, model_identity
from datamask_pipeline.embedding.presets import PRESETS
from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError
from datamask_pipeline.hardware import resolve_batch_tokens
from datamask_pipeline.quality import linear
from datamask_pipeline.quality.trained import ExamplesConfig, HeldOutConfig, TrainedScorer
from datamask_pipeline.stages.probe_examples import Examples, examples_digest, read_examples
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store

STAGE: Final = "probe"
VERSION: Final = "5"
PART: Final = "00000"
_FIGURES: Final = {"auc": "AUC", "pearson": "Pearson correlation", "spearman": "Spearman correlation"}

Progress = Callable[[str, int, int | None], None]


@dataclasses.dataclass(frozen=True)
class VectorSpace:
    """What the documents' vectors were made by, and what a probe's examples must be embedded by.

    Attributes:
        settings: The embedding's settings, as they stand in its fingerprint.
        revision: Revision of the model, as the lineage states it.
        encoder: The settings that embed examples; ``None`` for imported vectors.
    """

    settings: Mapping[str, Any]
    revision: str
    encoder: EncoderConfig | None


def space_of_embeddings(store: Store, embeddings: Ref) -> VectorSpace:
    """The space of vectors in the record.

    Raises:
        IntegrityError: the vectors were computed, and their manifest does not say how.
    """
    manifest = store.manifest(embeddings)
    settings = {name: value for name, value in manifest["basis"]["config"].items() if name != "heads"}
    metadata = manifest["metadata"]
    if "imported_digest" in metadata:
        return VectorSpace(settings, metadata["revision"], None)
    if "encoder" not in metadata:
        raise IntegrityError(
            f"the embeddings {embeddings.short} of {embeddings.key} were made by an earlier version, which did "
            "not record their encoder; embed again"
        )
    return VectorSpace(settings, metadata["revision"], EncoderConfig(**metadata["encoder"]))


def space_of_encoder(config: EncoderConfig) -> VectorSpace:
    """The space of vectors that an encoder will make."""
    return VectorSpace(config.result_config(), model_identity(config.spec())[1], config)


def run(scorer: TrainedScorer, *, store: Store, space: VectorSpace, progress: Progress | None = None) -> Ref:
    """Train a scorer on vectors of a space, or find it trained, and hand it its model.

    Args:
        scorer: The scorer, with its examples.
        store: The record.
        space: Where the documents' vectors live.
        progress: Told of examples embedded.

    Returns:
        The model; the manifest's metadata holds the number of examples and the held-out figures.

    Raises:
        ConfigurationError: examples without vectors, and the embeddings were imported or their model is gone.
        InputError: the examples cannot be used.
    """
    config = scorer.config
    if space.encoder is None:
        refuse_without_vectors(config)
    settings = {name: value for name, value in config.result_config().items() if name != "examples"}
    settings |= {"encoder": dict(space.settings), "scorer": scorer.name.partition(":")[0]}
    inputs: dict[str, Ref | str] = {"examples": examples_digest(config), "vectors": space.revision}
    key = "installed" if config.examples == "installed" else Path(config.examples).stem
    # Several crawls that are scored side by side ask for one and the same model.
    with store.exclusive(STAGE, key):
        builder = store.begin(STAGE, key, version=VERSION, config=settings, inputs=inputs)
        ref = builder.finished() or _trained(builder, scorer, space, progress)
    scorer.install(store.read_table(ref), revision=ref.short, report=store.manifest(ref)["metadata"])
    return ref


def refuse_without_vectors(config: ExamplesConfig) -> None:
    """Refuse examples that would have to be embedded, where the documents' vectors are imported.

    Raises:
        ConfigurationError: no column of vectors is named.
    """
    if config.vector_column is None:
        raise ConfigurationError(
            "the documents' embeddings are imported, so examples cannot be embedded here: "
            "give them vectors and name the column in the scorer's option `vector_column`"
        )


def held_out_line(report: Mapping[str, Any]) -> str:
    """One line: the held-out figures, and on how many examples they stand."""
    figures = ", ".join(f"{_FIGURES[name]} {value:.4f}" for name, value in report["held_out"].items())
    trained = report["num_examples"] - report["num_held_out"]
    seconds = report["seconds"]
    return (
        f"held-out {figures} on {report['num_held_out']} of {report['num_examples']} labelled examples; "
        f"the other {trained} trained it in {seconds['fit']:.1f} s after {seconds['embedding']:.1f} s of embedding; "
        f"{report['num_unlabelled']} rows had no text or label"
    )


def _trained(
    builder: ArtefactBuilder, scorer: TrainedScorer, space: VectorSpace, progress: Progress | None
) -> Ref:
    examples = read_examples(scorer.config)
    held_out = _held_out(scorer, examples)
    vectors_ND: NDArray[np.floating[Any]]
    begun = time.perf_counter()
    if examples.vectors_ND is not None:
        vectors_ND = examples.vectors_ND
    else:
        vectors_ND = _embed(_encoder_of(space), examples, builder.scratch() / "windows", progress)
    embedded = time.perf_counter()
    model, report = _fit(scorer, examples, held_out, vectors_ND)
    report["seconds"] = {"embedding": embedded - begun, "fit": time.perf_counter() - embedded}
    part = builder.write_part(PART, model.to_batches(), model.schema)
    return builder.commit([part], metadata=report)


def _held_out(scorer: TrainedScorer, examples: Examples) -> NDArray[np.bool_]:
    """Which examples are held out, once both sides are seen to have labels to learn from and to measure by, if any are.

    Raises:
        InputError: too few examples, or one label alone.
    """
    if not isinstance(scorer.config, HeldOutConfig):
        return np.zeros(len(examples.texts), dtype=bool)
    linear.check_labels(examples.labels_N)
    held_out = linear.held_out_rows(examples.held_by, scorer.config.held_out_share)
    if held_out.all() or not held_out.any():
        raise InputError(
            f"{len(examples.texts)} labelled examples are too few to hold some out",
            remedy="give more examples",
        )
    linear.check_labels(examples.labels_N[~held_out])
    linear.check_held_out(examples.labels_N[held_out])
    return held_out


def _fit(
    scorer: TrainedScorer,
    examples: Examples,
    held_out: NDArray[np.bool_],
    vectors_ND: NDArray[np.floating],
) -> tuple[pa.Table, dict[str, Any]]:
    model = scorer.fit(vectors_ND[~held_out], examples.labels_N[~held_out])
    scorer.restore(model)
    report = {
        "num_examples": len(examples.texts),
        "num_unlabelled": examples.num_unlabelled,
        "num_normalised": examples.num_normalised,
        "num_held_out": int(held_out.sum()),
        "held_out": scorer.figures(vectors_ND[held_out], examples.labels_N[held_out])
        if held_out.any()
        else {},
    }
    return model, report


def _encoder_of(space: VectorSpace) -> EncoderConfig:
    """The encoder's settings, once the model they name is seen to be the one that made the vectors."""
    config = space.encoder
    assert config is not None
    is_named = config.encoder in PRESETS or config.revision or Path(config.encoder).is_dir()
    if not is_named or model_identity(config.spec())[1] != space.revision:
        raise ConfigurationError(
            f"the model that embedded the documents, {space.revision}, is not at {config.encoder!r} any more, so "
            "examples cannot be embedded here: put it back, or train the probe by `datamask probe`, which takes "
            "the configured model"
        )
    return config


def _embed(
    config: EncoderConfig, examples: Examples, checkpoints: Path, progress: Progress | None
) -> NDArray[np.float16]:
    from datamask_pipeline.embedding.encode import embed_windows
    from datamask_pipeline.embedding.encoder import load_encoders

    texts, size = examples.texts, config.window_documents
    windows = (texts[first : first + size] for first in range(0, len(texts), size))
    blocks = []
    batch_tokens = resolve_batch_tokens(config.batch_tokens, config.device)
    for window in embed_windows(
        load_encoders(config), windows, batch_tokens=batch_tokens, checkpoints=checkpoints
    ):
        blocks.append(window.vectors_ND)
        if progress is not None:
            progress("embed labelled examples", sum(map(len, blocks)), len(texts))
    return np.concatenate(blocks)

"""A controlled pool: planted documents beside a collection's own, embedded and scored by the same chain. Knows no arm.

Shape suffixes: N documents of the collection, P planted ones, K known ones, A all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.disk import save_array
from datamask_pipeline.embedding.config import EncoderConfig
from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.collection import Documents, combined_quality
from datamask_pipeline.experiment.planted import (
    KINDS,
    NONE,
    PlantConfig,
    Planted,
    originals_of,
    planted_texts,
)
from datamask_pipeline.ngram.asked import Encode, encoded
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.pipeline.config import config_model
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.settings import validated
from datamask_pipeline.storage import array_files, require

#: Documents of the collection that are embedded and scored again, to see that encoder and scorers are those of before.
_NUM_KNOWN = 16
_LEAST_COSINE = 0.99
_SCORE_TOLERANCE = 1e-4
_PLANTED, _KNOWN = "planted", "known"


@dataclass(frozen=True)
class Made:
    """What the chain made of some texts, in their order."""

    vectors_PD: NDArray[Any]
    scores: Mapping[str, NDArray[np.float64]]


def with_planted(
    documents: Documents,
    config: PlantConfig,
    chain: PipelineConfig,
    first_tokens: int | None,
    encode: Encode,
    end: int,
    draws: np.random.Generator,
    folder: Path,
) -> Documents:
    """The documents, and the planted ones after them.

    Args:
        documents: Whole ones.
        config: What is planted.
        chain: The collection's: its encoder embeds, its scorers score.
        first_tokens: Where documents are cut to so many tokens later, only longer ones are copied and imitated.
        encode: Makes tokens.
        end: The end of a text.
        draws: Draws what is planted.
        folder: Empty; keeps the vectors as long as the documents are used.

    Raises:
        InputError: there are too few good documents, or encoder and scorers are not those of the collection.
    """
    num_known = len(documents.lengths_N)
    offered_N = np.flatnonzero(documents.lengths_N > (first_tokens or 0))
    if not len(offered_N):
        raise InputError(f"no document has more than {first_tokens} tokens", remedy="lower `first_tokens`")
    originals_n = originals_of(config, documents.quality_N, offered_N, draws)
    like = [documents.texts[place] for place in offered_N]
    kinds, texts = zip(
        *planted_texts(config, [documents.texts[place] for place in originals_n], like, draws), strict=True
    )
    known_K = np.unique(np.linspace(0, num_known - 1, _NUM_KNOWN).astype(np.int64))
    made, again = _by_chain(chain, [texts, [documents.texts[place] for place in known_K]], folder)
    refuse_others(documents, known_K, again)
    path = folder / "planted.npy"
    save_array(path, made.vectors_PD.astype(documents.vectors.dtype))
    vectors, num_planted = documents.vectors, len(texts)
    scores = {name: np.concatenate([values, made.scores[name]]) for name, values in documents.scores.items()}
    contents_A = np.full(num_known + num_planted, NONE, np.int64)
    contents_A[originals_n] = np.arange(len(originals_n))
    num_copies = len(originals_n) * config.copies
    contents_A[num_known : num_known + num_copies] = np.repeat(np.arange(len(originals_n)), config.copies)
    tokens = [*documents.tokens, *encoded(texts, encode, end)]
    return Documents(
        tokens,
        [*documents.texts, *texts],
        np.array([len(each) for each in tokens], np.int64),
        combined_quality(scores),
        ShardedVectors(
            [*vectors.files, path],
            np.concatenate(
                [vectors.files_N, np.full(num_planted, len(vectors.files), vectors.files_N.dtype)]
            ),
            np.concatenate([vectors.rows_N, np.arange(num_planted, dtype=vectors.rows_N.dtype)]),
        ),
        scores,
        Planted(np.array([NONE] * num_known + [KINDS.index(kind) for kind in kinds]), contents_A),
        [*documents.domains, *[""] * num_planted] if documents.domains else (),
        {arm: np.append(held_N, np.zeros(num_planted, bool)) for arm, held_N in documents.outside.items()},
    )


def _by_chain(chain: PipelineConfig, sets: Sequence[Sequence[str]], folder: Path) -> list[Made]:
    """Vectors and scores of some texts, by the stages that make them of any crawl."""
    for crawl, texts in zip((_PLANTED, _KNOWN), sets, strict=True):
        (folder / "crawls" / crawl).mkdir(parents=True)
        rows = pa.table({"id": [str(place) for place in range(len(texts))], "text": texts})
        pq.write_table(rows, folder / "crawls" / crawl / "000.parquet")
    embed = chain.embed.model_dump(exclude_unset=True, mode="json")
    if chain.embed.imported_file:
        embed = {name: value for name, value in embed.items() if name in EncoderConfig.model_fields}
    lacking = [name for name in schema.FINEWEB.names if name not in ("id", "text")]
    values = {
        "name": "planted",
        "store": str(folder / "record"),
        "source": {
            "name": "local",
            "options": {"root": str(folder / "crawls"), "optional_columns": lacking},
        },
        "releases": {"planted": {}},
        "embed": embed,
        "score": chain.score.model_dump(exclude_unset=True, mode="json"),
    }
    pipeline = Pipeline(validated(config_model(), values, "chain"))
    for _, _, call in pipeline.steps("planted", "score"):
        call()
    return [_made(pipeline, crawl, len(texts)) for crawl, texts in zip((_PLANTED, _KNOWN), sets, strict=True)]


def _made(pipeline: Pipeline, crawl: str, num_texts: int) -> Made:
    store = pipeline.store
    embeddings = require(store, "embed", crawl)
    places_P = np.array(store.read_table(embeddings, ["id"]).column(0).to_pylist(), np.int64)
    vectors_PD = np.concatenate([np.load(path) for path in array_files(store, embeddings).values()])
    if not np.array_equal(places_P, np.arange(num_texts)):
        raise InputError(f"the chain kept {len(places_P)} of {num_texts} planted texts, and all are needed")
    scores: dict[str, list[float]] = {}
    for row in store.read_table(require(store, "score", crawl)).to_pylist():
        if row["score"] is None:
            raise InputError(
                f"scorer {row['scorer']!r} gives a planted document no score: {row['reason']}",
                remedy="plant where every scorer judges texts or vectors alone",
            )
        scores.setdefault(row["scorer"], []).append(row["score"])
    return Made(vectors_PD, {name: np.array(values) for name, values in scores.items()})


def refuse_others(documents: Documents, known_K: NDArray[np.int64], again: Made) -> None:
    """Refuse vectors or scores that are not the collection's."""
    before_KD = documents.vectors[known_K].astype(np.float64)
    cosines_K = (before_KD * again.vectors_PD.astype(np.float64)).sum(axis=1)
    if not cosines_K.min() >= _LEAST_COSINE:
        raise InputError(
            f"the encoder that embeds planted documents is not the collection's: of {len(known_K)} documents embedded "
            f"again the least alike has a cosine of {cosines_K.min():.4f} to its vector",
            remedy="let the chain compute its embeddings, or import those of its own encoder",
        )
    for name, values_N in documents.scores.items():
        apart = float(np.abs(values_N[known_K] - again.scores[name]).max())
        if apart > _SCORE_TOLERANCE:
            raise InputError(
                f"scorer {name!r} gives {len(known_K)} documents of the collection other scores than before, by up to "
                f"{apart:.4f}",
                remedy="plant where every scorer judges each document by itself",
            )

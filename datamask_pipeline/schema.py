"""The Arrow schema of every table in the record. Knows names and types only."""

from typing import Final

import pyarrow as pa

EMBEDDING_DIM: Final = 768

#: What a vector's numbers are stored as.
EMBEDDING_DTYPE: Final = "float16"

#: The nine columns of FineWeb, in its order.
FINEWEB: Final = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("date", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("token_count", pa.int64()),
    ]
)

#: What ingestion adds to a document: where it came from and what it says.
PROVENANCE: Final = pa.schema(
    [
        ("crawl", pa.string()),
        ("shard", pa.string()),
        ("row", pa.int64()),
        ("content_hash", pa.string()),
    ]
)

#: A document as ingested; columns that a source has beyond these follow after them.
DOCUMENTS: Final = pa.schema([*FINEWEB, *PROVENANCE])

REJECTED: Final = pa.schema(
    [
        ("crawl", pa.string()),
        ("shard", pa.string()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)

#: Whose vectors stand in the array beside the part, row by row; a column for each head of the forward pass follows.
EMBEDDINGS: Final = pa.schema([("id", pa.string()), ("content_hash", pa.string())])

SCORES: Final = pa.schema(
    [
        ("id", pa.string()),
        ("scorer", pa.string()),
        ("score", pa.float64()),
        ("scale_min", pa.float64()),
        ("scale_max", pa.float64()),
        ("model", pa.string()),
        ("revision", pa.string()),
        ("reason", pa.string()),
    ]
)

CANDIDATES: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("crawl", pa.string()),
        ("shard", pa.string()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("content_hash", pa.string()),
        ("domain", pa.string()),
        ("token_count", pa.int64()),
        ("num_copies", pa.int64()),
        ("representative_crawl", pa.string()),
        ("representative_id", pa.string()),
        ("eligible", pa.bool_()),
        ("validation", pa.bool_()),
        ("exclusion", pa.string()),
    ]
)

SELECTION: Final = pa.schema(
    [
        ("crawl", pa.string()),
        ("id", pa.string()),
        ("selected", pa.bool_()),
        ("logit", pa.float64()),
        ("probability", pa.float64()),
        ("quality", pa.float64()),
        ("quality_marginal", pa.float64()),
        ("diversity_marginal", pa.float64()),
        ("threshold", pa.float64()),
        ("reason", pa.string()),
    ]
)

#: Columns the subset carries beside the document's own.
SUBSET_EXTRA: Final = pa.schema(
    [
        ("quality", pa.float64()),
        ("logit", pa.float64()),
        ("probability", pa.float64()),
        ("num_copies", pa.int64()),
        ("release", pa.string()),
        ("arm", pa.string()),
        ("selection_id", pa.string()),
    ]
)

LOSS_CURVE: Final = pa.schema(
    [("step", pa.int64()), ("tokens", pa.int64()), ("learning_rate", pa.float64()), ("loss", pa.float64())]
)

RESULTS: Final = pa.schema(
    [
        ("release", pa.string()),
        ("run", pa.string()),
        ("arm", pa.string()),
        ("architecture", pa.string()),
        ("seed", pa.int64()),
        ("checkpoint", pa.int64()),
        ("task", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("stderr", pa.float64()),
        ("n", pa.int64()),
        ("headline", pa.bool_()),
        ("chance", pa.float64()),
        ("shots", pa.int64()),
        ("version", pa.string()),
        ("question_source", pa.string()),
        ("questions_digest", pa.string()),
        ("num_truncated", pa.int64()),
        ("model_digest", pa.string()),
    ]
)

ANSWERS: Final = pa.schema(
    [
        ("release", pa.string()),
        ("run", pa.string()),
        ("arm", pa.string()),
        ("architecture", pa.string()),
        ("seed", pa.int64()),
        ("checkpoint", pa.int64()),
        ("task", pa.string()),
        ("question_id", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)

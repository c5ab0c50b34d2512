"""Which columns each column of an asset comes from, for Dagster's pages. Knows the record's tables; knows no data.

Some things are in no column: a document's vector, for which stand the shard and row where it lies or the content hash
beside it; a model's weights, for which stands the step at which they were kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

import dagster as dg

from datamask_pipeline import schema

#: Every column of an index that begins so.
_SCORES = "release_index.score_*"
_VECTOR = "release_index.shard release_index.row"
_BOTH = f"{_SCORES} {_VECTOR}"


def _same(asset: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{asset}.{name}" for name in names}


_RESULT = {
    "checkpoint": "pretrained_model.step",
    "value": "pretrained_model.step",
    "stderr": "pretrained_model.step",
}

#: By asset and column, the columns that it is made of, as ``asset.column``. A column that is not named is told by the
#: source, the settings or the step itself. Names with ``*`` stand for every column that begins so.
ORIGINS: Final[Mapping[str, Mapping[str, str]]] = {
    "crawl_documents": {},
    "rejected_documents": {},
    "document_embeddings": {
        **_same("crawl_documents", schema.EMBEDDINGS.names),
        "score_*": "crawl_documents.text",
    },
    "quality_scores": {
        "id": "crawl_documents.id",
        **dict.fromkeys(("score", "reason"), "crawl_documents.text document_embeddings.content_hash"),
    },
    "candidate_documents": {
        **_same("crawl_documents", ("crawl", "shard", "row", "id", "content_hash", "token_count")),
        "position": "crawl_documents.crawl crawl_documents.shard crawl_documents.row",
        "domain": "crawl_documents.url",
        "num_copies": "crawl_documents.content_hash",
        "representative_crawl": "crawl_documents.content_hash crawl_documents.crawl",
        "representative_id": "crawl_documents.content_hash crawl_documents.id",
        "validation": "crawl_documents.content_hash",
        **dict.fromkeys(
            ("eligible", "exclusion"), "crawl_documents.content_hash crawl_documents.id crawl_documents.url"
        ),
    },
    "near_copies": {
        **_same("candidate_documents", ("position", "crawl", "id")),
        "near_copy_of_crawl": "candidate_documents.crawl document_embeddings.content_hash",
        "near_copy_of": "candidate_documents.id document_embeddings.content_hash",
        **dict.fromkeys(("cosine", "num_near_copies"), "document_embeddings.content_hash"),
    },
    "takedown_requests": {},
    "question_texts": {},
    "release_index": {
        **_same("candidate_documents", ("position", "crawl", "id", "domain", "token_count")),
        **dict.fromkeys(("shard", "row"), "document_embeddings.content_hash"),
        "num_near_copies": "near_copies.num_near_copies",
        "score_*": "quality_scores.score",
    },
    "selection_mask": {
        **_same("release_index", ("position", "crawl", "id")),
        **dict.fromkeys(("quality", "quality_marginal"), _SCORES),
        "diversity_marginal": _VECTOR,
        **dict.fromkeys(("selected", "logit", "probability", "threshold", "reason"), _BOTH),
    },
    "learning_curve": dict.fromkeys(("objective", "bound", "gap", "reward_deviation", "update_norm"), _BOTH),
    "fineweb_mask": {
        **_same("crawl_documents", schema.DOCUMENTS.names),
        **_same("selection_mask", ("quality", "logit", "probability")),
        "num_copies": "candidate_documents.num_copies",
        "num_near_copies": "release_index.num_near_copies",
        "selection_id": "selection_mask.selected",
        "score_*": "release_index.",
    },
    "subset_redundancy": {
        **dict.fromkeys(("documents", "pool_documents"), "selection_mask.selected"),
        **dict.fromkeys(
            ("tokens", "without_tokens"), "selection_mask.selected candidate_documents.token_count"
        ),
        "exact_copies": "selection_mask.selected candidate_documents.content_hash",
        "quality_rank": f"selection_mask.selected {_SCORES}",
        **dict.fromkeys(
            ("near_copies", "near_copy_recall", "coverage", "coverage_error"),
            f"selection_mask.selected {_VECTOR}",
        ),
    },
    "ngram_answers": dict.fromkeys(
        ("gold_bits", "gold_probability"), "fineweb_mask.text fineweb_mask.content_hash"
    ),
    "pretrained_model": dict.fromkeys(("tokens", "loss"), "fineweb_mask.text"),
    "benchmark_results": {**_RESULT, "num_truncated": "pretrained_model.step"},
    "benchmark_answers": {
        **{name: _RESULT[name] for name in ("checkpoint", "value")},
        "gold_bits": "pretrained_model.step candidate_documents.validation crawl_documents.text",
        "gold_probability": "pretrained_model.step",
    },
    "comparison_report": _same("benchmark_results", schema.RESULTS.names),
}


def column_lineage(
    asset: str,
    names: Iterable[str],
    names_of: Callable[[str], Iterable[str]],
    unread: Set[str] = frozenset(),
) -> dg.TableColumnLineage:
    """The lineage of every column of an asset; of none where the source, the settings or the step itself tells it.

    Args:
        asset: The asset.
        names: Its columns.
        names_of: The columns of another asset, asked where several are meant by one name.
        unread: Assets that nothing was made of this time.
    """
    origins = ORIGINS.get(asset, {})
    return dg.TableColumnLineage(
        {name: list(_deps(_origin(origins, name), name, names_of, unread)) for name in names}
    )


def _origin(origins: Mapping[str, str], name: str) -> str:
    starred = (value for key, value in origins.items() if key.endswith("*") and name.startswith(key[:-1]))
    return origins.get(name) or next(starred, "")


def _deps(
    origin: str, name: str, names_of: Callable[[str], Iterable[str]], unread: Set[str]
) -> Iterator[dg.TableColumnDep]:
    for one in origin.split():
        asset, column = one.split(".")
        if asset in unread:
            continue
        if column.endswith("*"):
            columns = [found for found in names_of(asset) if found.startswith(column[:-1])]
        else:
            columns = [column or name]
        yield from (dg.TableColumnDep(dg.AssetKey(asset), found) for found in columns)

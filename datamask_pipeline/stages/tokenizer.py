"""Tokenizer: one byte-level BPE for all arms of a release, learnt from a sample of its whole pool.

Learnt from the pool, not from a subset, so that no arm's tokenizer favours that arm.
"""

from collections.abc import Mapping
from typing import Any, Final

import pydantic

from datamask_pipeline import texts
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "tokenizer"
VERSION: Final = "1"
TREE: Final = "tokenizer"


class TokenizerConfig(Settings):
    """The tokenizer shared by a release's models."""

    vocab_size: int = pydantic.Field(4096, ge=300, description="Most entries, special ones included.")
    sample_documents: int = pydantic.Field(
        2000, ge=1, description="Eligible documents the merges are learnt from, chosen by content hash."
    )
    sequence_length: int = pydantic.Field(
        256, ge=8, description="Length the models are trained for, in tokens."
    )


def run(
    config: TokenizerConfig, *, store: Store, release: str, candidates: Ref, documents: Mapping[str, Ref]
) -> Ref:
    """Learn the tokenizer of a release.

    Raises:
        InputError: the release has no eligible document.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    builder = store.begin(STAGE, release, version=VERSION, config=config.result_config(), inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.pretraining.tokenizer import train_tokenizer

    directory = builder.scratch() / TREE
    chosen = texts.pool_documents(store, candidates, documents, "c.eligible", limit=config.sample_documents)
    sample = (text for _, text in chosen)
    tokenizer = train_tokenizer(
        sample, directory, vocab_size=config.vocab_size, sequence_length=config.sequence_length
    )
    tree = builder.write_tree(TREE, directory)
    return builder.commit([], trees=[tree], metadata={"entries": len(tokenizer)})


def amount(manifest: Mapping[str, Any]) -> str:
    """How much was made."""
    return f"{manifest['metadata']['entries']} entries"

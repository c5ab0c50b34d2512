"""Which documents are kept from every arm, for validation.

Knows no text and no files: content hashes in, booleans out.
"""

import hashlib
from collections.abc import Iterable

_SCALE = 2**64


def is_held_out(content_hash: str, share: float, seed: int) -> bool:
    """Whether a document belongs to the validation set.

    The answer depends on the document's content alone, so copies fall on the same side, and adding
    documents moves none.

    Args:
        content_hash: The document's content hash, as recorded at ingestion.
        share: Fraction of all contents held out, in 0..1.
        seed: Another seed holds out another, independent set.
    """
    digest = hashlib.sha256(f"holdout:{seed}:{content_hash}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * _SCALE


def held_out(content_hashes: Iterable[str], share: float, seed: int) -> list[bool]:
    """`is_held_out` of each, in order."""
    return [is_held_out(content_hash, share, seed) for content_hash in content_hashes]

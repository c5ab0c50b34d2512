"""How documents are put into batches. Knows lengths only: no text, no model."""

from collections.abc import Sequence


def compose_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Put documents of like length together.

    The composition depends on the lengths alone, so the same window always gives the same batches.

    Args:
        lengths: Tokens of each document.
        batch_tokens: Most tokens of a batch, padding included; a longer document is a batch by itself.

    Returns:
        Indices of each batch's documents, longest batch first: memory use shows itself at once.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches

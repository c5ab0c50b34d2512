"""What is said where few near-copies are expected to be found. Knows no index."""

from typing import Final

#: A smaller share of the pairs at the threshold is worth a warning, and told beside a number of near-copies.
FEW: Final = 0.95


def about_recall(share: float | None) -> str:
    """What whoever reads a number of near-copies has to know where few of them are found; else nothing."""
    if share is None or share >= FEW:
        return ""
    return f"; of pairs at that cosine {share:.0%} are expected to be found, more of nearer ones"

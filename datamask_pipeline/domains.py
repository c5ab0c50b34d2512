"""The registrable domain of a host, by the public suffix list that comes with a package. Knows no URL and no network."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


def registrable_domain(host: str) -> str:
    """What somebody registered: ``news.example.co.uk`` becomes ``example.co.uk``.

    Args:
        host: A host in lower case; an address of numbers, or a suffix by itself, stays as it is.
    """
    if host.replace(".", "").isdigit() or ":" in host:
        return host
    return _suffixes().privatesuffix(host) or host


@cache
def _suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList

    # Names under suffixes that a company lends (github.io) belong to different people.
    return PublicSuffixList()

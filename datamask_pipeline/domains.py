"""Hosts of URLs, and the registrable domain that a host belongs to: the one owner of both. Knows no document.

A registrable domain is a name that somebody can register, with one label more than a public suffix: `example.co.uk`, and
`alice.github.io`, as the list's private suffixes count. The list comes with the library `publicsuffixlist`; nothing is
fetched.
"""

import functools
import ipaddress
import re
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*://"
_ORIGIN = rf"^{_SCHEME}(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^/:?#]*)"
#: A label of a host in its ASCII form; some hosts have an underscore.
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


def host_sql(url: str) -> str:
    """SQL of a URL's host as the URL spells it, but in lower case; empty where it has none.

    Args:
        url: SQL of the URL, which may be null.
    """
    return f"coalesce(lower(regexp_extract({url}, '{_ORIGIN}', 1)), '')"


def after_host_sql(url: str) -> str:
    """SQL of what follows a URL's host: port (unless it is 80 or 443), path, query."""
    return f"regexp_replace(regexp_replace({url}, '{_ORIGIN}', ''), '^:(80|443)?($|[/?#])', '\\2')"


def split_url(url: str) -> tuple[str, str] | None:
    """Host in its canonical form and what follows it, as the SQL above; ``None`` for no URL with a host."""
    found = re.match(_ORIGIN, url)
    host = canonical_host(found[1]) if found else ""
    return (host, re.sub(r"^:(80|443)?($|[/?#])", r"\2", url[found.end() :])) if found and host else None


def canonical_host(host: str) -> str:
    """A host in lower case and ASCII, without the dot that may end it; one that cannot be spelt so as it came."""
    lowered = host.lower().removesuffix(".")
    if lowered.isascii():
        return lowered
    try:
        return lowered.encode("idna").decode()
    except UnicodeError:
        return lowered


def spellings(host: str) -> list[str]:
    """The ways in which URLs spell a canonical host, in lower case: in ASCII, and in its own script."""
    try:
        return list(dict.fromkeys([host, host.encode("ascii").decode("idna")]))
    except UnicodeError:
        return [host]


def is_host(host: str) -> bool:
    """Whether a canonical host can be one."""
    return _HOST.fullmatch(host) is not None


@functools.lru_cache(maxsize=1 << 16)
def registrable_domain(host: str) -> str:
    """What somebody registered: ``news.example.co.uk`` becomes ``example.co.uk``.

    Args:
        host: A canonical host; an address of numbers, or a suffix by itself, stays as it is.
    """
    if _is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


def is_suffix_of_the_root(host: str) -> bool:
    """Whether a canonical host is a suffix that a registry hands names out under, such as `com` or `co.uk`."""
    return not _is_address(host) and _registries().publicsuffix(host) == host


def list_version() -> str:
    """Which list of public suffixes it is: the library's version, which ends in the list's date."""
    return f"publicsuffixlist {version('publicsuffixlist')}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@functools.cache
def _suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList

    # Names under suffixes that a company lends (github.io) belong to different people.
    return PublicSuffixList()


@functools.cache
def _registries() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(only_icann=True, accept_unknown=False)

"""Hosts of URLs, and the registrable domain that a host belongs to: the one owner of both. Knows no document.

A registrable domain is a name that somebody can register, with one label more than a public suffix: `example.co.uk`, and
`alice.github.io`, as the list's private suffixes count. The list comes with the library `publicsuffixlist`; nothing is
fetched.
"""

import contextlib
import functools
import ipaddress
import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import idna
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import duckdb
    from publicsuffixlist import PublicSuffixList

_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*://"
#: What ends a host, as browsers read URLs: a backslash is a slash, and the last `@` ends the user's name.
_END = r"/?#\\"
_ORIGIN = rf"^[ \t\r\n]*{_SCHEME}(?:[^{_END}]*@)?(\[[^\]{_END}]*\]|[^:{_END}]*)"
_NAMED = _ORIGIN.replace(r"(\[", r"(?P<host>\[", 1)
_PORT = rf"^:(80|443)?($|[{_END}])"
#: A label of a host in its ASCII form; some hosts have an underscore.
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
#: What no host has, such as a full-width colon would become.
_NO_HOST = re.compile(r"[\x00-\x20#/:<>?@\[\\\]^|%\x7f]")


def host_sql(url: str) -> str:
    """SQL of a URL's host in its canonical form; empty where it has none. The connection needs ``define``.

    Args:
        url: SQL of the URL, which may be null.
    """
    spelt = f"lower(regexp_extract({url}, '{_ORIGIN}', 1))"
    # Nearly all are in their canonical form already, which SQL tells much sooner than Python.
    plain = f"regexp_full_match({spelt}, '[a-z0-9._-]*[a-z0-9_-]|')"
    return f"coalesce(CASE WHEN {plain} THEN {spelt} ELSE canonical_host({spelt}) END, '')"


def domain_sql(url: str) -> str:
    """SQL of a URL's host, as ``host_sql``, without the `www.` before a name of several labels."""
    host = host_sql(url)
    return (
        f"CASE WHEN starts_with({host}, 'www.') AND contains({host}[5:], '.') THEN {host}[5:] ELSE {host} END"
    )


def may_respell_sql(url: str) -> str:
    """SQL of whether a URL may spell its host otherwise than in its canonical form, the case of letters aside."""
    return f"(strlen({url}) <> length({url}) OR contains({url}, '['))"


def after_host_sql(url: str) -> str:
    """SQL of what follows a URL's host: port (unless it is 80 or 443), path, query."""
    return f"regexp_replace(regexp_replace({url}, '{_ORIGIN}', ''), '{_PORT}', '\\2')"


def define(connection: "duckdb.DuckDBPyConnection") -> None:
    """Give a database the function that the SQL of hosts calls."""

    def canonical_hosts(hosts: pa.ChunkedArray) -> pa.Array:
        return pa.array([canonical_host(host) for host in hosts.to_pylist()], pa.string())

    connection.create_function("canonical_host", canonical_hosts, ["VARCHAR"], "VARCHAR", type="arrow")


def without_www(host: str) -> str:
    """A canonical host as ``domain_sql`` has it."""
    rest = host.removeprefix("www.")
    return rest if "." in rest else host


def hosts_of(urls: pa.Array) -> Iterator[tuple[str, int]]:
    """The hosts of URLs as ``host_sql`` has them, and how many URLs have each; one may come twice.

    Args:
        urls: URLs, of which some may be null; those without a host are passed over.
    """
    # Up to its third slash a URL says its host, and few of them differ up to there.
    pieces = pc.split_pattern(urls, "/", max_splits=3)
    are_whole = pc.fill_null(pc.greater(pc.list_value_length(pieces), 2), False)
    whole = pieces.filter(are_whole)
    scheme, between, name = (whole.values.take(pc.add(whole.offsets[:-1], place)) for place in range(3))
    are_web = pc.and_(pc.is_in(scheme, value_set=pa.array(["http:", "https:"])), pc.equal(between, ""))
    others = [urls.filter(pc.invert(are_whole)), urls.filter(are_whole).filter(pc.invert(are_web))]
    web = pc.value_counts(name.filter(are_web))
    named = pc.binary_join_element_wise("http:", "", web.field("values"), "/")
    counts = pa.concat_arrays(
        [web.field("counts"), *(pa.array(np.ones(len(each), np.int64)) for each in others)]
    )
    hosts = pc.extract_regex(pa.concat_arrays([named, *others]), _NAMED).field("host")
    for group in (
        pa.table([hosts, counts], ["host", "count"])
        .group_by("host")
        .aggregate([("count", "sum")])
        .to_pylist()
    ):
        if group["host"] and (host := canonical_host(group["host"])):
            yield host, group["count_sum"]


def with_those_above(host: str) -> Iterator[str]:
    """A canonical host and the domains above it: ``a.b.example``, ``b.example``, ``example``."""
    while host:
        yield host
        _, _, host = host.partition(".")


def split_url(url: str) -> tuple[str, str] | None:
    """Host in its canonical form and what follows it, as the SQL above; ``None`` for no URL with a host."""
    found = re.match(_ORIGIN, url)
    host = canonical_host(found[1]) if found else ""
    return (host, re.sub(_PORT, r"\2", url[found.end() :])) if found and host else None


def canonical_host(host: str) -> str:
    """A host in lower case and ASCII, without the dot that may end it; one that cannot be spelt so as it came.

    Names in other scripts become what browsers make of them (UTS 46), addresses of IPv6 their shortest form.
    """
    lowered = host.lower().rstrip(".")
    if lowered.startswith("["):
        with contextlib.suppress(ValueError):
            return f"[{ipaddress.IPv6Address(lowered.strip('[]'))}]"
    if lowered.isascii():
        return lowered
    try:
        # As browsers do: a sign that registries refuse, or a label's underscore, keeps no name from its ASCII form.
        mapped = idna.uts46_remap(lowered, std3_rules=False).rstrip(".")
    except UnicodeError:
        return lowered
    if _NO_HOST.search(mapped):
        return lowered
    labels = mapped.split(".")
    return ".".join(
        label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels
    )


def is_host(host: str) -> bool:
    """Whether a canonical host can be one."""
    return _HOST.fullmatch(host) is not None or (host.startswith("[") and _is_address(host))


@functools.lru_cache(maxsize=1 << 16)
def registrable_domain(host: str) -> str:
    """What somebody registered: ``news.example.co.uk`` becomes ``example.co.uk``.

    Args:
        host: A canonical host; an address of numbers, or a suffix by itself, stays as it is.
    """
    if _is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


def is_public_suffix(host: str) -> bool:
    """Whether names of different people lie under a canonical host: `com`, `co.uk`, `github.io`.

    A name under no known suffix, such as a host of one's own network, is none.
    """
    return not _is_address(host) and _known_suffixes().publicsuffix(host) == host


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
def _known_suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)

"""The host of a URL is the one that a browser would ask, in one spelling, by SQL and by Python alike."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline import domains

HOSTS = {
    "https://example.com/a": ("example.com", "/a"),
    "HTTPS://Me:secret@EXAMPLE.com.:443/a": ("example.com", "/a"),
    "https://a@b@example.com/": ("example.com", "/"),
    "https://example.com\\@evil.org/": ("example.com", "\\@evil.org/"),
    "  https://example.com?x=1": ("example.com", "?x=1"),
    "http://www.example.com:8080": ("www.example.com", ":8080"),
    "https://MÜNCHEN.de/ä": ("xn--mnchen-3ya.de", "/ä"),
    "https://xn--mnchen-3ya.de/": ("xn--mnchen-3ya.de", "/"),
    "https://faß.de/": ("xn--fa-hia.de", "/"),  # not fass.de, which is somebody else's
    "https://例え。テスト/": ("xn--r8jz45g.xn--zckzah", "/"),
    "http://my_shop.BÜCHER.example/": ("my_shop.xn--bcher-kva.example", "/"),
    "http://r3---sn.bücher.example./": ("r3---sn.xn--bcher-kva.example", "/"),
    "http://i❤.ws/": ("xn--i-7iq.ws", "/"),  # no registry takes it any more, and browsers go there
    "http://bücher.example。/": ("xn--bcher-kva.example", "/"),
    "http://example.com：80/": ("example.com：80", "/"),
    "http://[2001:0DB8:0::1]:80/x": ("[2001:db8::1]", "/x"),
    "http://[broken/x": ("[broken", "/x"),
    "http://1.2.3.4/x": ("1.2.3.4", "/x"),
    "urn:uuid:1": None,
    "example.com/a": None,
    "https:///a": None,
    "": None,
}


@pytest.mark.parametrize("url", HOSTS)
def test_sql_and_python_find_the_same_host(url: str) -> None:
    with duckdb.connect() as connection:
        domains.define(connection)
        sql = f"SELECT {domains.host_sql('$1')}, {domains.after_host_sql('$1')}"
        host, rest = connection.execute(sql, [url]).fetchall()[0]
        assert connection.execute(f"SELECT {domains.host_sql('NULL::VARCHAR')}").fetchall() == [("",)]
    expected = HOSTS[url]
    assert domains.split_url(url) == expected
    assert host == (expected[0] if expected else "")
    if expected:
        assert rest == expected[1]
        assert domains.canonical_host(host) == host


def test_a_url_without_the_letters_of_its_host_is_told_for_one() -> None:
    with duckdb.connect() as connection:
        for url, expected in HOSTS.items():
            told = connection.execute(f"SELECT {domains.may_respell_sql('$1')}", [url]).fetchall()
            assert told == [(True,)] or expected is None or expected[0] in url.lower()
        plain = "https://EXAMPLE.com/a"
        assert connection.execute(f"SELECT {domains.may_respell_sql('$1')}", [plain]).fetchall() == [(False,)]


def test_a_domain_is_a_host_without_www() -> None:
    with duckdb.connect() as connection:
        domains.define(connection)
        for host, domain in [
            ("www.example.com", "example.com"),
            ("wwww.example.com", "wwww.example.com"),
            ("www.com", "www.com"),
            ("www.münchen.de", "xn--mnchen-3ya.de"),
            ("[::1]", "[::1]"),
        ]:
            sql = f"SELECT {domains.domain_sql('$1')}"
            assert connection.execute(sql, [f"https://{host}/"]).fetchall() == [(domain,)]
            assert domains.without_www(domains.canonical_host(host)) == domain


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("com", True),
        ("co.uk", True),
        ("github.io", True),
        ("blogspot.com", True),
        ("xn--p1ai", True),
        ("example.com", False),
        ("alice.github.io", False),
        ("localhost", False),
        ("printer.internal", False),
        ("1.2.3.4", False),
        ("[::1]", False),
    ],
)
def test_a_public_suffix_is_known_for_one(host: str, is_one: bool) -> None:
    assert domains.is_public_suffix(host) is is_one


def test_hosts_of_many_urls_are_those_of_each() -> None:
    draws = np.random.default_rng(0)
    pieces = [
        *"/?#\\ @",
        "http:",
        "https:",
        "HTTP:",
        "ftp:",
        "//",
        "a.b",
        "www.x.example",
        "[::1]",
        ":80",
        "é",
        "..",
    ]
    urls: list[str | None] = [*HOSTS, None]
    urls += ["https://" * (number % 2) + "".join(draws.choice(pieces, number % 7)) for number in range(2_000)]
    array = pa.array(["cut off", *urls], pa.string()).slice(1)
    counted: Counter[str] = Counter()
    for host, number in domains.hosts_of(array):
        counted[host] += number
    each = [domains.split_url(url) for url in urls if url is not None]
    assert counted == Counter(found[0] for found in each if found)
    assert len(counted) > 20
    assert list(domains.hosts_of(pa.array([], pa.string()))) == []

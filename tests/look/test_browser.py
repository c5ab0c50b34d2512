"""The browser answers on loopback alone, only to its own name, and shows strangers' text as text."""

import logging
import queue
import re
import socket
import threading
import urllib.error
import urllib.request
from email.message import Message

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.look.serve import serve
from datamask_pipeline.storage import Store


@pytest.fixture
def url(url_of_hostile: str) -> str:
    return url_of_hostile


def get(url: str, *, host: str | None = None, method: str = "GET") -> tuple[int, Message, str]:
    request = urllib.request.Request(url, method=method, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_every_answer_forbids_scripts_frames_and_other_addresses(url: str) -> None:
    for path in ("", "documents?release=first&arm=datamask", "nothing", "documents?stage=none"):
        status, headers, text = get(url + path)
        assert status == (404 if path == "nothing" else 400 if "none" in path else 200)
        rules = headers["Content-Security-Policy"].split("; ")
        assert {
            "default-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        } <= set(rules)
        assert not any("unsafe" in rule or "script" in rule for rule in rules)
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cache-Control"] == "no-store"
        assert "<script" not in text


def test_another_name_for_this_host_is_refused(url: str) -> None:
    assert get(url, host="evil.example")[0] == 400
    assert get(url, host="127.0.0.1.evil.example")[0] == 400
    assert get(url, host="localhost:1")[0] == 200


def test_nothing_but_reading_is_answered(url: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert get(f"{url}documents", method=method)[0] == 405


def test_pages_lead_on_by_links(url: str) -> None:
    _, _, text = get(f"{url}documents?of=first/datamask&view=all")
    first = re.findall(r'<h2 id="d\d+"><a href="([^"]+)"', text)
    (further,) = re.findall(r'href="([^"]+)" rel="next"', text)
    _, _, text = get(url.rstrip("/") + further.replace("&amp;", "&"))
    second = re.findall(r'<h2 id="d\d+"><a href="([^"]+)"', text)
    assert len(first) == 25
    assert second
    assert not set(first) & set(second)
    status, _, text = get(url.rstrip("/") + first[0].replace("&amp;", "&"))
    assert status == 200
    assert "Nearest chosen documents" in text
    assert get(f"{url}find?id=nobody")[2].count("No document of a current crawl") == 1
    assert "Quality and diversity" in get(f"{url}page?release=first&arm=datamask")[2]


@pytest.mark.parametrize(
    "path", ["documents?release=first&arm=datamask&after=x", "documents?release=first&seed=-1", "document?crawl=a&row=x",
             "document?crawl=none&row=1", "documents?release=first", "page?release=none"]
)  # fmt: skip
def test_bad_addresses_are_told_in_a_sentence(url: str, path: str) -> None:
    status, _, text = get(url + path)
    assert status == 400
    assert 'role="alert"' in text
    assert "Traceback" not in text


@pytest.mark.parametrize("stage", ["selection", "pool"])
def test_a_stage_of_an_arm_chosen_without_one_is_told_what_to_choose(url: str, stage: str) -> None:
    """As the form sends it where another stage was shown before."""
    status, _, text = get(f"{url}documents?stage={stage}&of=&view=all&crawl=&text=")
    assert status == 400
    assert "is of one release and arm; choose one of: first/datamask" in text


@pytest.mark.parametrize("stage", ["selection", "pool", "crawl", "rejected"])
def test_what_is_told_of_a_row_is_set_as_prose(url: str, stage: str) -> None:
    of = "&of=first/datamask" if stage in ("selection", "pool") else ""
    _, _, text = get(f"{url}documents?stage={stage}{of}")
    assert "; crawl <bdi>" in text
    assert not re.search(r"\s; crawl", text)


def test_serving_leaves_the_logging_of_the_process_alone(tiny_run) -> None:
    closed = []
    handler = logging.StreamHandler()
    handler.close = lambda: closed.append(handler)  # type: ignore[method-assign]
    told: queue.Queue[str] = queue.Queue()
    threading.Thread(target=serve, args=(tiny_run.store, "127.0.0.1", 0, told.put), daemon=True).start()
    assert get(told.get(timeout=60))[0] == 200
    assert not closed


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "*"])
def test_every_address_at_once_is_refused(tiny_run, host: str) -> None:
    with pytest.raises(ConfigurationError, match="name the one to answer at"):
        serve(tiny_run.store, host, 0, print)


def test_a_taken_port_and_a_foreign_address_are_refused(tiny_run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot answer at 127.0.0.1:{port}"):
            serve(tiny_run.store, "127.0.0.1", port, print)
    with pytest.raises(ConfigurationError, match=r"cannot answer at 192\.0\.2\.1:0"):
        serve(tiny_run.store, "192.0.2.1", 0, print)


def test_the_command_serves_on_loopback_and_warns_of_more(tiny_run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Store, str, int]] = []
    monkeypatch.setattr(
        "datamask_pipeline.look.serve.serve",
        lambda store, host, port, tell: asked.append((store.root, host, port)),
    )
    store = ["-s", f"store={tiny_run.store.root}"]
    quiet = CliRunner().invoke(app, ["look", *store])
    loud = CliRunner().invoke(app, ["look", "--host", "192.0.2.1", "--port", "81", *store])
    assert [call[1:] for call in asked] == [("127.0.0.1", 0), ("192.0.2.1", 81)]
    assert "warning" not in quiet.output
    assert "warning: whoever reaches 192.0.2.1" in loud.output

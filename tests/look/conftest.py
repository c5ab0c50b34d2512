"""The browser over the hostile record, and how tests ask it."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest

from datamask_pipeline.look.serve import serve


@pytest.fixture(scope="session")
def url_of_hostile(hostile: Any) -> str:
    """The browser over the hostile record, answering until the tests end."""
    told: Queue[str] = Queue()
    threading.Thread(target=serve, args=(hostile.store, "127.0.0.1", 0, told.put), daemon=True).start()
    return told.get(timeout=60)


@pytest.fixture(scope="session")
def get() -> Callable[[str], tuple[int, str]]:
    """Status and text of an address."""

    def ask(url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return ask

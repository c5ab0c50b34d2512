"""How tests ask the browser."""

import urllib.error
import urllib.request
from collections.abc import Callable

import pytest


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

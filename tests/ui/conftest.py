"""The Dagster page over the tiny chain, and a real browser to look at it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_chain import write_tiny_config

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
SECONDS_TO_START = 180


@pytest.fixture(scope="session")
def dagster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`dagster dev` on a free port of the loopback interface, with an instance and a record of its own."""
    folder = tmp_path_factory.mktemp("ui")
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DATAMASK_CONFIG": str(write_tiny_config(folder)),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    # From another directory than the checkout: workspace.yaml must work from anywhere.
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "-w", str(ROOT / "workspace.yaml")]
    with (folder / "dagster.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(url, process, folder / "dagster.log")
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of the system's Chromium; what it showed last is kept as ``screenshot.png`` of the test."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("no chromium on this machine; install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(60_000)
        try:
            yield page
        finally:
            page.screenshot(path=tmp_path / "screenshot.png")
            print(f"screenshot: {tmp_path / 'screenshot.png'}")
            browser.close()


def _wait_until_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"dagster dev ended with status {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            with urllib.request.urlopen(f"{url}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"dagster dev did not answer within {SECONDS_TO_START} s:\n{log.read_text()[-4000:]}")

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

import dagster as dg
import pytest
import yaml
from tiny_chain import write_tiny_config

from assets.partitions import CRAWLS, RELEASES, partition_key
from assets.plan import crawl_run
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
SECONDS_TO_START = 180
PORTS_TO_TRY = 3
#: Those by hand whose stages make what a subset is made from.
JOBS_TO_SUBSETS = ("crawl_job", "release_job", "arm_job")
FIRST_CRAWLS = ("tiny-2024-10", "tiny-2024-18")


@pytest.fixture(scope="session")
def ui_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny chain's YAML, with one arm and a rolling release; crawls and Dagster instance lie beside it."""
    path = write_tiny_config(tmp_path_factory.mktemp("ui"))
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["releases"] = {
        "first": {"crawls": list(FIRST_CRAWLS)},
        "web": {"every": "crawl", "given": "first"},
    }
    values |= {"arms": {"datamask": values["arms"]["datamask"]}, "compare": {"baseline": "datamask"}}
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def dagster_home(ui_config: Path) -> Path:
    """The folder of an instance of its own."""
    home = ui_config.parent / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    return home


@pytest.fixture(scope="session")
def dagster_url(ui_config: Path, dagster_home: Path) -> Iterator[str]:
    """`dagster dev` on a free port, with an instance and a record of its own, once its sensor has named the crawls."""
    folder, home = ui_config.parent, dagster_home
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DATAMASK_CONFIG": str(ui_config),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    log = folder / "dagster.log"
    for _ in range(PORTS_TO_TRY):
        url, process = _start(folder, environment, log)
        try:
            if _is_up(url, process, log):
                _wait_for_crawls(home, log)
                yield url
                return
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)  # runs that are under way would hold it up
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
    pytest.fail(f"{PORTS_TO_TRY} ports were free, and taken a moment later")


@pytest.fixture(scope="session")
def first_release(ui_config: Path, dagster_home: Path, dagster_url: str) -> Pipeline:
    """The release `first` up to its subsets, run job by job; the sensor `advance` takes its crawls for done."""
    pipeline, defs = Pipeline(load_config(str(ui_config))), build_defs(config=str(ui_config))
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.add_dynamic_partitions(str(RELEASES.name), ["first"])
        jobs = {group.job: group.scope for group in FLOW.groups if group.job in JOBS_TO_SUBSETS}
        for job, scope in jobs.items():
            for key in pipeline.keys(scope, "first"):
                tags = crawl_run(pipeline, key).tags if scope == "crawl" else {}
                done = defs.resolve_job_def(job).execute_in_process(
                    instance=instance, partition_key=partition_key(scope, key), tags=tags
                )
                assert done.success
    return pipeline


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("no chromium on this machine; install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A page of its own; what it showed last is kept as ``screenshot.png`` of the test."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    try:
        yield page
    finally:
        page.screenshot(path=tmp_path / "screenshot.png")
        print(f"screenshot: {tmp_path / 'screenshot.png'}")
        context.close()


def _start(folder: Path, environment: dict[str, str], log: Path) -> tuple[str, "subprocess.Popen[bytes]"]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # From another directory than the checkout: workspace.yaml must work from anywhere.
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "-w", str(ROOT / "workspace.yaml")]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return f"http://127.0.0.1:{port}", process


def _is_up(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Wait until the page answers; false when another program took the port first."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        if "address already in use" in log.read_text():  # the rest of `dagster dev` lives on without its page
            return False
        if process.poll() is not None:
            pytest.fail(f"dagster dev ended with status {process.returncode}:\n{log.read_text()[-4000:]}")
        try:
            with urllib.request.urlopen(f"{url}/server_info", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"dagster dev did not answer within {SECONDS_TO_START} s:\n{log.read_text()[-4000:]}")


def _wait_for_crawls(home: Path, log: Path) -> None:
    """Wait for the sensor `discover`, whose tick a page that is open already may not show."""
    deadline = time.monotonic() + SECONDS_TO_START
    with dg.DagsterInstance.from_config(str(home)) as instance:
        while not instance.get_dynamic_partitions(str(CRAWLS.name)):
            if time.monotonic() > deadline:
                pytest.fail(f"no crawl was named within {SECONDS_TO_START} s:\n{log.read_text()[-4000:]}")
            time.sleep(0.5)

"""Who works on a crawl's shards beside this process: processes of this machine, or Ray tasks. Knows no stage.

Nobody hands out shards: each worker takes those that nobody else is at (`stages.shards`), and this process is one of them.
So a worker that is lost costs its shard's time, and no more.
"""

import contextlib
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import num_cores
from datamask_pipeline.interrupts import uninterrupted
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.stages import select

logger = logging.getLogger(__name__)

#: For so long, once nothing is missing, Ray tasks may take to end by themselves.
LAST_SECONDS = 10

_NO_RAY: Final = (
    "compute.engine: ray is not installed; pip install 'datamask-pipeline[ray]', or take engine `processes`"
)

#: For so long an address may take to answer.
ANSWER_SECONDS: Final = 10

#: Addresses that Ray itself looks up on this machine.
_FOUND_BY_RAY: Final = ("auto", "local")

#: What a worker needs to know, as JSON: configuration, stage, key, overrides, working folder, and where to begin.
Job = dict[str, Any]


class Crew:
    """Workers beside this process.

    Args:
        config: The chain; each worker builds its own from it.
        start: Where this process begins in a list of shards; the others begin at equal distances from it.
    """

    def __init__(self, config: PipelineConfig, start: float) -> None:
        self._config, self._start = config, start

    @contextlib.contextmanager
    def at(
        self, stage: str, key: str, overrides: Mapping[str, Any] | None, shards: Sequence[str]
    ) -> Iterator[None]:
        """Inside it, the workers are at the shards of a stage and key; each ends when none is missing.

        Args:
            stage: The stage.
            key: The crawl.
            overrides: Settings that win over the configured ones.
            shards: What there is to do; no more workers come than there are shards.

        Raises:
            ConfigurationError: Ray is asked for and not installed.
        """
        num_workers = min(self._config.compute.workers, len(shards))
        if num_workers < 2:
            yield
            return
        values = self._config.model_dump(mode="json", exclude_unset=True)
        jobs = [
            {
                "config": values,
                "stage": stage,
                "key": key,
                "overrides": dict(overrides or {}),
                "folder": os.getcwd(),
                "start": (self._start + number / num_workers) % 1.0,
            }
            for number in range(1, num_workers)
        ]
        workers = _ray_tasks if self._config.compute.engine == "ray" else _processes
        with workers(jobs, self._config.compute.address):
            yield


def refuse_missing_engine(config: PipelineConfig, stages: Collection[str]) -> None:
    """Refuse an engine that is not installed here or whose address does not answer, where some stages would use it.

    Args:
        config: Every setting.
        stages: The stages' names.

    Raises:
        ConfigurationError: Ray is not installed, or what is wrong with `compute.address`.
    """
    compute = config.compute
    shared = select.STAGE in stages and any(config.select_config(arm).over == "shards" for arm in config.arms)
    if compute.engine != "ray" or (compute.workers < 2 and not shared):
        return
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError(_NO_RAY)
    if compute.address is not None and compute.address not in _FOUND_BY_RAY:
        _refuse_silent(compute.address)


def idle_engine(config: PipelineConfig) -> Iterator[str]:
    """A line where Ray is asked for and this process works on shards alone."""
    if config.compute.engine == "ray" and config.compute.workers < 2:
        yield "compute.workers is 1: this process works on shards alone, without Ray; raise it"


def _refuse_silent(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself waits for minutes, and then ends this process.

    One of a scheme that Ray does not have by itself is left to it.
    """
    scheme, mark, _ = address.partition("://")
    if mark and scheme != "ray":
        return
    try:
        place = urllib.parse.urlsplit(address if mark else f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:  # no number, or none that a port may have
        host = port = None
    if not host or not port:
        raise ConfigurationError(
            f"compute.address: {address!r} names no host and port; give `auto`, host:6379 or ray://host:10001"
        )
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise ConfigurationError(
            f"compute.address: no Ray cluster answers at {address!r} ({error}); start one there with `ray start --head`, or "
            "leave compute.address out for one on this machine"
        ) from error


def work(job: Job) -> None:
    """What a worker does."""
    from datamask_pipeline.pipeline.chain import Pipeline
    from datamask_pipeline.pipeline.config import config_model
    from datamask_pipeline.settings import validated

    try:
        os.chdir(job["folder"])  # paths of a configuration are relative to where the run was started
    except OSError as error:
        raise ConfigurationError(
            f"compute: {job['folder']}, where the run was started, cannot be reached by a worker ({error}); start it in a "
            "folder that all machines share"
        ) from error
    pipeline = Pipeline(validated(config_model(), job["config"]), start=job["start"])
    pipeline.help_with(job["stage"], job["key"], job["overrides"])


@contextlib.contextmanager
def _processes(jobs: Sequence[Job], address: str | None) -> Iterator[None]:
    threads = str(max(1, num_cores() // (len(jobs) + 1)))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    command = [sys.executable, "-m", "datamask_pipeline.pipeline.worker"]
    with uninterrupted():
        workers = [subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) for _ in jobs]
    try:
        for worker, job in zip(workers, jobs, strict=True):
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # one that has ended already is told below
                worker.stdin.write(json.dumps(job).encode() + b"\n")
                worker.stdin.flush()  # and left open: a worker ends when it is closed, as by the end of this process
        yield
        for worker in workers:
            if worker.wait():
                logger.warning(
                    "a worker ended with status %d; its shards were done by others", worker.returncode
                )
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()


@contextlib.contextmanager
def _ray_tasks(jobs: Sequence[Job], address: str | None) -> Iterator[None]:
    try:
        from ray import cancel, get, remote, wait
        from ray.exceptions import RayError
    except ImportError:
        raise ConfigurationError(_NO_RAY) from None
    from datamask_pipeline.selection.shards.ray_actors import join

    join(address)
    task = remote(max_retries=0)(work)
    running = [task.remote(job) for job in jobs]
    try:
        yield
        # Nothing is left to do: a task that found no place in the cluster, e.g. as its node was lost, may never begin.
        ended, running = wait(running, num_returns=len(running), timeout=LAST_SECONDS)
        for reference in ended:
            try:
                get(reference)
            except RayError as error:
                logger.warning(
                    "a Ray task was lost; its shards were done by others: %s", str(error).partition("\n")[0]
                )
    finally:
        # Not by force: Ray 2.60 takes this process down where the answer of a task that it killed comes in.
        for reference in running:
            cancel(reference)

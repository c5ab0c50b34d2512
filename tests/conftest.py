"""Chains that every end-to-end test can share; their data are made in `tiny_chain` and `hostile_chain`."""

import gc
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from hypothesis import settings
from tiny_chain import write_tiny_config

from datamask_pipeline.hardware import num_cores
from datamask_pipeline.pipeline import Pipeline, PipelineConfig, load_config

# Most of what is imported while tests are collected stays; nothing of it is looked through until then.
gc.disable()

# The same examples every time, however slow the machine.
settings.register_profile("exact", deadline=None, derandomize=True)
settings.load_profile("exact")


#: Files whose few tests take longest.
LONGEST = (
    "test_chaos.py",
    "test_s3_record.py",
    "test_two_machines.py",
    "test_given_release.py",
    "test_kill.py",
)


#: Folders whose tests share what takes long to make: one process runs all of each.
TOGETHER = ("assets", "compliance", "look", "pipeline", "publish")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some tests wait, for servers, leases and other processes."""
    return num_cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files, or whole folders, for each process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = file.removeprefix("tests/").partition("/")[0]
            return folder if folder in TOGETHER else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked ``sampled(n)`` all but n cases are slow: always the same, drawn by the test's name.

    Files of few long tests come first, so that no process works on one alone at the end.
    """
    items.sort(key=lambda item: item.path.name not in LONGEST)
    cases = defaultdict(list)
    for item in items:
        if (sampled := item.get_closest_marker("sampled")) and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0], sampled.args[0]].append(item)
    for (name, number), of_a_test in cases.items():
        kept = random.Random(name).sample(range(len(of_a_test)), min(number, len(of_a_test)))
        for place in set(range(len(of_a_test))).difference(kept):
            of_a_test[place].add_marker("slow")


def pytest_collection_finish() -> None:
    """What was imported by now stays: the garbage collector would go through it again after every few tests."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Whose modules are told at the end what was left of them finds it gone."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def no_current_instance() -> Iterator[None]:
    """Dagster's current instance is one variable of a process. An instance that was entered and never left sets it back
    when it is collected, whatever test is running then, to one that may be gone: here none is ever current."""
    from dagster._core.storage.defs_state import base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "set_defs_state_storage", lambda _: nullcontext())
        yield


@pytest.fixture(scope="session")
def tiny_config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny chain's YAML; its record is empty until `tiny_run` has run."""
    return write_tiny_config(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_config(tiny_config_file: Path) -> PipelineConfig:
    """The tiny chain's settings."""
    return load_config(str(tiny_config_file))


@pytest.fixture(scope="session")
def tiny_run(tiny_config: PipelineConfig) -> Pipeline:
    """The tiny chain, run once in plain Python; treat its record as read-only."""
    pipeline = Pipeline(tiny_config)
    for _, _, call in pipeline.steps("first"):
        call()
    return pipeline


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `hostile_chain.Hostile`: the chain over documents that carry payloads; treat its record as read-only."""
    from hostile_chain import hostile_run  # here, as it imports Dagster

    with hostile_run(tmp_path_factory.mktemp("hostile")) as run:
        yield run


@pytest.fixture(scope="session")
def url_of_hostile(hostile: Any) -> str:
    """The browser over the hostile record, answering until the tests end."""
    from datamask_pipeline.look.serve import serve

    told: Queue[str] = Queue()
    threading.Thread(target=serve, args=(hostile.store, "127.0.0.1", 0, told.put), daemon=True).start()
    return told.get(timeout=60)

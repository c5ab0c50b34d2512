"""Ray tasks at one crawl's shards, of which one is killed, or its node removed: only what was missing is done again."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_kill import digests

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder, Store

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without a processor for tasks."""
    from ray import shutdown
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_raylet_start_wait_time_s", "300")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield cluster
        shutdown()
        cluster.shutdown()


def others_at_work(builder: ArtefactBuilder) -> list[int]:
    """The processes, this one left out, that hold a shard of the artefact and have not finished it."""
    shards = Path(builder.store.root) / ".leases" / builder.stage / builder.key / "shards"
    found = []
    for folder in shards.iterdir():
        _, content = builder.store.leases.newest(str(folder))
        lease = json.loads(content)
        if not lease["free"] and lease["holder"]["pid"] != os.getpid() and builder.part(folder.name) is None:
            found.append(int(lease["holder"]["pid"]))
    return found


def parts(store: Store) -> dict[str, int]:
    """Of every part that is there, which file it is: one that is written again is another."""
    found = (path.with_suffix("") for path in Path(store.root).rglob("*.parquet.json"))
    return {str(path): path.stat().st_ino for path in found}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("lost", ["worker", "node"])
def test_a_run_on_ray_ends_by_itself_when_a_worker_or_its_node_is_lost(
    cluster: Any,
    many_shards: Path,
    alone: dict[str, tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
    seed: int,
) -> None:
    nodes = [cluster.add_node(num_cpus=2)]
    record, chance = tmp_path / "record", random.Random(seed)
    compute = {"engine": "ray", "workers": 3, "address": cluster.address}
    pipeline = Pipeline(load_config(str(many_shards), {"store": str(record), "compute": compute}))
    write, before = ArtefactBuilder.write_array, chance.randrange(2)
    whole: list[dict[str, int]] = []
    begun: list[str] = []

    def once_a_task_is_at_work(self: ArtefactBuilder, name: str, *arguments: Any, **options: Any) -> Any:
        """This process's first or second shard waits for a task at another one; then that task is lost."""
        begun.append(name)
        end = time.monotonic() + 200
        while len(begun) > before and not whole and time.monotonic() < end:
            if others := others_at_work(self):
                time.sleep(chance.random() / 4)
                if lost == "node":
                    cluster.remove_node(nodes.pop(), allow_graceful=False)
                else:
                    os.kill(chance.choice(others), signal.SIGKILL)
                whole.append(parts(self.store))
            time.sleep(0.05)
        return write(self, name, *arguments, **options)

    try:
        for stage, _, call in pipeline.steps("first", "materialise"):
            with monkeypatch.context() as patched:
                if stage == "embed" and not whole:
                    patched.setattr(ArtefactBuilder, "write_array", once_a_task_is_at_work)
                call()
    finally:
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert whole, "no task came to a shard of its own"
    assert digests(pipeline.store) == alone
    now = parts(pipeline.store)
    assert {path: now[path] for path in whole[0]} == whole[0], "a shard that was there was done again"
    assert len(now) > len(whole[0])

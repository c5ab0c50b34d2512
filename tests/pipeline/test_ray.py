"""Ray tasks at one crawl's shards, on two nodes, of which one is lost: the digests are those of one process."""

import time
from pathlib import Path
from typing import Any

import pytest
from test_kill import digests

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_run_on_ray_ends_by_itself_when_a_node_is_lost(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import shutdown
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=2)]
        record = tmp_path / "record"
        compute = {"engine": "ray", "workers": 3, "address": cluster.address}
        pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(record), "compute": compute}))
        write = ArtefactBuilder.write_array
        lost: list[Any] = []

        def after_a_task_has_begun(self: ArtefactBuilder, *arguments: Any, **options: Any) -> Any:
            """This process's first shard waits for a task at another one; then that task's node is removed."""
            shards = record / ".leases" / self.stage / self.key / "shards"
            end = time.monotonic() + 200
            while nodes and time.monotonic() < end:
                if len([path for path in shards.iterdir() if self.part(path.name) is None]) > 1:
                    lost.append(nodes.pop())
                    cluster.remove_node(lost[0], allow_graceful=False)
                time.sleep(0.05)
            return write(self, *arguments, **options)

        for stage, _, call in pipeline.steps("first", "materialise"):
            with monkeypatch.context() as patched:
                if stage == "embed":
                    patched.setattr(ArtefactBuilder, "write_array", after_a_task_has_begun)
                call()
        assert lost, "no task came to a shard of its own"
        made, whole = digests(pipeline.store), digests(tiny_run.store)
        assert made == {name: whole[name] for name in made}
        assert any(name.startswith("materialise/") for name in made)
    finally:
        shutdown()
        cluster.shutdown()

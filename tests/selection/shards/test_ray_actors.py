"""Ray actors on one node and on two make the bytes of one process; a lost one is told of."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.errors import ConfigurationError, LostMemberError
from datamask_pipeline.selection.shards import ray_actors
from datamask_pipeline.selection.shards.api import jobs_of, over_shards, select_over_shards
from datamask_pipeline.selection.shards.ray_actors import RayActors
from datamask_pipeline.selection.shards.source import numbered


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_actors_on_one_node_and_on_two_make_the_bytes_of_one_process(
    cut: Any, budgets: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import kill, nodes, shutdown
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")
    # On raw values: a scale takes hundreds of journeys more.
    settings = {"chunk_rows": 64, "diversity": "DiSF_uncentred", "num_steps": 3, "normalisation": "none"}
    one = select_over_shards(cut(), tmp_path / "one", engine="here", **settings)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for number in (1, 2):
            folder = tmp_path / f"nodes-{number}"
            found = select_over_shards(
                cut((0, 300), (1, 0)),
                folder,
                workers=1 + number,
                engine="ray",
                address=cluster.address,
                **settings,
            )
            assert len([node for node in nodes() if node["Alive"]]) == number
            assert found.objective == one.objective
            for file in sorted(one.folder.glob("*.npy")):
                assert (folder / file.name).read_bytes() == file.read_bytes()
            if number == 1:
                cluster.add_node(num_cpus=2)
                cluster.wait_for_nodes()
        # Token budgets and quotas, on the default scale of one metric; five members find four processors.
        monkeypatch.setattr(ray_actors, "PLACE_SECONDS", 20)
        for kind, metric, workers in (("tokens", "Pair_simi", 5), ("quotas", "DiSF_uncentred", 2)):
            wanted = {"chunk_rows": 64, "num_steps": 3, "diversity": metric, **budgets[kind]}
            if metric == "DiSF_uncentred":
                wanted["normalisation"] = "none"
            alone = select_over_shards(cut(), tmp_path / f"{kind}-one", engine="here", **wanted)
            folder = tmp_path / kind
            select_over_shards(
                cut((0, 640)), folder, workers=workers, engine="ray", address=cluster.address, **wanted
            )
            for file in sorted(alone.folder.glob("*.npy")):
                assert (folder / file.name).read_bytes() == file.read_bytes()
        config, _ = over_shards(None, settings)
        with RayActors(jobs_of(numbered(cut()), config, 2), cluster.address) as team:
            team.ask("open")
            kill(team._actors[1])
            with pytest.raises(LostMemberError, match="actor 1 of 2 that held documents was lost"):
                team.ask("open")
        # One that is lost in the midst of a selection is made good.
        send, journeys = RayActors._send, itertools.count()

        def lose_one(self: RayActors, steps: Any) -> Any:
            if next(journeys) == 5:
                kill(self._actors[0])
            return send(self, steps)

        monkeypatch.setattr(RayActors, "_send", lose_one)
        folder = tmp_path / "lost"
        select_over_shards(cut(), folder, workers=2, engine="ray", address=cluster.address, **settings)
        for file in sorted(one.folder.glob("*.npy")):
            assert (folder / file.name).read_bytes() == file.read_bytes()
    finally:
        shutdown()
        cluster.shutdown()


def test_a_cluster_that_ray_does_not_find_is_told_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    ray = types.ModuleType("ray")
    vars(ray).update(init=init, is_initialized=lambda: False, kill=None, remote=None, wait=None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    told = r"no Ray cluster was found at 'auto' \(Could not find .* `ray start --head`"
    with pytest.raises(ConfigurationError, match=told), RayActors([{}], "auto"):
        pass
    with pytest.raises(ConnectionError), RayActors([{}], None):  # one of its own: no address is at fault
        pass

"""Two ranks of torch.distributed make the bytes of one process; a fault of one of them ends both."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.shards.api import select_over_shards

FOLLOWER = """
import sys
from datamask_pipeline.selection.shards.ranks import follow
import torch.distributed as dist

dist.init_process_group("gloo", init_method=sys.argv[1], rank=1, world_size=2)
for _ in range(int(sys.argv[2])):
    follow()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "budgeted",
    [
        {"documents": "Pair_simi", "quotas": "DiSF_uncentred"},
        pytest.param({"tokens": "Pair_simi"}, marks=pytest.mark.slow),
        pytest.param({"documents": "DiSF_uncentred"}, marks=pytest.mark.slow),
        pytest.param({"documents": "Facility"}, marks=pytest.mark.slow),
    ],
    ids=lambda of: ", ".join(of.values()),
)
def test_two_ranks_make_the_bytes_of_one_process(
    budgeted: dict[str, str], cut: Any, budgets: dict[str, Any], tmp_path: Path
) -> None:
    whole = replace(cut()[0], num_rows=600)
    missing = replace(whole, quality={"quality": tmp_path / "none.npy"})
    asked = {
        kind: {"chunk_rows": 64, "diversity": metric, **budgets[kind]}
        | ({"normalisation": "none"} if metric == "Facility" else {"num_steps": 4})
        for kind, metric in budgeted.items()
    }
    alone = {
        kind: select_over_shards([whole], tmp_path / f"{kind}-one", engine="here", **wanted)
        for kind, wanted in asked.items()
    }
    meet = f"file://{tmp_path}/meet"
    other = subprocess.Popen([sys.executable, "-c", FOLLOWER, meet, str(len(asked) + 1)])
    dist.init_process_group("gloo", init_method=meet, rank=0, world_size=2)
    try:
        with pytest.raises(InputError, match=r"none\.npy"):
            select_over_shards([missing], tmp_path / "two", engine="ranks", **next(iter(asked.values())))
        for kind, wanted in asked.items():
            select_over_shards([whole], tmp_path / kind, engine="ranks", **wanted)
        assert other.wait(timeout=60) == 0
    finally:
        other.kill()
        other.wait()
        dist.destroy_process_group()
    for kind, found in alone.items():
        for file in sorted(found.folder.glob("*.npy")):
            assert (tmp_path / kind / file.name).read_bytes() == file.read_bytes()


def test_ranks_need_a_job(cut: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="torchrun"):
        select_over_shards(cut(), tmp_path, engine="ranks")

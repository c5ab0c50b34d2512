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
for _ in range(5):
    follow()
dist.destroy_process_group()
"""


def test_two_ranks_make_the_bytes_of_one_process(cut: Any, budgets: dict[str, Any], tmp_path: Path) -> None:
    whole = replace(cut()[0], num_rows=600)
    shard = replace(whole, token_counts=None, groups=None)
    missing = replace(whole, quality={"quality": tmp_path / "none.npy"})
    settings = {"chunk_rows": 64, "diversity": "DiSF_uncentred", "num_steps": 4}
    others = {"chunk_rows": 64, "diversity": "Facility", "normalisation": "none"}
    one = select_over_shards([shard], tmp_path / "one", engine="here", **settings)
    other_one = select_over_shards([shard], tmp_path / "other-one", engine="here", **others)
    budgeted = {
        kind: {"chunk_rows": 64, "num_steps": 4, "diversity": metric, **budgets[kind]}
        for kind, metric in (("tokens", "Pair_simi"), ("quotas", "DiSF_uncentred"))
    }
    of_budgets = {
        kind: select_over_shards([whole], tmp_path / f"{kind}-one", engine="here", **wanted)
        for kind, wanted in budgeted.items()
    }
    meet = f"file://{tmp_path}/meet"
    other = subprocess.Popen([sys.executable, "-c", FOLLOWER, meet])
    dist.init_process_group("gloo", init_method=meet, rank=0, world_size=2)
    try:
        with pytest.raises(InputError, match=r"none\.npy"):
            select_over_shards([missing], tmp_path / "two", engine="ranks", **settings)
        select_over_shards([shard], tmp_path / "two", engine="ranks", **settings)
        select_over_shards([shard], tmp_path / "other-two", engine="ranks", **others)
        for kind, wanted in budgeted.items():
            select_over_shards([whole], tmp_path / kind, engine="ranks", **wanted)
        assert other.wait(timeout=60) == 0
    finally:
        other.kill()
        other.wait()
        dist.destroy_process_group()
    for found, folder in (
        (one, "two"),
        (other_one, "other-two"),
        *((of_budgets[kind], kind) for kind in of_budgets),
    ):
        for file in sorted(found.folder.glob("*.npy")):
            assert (tmp_path / folder / file.name).read_bytes() == file.read_bytes()


def test_ranks_need_a_job(cut: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="torchrun"):
        select_over_shards(cut(), tmp_path, engine="ranks")

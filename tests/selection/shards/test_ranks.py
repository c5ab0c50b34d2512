"""Two ranks of torch.distributed make the bytes of one process; a fault of one of them ends both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.shards.api import select_over_shards

PROGRAM = """
import sys
from datamask_pipeline.errors import InputError
from datamask_pipeline.selection.shards.api import select_over_shards
from datamask_pipeline.selection.shards.ranks import follow
from datamask_pipeline.selection.shards.source import Shard
import torch.distributed as dist

rank, folder, data = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
quality = {"quality": f"{data}/quality.npy"}
missing = [Shard(vectors=f"{data}/vectors.npy", quality={"quality": f"{data}/none.npy"})]
whole = [Shard(vectors=f"{data}/vectors.npy", quality=quality)]
for shards in (missing, whole):
    if rank:
        follow()
        continue
    try:
        select_over_shards(
            shards, f"{folder}/two", engine="ranks", chunk_rows=64, diversity="DiSF_uncentred", num_steps=4
        )
    except InputError as error:
        assert "none.npy" in str(error), error
        print("refused")
dist.destroy_process_group()
"""


def test_two_ranks_make_the_bytes_of_one_process(cut: Any, tmp_path: Path) -> None:
    (shard,) = cut()
    shard = shard.__class__(vectors=shard.vectors, quality=shard.quality)
    settings = {"chunk_rows": 64, "diversity": "DiSF_uncentred", "num_steps": 4}
    one = select_over_shards([shard], tmp_path / "one", engine="here", **settings)
    command = [sys.executable, "-c", PROGRAM]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path), str(Path(shard.vectors).parent)], stdout=subprocess.PIPE
        )
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert b"refused" in told[0]
    for file in sorted(one.folder.glob("*.npy")):
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()


def test_ranks_need_a_job(cut: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="torchrun"):
        select_over_shards(cut(), tmp_path, engine="ranks")

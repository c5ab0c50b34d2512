"""Members as ranks of a job of ``torch.distributed``: the first one leads, all others follow. Knows no step.

What travels goes over gloo, whatever the job's own backend is: it is whole numbers, added on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.selection.shards.member import Answer, Member
from datamask_pipeline.selection.shards.team import Step, Sums, Team, raise_told, told_error
from datamask_pipeline.selection.shards.wire import Message, pack, unpack


def num_ranks() -> int:
    """Ranks of the job.

    Raises:
        ConfigurationError: this process is in none, or is not its first rank.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ConfigurationError(
            "engine `ranks` needs a job of torch.distributed: start it with torchrun, and call init_process_group first"
        )
    if dist.get_rank() != 0:
        raise ConfigurationError(
            "rank 0 selects over shards; every other rank calls selection.shards.ranks.follow()"
        )
    return dist.get_world_size()


class Ranks(Team):
    """All ranks of the job; this one, the first, is a member too.

    Args:
        jobs: One for each rank.
    """

    def __init__(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.num_members, self._jobs = len(jobs), jobs

    def __enter__(self) -> Self:
        self._group = dist.new_group(backend="gloo")
        _broadcast(self._group, {"jobs": [dict(job) for job in self._jobs]})
        self._member = Member(self._jobs[0]).__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._member.__exit__(*failure)
        _broadcast(self._group, {"end": True})

    def _send(self, steps: list[Step]) -> tuple[Sums, list[dict[str, Any]]]:
        _broadcast(self._group, {"steps": steps})
        sums, told = _exchanged(self._group, self._member, steps)
        for answer in told:
            if "error" in answer:
                raise_told(answer["error"])
        return sums, [answer["parts"] for answer in told]


def follow() -> None:
    """What every rank but the first does while that one selects over shards."""
    group = dist.new_group(backend="gloo")
    with Member(_broadcast(group)["jobs"][dist.get_rank()]) as member:
        while "end" not in (message := _broadcast(group)):
            _exchanged(group, member, message["steps"])


def _broadcast(group: Any, message: Message | None = None) -> Message:
    """What the first rank says."""
    data = b"" if message is None else pack(message)
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0, group)
    payload = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(int(size), dtype=torch.uint8)
    )
    dist.broadcast(payload, 0, group)
    return message if message is not None else unpack(payload.numpy().tobytes())


def _exchanged(group: Any, member: Member, steps: Sequence[Step]) -> tuple[Sums, list[dict[str, Any]]]:
    """Some steps of this rank, and the answers of all, which only the first one gets."""
    sums: Sums = {}
    try:
        answer: Answer = member.answer(steps)
        sums, told = answer[0], {"parts": answer[1]}
    except DataMaskError as error:
        told = {"error": told_error(error)}
    data = pack(told)
    own = torch.tensor([len(data), "error" in told])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group)
    longest = max(int(one[0]) for one in every)
    payload = torch.zeros(longest, dtype=torch.uint8)
    payload[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    leads = dist.get_rank(group) == 0
    found = [torch.empty_like(payload) for _ in every] if leads else None
    dist.gather(payload, found, 0, group=group)
    if not any(int(one[1]) for one in every):
        for name in sorted(sums):
            numbers = torch.from_numpy(np.ascontiguousarray(sums[name]))
            dist.reduce(numbers, 0, dist.ReduceOp.SUM, group)
            sums[name] = numbers.numpy()
    if found is None:
        return {}, []
    return sums, [
        unpack(data.numpy().tobytes()[: int(one[0])]) for data, one in zip(found, every, strict=True)
    ]

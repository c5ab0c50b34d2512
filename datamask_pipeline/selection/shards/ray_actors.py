"""Members as Ray actors, on whatever nodes Ray has. Knows no step; loads Ray when it is asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from datamask_pipeline.errors import ConfigurationError, DataMaskError, LostMemberError
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.shards.member import Answer, Member
from datamask_pipeline.selection.shards.team import Step, Sums, Team, added, raise_told, told_error
from datamask_pipeline.selection.shards.wire import pack, unpack

logger = logging.getLogger(__name__)

#: For so long an actor may wait for a processor of its own; then it begins beside others.
PLACE_SECONDS = 60


def join(address: str | None) -> None:
    """Make this process one of a Ray cluster's, unless it is already.

    Args:
        address: The cluster's; none for one of its own.

    Raises:
        ConfigurationError: there is no such cluster.
    """
    from ray import init, is_initialized

    if is_initialized():
        return
    own = {} if address else {"include_dashboard": False}
    try:
        init(address=address, log_to_driver=False, **own)
    except (ConnectionError, ValueError) as error:
        if address is None:
            raise
        raise ConfigurationError(
            f"address: no Ray cluster was found at {address!r} ({error}); start one with `ray start --head`, or leave "
            "`address` out for one on this machine; one that was started with token authentication, as newer Ray does by "
            "itself, answers where RAY_AUTH_MODE=token is set"
        ) from error


class Actor:
    """A member that is asked in bytes.

    Args:
        job: Packed.
    """

    def __init__(self, job: bytes) -> None:
        self._member = Member(unpack(job)["job"]).__enter__()

    def begun(self) -> None:
        """Answers once this actor has found its place."""

    def answer(self, message: bytes) -> bytes:
        """Do some steps; an error is told, not raised."""
        try:
            sums, parts = self._member.answer(unpack(message)["steps"])
        except DataMaskError as error:
            return pack({"error": told_error(error)})
        return pack({"sums": sums, "parts": parts})


class RayActors(Team):
    """One actor a member, spread over the nodes; each takes a processor, or shares one where none is free.

    Args:
        jobs: One for each member.
        address: Of a cluster; none for the one that this process is in, or else one of its own.
    """

    def __init__(self, jobs: Sequence[Mapping[str, Any]], address: str | None) -> None:
        super().__init__()
        self.num_members, self._jobs, self._address = len(jobs), jobs, address

    def __enter__(self) -> Self:
        try:
            from ray import kill, remote, wait
        except ImportError:
            raise ConfigurationError(
                "engine `ray` is not installed; pip install 'datamask-pipeline[ray]', or take engine `processes`"
            ) from None
        join(self._address)
        jobs = [pack({"job": dict(job)}) for job in self._jobs]
        on_gpu = SelectionConfig.of(self._jobs[0]["config"]).device.startswith("cuda")
        wanted = {"num_gpus": int(on_gpu), "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        alone, beside = (remote(num_cpus=number, **wanted)(Actor) for number in (1, 0))
        self._actors = [alone.remote(job) for job in jobs]
        # More members than processors, other work, or a node that was lost: what finds no place would wait for ever.
        begun = [actor.begun.remote() for actor in self._actors]
        _, waiting = wait(begun, num_returns=len(begun), timeout=PLACE_SECONDS)
        if waiting and on_gpu:
            raise ConfigurationError(
                f"{len(waiting)} of {len(begun)} Ray actors found no free GPU in {PLACE_SECONDS} seconds; ask for fewer "
                "workers, or set `device: cpu`"
            )
        for number in [begun.index(reference) for reference in waiting]:
            kill(self._actors[number])
            self._actors[number] = beside.remote(jobs[number])
        if waiting:
            logger.warning(
                "%d of %d Ray actors found no free processor in %d seconds and share those of others",
                len(waiting),
                len(begun),
                PLACE_SECONDS,
            )
        return self

    def __exit__(self, *failure: object) -> None:
        from ray import kill

        for actor in self._actors:
            kill(actor)

    def _send(self, steps: list[Step]) -> tuple[Sums, list[dict[str, Any]]]:
        from ray import put

        message = put(pack({"steps": steps}))
        return added(self._answers([actor.answer.remote(message) for actor in self._actors]))

    def _answers(self, references: Sequence[Any]) -> Iterator[Answer]:
        from ray import get
        from ray.exceptions import RayError, RayTaskError

        for number, reference in enumerate(references):
            try:
                answer = unpack(get(reference))
            except RayTaskError:  # it is there, and raised what is no error of ours
                raise
            except RayError as error:
                reason = str(error).partition("\n")[0]
                raise LostMemberError(
                    f"Ray actor {number} of {self.num_members} that held documents was lost ({reason})"
                ) from error
            if "error" in answer:
                raise_told(answer["error"])
            yield answer["sums"], answer["parts"]

"""In which order releases are made where one goes on from another, and which of them cannot be made yet. Writes nothing."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline.rolling import new_members, this_month
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.stages import copies, select
from datamask_pipeline.storage.releases import every_name, frozen_crawls, is_retired, rolled

if TYPE_CHECKING:
    from datamask_pipeline.pipeline.chain import Pipeline


def in_order(pipeline: "Pipeline", names: Collection[str]) -> list[str]:
    """Some releases, each after the one that it goes on from, directly or through others; else as they are given.

    Those that wait for their first crawl are left out (`waits`). One that goes on from another than it was frozen with holds
    up no other: who plans it refuses it.
    """
    found: list[str] = []

    def take(release: str) -> None:
        try:
            given = pipeline.given(release)
        except ConfigurationError:
            given = None
        if given is not None and given not in found:
            take(given)
        if release not in found:
            found.append(release)

    for name in names:
        take(name)
    return [name for name in found if name in names and not waits(pipeline, name)]


def wanted_releases(pipeline: "Pipeline", *, of: str | None = None, new: bool = True) -> list[str]:
    """What the configuration asks for and is not retired, in order: its releases, and those that rolling ones made.

    Args:
        pipeline: The chain.
        of: Only this entry of the configuration; by default every one.
        new: Those too that rolling ones would make now.
    """
    names: list[str] = []
    entries = pipeline.config.releases
    for name, configured in (entries if of is None else {of: entries[of]}).items():
        if configured.every is None:
            names.append(name)
            continue
        names += [member for member, _ in rolled(pipeline.store, name)]
        if new:
            names += [member.name for member in new_members(pipeline, name, pipeline.crawls(), this_month())]
    return in_order(pipeline, [name for name in names if not is_retired(pipeline.store, name)])


def masks_made(pipeline: "Pipeline") -> set[str]:
    """Keys of the masks that runs of the configuration make anew: of its arms, in its releases that are not retired."""
    names: list[str] = []
    for name, configured in pipeline.config.releases.items():
        is_one = configured.every is None
        names += [name] if is_one else [member for member, _ in rolled(pipeline.store, name)]
    made = [name for name in names if not is_retired(pipeline.store, name)]
    return {f"{name}/{arm}" for name in made for arm in pipeline.config.arms}


def told(pipeline: "Pipeline") -> Iterator[str]:
    """What becomes of each release of the configuration as things are, one line each, and what to be careful with."""
    for name, configured in pipeline.config.releases.items():
        if configured.every is not None:
            made = [
                f"{member} (retired)" if is_retired(pipeline.store, member) else member
                for member, _ in rolled(pipeline.store, name)
            ]
            new = [member.name for member in new_members(pipeline, name, pipeline.crawls(), this_month())]
            so_far, then = (
                ", ".join(made) or "none",
                ", ".join(new) or f"none before the next {configured.every}",
            )
            yield f"release {name} makes one with each new {configured.every}; so far: {so_far}; next: {then}"
            continue
        if is_retired(pipeline.store, name):
            yield f"release {name} is retired: nothing is made of it; `datamask retire {name} --undo` takes it back"
            continue
        if waits(pipeline, name):
            yield f"release {name} waits for a crawl to add to those of {configured.given}"
            continue
        is_frozen = frozen_crawls(pipeline.store, name) is not None
        crawls = ", ".join(pipeline.planned_crawls(name))
        line = (
            f"release {name} {'is frozen' if is_frozen else 'will be frozen at its first run'} with {crawls}"
        )
        yield (
            line
            if configured.crawls
            else f"{line}; crawls that come later are never taken in (`every: crawl` does)"
        )
    going_on = [name for name, configured in pipeline.config.releases.items() if configured.given is not None]
    if going_on and copies.is_off(pipeline.config.copies):
        yield (
            f"near-copies of what is held may come into {', '.join(going_on)}: copies.threshold is not set; 0.98 keeps "
            "them out"
        )


def waits(pipeline: "Pipeline", release: str) -> bool:
    """Whether a release adds whatever crawls come after the one that it goes on from, and none has come yet.

    One that cannot be planned, as a crawl of the earlier release is not there, does not wait: who plans it says why.
    """
    configured = pipeline.config.releases.get(release)
    if configured is None or configured.given is None or configured.crawls is not None or configured.every:
        return False
    if frozen_crawls(pipeline.store, release) is not None:
        return False
    if waits(pipeline, configured.given):
        return True
    try:
        held = pipeline.planned_crawls(configured.given)
    except ConfigurationError:
        return False
    return {*pipeline.crawls()} <= {*held}


def refuse_without_masks(pipeline: "Pipeline", names: Sequence[str], stages: Collection[Stage]) -> None:
    """Refuse a release whose masks go on from masks that are neither there nor made before it.

    Args:
        pipeline: The chain.
        names: The releases that are made, in their order.
        stages: What is made of them.

    Raises:
        ConfigurationError: which masks are missing, and how to make them.
    """
    if select.STAGE not in {stage.name for stage in stages}:
        return
    for place, name in enumerate(names):
        given = pipeline.given(name)
        if given is None or given in names[:place]:
            continue
        arms = [
            arm
            for arm in pipeline.config.arms
            if pipeline.store.current(select.STAGE, f"{given}/{arm}") is None
        ]
        if arms:
            undo = f"`datamask retire {given} --undo` and " if is_retired(pipeline.store, given) else ""
            raise ConfigurationError(
                f"release {name!r} goes on from {given!r}, which has no mask yet of arm {', '.join(arms)}; "
                f"{undo}`datamask run --release {given} --until {select.STAGE}` makes them"
            )


def release_before(pipeline: "Pipeline", release: str) -> str | None:
    """What a release is compared with: the one that it goes on from, or else the one with the most of its crawls.

    Returns:
        ``None`` where no frozen release has fewer crawls and all of them in this one.
    """
    if (given := pipeline.given(release)) is not None:
        return given
    crawls = {*(frozen_crawls(pipeline.store, release) or ())}
    others = {name: {*(frozen_crawls(pipeline.store, name) or ())} for name in every_name(pipeline.store)}
    smaller = [name for name in sorted(others) if others[name] and others[name] < crawls]
    return max(smaller, key=lambda name: len(others[name]), default=None)

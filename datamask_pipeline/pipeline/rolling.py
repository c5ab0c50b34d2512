"""Rolling releases: which ones a template of the configuration makes of the crawls that there are. Writes nothing."""

import dataclasses
import datetime
import hashlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage import releases

if TYPE_CHECKING:
    from datamask_pipeline.pipeline.chain import Pipeline

#: As `given` of a template: the last release that it made.
PREVIOUS: Final = "previous"

_MONTH: Final = re.compile(r"\d{4}-\d{2}")

#: What no name of a release may have.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A release that a template makes.

    Attributes:
        name: The template's name, and the crawl, as `_named` has it, or month.
        rolls: The template.
        crawls: Its crawls, in order of precedence.
        given: The release that it goes on from, if it does.
    """

    name: str
    rolls: str
    crawls: tuple[str, ...]
    given: str | None


def new_members(pipeline: "Pipeline", template: str, known: Sequence[str], month: str) -> list[Member]:
    """What a template makes now: its first release of all crawls, then one for each new crawl, or one in each new month.

    Each has the crawls of the last one that it made. A retired one with a crawl that the source has no longer is passed
    over, as nothing can be made with that crawl; what it took in beside that comes with the next. It stays passed over
    where one that was made instead is not retired, also once its crawls are back.

    Args:
        pipeline: The chain.
        template: The name of a release of the configuration that has `every`.
        known: The crawls that may be taken in, in order.
        month: The current one, as 2026-11.

    Raises:
        ConfigurationError: the configuration has a release of a name that one would have.
    """
    configured = pipeline.config.releases[template]
    taken, there = {*releases.every_name(pipeline.store)}, {*pipeline.crawls()}
    made = [
        (name, crawls)
        for name, crawls in releases.rolled(pipeline.store, template)
        if there.issuperset(crawls) or not releases.is_retired(pipeline.store, name)
    ]
    last = [(name, crawls) for name, crawls in made if not any({*crawls} < {*later} for _, later in made)]
    last.sort(key=lambda each: not releases.is_retired(pipeline.store, each[0]))
    before, held = last[-1] if last else (None, [])
    fixed = configured.given if configured.given != PREVIOUS else None
    if fixed is not None:
        first = pipeline.planned_crawls(fixed, f"releases.{template}.given")
        held = held if made else first
    new = [crawl for crawl in known if crawl not in held]
    if not new:
        return []
    if configured.every == "month":
        steps = [(f"{template}-{month}", new)]
    elif before is None:
        steps = [(f"{template}-{_named(new[-1])}", new)]
    else:
        steps = [(f"{template}-{_named(crawl)}", [crawl]) for crawl in new]
    members: list[Member] = []
    for name, added in steps:
        held = [*held, *added]
        if name in taken:
            continue
        if name in pipeline.config.releases:
            raise ConfigurationError(
                f"releases.{name}: {template!r} makes a release of that name; give this one another"
            )
        members.append(Member(name, template, tuple(held), fixed if configured.given != PREVIOUS else before))
        before = name
    return members


def planned_member(pipeline: "Pipeline", release: str) -> Member | None:
    """The member of that name that a template would make of the source's crawls; ``None`` where none would."""
    for template, configured in pipeline.config.releases.items():
        rest = release.removeprefix(f"{template}-")
        if configured.every is None or rest == release:
            continue
        month = rest if _MONTH.fullmatch(rest) else ""
        for member in new_members(pipeline, template, pipeline.crawls(), month):
            if member.name == release:
                return member
    return None


def _named(crawl: str) -> str:
    """A crawl in the name of a release: as it is, or else what fits of it and a digest that no other crawl has."""
    fit = _UNFIT.sub("_", crawl)
    return crawl if fit == crawl else f"{fit}-{hashlib.sha256(os.fsencode(crawl)).hexdigest()[:8]}"


def this_month(now: datetime.datetime | None = None) -> str:
    """A month as names have it, of a moment or of now, in UTC; a moment without a zone is in UTC already."""
    now = now or datetime.datetime.now(datetime.UTC)
    return f"{now if now.tzinfo is None else now.astimezone(datetime.UTC):%Y-%m}"

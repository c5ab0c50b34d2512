"""Reads a dated snapshot of robots.txt files, and says which URLs one forbids. Knows no document and no record.

Rules are those of RFC 9309, wildcards included, as the library `protego` reads them.
"""

import datetime
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic
from protego import Protego

from datamask_pipeline.domains import canonical_host, is_host
from datamask_pipeline.errors import InputError
from datamask_pipeline.settings import Settings

_ROBOTS: Final = "robots.txt"
_FORM: Final = (
    'give a folder of HOST.txt or HOST/robots.txt, or JSON Lines of {"host": "example.com", "robots": "..."}'
)


class RobotsSnapshot(Settings):
    """Which robots.txt files withdraw documents."""

    snapshot: str = pydantic.Field(
        description="Folder with HOST.txt or HOST/robots.txt, or a JSON Lines file with `host` and `robots` (the text)."
    )
    date: datetime.date = pydantic.Field(description="The day on which the snapshot was taken.")
    user_agents: tuple[str, ...] = pydantic.Field(
        min_length=1,
        description="Crawlers whose rules count, e.g. [CCBot, GPTBot]; a URL that one of them may not fetch is withdrawn.",
    )


def read_snapshot(snapshot: RobotsSnapshot, where: str) -> list[dict[str, Any]]:
    """The snapshot as rows of `schema.TAKEDOWN`, sorted by host.

    Raises:
        InputError: naming file, line and remedy of what is no robots.txt of a host.
    """
    path = Path(snapshot.snapshot)
    try:
        found = list(_of_folder(path) if path.is_dir() else _of_file(path))
    except OSError as error:
        raise InputError(
            f"{where}: the snapshot cannot be read: {error}", file=str(path), remedy=_FORM
        ) from error
    hosts: dict[str, dict[str, Any]] = {}
    for place, name, text in found:
        host = canonical_host(name)
        if not is_host(host) or host in hosts:
            problem = "the host stands twice" if host in hosts else "no host"
            raise InputError(f"{where}: {problem}", file=place, value=name, remedy=_FORM)
        row = {"entry": f"robots:{host}", "kind": "robots", "host": host, "value": None, "robots": text}
        hosts[host] = row
    if not hosts:
        raise InputError(f"{where}: the snapshot holds no robots.txt", file=str(path), remedy=_FORM)
    return [hosts[host] for host in sorted(hosts)]


def forbids(robots: str, user_agents: Sequence[str], url: str) -> bool:
    """Whether one of the crawlers may not fetch a URL of the robots.txt's host."""
    rules = _parsed(robots)
    return not all(rules.can_fetch(url, agent) for agent in user_agents)


@functools.lru_cache(maxsize=256)
def _parsed(robots: str) -> Protego:
    return Protego.parse(robots)


def _of_folder(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Place, host and text of each file."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield str(path / _ROBOTS), path.name, _text(path / _ROBOTS)
        elif path.suffix == ".txt":
            yield str(path), path.stem, _text(path)
        else:
            raise InputError("no robots.txt of a host", file=str(path), remedy=_FORM)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")  # as crawlers do


def _of_file(path: Path) -> Iterator[tuple[str, str, str]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{path} line {number}"
            try:
                values = json.loads(line)
                host, text = values["host"], values[_ROBOTS.removesuffix(".txt")]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"no robots.txt of a host: {error!r:.80}", file=place, remedy=_FORM
                ) from error
            if not isinstance(host, str) or not isinstance(text, str):
                raise InputError("host and robots.txt have to be texts", file=place, remedy=_FORM)
            yield place, host, text

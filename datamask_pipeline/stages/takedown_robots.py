"""Reads a dated snapshot of robots.txt files, and says which URLs one forbids. Knows no document and no record.

Rules are those of RFC 9309, wildcards included, as the library `protego` reads them.
"""

import datetime
import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic
from protego import Protego

from datamask_pipeline.domains import canonical_host, is_host
from datamask_pipeline.errors import InputError
from datamask_pipeline.settings import Settings

_ROBOTS: Final = "robots.txt"
#: What a crawler is called in a robots.txt: what follows it, such as `/1.0`, does not count (RFC 9309, 2.2.1).
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_AGENT_LINE: Final = re.compile(
    r"^([ \t]*user[- ]?agent[ \t]*[: \t][ \t]*)([^#\r\n]*)", re.IGNORECASE | re.MULTILINE
)
#: A name that no crawler has.
_NOBODY: Final = "~"
_PORT: Final = re.compile(r"^:[^/?#\\]*")
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
        description="Crawlers whose rules count, by product token, e.g. [CCBot, GPTBot]; what one of them may not fetch is "
        "withdrawn. `GPTBot/1.0` counts as GPTBot.",
    )

    @pydantic.field_validator("user_agents")
    @classmethod
    def _product_tokens(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        tokens = [name.partition("/")[0].strip() for name in names]
        for name, token in zip(names, tokens, strict=True):
            if not _TOKEN.fullmatch(token):
                raise ValueError(
                    f"{name!r} is no product token of a crawler; give its name alone, e.g. GPTBot"
                )
        return tuple(dict.fromkeys(tokens))


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


def forbids(robots: str, user_agents: Sequence[str], rest: str) -> bool:
    """Whether one of the crawlers may not fetch a URL of the robots.txt's host.

    Args:
        robots: The host's robots.txt.
        user_agents: The crawlers, by their product tokens.
        rest: What of the URL follows the host.
    """
    path = _PORT.sub("", rest)
    return not all(_rules_for(robots, agent).can_fetch(f"https://host{path}", agent) for agent in user_agents)


@functools.lru_cache(maxsize=1024)
def _rules_for(robots: str, agent: str) -> Protego:
    """The rules with the crawler's own groups under its product token, and no other group that `protego` could take for it.

    It would take `GPTBot/1.1` in a file for another crawler than GPTBot, and `GPT` for the same.
    """

    def named(line: re.Match[str]) -> str:
        token = _TOKEN.match(line[2])
        if token is None:
            return line[0]  # `*`, or nobody
        return line[1] + (agent if token[0].lower() == agent.lower() else _NOBODY)

    lines = robots.removeprefix(
        "\ufeff"
    ).splitlines()  # as `protego` ends them: by a carriage return alone, too
    return Protego.parse(_AGENT_LINE.sub(named, "\n".join(lines)))


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
    return path.read_bytes().decode("utf-8-sig", "replace")  # as crawlers do


def _of_file(path: Path) -> Iterator[tuple[str, str, str]]:
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
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

"""Reads what is asked to be withdrawn: entries of a list, in the settings or in a file. Knows no document and no record.

An entry is an id or a content hash as it stands, or one of::

    id:ID               exactly that id, with the blanks that it begins or ends with
    content:SHA256      exactly that content hash
    url:https://HOST/P  every URL that begins so; http and https count as one
    domain:NAME         a domain with all its subdomains
    suffix:NAME         every domain under a public suffix, such as github.io, and that itself
    file:PATH           in the settings alone: a file with one entry a line; empty lines and those that begin with # are none

Blanks around all else do not count, but those around an id that stands in the settings without `id:` are refused.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from datamask_pipeline.domains import canonical_host, is_host, is_public_suffix, list_version, split_url
from datamask_pipeline.errors import InputError

KINDS: Final = ("id", "content", "url", "domain", "suffix")
_FILE: Final = "file"
_CONTENT_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: What may stand around an entry; another blank, such as one that does not break, is part of it.
_BLANKS: Final = " \t\r"
#: How much a prefix has to look like a kind to be taken for one that was misspelt.
_ALIKE: Final = 0.75

Row = dict[str, Any]


def read_entries(entries: Iterable[str], where: str) -> list[Row]:
    """The entries as rows of `schema.TAKEDOWN`, each once, sorted.

    Args:
        entries: As the settings have them.
        where: Path of the setting, for messages.

    Raises:
        InputError: naming file, line, value and remedy of the first entry that cannot be one.
    """
    found: dict[str, Row] = {}
    for number, entry in enumerate(entries):
        kind, _, path = entry.strip().partition(":")
        if kind == _FILE:
            rows = [_row(line, place) for place, line in _lines(Path(path), f"{where}[{number}]")]
        else:
            row = _row(entry, f"{where}[{number}]")
            if row["kind"] == "name" and entry != entry.strip():
                raise InputError(
                    f"{where}[{number}]: an id begins or ends with blanks",
                    value=entry,
                    remedy=f"write id:{entry} for exactly that id, or take the blanks out",
                )
            rows = [row]
        found |= {row["entry"]: row for row in rows}
    return [found[entry] for entry in sorted(found)]


def entry_of(name: str, content_hash: str) -> str:
    """The entry that names a document: by its id, or where no line can hold that, by its content hash."""
    return f"content:{content_hash}" if _CONTROL.search(name) else f"id:{name}"


def _lines(path: Path, where: str) -> Iterator[tuple[str, str]]:
    """Place and text of each line that is an entry."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{where}: the list of withdrawals cannot be read: {error}",
            file=str(path),
            remedy="name a UTF-8 text file with one entry a line",
        ) from error
    for number, line in enumerate(lines, 1):
        if (entry := line.strip(_BLANKS)) and not entry.startswith("#"):
            yield f"{path} line {number}", line.removesuffix("\r")


def _row(entry: str, place: str) -> Row:
    def refused(problem: str, remedy: str) -> InputError:
        return InputError(f"{place}: {problem}", value=entry, remedy=remedy)

    if not entry.lstrip().startswith("id:"):
        entry = entry.strip(_BLANKS)
    if not entry or _CONTROL.search(entry):
        problem = (
            "no entry of a list of withdrawals"
            if not entry
            else "an entry holds no control characters, such as tabs"
        )
        kinds = f"give an id, or one of: {', '.join(KINDS)}"
        remedy = (
            kinds
            if not entry
            else "withdraw a document with such an id by content:HASH (`audit why` tells it)"
        )
        raise refused(problem, remedy)
    entry = entry.lstrip()
    prefix, colon, value = entry.partition(":")
    kind = prefix if colon and prefix in (*KINDS, _FILE) else "name"
    row: Row = {"entry": entry, "kind": kind, "host": None, "value": None, "robots": None}
    if kind == "name":
        near = difflib.get_close_matches(prefix.lower(), KINDS, n=1, cutoff=_ALIKE) if colon else []
        if near:
            raise refused(f"{prefix!r} is no kind of entry", f"write {near[0]}:..., or id:{entry} for an id")
        if value.startswith("//"):
            remedy = f"write url:{entry} for every URL that begins so, or id:{entry} for an id that is a URL"
            raise refused("a URL without its kind", remedy)
        return row | {"value": _lowered(entry)}
    if kind == _FILE:
        raise refused("a list names no further list", f"name it in the settings: {entry}")
    if not value:
        raise refused(f"nothing follows {kind!r}", "say what is withdrawn, or take the line out")
    if kind == "id":
        return row | {"value": value}
    if kind == "content":
        if not _CONTENT_HASH.fullmatch(value):
            remedy = "give the document's `content_hash`, or withdraw it by id"
            raise refused("a content hash has 64 hexadecimal digits", remedy)
        return row | {"entry": f"content:{value.lower()}", "value": value.lower()}
    if kind == "url":
        found = split_url(value)
        if found is None:
            raise refused("no URL prefix", "give it with scheme and host, e.g. url:https://example.com/blog/")
        return row | {"host": found[0], "value": found[1]}
    host = canonical_host(value)
    if not is_host(host):
        remedy = "give its name alone, e.g. domain:example.com; its subdomains go with it"
        raise refused("no domain", remedy)
    if is_public_suffix(host) and kind == "domain":
        problem = (
            f"{host} is a public suffix: the domains under it belong to different people ({list_version()})"
        )
        raise refused(
            problem, f"name one, e.g. domain:example.{host}, or write suffix:{host} to withdraw all of them"
        )
    if kind == "suffix" and not is_public_suffix(host):
        raise refused(f"{host} is no public suffix ({list_version()})", f"write domain:{host}")
    return row | {"entry": f"{kind}:{host}", "host": host}


def _lowered(name: str) -> str:
    """A content hash in lower case; any other name as it is."""
    return name.lower() if _CONTENT_HASH.fullmatch(name) else name

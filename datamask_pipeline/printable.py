"""Strangers' text made inert: what would steer a terminal, turn a line round or be Markdown is shown by its number.

Knows no file and no page; of tables only that a cell does not run into the next. Templates escape HTML themselves.
"""

import re
import unicodedata
from functools import cache

#: Joiners and the soft hyphen belong to words of many languages, and steer nothing.
_HARMLESS = "\u200c\u200d\u00ad"
#: Controls, what changes the direction of writing, lone surrogates, line and paragraph separators, unassigned numbers.
_STEERING = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
_OF_MARKDOWN = re.compile(r"[`|<>&\\\[\]()!*_~#]")


def inert(text: object, *, keep: str = "") -> str:
    """Text in which nothing steers what shows it; such characters stand as JSON writes them, e.g. ``\\u001b``.

    In the strings of a JSON text this changes nothing of its meaning.

    Args:
        text: Anything; its ``str``.
        keep: Characters that are left as they are, e.g. line ends.
    """
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(sign if sign in keep or not _steers(sign) else number(sign) for sign in shown)


def cell(text: str, width: int) -> str:
    """A cell of a table in plain text: as wide as that, or as the text and the space that parts it from the next."""
    return f"{text:<{width - 1}} "


def number(sign: str) -> str:
    """A character by its number, as JSON writes it."""
    data = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))


def code_span(value: object) -> str:
    """A value as a code span that fits into a table; what would end the span or the cell is shown by its number."""
    text = "".join(number(sign) if sign in "`|<>&" else sign for sign in inert(value))
    return f"`{text or ' '}`"


def markdown_text(value: object) -> str:
    """A value as plain text in a cell of a Markdown table: no link, image, emphasis or tag comes of it."""
    return _OF_MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", inert(value))


@cache
def _steers(sign: str) -> bool:
    return sign not in _HARMLESS and unicodedata.category(sign) in _STEERING

"""Which licence a data set may be published under, by the licences of what is in it. Knows no file.

The table is small on purpose: what it does not name is refused, not guessed. It is no legal advice.

Sources of the rules:
    ODC-By 1.0, section 4.2 a, and ODbL 1.0, sections 4.2 and 4.4: a database with a substantial part of another is
    conveyed under the same licence.
    Creative Commons' frequently asked questions, chart of adapters' licences: https://creativecommons.org/faq
    Apache-2.0 section 4, MIT and BSD: notices are kept, which these licences ask for as well.
"""

import re
from collections.abc import Iterable
from typing import Final

from datamask_pipeline.errors import ConfigurationError, InputError

_BY: Final = frozenset({"cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"})
_NOTICES: Final = frozenset({"apache-2.0", "odc-by", *_BY})

#: Licences that a release may have (``other`` beside them), by the licence of something in it, as the hub spells them.
MAY_BECOME: Final[dict[str, frozenset[str]]] = {
    "odc-by": frozenset({"odc-by"}),
    "odbl": frozenset({"odbl"}),
    "cc-by-3.0": _BY | {"cc-by-3.0"},
    "cc-by-4.0": _BY,
    "cc-by-sa-3.0": frozenset({"cc-by-sa-3.0", "cc-by-sa-4.0"}),
    "cc-by-sa-4.0": frozenset({"cc-by-sa-4.0"}),
    "cc-by-nc-4.0": frozenset({"cc-by-nc-4.0", "cc-by-nc-sa-4.0"}),
    "cc-by-nc-sa-4.0": frozenset({"cc-by-nc-sa-4.0"}),
    "mit": _NOTICES | {"mit"},
    "bsd-3-clause": _NOTICES | {"bsd-3-clause"},
    "apache-2.0": _NOTICES,
}
#: Whose works may be released under any licence.
FREE: Final = frozenset({"cc0-1.0", "pddl", "unlicense"})
#: Each document keeps its own licence; the card lists them.
OTHER: Final = "other"

#: Licence of a data set on the hub, as its own page states it.
OF_DATASETS: Final = dict.fromkeys(
    ("HuggingFaceFW/fineweb", "HuggingFaceFW/fineweb-edu", "HuggingFaceFW/fineweb-2"), "odc-by"
)

_CC_URL: Final = re.compile(
    r"https?://creativecommons\.org/(licenses/[a-z-]+|publicdomain/zero)/([0-9.]+)/?.*"
)


def known() -> list[str]:
    """Licences that the table names."""
    return sorted({*MAY_BECOME, *FREE})


def spelt(licence: str) -> str:
    """A licence as the hub spells it: lower case, hyphens, Creative Commons' addresses of licences as names.

    Their mark of the public domain is none: it says that nobody has rights in a work, and gives none.
    """
    text = licence.strip().lower()
    if match := _CC_URL.fullmatch(text):
        name, version = match[1].partition("/")[2], match[2]
        return f"cc0-{version}" if name == "zero" else f"cc-{name}-{version}"
    text = re.sub(r"[\s_]+", "-", text)
    return {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl", "cc0": "cc0-1.0"}.get(text, text)


def check_released_under(licence: str, constituents: Iterable[str]) -> None:
    """Refuse a licence that something in the release forbids.

    Args:
        licence: The release's, as the hub spells it.
        constituents: Licences of what is in it.

    Raises:
        ConfigurationError: the table does not know the release's licence, or one of a constituent forbids it.
        InputError: the table does not know a constituent's.
    """
    if licence not in {OTHER, *known()}:
        raise ConfigurationError(
            f"license: unknown licence {licence!r}; choose one of: {', '.join([*known(), OTHER])}"
        )
    for one in sorted(set(constituents)):
        if one not in MAY_BECOME and one not in FREE:
            raise InputError(
                "a licence whose terms are not known here",
                value=one,
                remedy=f"known are {', '.join(known())}; spell it so if it is one of these, else leave such documents out",
            )
        if licence != OTHER and one in MAY_BECOME and licence not in MAY_BECOME[one]:
            allowed = ", ".join(sorted(MAY_BECOME[one]))
            raise ConfigurationError(
                f"license: {licence!r} is forbidden by {one!r}, the licence of some of its documents; allowed: {allowed}, "
                f"or {OTHER!r}, where each document keeps its own"
            )

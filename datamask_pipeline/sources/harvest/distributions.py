"""The distributions the embedded default harvests, and how they are spread over crawls. Reads no text.

All are installed with this package itself, so every installation has them; one that is missing is left out,
and the shards' digests say so.
"""

import hashlib
from collections.abc import Iterable
from importlib import metadata
from typing import Final

from datamask_pipeline.sources.harvest.texts import prose_files

#: Documentation-rich distributions among this package's own requirements.
LISTED: Final = (
    "accelerate",
    "alembic",
    "anyio",
    "click",
    "contourpy",
    "dagster",
    "datasets",
    "datasketch",
    "docstring-parser",
    "filelock",
    "fonttools",
    "fsspec",
    "graphql-core",
    "grpcio",
    "huggingface-hub",
    "humanfriendly",
    "Jinja2",
    "joblib",
    "lm-eval",
    "Mako",
    "markdown-it-py",
    "matplotlib",
    "more-itertools",
    "mpmath",
    "narwhals",
    "networkx",
    "nltk",
    "numpy",
    "packaging",
    "pandas",
    "pillow",
    "pyarrow",
    "pydantic",
    "Pygments",
    "pyparsing",
    "requests",
    "rich",
    "sacrebleu",
    "scikit-learn",
    "scipy",
    "sentence-transformers",
    "setuptools",
    "SQLAlchemy",
    "starlette",
    "structlog",
    "sympy",
    "torch",
    "tqdm",
    "transformers",
    "typer",
    "urllib3",
    "uvicorn",
)

#: Of this many distributions, one is visited by both crawls, as a site is that two real crawls visit.
REVISITED_ONE_IN: Final = 6


def installed(names: Iterable[str] = LISTED) -> list[metadata.Distribution]:
    """The distributions named that are installed, in the order named."""
    found = []
    for name in names:
        try:
            found.append(metadata.distribution(name))
        except metadata.PackageNotFoundError:
            continue
    return found


def crawls_of(name: str, num_crawls: int) -> set[int]:
    """Which crawls visit a distribution: one, or for some two; decided by a hash of its name."""
    digest = hashlib.sha256(name.lower().encode()).digest()
    first = digest[0] % num_crawls
    revisited = digest[1] % REVISITED_ONE_IN == 0
    return {first, (first + 1) % num_crawls} if revisited else {first}


def shard_of(name: str, num_shards: int) -> int:
    """Which shard of a crawl a distribution's documents stand in."""
    return hashlib.sha256(name.lower().encode()).digest()[2] % num_shards


def digest_of(distribution: metadata.Distribution) -> str:
    """Identity of the texts a distribution carries: name, version, and the hashes of the files they stand in."""
    hashed = hashlib.sha256(f"{distribution.metadata['Name']}=={distribution.version}".encode())
    for file in prose_files(distribution.metadata["Name"]):
        hashed.update(f"\n{file.as_posix()} {file.hash.value if file.hash else ''}".encode())
    return hashed.hexdigest()

"""Texts out of one installed distribution's files. Knows Python files and prose files; no schema, no cap.

Modules are parsed, never imported: harvesting runs none of the code it reads.
"""

import ast
import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import PurePosixPath
from typing import Final, Literal

Kind = Literal["docstring", "page", "description"]

PAGE_SUFFIXES: Final = (".md", ".rst", ".txt")

#: Names of prose files without a suffix; licences recur word for word from one distribution to the next.
LEGAL_NAMES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE")

#: Text files that hold data, not prose.
NOT_PROSE: Final = frozenset(
    {"top_level.txt", "entry_points.txt", "requirements.txt", "vocab.txt", "dependency_links.txt"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class HarvestedText:
    """One text and where it stands.

    Attributes:
        kind: What sort of text it is.
        path: File inside the installation, ``/``-separated.
        name: The object a docstring belongs to; empty for a whole file.
        text: The text.
    """

    kind: Kind
    path: str
    name: str
    text: str


@functools.cache
def prose_files(name: str) -> list[metadata.PackagePath]:
    """The files that may hold texts, prose files first; each kind in the order of a hash of the path.

    A prefix of that order is a fair sample of the distribution. Kept, for large distributions list thousands.
    """
    files = [file for file in metadata.distribution(name).files or [] if _may_hold_text(file)]
    return sorted(
        files, key=lambda file: (file.suffix == ".py", hashlib.sha256(file.as_posix().encode()).digest())
    )


def texts_of_file(file: metadata.PackagePath) -> Iterator[HarvestedText]:
    """The texts of one file; none if it is missing, not UTF-8 or not Python after all."""
    try:
        content = file.locate().read_bytes().decode("utf-8")  # type: ignore[attr-defined]
    except (OSError, UnicodeDecodeError):
        return
    path = file.as_posix()
    if file.suffix == ".py":
        yield from _docstrings(path, content)
    else:
        yield HarvestedText("page", path, "", content.replace("\r\n", "\n").strip())


def description(distribution: metadata.Distribution) -> HarvestedText:
    """The long description out of the distribution's metadata; empty if it has none."""
    message = distribution.metadata
    text = message.get("Description") or message.get_payload() or ""  # type: ignore[attr-defined]
    return HarvestedText("description", "METADATA", "", str(text).replace("\r\n", "\n").strip())


def _may_hold_text(file: PurePosixPath) -> bool:
    elsewhere = ".." in file.parts or "tests" in file.parts or "_vendor" in file.parts
    return not elsewhere and (file.suffix == ".py" or _is_page(file))


def _is_page(file: PurePosixPath) -> bool:
    legal = not file.suffix and file.name.upper().startswith(LEGAL_NAMES)
    return legal or (file.suffix in PAGE_SUFFIXES and file.name not in NOT_PROSE)


def _docstrings(path: str, source: str) -> Iterator[HarvestedText]:
    with warnings.catch_warnings():
        # Other people's invalid escapes are not this reader's business.
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return
    yield from _walk(path, "", tree)


def _walk(
    path: str, prefix: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[HarvestedText]:
    text = ast.get_docstring(node)
    if text:
        yield HarvestedText("docstring", path, prefix, text)
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(path, f"{prefix}.{child.name}" if prefix else child.name, child)

"""Holds what a data set says in words, figures and columns against the same, made again from its record. Reads no row.

Sentences, spellings and descriptions may be those of another version of this program or of a library: that they differ is
told, and not called a contradiction. A figure or name in a sentence that is otherwise the same is one.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.audit.stated import DAMAGE
from datamask_pipeline.publish.manifest import CARD, SHARD
from datamask_pipeline.yaml_text import parse_yaml

#: A value in a sentence: a code span, or a number.
_VALUE: Final = re.compile(r"`[^`]*`|[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
#: Parts of `croissant.json` that come of the vocabulary, not of the record.
_OF_THE_VOCABULARY: Final = ("@context", "conformsTo")
#: What the head of the card says of the record; the rest is the libraries'.
_HEAD: Final = ("pretty_name", "license", "license_name", "license_link", "language", "source_datasets")

Files = Mapping[str, Mapping[str, Any]]


def check_told(name: str, said: str, made: str, files: Files, files_made: Files) -> Iterator[Finding]:
    """Every figure and name in which a card or `croissant.json` differs from the one made again.

    Args:
        name: Which of the two.
        said: Its text.
        made: The text made again.
        files: What the manifest says of each file: what it says of shards is taken as said, as another version of a library
            writes other bytes of the same rows.
        files_made: The same of the files made again.
    """
    shards = [each for each in files_made if each.endswith(SHARD) and each in files]
    for each in shards:
        made = made.replace(str(files_made[each]["sha256"]), str(files[each]["sha256"]))
        for unit in ("", " B"):
            made = made.replace(
                f'"contentSize": "{files_made[each]["bytes"]}{unit}"',
                f'"contentSize": "{files[each]["bytes"]}{unit}"',
            )
    sizes = [sum(of[each]["bytes"] for each in shards) for of in (files_made, files)]
    made = made.replace(f"download_size: {sizes[0]}\n", f"download_size: {sizes[1]}\n")
    if said == made:
        return
    try:
        found = [
            *(_in_card(said, made) if name == CARD else _in_json(json.loads(said), json.loads(made), ""))
        ]
    except DAMAGE as error:
        yield contradiction(name, f"cannot be read: {type(error).__name__}: {error}")
        return
    for problem in found:
        yield contradiction(name, problem)
    if not found:
        yield unknown(name, "made again it reads otherwise, as another version of a library may write it")


def check_columns(
    name: str, said: pa.Schema, made: pa.Schema, of_record: Mapping[str, Collection[dict[bytes, bytes]]]
) -> Iterator[Finding]:
    """Every column that a file describes otherwise than the same file made again.

    Args:
        name: The file.
        said: Its columns.
        made: The same, made again.
        of_record: How the record's own files describe each column: where they and this program agree, no version between
            them described it otherwise.
    """
    for field in made:
        ours = _described(field)
        if (theirs := _described(said.field(field.name))) == ours:
            continue
        problem = f"column `{field.name}` is described otherwise"
        if ours in of_record.get(field.name, ()):
            yield contradiction(name, f"{problem} than in the record: {theirs}")
        else:
            yield unknown(name, f"{problem}, as another version of this program may do")
    if (said.metadata or {}) != (made.metadata or {}):
        yield unknown(name, "its schema carries what this program does not write")


def descriptions(*schemas: pa.Schema) -> dict[str, list[dict[bytes, bytes]]]:
    """How files describe each of their columns."""
    found: dict[str, list[dict[bytes, bytes]]] = {}
    for each in schemas:
        for field in each:
            found.setdefault(field.name, []).append(_described(field))
    return found


def _described(field: pa.Field) -> dict[bytes, bytes]:
    about = field.metadata or {}
    return {key: value for key, value in about.items() if not key.startswith(b"PARQUET:")}


def _in_card(said: str, made: str) -> Iterator[str]:
    (_, head, body), (_, head_made, body_made) = (text.split("---\n", 2) for text in (said, made))
    stated, again = parse_yaml(head), parse_yaml(head_made)
    for key in _HEAD:
        if stated.get(key) != again.get(key):
            yield f"states {key} {stated.get(key)!r}, and the record makes {again.get(key)!r}"
    numbers = [_num_examples(each) for each in (stated, again)]
    if numbers[0] != numbers[1]:
        yield f"states {numbers[0]} examples, and the record makes {numbers[1]}"
    lines, lines_made = body.splitlines(), body_made.splitlines()
    shapes, shapes_made = ([_shape(line) for line in each] for each in (lines, lines_made))
    first = said.count("\n") - body.count("\n") + 1
    matcher = difflib.SequenceMatcher(None, shapes, shapes_made, autojunk=False)
    for at, at_made, size in matcher.get_matching_blocks():
        for place in range(size):
            line, again_line = lines[at + place], lines_made[at_made + place]
            if line != again_line:
                yield f"line {first + at + place} states {_first_other(line, again_line)}: {line[:80]}"


def _num_examples(head: Mapping[str, Any]) -> Any:
    splits = head.get("dataset_info", {}).get("splits") or [{}]
    return splits[0].get("num_examples")


def _in_json(said: Any, made: Any, where: str) -> Iterator[str]:
    if said == made or where.startswith(_OF_THE_VOCABULARY):
        return
    if isinstance(said, dict) and isinstance(made, dict):
        for key in made.keys() & said.keys():
            yield from _in_json(said[key], made[key], f"{where}.{key}" if where else key)
    elif isinstance(said, list) and isinstance(made, list):
        if len(said) != len(made):
            yield f"`{where}` has {len(said)} entries, and the record makes {len(made)}"
            return
        for number, (one, other) in enumerate(zip(said, made, strict=True)):
            yield from _in_json(one, other, f"{where}[{number}]")
    elif not (where.endswith("description") and _shape(str(said)) != _shape(str(made))):
        yield f"`{where}` states {said!r}, and the record makes {made!r}"


def _shape(text: str) -> str:
    """A sentence without its values."""
    return _VALUE.sub("`", text)


def _first_other(said: str, made: str) -> str:
    pairs = zip(_VALUE.findall(said), _VALUE.findall(made), strict=True)
    one, other = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{one}, and the record makes {other}"

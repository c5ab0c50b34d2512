"""The version of the record's format, stated once at its root. Knows no stage and no artefact."""

import json
from typing import Any, Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage.ref import pretty_json, read_json

#: The format that this code writes; it is raised when a reader of the format before would misread the record.
FORMAT: Final = 2
#: Where it stands. A record without this file has the first format.
FORMAT_FILE: Final = "record.json"


def format_bytes() -> bytes:
    """What the file holds in a record that this code writes to."""
    return pretty_json({"format": FORMAT}).encode()


def stated_format(fs: Any, root: str) -> int:
    """The format of a record, 1 where none is stated.

    Args:
        fs: The record's file system.
        root: Its root there.

    Raises:
        IntegrityError: the file is damaged.
        ConfigurationError: a later version of the package wrote to the record.
    """
    path = f"{root}/{FORMAT_FILE}"
    if not fs.exists(path):
        return 1
    remedy = (
        f"write {json.dumps({'format': FORMAT})} into it if no later version of datamask-pipeline wrote here"
    )
    stated: int = read_json(fs.cat_file(path), path, {"format": int}, remedy=remedy)["format"]
    if stated > FORMAT:
        raise ConfigurationError(
            f"the record {root} has format {stated}, and this version of datamask-pipeline reads formats up to "
            f"{FORMAT}: install the version that wrote it, or name another `store`"
        )
    return stated

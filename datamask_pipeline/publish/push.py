"""Uploads a data set's folder to the Hugging Face hub. The transfer is `huggingface_hub`'s."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage.reaching import file_system_of, is_local, reaching

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
#: The folder is whole by then, and a commit is made whole or not at all.
_AGAIN: Final = "nothing was published there; call the same command again"


def check_repository(repository: str) -> None:
    """Refuse a name that the hub would refuse, before anything is written.

    Raises:
        ConfigurationError: it is not ``owner/name``.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise ConfigurationError(
            f"--push: {repository!r} is no data set of the hub; write owner/name in letters, digits, `-`, `_` and `.`"
        )


def push_folder(
    place: str, repository: str, *, options: Mapping[str, Any] | None = None, endpoint: str | None = None
) -> str:
    """Upload every file in one commit: a reader of the hub sees a whole data set.

    Args:
        place: Folder or fsspec URL of the data set.
        repository: ``owner/name``; made where it does not exist.
        options: Passed to the place's file system.
        endpoint: Another server that speaks the hub's protocol.

    Returns:
        The commit.

    Raises:
        ConfigurationError: no name of a repository.
        InputError: no such owner.
        StorageError: it may not be written, or the hub did not answer.
    """
    check_repository(repository)
    from huggingface_hub import HfApi

    from datamask_pipeline.hub import explained

    fs, path = file_system_of(place, options or {}, setting="to")
    with tempfile.TemporaryDirectory() as scratch, explained(f"upload to {repository}", _AGAIN):
        folder = Path(path)
        if not (is_local(fs) and folder.is_dir()):
            folder = Path(scratch) / "data_set"
            with reaching(fs, place):
                fs.get(path, str(folder), recursive=True)
        api = HfApi(endpoint=endpoint)
        api.create_repo(repository, repo_type="dataset", exist_ok=True)
        done = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            repo_type="dataset",
            commit_message="A data set of datamask-pipeline",
        )
    return str(done.oid)

"""Uploads a data set's folder to the Hugging Face hub, where none stands yet. The transfer is `huggingface_hub`'s."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline.errors import ConfigurationError, StorageError
from datamask_pipeline.publish.manifest import CARD, NAME, root_said
from datamask_pipeline.storage.reaching import file_system_of, is_local, reaching

if TYPE_CHECKING:
    from datamask_pipeline.hub import HubRepository

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
#: The folder is whole by then, and a commit is made whole or not at all.
_AGAIN: Final = "nothing was published there; call the same command again"
#: What the hub itself puts into a new data set, or its owner, who described it.
_OF_THE_HUB: Final = {".gitattributes", CARD}


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
    """Upload every file in one commit: a reader of the hub sees a whole data set. The same one again changes nothing.

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
        StorageError: it may not be written, or the hub did not answer; or something else stands there, be it this data set
            with a file that was altered since.
    """
    check_repository(repository)
    from huggingface_hub import HfApi

    from datamask_pipeline.hub import HubRepository, explained

    fs, path = file_system_of(place, options or {}, setting="to")
    with tempfile.TemporaryDirectory() as scratch, explained(f"upload to {repository}", _AGAIN):
        folder = Path(path)
        if not (is_local(fs) and folder.is_dir()):
            folder = Path(scratch) / "data_set"
            with reaching(fs, place):
                fs.get(path, str(folder), recursive=True)
        api = HfApi(endpoint=endpoint)
        api.create_repo(repository, repo_type="dataset", exist_ok=True)
        head = str(api.dataset_info(repository).sha)
        if _stands(HubRepository(repository, head, kind="dataset", endpoint=endpoint), folder):
            return head
        done = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            repo_type="dataset",
            commit_message="A data set of datamask-pipeline",
            parent_commit=head,
        )
    return str(done.oid)


def _stands(there: "HubRepository", folder: Path) -> bool:
    """Whether the folder's data set stands there already.

    Raises:
        StorageError: something else does.
    """
    from datamask_pipeline.hub import has_content_of

    files = {file.path: file for file in there.list_files()}
    if NAME not in files:
        if others := sorted({*files} - _OF_THE_HUB):
            raise StorageError(
                f"{there.name} holds {others[0]} and is no data set of this program; name one that does not exist yet"
            )
        return False
    root = root_said(there.download(files[NAME]).read_bytes(), f"{there.name}/{NAME}")
    if root != root_said((folder / NAME).read_bytes(), str(folder / NAME)):
        raise StorageError(
            f"another data set stands at {there.name}, with root digest {root}; name another place"
        )
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        if name not in files or not has_content_of(path, files[name]):
            raise StorageError(
                f"this data set stands at {there.name} already, and its {name} was altered or removed since; put it back "
                "there, or name another place"
            )
    return True

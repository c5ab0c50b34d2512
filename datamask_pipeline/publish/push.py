"""Uploads a data set's folder to the Hugging Face hub. The transfer is `huggingface_hub`'s."""

import tempfile
from pathlib import Path

from datamask_pipeline.storage.store import file_system_of


def push_folder(place: str, repository: str, *, endpoint: str | None = None) -> str:
    """Upload every file in one commit: a reader of the hub sees a whole data set.

    Args:
        place: Folder or fsspec URL of the data set.
        repository: ``owner/name``; made where it does not exist.
        endpoint: Another server that speaks the hub's protocol.

    Returns:
        The commit.

    Raises:
        InputError: no such repository, or it may not be written.
        StorageError: the hub did not answer.
    """
    from huggingface_hub import HfApi

    from datamask_pipeline.hub import explained

    fs, path = file_system_of(place, {}, setting="to")
    with tempfile.TemporaryDirectory() as scratch, explained(f"upload to {repository}"):
        folder = Path(path)
        if not folder.is_dir():
            folder = Path(scratch) / "data_set"
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

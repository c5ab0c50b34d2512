"""Whole files from the Hugging Face hub: pinned to a commit and verified. Knows no dataset and no model.

Transfer, cache, retries, the wait that a rate limit asks for and resuming are ``huggingface_hub``'s. What is added
here: the revision must be a commit, size and SHA-256 are checked against the listing, and every refusal names file
and remedy.
"""

import dataclasses
import errno
import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, InputError, StorageError

logger = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_pinned(name: str, revision: str) -> None:
    """Refuse a revision of a repository that may move.

    Raises:
        ConfigurationError: it is no commit hash.
    """
    if not _COMMIT.fullmatch(revision):
        raise ConfigurationError(
            f"revision {revision!r} of {name} is no commit hash of 40 hexadecimal digits; branches "
            "and tags move, so pin the commit that the repository's page shows under Files, History"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository at one commit.

    Attributes:
        path: Its path in the repository.
        size: Bytes.
        sha256: Of its content, where the hub states it (large files); else empty.
        blob: Its git blob id.
    """

    path: str
    size: int
    sha256: str
    blob: str


@dataclasses.dataclass(frozen=True)
class HubRepository:
    """A repository pinned to a commit.

    Args:
        name: ``owner/name``.
        revision: Commit hash, 40 hexadecimal digits.
        kind: ``dataset`` or ``model``.
        endpoint: Another server that speaks the protocol; ``None`` is the hub.
        cache_dir: Where downloads are kept; ``None`` is huggingface_hub's own cache.

    Raises:
        ConfigurationError: the revision is no commit hash.
    """

    name: str
    revision: str
    kind: str = "model"
    endpoint: str | None = None
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        check_pinned(self.name, self.revision)

    def list_files(self, folder: str = "") -> list[HubFile]:
        """Every file under a folder at this commit, by path; one listing, not one request a file.

        Raises:
            InputError: no such repository, commit or folder.
            StorageError: the hub did not answer.
        """
        from huggingface_hub import HfApi, RepoFile

        with explained(f"list {self.name}/{folder}"):
            entries = HfApi(endpoint=self.endpoint).list_repo_tree(
                self.name,
                path_in_repo=folder or None,
                recursive=True,
                revision=self.revision,
                repo_type=self.kind,
            )
            found = [
                HubFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else "", entry.blob_id)
                for entry in entries
                if isinstance(entry, RepoFile)
            ]
        return sorted(found, key=lambda file: file.path)

    def download(self, file: HubFile | str) -> Path:
        """The whole file in the local cache, verified; a copy that is there already costs no request.

        Args:
            file: The file, or just its path where no listing was made; then only the hub's etag is checked.

        Raises:
            InputError: no such file.
            StorageError: the hub did not deliver, the disk is full, or what came is not what was listed.
        """
        path = file if isinstance(file, str) else file.path
        local = self._fetch(path)
        if isinstance(file, HubFile) and (problem := _difference(local, file)):
            logger.warning("%s/%s: %s; fetching it once more", self.name, path, problem)
            local = self._fetch(path, force=True)
            if problem := _difference(local, file):
                raise StorageError(
                    f"cannot download {self.name}/{path}: {problem}, twice; the server delivers another file than it "
                    "lists"
                )
        return local

    def download_matching(self, patterns: Sequence[str]) -> Path:
        """The folder of the local cache that has all files whose paths match a pattern; it may have others too.

        Files that are there already, and the listing that says so, cost no request.

        Args:
            patterns: As of `fnmatch`: `*` stands for folders too.

        Raises:
            InputError: no such repository or commit.
            StorageError: the hub did not deliver.
        """
        from huggingface_hub import snapshot_download

        with explained(f"download {', '.join(patterns)} of {self.name}"):
            folder = snapshot_download(
                self.name,
                repo_type=self.kind,
                revision=self.revision,
                endpoint=self.endpoint,
                cache_dir=self.cache_dir,
                allow_patterns=list(patterns),
            )
        return Path(str(folder))

    def _fetch(self, path: str, *, force: bool = False) -> Path:
        from huggingface_hub import hf_hub_download

        with explained(f"download {self.name}/{path}"):
            local = hf_hub_download(
                self.name,
                path,
                repo_type=self.kind,
                revision=self.revision,
                endpoint=self.endpoint,
                cache_dir=self.cache_dir,
                force_download=force,
            )
        return Path(local)


@contextmanager
def explained(
    what: str, again: str = "run again, which fetches only what is not whole in the cache"
) -> Iterator[None]:
    """Say what could not be done, why, and what the reader can do.

    Args:
        what: What was tried.
        again: What to do where the network or the hub failed.
    """
    from huggingface_hub import errors

    try:
        yield
    except Exception as error:
        # What is neither in the cache nor reached: the cause says why it was not reached.
        reason = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None
        if (refusal := _refusal(reason or error, what, again)) is None:
            raise
        raise refusal from error


def _refusal(error: BaseException, what: str, again: str) -> Exception | None:
    """The error to raise; ``None`` for one that is neither the hub's, the network's nor the disk's."""
    from huggingface_hub import errors

    reason = _first_line(error)
    gone = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError)
    if isinstance(error, gone):
        return InputError(
            f"cannot {what}: the hub knows no such repository, commit or file ({reason})",
            remedy="correct the name or revision; a private or gated repository needs HF_TOKEN",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return ConfigurationError(f"cannot {what}: HF_HUB_OFFLINE is set; unset it or use a local source")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"cannot {what}: no room left on the disk; free some and run again")
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code == 429:
        return StorageError(
            f"cannot {what}: the hub allows no more requests for now ({reason}); run again later, or set HF_TOKEN, "
            "which allows more"
        )
    if isinstance(error, errors.HFValidationError):
        return ConfigurationError(
            f"cannot {what}: the hub has no such names ({reason}); write owner/name in letters, digits, `-`, `_` and `.`"
        )
    refused = isinstance(error, errors.HfHubHTTPError) and error.response.status_code in (401, 403)
    if refused or isinstance(error, errors.LocalTokenNotFoundError):
        return StorageError(
            f"cannot {what}: the hub does not allow it ({reason}); set HF_TOKEN to a token that may; the "
            "hub makes one under Settings, Access Tokens"
        )
    is_of_network = "httpx" in type(error).__module__
    if is_of_network and type(error).__name__ in ("ConnectError", "ConnectTimeout"):
        return StorageError(
            f"cannot {what}: no connection to the hub ({reason}); look at the network and at the hub's address "
            f"(`endpoint`, or HF_ENDPOINT), and {again}; or name a local folder instead of the hub"
        )
    if is_of_network or isinstance(error, OSError | errors.HfHubHTTPError):
        return StorageError(f"cannot {what}: {reason}; {again}")
    return None


def _difference(local: Path, file: HubFile) -> str | None:
    """How a downloaded file differs from its listing, or ``None``."""
    size = local.stat().st_size
    if size != file.size:
        return f"{size} bytes came where {file.size} are listed"
    if not file.sha256:
        return None
    with local.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if found == file.sha256 else f"SHA-256 {found} where {file.sha256} is listed"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]

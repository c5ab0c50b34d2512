"""Whole files from the Hugging Face hub: pinned, verified, politely retried. Knows no dataset and no model.

The transfer itself is ``huggingface_hub``'s: it resumes partial files, keys its cache by etag and waits as a
429's RateLimit header says. What is added here: the revision must be a commit, size and SHA-256 are checked
against the listing, failures are retried a bounded number of times with the reason logged, and every refusal
names file and remedy.
"""

import dataclasses
import errno
import hashlib
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from datamask_pipeline.errors import ConfigurationError, InputError, StorageError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Attempts of one request beyond those that huggingface_hub makes by itself.
ATTEMPTS: Final = 4
FIRST_WAIT_SECONDS: Final = 2.0

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
        first_wait_seconds: Wait before the second attempt; doubled before each further one.

    Raises:
        ConfigurationError: the revision is no commit hash.
    """

    name: str
    revision: str
    kind: str = "model"
    endpoint: str | None = None
    cache_dir: str | None = None
    first_wait_seconds: float = FIRST_WAIT_SECONDS

    def __post_init__(self) -> None:
        check_pinned(self.name, self.revision)

    def list_files(self, folder: str = "") -> list[HubFile]:
        """Every file under a folder at this commit, by path; one listing, not one request a file.

        Raises:
            InputError: no such repository, commit or folder.
            StorageError: the hub did not answer.
        """
        from huggingface_hub import HfApi, RepoFile

        api = HfApi(endpoint=self.endpoint)

        def listing() -> list[HubFile]:
            entries = api.list_repo_tree(
                self.name,
                path_in_repo=folder or None,
                recursive=True,
                revision=self.revision,
                repo_type=self.kind,
            )
            return [
                HubFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else "", entry.blob_id)
                for entry in entries
                if isinstance(entry, RepoFile)
            ]

        found = self._patiently(f"list {self.name}/{folder}", listing)
        return sorted(found, key=lambda file: file.path)

    def download(self, file: HubFile | str) -> Path:
        """The whole file in the local cache, verified; a copy that is there already costs no request.

        Args:
            file: The file, or just its path where no listing was made; then only the hub's etag is checked.

        Raises:
            InputError: no such file.
            StorageError: the hub did not deliver, the disk is full, or what came is not what was listed.
        """
        from huggingface_hub import hf_hub_download

        path = file if isinstance(file, str) else file.path

        def fetch(force: bool = False) -> Path:
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

        what = f"download {self.name}/{path}"
        local = self._patiently(what, fetch)
        if isinstance(file, HubFile) and (problem := _difference(local, file)):
            logger.warning("%s: %s; fetching it once more", what, problem)
            local = self._patiently(what, lambda: fetch(force=True))
            if problem := _difference(local, file):
                raise StorageError(
                    f"{what}: {problem}, twice; the server delivers another file than it lists"
                )
        return local

    def _patiently(self, what: str, request: Callable[[], Result]) -> Result:
        """Make a request; try again, visibly and a bounded number of times, where that can help."""
        wait = self.first_wait_seconds
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return request()
            except Exception as error:
                reason = _first_line(error)
                if refusal := _refusal(error, what, reason):
                    raise refusal from error
                if attempt == ATTEMPTS:
                    raise StorageError(
                        f"cannot {what} after {ATTEMPTS} attempts: {reason}; run again to go on where it stopped"
                    ) from error
                logger.warning(
                    "cannot %s: %s; attempt %d of %d, waiting %.1f s", what, reason, attempt, ATTEMPTS, wait
                )
                time.sleep(wait)
                wait *= 2
        raise AssertionError("unreachable")


def _refusal(error: Exception, what: str, reason: str) -> Exception | None:
    """The error to raise where trying again cannot help; ``None`` where it can."""
    from huggingface_hub import errors

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
    # Not there in the cache and no connection: a LocalEntryNotFoundError is a FileNotFoundError by class.
    transient = isinstance(error, OSError | errors.HfHubHTTPError) or "httpx" in type(error).__module__
    return None if transient else error


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


def _first_line(error: Any) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]

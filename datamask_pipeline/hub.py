"""Whole files from the Hugging Face hub: pinned to a commit and verified. Knows no dataset and no model.

Transfer, cache, retries, the wait that a rate limit asks for and resuming are ``huggingface_hub``'s. What is added
here: the revision must be a commit, size and SHA-256 are checked against the listing, and every refusal names file
and remedy.
"""

import dataclasses
import errno
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from datamask_pipeline.errors import ConfigurationError, DataMaskError, InputError, StorageError, first_line

logger = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = 64
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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
        ConfigurationError: the revision is no commit hash, or the endpoint no address without a password.
    """

    name: str
    revision: str
    kind: str = "model"
    endpoint: str | None = None
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        check_pinned(self.name, self.revision)
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"endpoint {self.endpoint!r}: write it with http:// or https:// before it"
            )
        if self.endpoint is not None and re.search(r"//[^/]*@", self.endpoint):
            raise ConfigurationError(
                "endpoint: an address that holds a password would show it wherever it is told; leave it out, and set "
                "HF_TOKEN where that server asks for a token"
            )

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

        Files that are there already, and the listing that says so, cost no request. Each is held against the digest that the
        hub calls it by; one that is not what it is called is fetched once more.

        Args:
            patterns: As of `fnmatch`: `*` stands for folders too.

        Raises:
            InputError: no such repository or commit.
            StorageError: the hub did not deliver, or what came is not what it is called.
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
        root = Path(str(folder))
        for local in sorted(path for path in root.rglob("*") if path.is_file()):
            path = local.relative_to(root).as_posix()
            if any(fnmatch(path, pattern) for pattern in patterns) and not _is_as_called(local):
                self._fetch_what_is_called(path, local)
        return root

    def _fetch_what_is_called(self, path: str, damaged: Path) -> None:
        """Fetch a file again whose content is not what its name in the cache says."""
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            raise StorageError(
                f"{damaged.resolve()} is not what the hub calls it, and HF_HUB_OFFLINE is set; run once without that, which "
                f"fetches {self.name}/{path} again"
            )
        logger.warning("%s: not what the hub calls it; fetching %s once more", damaged.resolve(), path)
        before = _digest(damaged, "sha256")
        local = self._fetch(path, force=True)
        # A server may call its files by anything; then both copies are alike, and there is nothing to hold them against.
        called = len(local.resolve().name)
        if not _is_as_called(local) and (called == _SHA256 or _digest(local, "sha256") != before):
            raise StorageError(
                f"cannot download {self.name}/{path}: what came is not what the hub calls it, twice; the server delivers "
                "another file than it lists"
            )

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
    except DataMaskError:
        raise
    except Exception as error:
        # What is neither in the cache nor reached: the cause says why it was not reached.
        reason = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None
        if (refusal := _refusal(reason or error, what, again)) is None:
            raise
        raise refusal from error


def _refusal(error: BaseException, what: str, again: str) -> Exception | None:
    """The error to raise; ``None`` for one that is neither the hub's, the network's nor the disk's."""
    from huggingface_hub import errors

    # What follows `?` in the address of a file's storage is a signature, with which anybody may fetch it for a while.
    reason = re.sub(r"(https?://[^\s?']+)\?[^\s']*", r"\1", first_line(error))
    gone = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError)
    if isinstance(error, errors.GatedRepoError):
        return StorageError(
            f"cannot {what}: its owner gives access to whom asks for it ({reason}); ask on the repository's page, and set "
            "HF_TOKEN to a token of an account that was given it"
        )
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
    if isinstance(error, json.JSONDecodeError):
        return StorageError(
            f"cannot {what}: what answers is not the hub, as it sends no JSON ({reason}); look at its address "
            f"(`endpoint`, or HF_ENDPOINT) and for a proxy or a page that asks to log in, and {again}"
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


def has_content_of(local: Path, file: HubFile) -> bool:
    """Whether a file of this machine has the very bytes that the hub lists."""
    return _difference(local, file) is None


def _difference(local: Path, file: HubFile) -> str | None:
    """How a downloaded file differs from its listing, or ``None``."""
    size = local.stat().st_size
    if size != file.size:
        return f"{size} bytes came where {file.size} are listed"
    if not file.sha256:
        return (
            None
            if _has_git_digest(local, file.blob)
            else f"its content is not that of git's blob {file.blob}"
        )
    found = _digest(local, "sha256")
    return None if found == file.sha256 else f"SHA-256 {found} where {file.sha256} is listed"


def _is_as_called(local: Path) -> bool:
    """Whether a file of the cache has the digest that is its name there; true where the name is none.

    The hub calls a large file by its SHA-256 and any other by git's digest of it.
    """
    blob = local.resolve()
    if blob.parent.name != "blobs" or not _DIGEST.fullmatch(blob.name):
        return True
    if len(blob.name) == _SHA256:
        return _digest(blob, "sha256") == blob.name
    return _has_git_digest(blob, blob.name)


def _has_git_digest(local: Path, name: str) -> bool:
    """Whether git calls the content of a file so, or a server that leaves out git's header."""
    return name in (_git_digest(local), _digest(local, "sha1"))


def _git_digest(path: Path) -> str:
    git = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            git.update(block)
    return git.hexdigest()


def _digest(path: Path, name: str) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, name).hexdigest()

"""Signs a data set's folder with a key, and checks such a signature. Hashing and signing are `model_signing`'s."""

import re
from ast import literal_eval
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from datamask_pipeline.errors import ConfigurationError, StorageError

#: What the library says before its list of mismatches.
_MISMATCH: Final = "Signature mismatch: "
#: How the library spells a digest in its messages; `literal_eval` reads its bytes.
_DIGEST: Final = re.compile(
    r"""Digest\(algorithm='[^']*', digest_value=(b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*")\)"""
)


def signature_of(folder: Path) -> Path:
    """Where the signature of a folder stands: beside it, so that the folder stays as it is."""
    if folder.name in ("", ".."):  # the working directory has no name of its own
        folder = folder.resolve()
    return folder.with_name(f"{folder.name}.sig")


def check_key(private_key: Path) -> None:
    """Refuse, before anything is published, a key that `sign_folder` would refuse after it.

    Raises:
        ConfigurationError: `model-signing` is not installed, or the key cannot be read.
    """
    _signer(private_key)


def sign_folder(folder: Path, private_key: Path) -> Path:
    """Sign every file of a folder; an earlier signature is replaced.

    Args:
        folder: The data set on this machine.
        private_key: An elliptic-curve key without password, as PEM.

    Returns:
        The signature's file, a sigstore bundle.

    Raises:
        ConfigurationError: `model-signing` is not installed, or the key cannot be read.
        StorageError: the signature cannot be written.
    """
    signer = _signer(private_key)
    target = signature_of(folder)
    try:
        signer.sign(folder, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error}") from error
    return target


def _signer(private_key: Path) -> Any:
    signing = _library().signing
    try:
        return signing.Config().use_elliptic_key_signer(private_key=private_key)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"cannot sign with {private_key}: {error}; give an elliptic-curve key as PEM"
        ) from error


def signature_problem(folder: Path, public_key: Path, signature: Path) -> str | None:
    """Why a signature does not stand for a folder; ``None`` where it does.

    Args:
        folder: The data set on this machine.
        public_key: The signer's public key, as PEM.
        signature: The signature's file.

    Raises:
        ConfigurationError: `model-signing` is not installed, or the key cannot be read.
    """
    from cryptography.exceptions import InvalidSignature

    verifying = _library().verifying
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"cannot verify with {public_key}: {error}; give a public key as PEM"
        ) from error
    try:
        verifier.verify(folder, signature)
    except InvalidSignature:
        return "was made with another key, or changed"
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"does not stand for this folder: {_plain(str(error).partition(chr(10))[0])}"
    return None


def _plain(told: str) -> str:
    """What the library says, with digests in hexadecimal; it spells a list of mismatches as Python does."""
    head, found, listed = told.partition(_MISMATCH)
    if not found or head:
        return told
    lines: list[str] = literal_eval(listed)
    return "; ".join(_DIGEST.sub(lambda digest: literal_eval(digest[1]).hex(), line) for line in lines)


def _library() -> ModuleType:
    try:
        import model_signing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        raise ConfigurationError(
            f"signatures need a library that is not installed ({error}); pip install 'datamask-pipeline[sign]'"
        ) from error
    return model_signing

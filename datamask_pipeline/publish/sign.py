"""Signs a data set's folder with a key, and checks such a signature. Hashing and signing are `model_signing`'s."""

from pathlib import Path
from types import ModuleType

from datamask_pipeline.errors import ConfigurationError, StorageError


def signature_of(folder: Path) -> Path:
    """Where the signature of a folder stands: beside it, so that the folder stays as it is."""
    return folder.with_name(f"{folder.name}.sig")


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
    signing = _library().signing
    target = signature_of(folder)
    try:
        signer = signing.Config().use_elliptic_key_signer(private_key=private_key)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"cannot sign with {private_key}: {error}; give an elliptic-curve key as PEM"
        ) from error
    try:
        signer.sign(folder, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error}") from error
    return target


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
        return f"does not stand for this folder: {str(error).partition(chr(10))[0]}"
    return None


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

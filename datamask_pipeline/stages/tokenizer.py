"""Tokenizer: one for all arms of a release, a byte-level BPE learnt from a sample of its whole pool, or another model's.

Learnt from the pool, not from a subset, so that no arm's tokenizer favours that arm.
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pydantic

from datamask_pipeline import texts
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.hub import HubRepository, check_pinned
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "tokenizer"
VERSION: Final = "1"
TREE: Final = "tokenizer"

_TOKENIZER: Final = "tokenizer.json"
#: What a tokenizer consists of; only the first must be there.
_FILES: Final = (_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
#: Settings that only a tokenizer learnt here reads.
_LEARNT: Final = ("vocab_size", "sample_documents")


class TokenizerConfig(Settings):
    """The tokenizer shared by a release's models."""

    name: str | None = pydantic.Field(
        None,
        description="The tokenizer of a model: its hub name (with `revision`) or a directory with a tokenizer.json. Null "
        "learns one from the release's pool.",
    )
    revision: str | None = pydantic.Field(None, description="The hub model's commit.")
    endpoint: str | None = execution_field(None, description="Another server that speaks the hub's protocol.")
    cache_dir: str | None = execution_field(
        None, description="Where downloads are kept; null: the hub's own cache."
    )
    vocab_size: int = pydantic.Field(
        4096, ge=300, le=2**20, description="Most entries, special ones included."
    )
    sample_documents: int = pydantic.Field(
        2000, ge=1, description="Eligible documents the merges are learnt from, chosen by content hash."
    )
    sequence_length: int = pydantic.Field(
        256,
        ge=8,
        description="Noted in the tokenizer's files as its `model_max_length`, for who loads it with a model; models are "
        "trained on `pretrain.sequence_length`.",
    )

    def result_config(self) -> dict[str, Any]:
        """What decides the tokenizer: of a named one its content or commit, never where it lies."""
        settings = super().result_config()
        if self.name is None:
            return {name: settings[name] for name in (*_LEARNT, "sequence_length")}
        place = Path(self.name)
        model = _digest(place) if place.is_dir() else f"{self.name}@{self.revision}"
        return {"model": model, "sequence_length": self.sequence_length}


def check(config: TokenizerConfig) -> None:
    """Refuse what naming a tokenizer would refuse; asks no hub.

    Raises:
        ConfigurationError: a revision that may move or is not read, a directory without a tokenizer, or settings of a
            tokenizer that is learnt.
    """
    if config.name is None:
        if config.revision is not None:
            raise ConfigurationError("tokenizer.revision: not read without tokenizer.name; leave it out")
        return
    for name in _LEARNT:
        if name in config.model_fields_set:
            raise ConfigurationError(
                f"tokenizer.{name}: not read, as tokenizer.name names one; leave one of the two out"
            )
    place = Path(config.name)
    if place.is_file() or not config.name.strip():
        raise ConfigurationError(
            f"tokenizer.name {config.name!r} is no directory and no model's name; give the directory that holds "
            f"{_TOKENIZER}, or owner/name with tokenizer.revision"
        )
    if place.is_dir():
        if config.revision is not None:
            raise ConfigurationError(
                f"tokenizer.revision: not read, as {config.name!r} is on this disk; leave it out"
            )
        _digest(place)
        _refuse_unreadable(place)
    elif config.name.startswith(("/", ".", "~")) or config.name.count("/") > 1:
        raise ConfigurationError(
            f"tokenizer.name {config.name!r} is no directory; correct the path, or name a model of the hub"
        )
    elif config.revision is None:
        raise ConfigurationError(
            f"tokenizer.name {config.name!r} is a model of the hub: pin tokenizer.revision to a commit hash"
        )
    else:
        check_pinned(config.name, config.revision)


def _refuse_unreadable(place: Path) -> None:
    from datamask_pipeline.pretraining.tokenizer import read_tokenizer

    try:
        read_tokenizer(place)
    except InputError as error:
        raise ConfigurationError(f"tokenizer.name: {error}") from error


def run(
    config: TokenizerConfig, *, store: Store, release: str, candidates: Ref, documents: Mapping[str, Ref]
) -> Ref:
    """Learn the tokenizer of a release, or take the one that is named.

    Raises:
        InputError: the release has no eligible document, or the tokenizer that is named cannot be used.
        StorageError: the hub did not deliver it.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"documents/{crawl}": ref for crawl, ref in documents.items()}
    builder = store.begin(STAGE, release, version=VERSION, config=config.result_config(), inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.pretraining.tokenizer import adopt_tokenizer, train_tokenizer

    directory = builder.scratch() / TREE
    if config.name is not None:
        files = _files(config, builder.scratch() / "files")
        tokenizer = adopt_tokenizer(
            files, directory, name=config.name, sequence_length=config.sequence_length
        )
        tree = builder.write_tree(TREE, directory)
        named = {"entries": len(tokenizer), "name": config.name, "revision": config.revision}
        return builder.commit([], trees=[tree], metadata=named)
    chosen = texts.pool_documents(store, candidates, documents, "eligible", limit=config.sample_documents)
    sample = (text for _, text in chosen)
    tokenizer = train_tokenizer(
        sample, directory, vocab_size=config.vocab_size, sequence_length=config.sequence_length
    )
    tree = builder.write_tree(TREE, directory)
    return builder.commit([], trees=[tree], metadata={"entries": len(tokenizer)})


def _files(config: TokenizerConfig, folder: Path) -> Path:
    """A folder with the tokenizer's own files and no other."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place = Path(str(config.name))
    if place.is_dir():
        found = {name: place / name for name in _FILES if (place / name).is_file()}
    else:
        repository = HubRepository(
            str(config.name), str(config.revision), endpoint=config.endpoint, cache_dir=config.cache_dir
        )
        found = {
            file.path: repository.download(file) for file in repository.list_files() if file.path in _FILES
        }
    if _TOKENIZER not in found:
        raise InputError(f"{config.name} has no {_TOKENIZER}", remedy="name a model with a fast tokenizer")
    for name, path in found.items():
        shutil.copyfile(path, folder / name)
    return folder


def _digest(place: Path) -> str:
    if not (place / _TOKENIZER).is_file():
        raise ConfigurationError(
            f"tokenizer.name: directory {str(place)!r} holds no {_TOKENIZER}; correct the path, or save a fast tokenizer"
        )
    found = [place / name for name in _FILES if (place / name).is_file()]
    lines = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in found]
    return f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def amount(manifest: Mapping[str, Any]) -> str:
    """How much was made."""
    return f"{manifest['metadata']['entries']} entries"

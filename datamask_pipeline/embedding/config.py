"""Settings of an encoder, and the model they resolve to. Knows no torch and loads no weights."""

import dataclasses
import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any, Literal

import pydantic

from datamask_pipeline.embedding.presets import PRESETS, EncoderSpec
from datamask_pipeline.errors import ConfigurationError, IntegrityError, suggestion
from datamask_pipeline.hardware import present_device, resolve_batch_tokens, resolve_dtype
from datamask_pipeline.hub import check_pinned
from datamask_pipeline.settings import Settings, execution_field

#: Files of a model directory that decide its results.
MODEL_FILES = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")


class EncoderConfig(Settings):
    """Which model embeds, and how its batches are composed."""

    encoder: str = pydantic.Field(
        "minilm-mean-cls",
        description="A preset, or any sentence-transformers model: its hub name (with `revision`) or directory.",
    )
    revision: str | None = pydantic.Field(
        None, description="Commit hash of the hub repository; presets bring their own."
    )
    prefix: str | None = pydantic.Field(
        None,
        description="Put before every document; null takes the preset's, or the model's own default prompt.",
    )
    max_tokens: int | None = pydantic.Field(
        None,
        ge=8,
        description="Tokens a document is cut to; null takes the preset's or the model's own limit.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = pydantic.Field(
        "auto",
        description="Arithmetic of the forward pass; auto is bfloat16 on hardware that multiplies it natively. "
        "Pooling and normalisation are always float32.",
    )
    batch_tokens: int | None = pydantic.Field(
        None,
        ge=64,
        description="Tokens of a batch, padding included; documents of like length share one. Null takes what "
        "suits the device.",
    )
    window_documents: int = pydantic.Field(
        1_024,
        ge=1,
        description="Documents sorted by length together. Also the checkpoint interval: a kill repeats at most one.",
    )
    device: str | tuple[str, ...] = execution_field(
        "auto",
        description="`cpu` (a worker a core), `cuda:1` (three), workers such as [cuda:0, cuda:1] or [cpu, cpu], or auto: "
        "every accelerator, else the CPU. Order and bytes are the same for any number of workers.",
    )

    @pydantic.field_validator("device")
    @classmethod
    def _some_device(cls, device: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not device:
            raise ValueError(
                f"{device!r} names no device; use `auto`, `cpu` or a list such as [cuda:0, cuda:1]"
            )
        return device

    def result_config(self) -> dict[str, Any]:
        """What decides the vectors, as it resolves here: never ``auto``, and never where a model lies."""
        spec = self.spec()
        model, revision = model_identity(spec)
        resolved = self._resolved() | {
            "model": f"{model}@{revision}" if model_directory(spec) is None else revision,
            "pooling": spec.pooling,
            "prefix": spec.prefix,
            "max_tokens": spec.max_tokens,
        }
        settings = super().result_config()
        return {name: settings[name] for name in settings if name not in ("encoder", "revision")} | resolved

    def loadable(self) -> dict[str, Any]:
        """Settings that make the same encoder again, on any device, as JSON values; in no fingerprint."""
        where = str(Path(self.encoder).resolve()) if self._is_directory() else self.encoder
        return super().result_config() | self._resolved() | {"encoder": where}

    def _resolved(self) -> dict[str, Any]:
        return {
            "dtype": resolve_dtype(self.dtype, self.device),
            "batch_tokens": resolve_batch_tokens(self.batch_tokens, self.device),
        }

    def _is_directory(self) -> bool:
        return self.encoder not in PRESETS and Path(self.encoder).is_dir()

    def spec(self) -> EncoderSpec:
        """The model these settings name.

        Raises:
            ConfigurationError: a hub model without a revision, or one that may move.
        """
        preset = PRESETS.get(self.encoder)
        if preset is None:
            preset = EncoderSpec(model=self.encoder, revision=self.revision or "")
            if not self._is_directory() and not self.revision:
                raise ConfigurationError(
                    f"embed.encoder: encoder {self.encoder!r} is neither a preset ({', '.join(sorted(PRESETS))}) nor a "
                    f"directory{suggestion(self.encoder, PRESETS)}; for a model on the hub, pin `revision` to a commit hash"
                )
        changes: dict[str, Any] = {}
        if self.revision:
            changes["revision"] = self.revision
        if self.prefix is not None:
            changes["prefix"] = self.prefix
        if self.max_tokens is not None:
            changes["max_tokens"] = self.max_tokens
        spec = dataclasses.replace(preset, **changes)
        if not self._is_directory() and not spec.package:
            check_pinned(spec.model, spec.revision)
        return spec

    def check(self) -> None:
        """Refuse what loading the encoder would refuse, as far as it shows without reading a weight.

        Raises:
            ConfigurationError: no such model or device, or a revision where none is read.
        """
        spec = self.spec()
        directory = model_directory(spec)
        if directory is None and (spec.model.startswith(("/", ".", "~")) or spec.model.count("/") > 1):
            raise ConfigurationError(
                f"embed.encoder {spec.model!r} is no directory; correct the path, or name a preset or a model of the hub"
            )
        if directory is not None:
            if self.revision:
                raise ConfigurationError(
                    f"embed.revision {self.revision!r} is the commit of a model on the hub, but embed.encoder "
                    f"{self.encoder!r} is on this disk; leave `revision` out"
                )
            require_model_files(directory)
        for device in (self.device,) if isinstance(self.device, str) else self.device:
            if device not in ("auto", "cpu"):
                present_device(device)


def require_model_files(directory: Path) -> None:
    """Refuse a directory that is no model's.

    Raises:
        ConfigurationError: it has neither of the files that every model has.
    """
    if not any((directory / name).is_file() for name in ("config.json", "modules.json")):
        raise ConfigurationError(
            f"directory {str(directory)!r} holds no model, as it has no config.json; correct the path"
        )


def stated_dim(directory: Path) -> int | None:
    """Numbers of a text's vector, as the files of a sentence-transformers model state them; ``None`` where they do not.

    Only loading the model tells whether the files are right.
    """
    dim = None
    try:
        modules = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
        for module in modules:
            path = directory / module["path"] / "config.json"
            kind = module["type"].rpartition(".")[2]
            if kind not in ("Pooling", "Dense"):
                continue
            stated = json.loads(path.read_text(encoding="utf-8"))
            dim = stated["out_features"] if kind == "Dense" else _pooled_dim(stated)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dim if isinstance(dim, int) else None


def _pooled_dim(stated: dict[str, Any]) -> int:
    """The width of what a module of pooling gives: its ways stand beside each other."""
    if "embedding_dimension" in stated:
        mode = stated["pooling_mode"]
        return int(stated["embedding_dimension"]) * (1 if isinstance(mode, str) else len(mode))
    ways = sum(bool(used) for name, used in stated.items() if name.startswith("pooling_mode_"))
    return int(stated["word_embedding_dimension"]) * ways


def model_directory(spec: EncoderSpec) -> Path | None:
    """Where the model lies on this disk; ``None`` if it is the hub's.

    Raises:
        ConfigurationError: the package that carries the weights is not installed.
    """
    if spec.package:
        found = importlib.util.find_spec(spec.package)
        if found is None or not found.submodule_search_locations:
            raise ConfigurationError(
                f"the weights' package {spec.package!r} is not installed; install this project's requirements"
            )
        return Path(next(iter(found.submodule_search_locations))) / "model"
    return Path(spec.model) if Path(spec.model).is_dir() else None


def model_identity(spec: EncoderSpec) -> tuple[str, str]:
    """Name and revision of the model, as the lineage states them.

    The revision of a directory or package is the SHA-256 over the files that decide its results.

    Raises:
        ConfigurationError: the directory is no model's.
        IntegrityError: the weights are not the ones the preset pins.
    """
    directory = model_directory(spec)
    if directory is None:
        return spec.model, spec.revision
    require_model_files(directory)
    weights = directory / "model.safetensors"
    if spec.weights_sha256 and _file_sha256(weights) != spec.weights_sha256:
        raise IntegrityError(
            f"{weights} has SHA-256 {_file_sha256(weights)}, not {spec.weights_sha256}; "
            f"reinstall the package {spec.package!r} in the pinned version"
        )
    files = sorted({path for pattern in MODEL_FILES for path in directory.rglob(pattern)})
    lines = [f"{path.relative_to(directory).as_posix()} {_file_sha256(path)}" for path in files]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return spec.package or directory.name, f"sha256:{digest}"


@functools.lru_cache(maxsize=64)
def _file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

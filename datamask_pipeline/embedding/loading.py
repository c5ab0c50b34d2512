"""A sentence-transformers model out of its files: whole, and of a layout that is computed here; or refused.

Knows no text but its own trial, and no batching.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import torch_threads

#: What every model is tried on; of unlike lengths, so that one is padded.
TRIAL: Final = ("A few words, to see that a model embeds them as its authors do.", "One more.")

#: Least cosine between a trial's vector here and sentence-transformers' own; bfloat16 stays above it.
AGREEMENT: Final = 0.995

#: Modules that may follow the transformer. Others need more than its last hidden states, or see a batch's padding.
FURTHER_MODULES: Final = ("Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")

#: Names of the tables of learnt absolute positions in transformers' models.
POSITION_TABLES: Final = ("position_embeddings", "position_embedding", "embed_positions", "wpe")


def load_model(location: str, revision: str | None, device: str) -> tuple[Any, list[str]]:
    """A SentenceTransformer in float32, and the names of what its checkpoint lacks, sorted.

    What is lacking is NaN: transformers draws it at random. Nothing that is computed can then rest on it unseen,
    and what takes no part, such as the pooler of an encoder whose hidden states are averaged, does no harm.

    Args:
        location: Hub name, or directory.
        revision: Commit of the hub repository; ``None`` for a directory.
        device: Where it is put.

    Raises:
        ConfigurationError: its files are not there or broken, or it has modules that are not computed here.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    try:
        model = SentenceTransformer(
            location,
            revision=revision,
            device=device,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # safetensors, tokenizers and pickle raise errors of no common kind
        raise ConfigurationError(
            f"encoder {location!r} cannot be loaded: {_line(error)}; check its name and revision, or fetch its "
            "files again"
        ) from error
    further = [getattr(modules, name) for name in FURTHER_MODULES]
    if not isinstance(model[0], modules.Transformer) or any(
        type(part) not in further for part in list(model)[1:]
    ):
        raise ConfigurationError(
            f"encoder {location!r} is made of {_modules(model)}; choose one of a Transformer and, after it, "
            f"{', '.join(FURTHER_MODULES)} alone"
        )
    model.eval().requires_grad_(False).float()
    missing = _missing(model[0].model, location, revision)
    for name, parameter in model[0].model.named_parameters():
        if name in missing:
            parameter.fill_(float("nan"))
    return model, missing


def _missing(transformer: Any, location: str, revision: str | None) -> list[str]:
    """Names of the transformer's parameters that its checkpoint lacks, sorted; no weight is read for it."""
    from sentence_transformers.util import load_file_path

    folder = ""
    if found := load_file_path(location, "modules.json", revision=revision):
        folder = json.loads(Path(found).read_text(encoding="utf-8"))[0]["path"]
    _, about = type(transformer).from_pretrained(
        location,
        subfolder=folder,
        revision=revision or "main",
        config=transformer.config,
        device_map="meta",
        output_loading_info=True,
    )
    return sorted(about["missing_keys"])


def length_limit(model: Any, location: str, max_tokens: int | None) -> int:
    """Tokens a document is cut to.

    Args:
        model: As ``load_model`` returns it.
        location: Its name in messages.
        max_tokens: As the settings state it; ``None`` is the model's own limit.

    Raises:
        ConfigurationError: more than the model has positions; or none is stated anywhere.
    """
    from transformers.tokenization_utils_base import LARGE_INTEGER

    positions = _num_positions(model[0].model)
    if max_tokens is not None:
        if positions is not None and max_tokens > positions:
            raise ConfigurationError(
                f"`max_tokens` is {max_tokens}, but encoder {location!r} has {positions} positions; set `max_tokens` "
                f"to {positions} or less, or to null for the model's own limit"
            )
        return max_tokens
    stated = {"max_length": model.max_seq_length}
    for kind in ("text", "common"):
        stated |= model[0].processing_kwargs.get(kind, {})
    own = stated["max_length"]
    if own is None or own > LARGE_INTEGER:
        raise ConfigurationError(f"encoder {location!r} states no length limit; set `max_tokens`")
    return int(own if positions is None else min(own, positions))


def own_vectors(model: Any, location: str, prompt: str) -> NDArray[np.float32]:
    """Unit vectors_BD that sentence-transformers itself gives the trial's texts.

    Raises:
        ConfigurationError: it gives none.
    """
    return _tried(
        lambda: model.encode(
            list(TRIAL), prompt=prompt, batch_size=1, normalize_embeddings=True, show_progress_bar=False
        ),
        model,
        location,
    )


def check_trial(
    embed: Callable[[list[str]], NDArray[np.float32]],
    expected_BD: NDArray[np.float32] | None,
    model: Any,
    location: str,
    missing: list[str],
) -> None:
    """See that a loaded model embeds, and as sentence-transformers does.

    Args:
        embed: Texts to unit vectors_BD, in one batch.
        expected_BD: ``own_vectors``; ``None`` where the pooling is not the model's.
        model: As ``load_model`` returns it.
        location: Its name in messages.
        missing: Parameters that its checkpoint lacks.

    Raises:
        ConfigurationError: there are no vectors, or not finite ones, or others.
    """
    found_BD = _tried(lambda: embed(list(TRIAL)), model, location)
    if not np.isfinite(found_BD).all():
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ConfigurationError(
                f"the weights of encoder {location!r} lack tensors that its vectors need: "
                f"{', '.join(missing[:3])}{more}; fetch its files again"
            )
        raise ConfigurationError(
            f"encoder {location!r} gives vectors that are not finite, so its weights are broken; fetch its files again"
        )
    if expected_BD is None:
        return
    agreement = float((found_BD * expected_BD).sum(1).min()) if found_BD.shape == expected_BD.shape else 0.0
    if not agreement >= AGREEMENT:
        raise ConfigurationError(
            f"encoder {location!r} is configured in a way that is not computed here: its vectors differ from "
            f"sentence-transformers' own, to a cosine of {agreement:.3f}; choose `dtype: float32`, or another model"
        )


def _tried(attempt: Callable[[], Any], model: Any, location: str) -> NDArray[np.float32]:
    try:
        # Waking further threads for so little takes longer than the work.
        with torch_threads(1):
            return np.asarray(attempt(), dtype=np.float32)
    except Exception as error:  # a module raises what it likes
        raise ConfigurationError(
            f"encoder {location!r}, made of {_modules(model)}, cannot embed a text: {_line(error)}; choose another model"
        ) from error


def _num_positions(transformer: torch.nn.Module) -> int | None:
    """Tokens for which the transformer has learnt positions; ``None`` where it computes them."""
    found = []
    for name, module in transformer.named_modules():
        if name.rsplit(".", 1)[-1] in POSITION_TABLES and isinstance(module, torch.nn.Embedding):
            # RoBERTa and its kin count from the row after the padding's, BART and OPT from a stated one.
            first = module.padding_idx + 1 if module.padding_idx is not None else getattr(module, "offset", 0)
            found.append(module.num_embeddings - first)
    return min(found, default=None)


def _modules(model: Any) -> str:
    return ", ".join(type(module).__name__ for module in model)


def _line(error: Exception) -> str:
    """The error's kind and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"

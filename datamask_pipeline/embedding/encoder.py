"""One loaded embedding model: texts to token ids, token ids to unit vectors. Knows no batching and no storage.

Shape suffixes: B documents of a batch, T tokens, H hidden width, D embedding width.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.embedding.config import EncoderConfig, model_directory, model_identity
from datamask_pipeline.embedding.loading import check_trial, length_limit, load_model, own_vectors
from datamask_pipeline.embedding.packed import pack_linears
from datamask_pipeline.embedding.presets import EncoderSpec
from datamask_pipeline.hardware import present_device, resolve_devices, resolve_dtype

#: Reads scores_B off the last hidden states_BTH.
Head = Callable[[torch.Tensor], torch.Tensor]

#: Words tokenised beyond those that could fit, so that what stands at the cut is never among the tokens kept.
SPARE_WORDS = 8


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A model ready to embed.

    Attributes:
        spec: What was asked for; its prefix is the model's default prompt where none was stated.
        model_name: The model, as the lineage names it.
        revision: Its revision.
        dim: D, the width of its vectors.
        max_tokens: Tokens a document is cut to.
        prompt_length: Tokens of the prefix, for a pooling that leaves them out.
        heads: Further heads on the same hidden states, by name.
    """

    spec: EncoderSpec
    model_name: str
    revision: str
    dim: int
    max_tokens: int
    device: torch.device
    dtype: torch.dtype
    _model: Any
    _tokenizer: Any
    prompt_length: int = 0
    heads: Mapping[str, Head] = dataclasses.field(default_factory=dict)

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, prefix and special tokens included, cut to ``max_tokens``."""
        if self._tokenizer.truncation_side != "right":
            return self._ids(texts)
        heads = [_head(text, self.max_tokens + SPARE_WORDS) for text in texts]
        ids = self._ids(heads)
        # A head of words that are no tokens at all, such as control characters, falls short: take the text.
        short = [i for i, head in enumerate(heads) if head != texts[i] and len(ids[i]) < self.max_tokens]
        if short:
            for index, whole in zip(short, self._ids([texts[i] for i in short]), strict=True):
                ids[index] = whole
        return ids

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        prefix = self.spec.prefix or ""
        prefixed = [prefix + text for text in texts]
        if not self._tokenizer.is_fast:
            encoded = self._tokenizer(
                prefixed, truncation=True, max_length=self.max_tokens, return_attention_mask=False
            )
            ids: list[list[int]] = encoded["input_ids"]
            return ids
        # Without the places of tokens in their text, which nobody asks for.
        return [one.ids for one in self._tokenizer.backend_tokenizer.encode_batch_fast(prefixed)]

    @torch.inference_mode()
    def token_states(self, token_ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The transformer's last hidden states, float32.

        Returns:
            states_BTH and the attention mask mask_BT.
        """
        longest = max(len(ids) for ids in token_ids)
        ids_BT = np.full((len(token_ids), longest), self._tokenizer.pad_token_id, dtype=np.int64)
        mask_BT = np.zeros((len(token_ids), longest), dtype=np.int64)
        for row, ids in enumerate(token_ids):
            ids_BT[row, : len(ids)] = ids
            mask_BT[row, : len(ids)] = 1
        batch = {
            name: torch.from_numpy(values_BT).to(self.device)
            for name, values_BT in (("input_ids", ids_BT), ("attention_mask", mask_BT))
        }
        features = self._model[0](batch)
        return features["token_embeddings"].float(), batch["attention_mask"]

    @torch.inference_mode()
    def pool(self, states_BTH: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        """Unit vectors_BD, float32, by the model's own pooling or the preset's."""
        if self.spec.pooling == "mean+cls":
            weights_BT1 = mask_BT.unsqueeze(-1).float()
            mean_BH = (states_BTH * weights_BT1).sum(1) / weights_BT1.sum(1)
            vectors_BD = torch.cat([mean_BH, states_BTH[:, 0]], dim=1)
        else:
            features: dict[str, Any] = {"token_embeddings": states_BTH, "attention_mask": mask_BT}
            if self.prompt_length:
                features["prompt_length"] = self.prompt_length
            for module in list(self._model)[1:]:
                features = module(features)
            vectors_BD = features["sentence_embedding"]
        return torch.nn.functional.normalize(vectors_BD.float(), dim=1)

    @torch.inference_mode()
    def embed(
        self, token_ids: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float64]]]:
        """One batch of tokenised documents in one forward pass.

        Returns:
            Unit vectors_BD, and for each of ``heads`` the scores_B it reads off the hidden states.
        """
        states_BTH, mask_BT = self.token_states(token_ids)
        vectors_BD: NDArray[np.float32] = self.pool(states_BTH, mask_BT).cpu().numpy()
        scores = {name: head(states_BTH).double().cpu().numpy() for name, head in self.heads.items()}
        return vectors_BD, scores

    def weights(self) -> dict[str, torch.Tensor]:
        """The transformer's tensors by name, as they stand in memory."""
        tensors: dict[str, torch.Tensor] = self._model[0].model.state_dict()
        return tensors

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer behind ``tokenise``."""
        return self._tokenizer


def load_encoders(
    config: EncoderConfig, prepare: Callable[[Encoder], Encoder] = lambda encoder: encoder
) -> list[Encoder]:
    """One encoder for each worker that the settings ask for; workers of one device share theirs.

    Args:
        config: The model and its devices.
        prepare: Done to each device's encoder.

    Raises:
        ConfigurationError, IntegrityError: as ``load_encoder``.
    """
    devices = resolve_devices(config.device)
    dtype = resolve_dtype(config.dtype, config.device)
    loaded = {name: prepare(load_encoder(config.spec(), device=name, dtype=dtype)) for name in set(devices)}
    return [loaded[name] for name in devices]


def load_encoder(spec: EncoderSpec, *, device: str, dtype: str) -> Encoder:
    """Load a model onto a device.

    Args:
        spec: Which model.
        device: ``cpu``, ``cuda`` or the like.
        dtype: Arithmetic of the transformer: ``float32`` or ``bfloat16``.

    Raises:
        ConfigurationError: the device is not there; or the model cannot be loaded, lacks weights, has fewer
            positions than ``max_tokens`` or no limit at all, or is of a layout that is not computed here.
        IntegrityError: the weights are not the pinned ones.
    """
    present_device(device)
    name, revision = model_identity(spec)
    directory = model_directory(spec)
    location = str(directory) if directory is not None else spec.model
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    model, missing = load_model(location, None if directory else spec.revision, device)
    limit = length_limit(model, location, spec.max_tokens)
    prefix = model.prompts.get(model.default_prompt_name, "") if spec.prefix is None else spec.prefix
    model.max_seq_length = limit
    expected_BD = own_vectors(model, location, prefix) if spec.pooling == "own" else None
    precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    model[0].to(precision)
    pack_linears(model[0])
    if model.tokenizer.is_fast:
        model.tokenizer.backend_tokenizer.enable_truncation(limit, direction=model.tokenizer.truncation_side)
        model.tokenizer.backend_tokenizer.no_padding()
    encoder = Encoder(
        spec=dataclasses.replace(spec, prefix=prefix),
        model_name=name,
        revision=revision,
        dim=2 * model[0].get_embedding_dimension() if expected_BD is None else expected_BD.shape[1],
        max_tokens=limit,
        device=torch.device(device),
        dtype=precision,
        _model=model,
        _tokenizer=model.tokenizer,
    )
    encoder = dataclasses.replace(encoder, prompt_length=_prompt_length(encoder))

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors_BD: NDArray[np.float32] = (
            encoder.pool(*encoder.token_states(encoder.tokenise(texts))).cpu().numpy()
        )
        return vectors_BD

    check_trial(embed, expected_BD, model, location, missing)
    return encoder


def _prompt_length(encoder: Encoder) -> int:
    """Tokens of the prefix, as sentence-transformers counts them: without a special token at their end."""
    if not encoder.spec.prefix:
        return 0
    (ids,) = encoder.tokenise([""])
    return len(ids) - (ids[-1] in encoder.tokenizer.all_special_ids)


def _head(text: str, num_words: int) -> str:
    """The text's first words: all a model sees, and long texts are not tokenised to their end for nothing."""
    pieces = text.split(None, num_words)
    return text[: len(text) - len(pieces[-1])] if len(pieces) > num_words else text

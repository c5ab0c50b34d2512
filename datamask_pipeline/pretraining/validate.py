"""Bits per byte of a model on held-out texts.

Knows no arm and no training. Bytes, unlike tokens, do not depend on the tokenizer, so models with
different vocabularies can be compared.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError
from datamask_pipeline.hardware import freed_pages_kept, present_device, torch_threads
from datamask_pipeline.pretraining.checkpoints import no_progress_bars
from datamask_pipeline.pretraining.data import batched
from datamask_pipeline.pretraining.tokenizer import encoder

_IGNORED = -100  # torch's cross entropy skips this target
_DOCUMENTS_AT_ONCE = 256


@dataclass(frozen=True)
class Validation:
    """How well a model predicts the validation texts.

    `document_bits[i]` and `document_bytes[i]` belong to the i-th text, so that two models can be compared
    in pairs.
    """

    bits_per_byte: float
    num_documents: int
    num_tokens: int
    num_bytes: int
    document_bits: tuple[float, ...]
    document_bytes: tuple[int, ...]


def bits_per_byte(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    texts: Iterable[str],
    *,
    sequence_length: int,
    batch_size: int = 16,
) -> Validation:
    """Negative log2-likelihood of the texts over their UTF-8 bytes; the end of each text counts as a token.

    Formula:
        sum over documents and tokens of -log2 p(token | context) / sum of bytes

    A document is cut into chunks of `sequence_length` predictions. The context of a chunk begins with the
    token before it (an end of text before the first), so every token is predicted exactly once.

    Args:
        model: In evaluation, on any device.
        texts: The validation set, the same for every arm.
        sequence_length: Predictions of one chunk; no more than the model's context.
        batch_size: Chunks of one forward pass.

    Raises:
        InputError: There is no text.

    Cost: one forward pass over the texts; memory of one batch.
    """
    was_training = model.training
    model.eval()
    encode = encoder(tokenizer)
    bits: list[float] = []
    sizes: list[int] = []
    num_tokens = 0
    for group in batched(texts, _DOCUMENTS_AT_ONCE):
        documents = [[tokenizer.eos_token_id, *ids, tokenizer.eos_token_id] for ids in encode(group)]
        bits += document_bits(model, documents, sequence_length, batch_size)
        sizes += [len(text.encode()) for text in group]
        num_tokens += sum(len(ids) - 1 for ids in documents)
    model.train(was_training)
    if not sum(sizes):
        raise InputError(
            "the validation set holds no text", remedy="raise the validation share or give more documents"
        )
    return Validation(
        math.fsum(bits) / sum(sizes), len(bits), num_tokens, sum(sizes), tuple(bits), tuple(sizes)
    )


def checkpoint_bits(
    directory: Path, tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], *, device: str, threads: int
) -> Validation:
    """`bits_per_byte` by a checkpoint, at the length that it was trained on.

    Args:
        directory: The checkpoint's.
        tokenizer: Its tokenizer.
        texts: As of `bits_per_byte`.
        device: Where it computes.
        threads: CPU threads; their number can change the last bits.

    Raises:
        ConfigurationError: The device is not there.
        InputError: There is no text.
    """
    place = present_device(device)
    with torch_threads(threads), freed_pages_kept(), no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True).to(place)
        length = int(model.config.max_position_embeddings)
        return bits_per_byte(model, tokenizer, texts, sequence_length=length)


def document_bits(
    model: PreTrainedModel, documents: Sequence[list[int]], length: int, batch_size: int = 16
) -> list[float]:
    """-log2 likelihood of each document after its first token, its chunks added in float64 in the order of the text.

    Args:
        model: In evaluation, on any device.
        documents: Tokens of each, the end of a text before the first.
        length: Predictions of one chunk.
        batch_size: Chunks of one forward pass.
    """
    chunks = [
        (index, ids[begin : begin + length + 1])
        for index, ids in enumerate(documents)
        for begin in range(0, len(ids) - 1, length)
    ]
    bits = [0.0] * len(documents)
    for batch in batched(chunks, batch_size):
        for (index, _), chunk_bits in zip(
            batch, _chunk_bits(model, [(ids, 1) for _, ids in batch]), strict=True
        ):
            bits[index] += chunk_bits
    return bits


def answer_bits(
    model: PreTrainedModel, asked: Sequence[tuple[list[int], int]], length: int, batch_size: int = 16
) -> list[float]:
    """-log2 likelihood of each answer, given its prompt; a prompt that is too long loses its beginning.

    Args:
        model: In evaluation, on any device.
        asked: Tokens of prompt and answer, the end of a text before them, and how many stand before the answer.
        length: Predictions of one sequence.
        batch_size: Sequences of one forward pass.

    Raises:
        InputError: An answer is longer than a sequence.
    """
    cut = []
    for ids, before in asked:
        gone = max(len(ids) - length - 1, 0)
        if gone >= before:
            raise InputError(
                f"an answer has {len(ids) - before} tokens, more than a sequence of {length}",
                remedy="raise sequence_length",
            )
        cut.append((ids[gone:], before - gone))
    bits = [0.0] * len(cut)
    # Those of like length together: padding costs as much as text does.
    order = sorted(range(len(cut)), key=lambda place: (len(cut[place][0]), place))
    for batch in batched(order, batch_size):
        for place, found in zip(batch, _chunk_bits(model, [cut[place] for place in batch]), strict=True):
            bits[place] = found
    return bits


@torch.inference_mode()
def _chunk_bits(model: PreTrainedModel, chunks: Sequence[tuple[list[int], int]]) -> list[float]:
    """-log2 likelihood of each chunk after its first so many tokens, one at least."""
    width = max(len(ids) for ids, _ in chunks) - 1
    inputs_BT = torch.zeros(len(chunks), width, dtype=torch.long)
    targets_BT = torch.full((len(chunks), width), _IGNORED)
    for row, (ids, given) in enumerate(chunks):
        inputs_BT[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        targets_BT[row, given - 1 : len(ids) - 1] = torch.tensor(ids[given:])
    asked_T = (targets_BT != _IGNORED).any(dim=0).nonzero().squeeze(1)
    # Causal attention: padding on the right is seen by no real position, so no mask is needed.
    logits_BTV = model(
        input_ids=inputs_BT.to(model.device), use_cache=False, logits_to_keep=asked_T.to(model.device)
    ).logits.float()
    nats_BT = torch.nn.functional.cross_entropy(
        logits_BTV.flatten(0, 1),
        targets_BT[:, asked_T].flatten().to(model.device),
        ignore_index=_IGNORED,
        reduction="none",
    ).view(len(chunks), -1)
    return (nats_BT.double().sum(dim=1) / math.log(2)).tolist()

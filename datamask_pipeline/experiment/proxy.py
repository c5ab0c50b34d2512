"""A small network of an arm's tokens, asked what the trigram model is asked. Goes on after a kill, and on another machine.

What a network was asked takes minutes to find and kilobytes to keep: a file of its bits can be carried to another record, or
committed. Its name ends in a digest of all that decides it, so one of other tokens, settings or questions is never taken.
Shape suffixes: I items, D documents, C checkpoints.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.collection import Ruler
from datamask_pipeline.ngram.asked import parted_tokens
from datamask_pipeline.ngram.trigram import Numbers, Texts
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.stages import pretrain as pretrain_stage
from datamask_pipeline.stages.evaluate import final_steps

VERSION: Final = "2"
#: Checkpoints whose mean is what a network is taken to know, at most: of those near the end, as a release's models have it.
_FINAL: Final = 3
_COLUMN = "bits after {} tokens"


@dataclass(frozen=True)
class Curve:
    """What a network knew along its training.

    Attributes:
        tokens: Tokens it had read at each checkpoint, those read again counted again; rising.
        bits_CI: Bits of each item there, as float32 holds them.
    """

    tokens: tuple[int, ...]
    bits_CI: Numbers

    @property
    def result_I(self) -> Numbers:
        """What the network is taken to know of each item: the mean over its last checkpoints."""
        return self.bits_CI[-num_final(self.tokens) :].mean(axis=0)


def num_final(tokens: Sequence[int]) -> int:
    """Of how many last checkpoints, which lie at so many tokens, the mean is a network's result."""
    return len(final_steps(tokens, _FINAL))


def proxy_bits(
    learnt: Texts, ruler: Ruler, config: PretrainConfig, folder: Path, kept: Path | None = None
) -> Curve:
    """Train a network on these texts, unless that is done, and ask it everything.

    Args:
        learnt: The arm's tokens.
        ruler: What is asked.
        config: Architecture, budget and seed.
        folder: Keeps the training's state while it lasts.
        kept: Where the file of what was found lies, or is written: its path up to the digest. ``None``: nowhere but in the
            folder.

    Raises:
        InputError: the kept file cannot be read, or holds another number of items.
        ConfigurationError: the device is not there.
        DataMaskError: the loss ceased to be finite.
    """
    # Here, as only this needs torch.
    import torch
    from transformers import AutoModelForCausalLM

    from datamask_pipeline.hardware import freed_pages_kept, present_device, torch_threads
    from datamask_pipeline.pretraining.checkpoints import bind, no_progress_bars, published, remove_halves
    from datamask_pipeline.pretraining.data import keep_tokens
    from datamask_pipeline.pretraining.train import train
    from datamask_pipeline.pretraining.validate import answer_bits, document_bits

    digest = _digest(learnt, ruler, config)
    beside = folder / "bits" if kept is None else kept
    found = beside.with_name(f"{beside.name}-{digest[:16]}.parquet")
    if found.is_file():
        return _read(found, config, len(ruler.tasks))
    states, models = folder / "resume", folder / "models"
    device = present_device(config.device)
    bind(states, digest)
    remove_halves(states)
    store = keep_tokens(learnt.tokens_T, learnt.offsets_D, states / "tokens")
    train(config, store, states, models, ruler.vocabulary, ruler.end, None)
    asked = [([ruler.end, *ids], length + 1) for ids, length in parted_tokens(ruler.right, ruler.encode)]
    documents = [
        [ruler.end, *ruler.document_texts.tokens_T[begin:end].tolist()]
        for begin, end in itertools.pairwise(ruler.document_texts.offsets_D)
    ]
    length, columns = config.sequence_length, {}
    with torch_threads(config.threads), freed_pages_kept(), no_progress_bars(), torch.inference_mode():
        for checkpoint in published(models):
            model = AutoModelForCausalLM.from_pretrained(checkpoint.directory, local_files_only=True)
            model = model.to(device).eval()
            bits_I = np.array([*answer_bits(model, asked, length), *document_bits(model, documents, length)])
            seen = checkpoint.step * config.batch_size * length
            columns[_COLUMN.format(seen)] = bits_I.astype(np.float32)
    found.parent.mkdir(parents=True, exist_ok=True)
    private = found.with_name(f"{found.stem}.{os.getpid()}.part")
    pq.write_table(pa.table(columns), private)
    private.replace(found)
    for used in (states, models):
        shutil.rmtree(used)
    return _read(found, config, len(ruler.tasks))


def _digest(learnt: Texts, ruler: Ruler, config: PretrainConfig) -> str:
    """Of all that decides what is found, but for the machine's arithmetic."""
    found = hashlib.sha256()
    about = {
        "versions": {"pretrain": pretrain_stage.VERSION, "proxy": VERSION},
        "config": config.result_config(),
        "end": ruler.end,
        "vocabulary": ruler.vocabulary,
        "right": ruler.right,
    }
    found.update(json.dumps(about, sort_keys=True).encode())
    for texts in (learnt, ruler.document_texts):
        for numbers in (texts.tokens_T, texts.offsets_D):
            found.update(np.ascontiguousarray(numbers, np.int64).data)
            found.update(b"|")
    return found.hexdigest()


def _read(path: Path, config: PretrainConfig, num_items: int) -> Curve:
    every, steps = config.checkpoint_every_steps, config.num_steps
    reached = [*range(every, steps, every), steps]
    tokens = tuple(step * config.batch_size * config.sequence_length for step in reached)
    try:
        table = pq.read_table(path, columns=[_COLUMN.format(seen) for seen in tokens])
        bits_CI = np.stack([column.to_numpy().astype(np.float64) for column in table.columns])
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{path}: cannot be read: {error}", remedy="remove it; the network is trained again then"
        ) from error
    if bits_CI.shape != (len(tokens), num_items) or not np.isfinite(bits_CI).all():
        raise InputError(
            f"{path}: not {num_items:,} finite numbers after each of {', '.join(map(str, tokens))} tokens",
            remedy="remove it; the network is trained again then",
        )
    return Curve(tokens, bits_CI)

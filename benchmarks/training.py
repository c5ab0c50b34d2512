"""Training against the plain `transformers.Trainer`: what documents kept apart, checks and publication cost.

Same model, tokens, blocks, steps, schedule and checkpoints, one thread each. The peer is given its blocks from memory, as
texts that run into one another. Both train in turns, the order turning with each; processor seconds of a whole run over
its tokens. Knows no engine.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median

from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments
from transformers.utils import logging

from benchmarks.data import texts_of
from benchmarks.harness import Context, Outcome, at_most, processor_seconds
from datamask_pipeline.hardware import torch_threads
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.data import PackedBlocks, TokenStore, tokenise
from datamask_pipeline.pretraining.model import build_model
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
from datamask_pipeline.pretraining.train import train

TITLE = "Training, against the plain trainer"
QUESTION = "How many processor seconds a token, against transformers' own Trainer on the same blocks?"
LONG = True
DOCUMENTS, VOCABULARY, STEPS, TURNS = 1_500, 4_096, 24, 5
TARGET = 1.05
ACROSS = {"datamask, documents apart": False, "datamask, blocks as one text": True}
PEER = "transformers.Trainer"


class Held(Dataset[dict[str, Tensor]]):
    """Blocks that lie in memory."""

    def __init__(self, blocks: PackedBlocks) -> None:
        self._blocks = [blocks[number] for number in range(len(blocks))]

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return self._blocks[number]


def plain(
    config: PretrainConfig, store: TokenStore, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    """The peer, as its documentation has it."""
    blocks = PackedBlocks(
        store,
        sequence_length=config.sequence_length,
        num_blocks=config.num_steps * config.batch_size,
        seed=config.seed,
        attend_across_documents=True,
    )
    with torch_threads(config.threads):
        model = build_model(config, vocab_size=len(tokenizer), end_of_text=tokenizer.eos_token_id)
        arguments = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=config.batch_size,
            max_steps=config.num_steps,
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=math.ceil(config.warmup_ratio * config.num_steps),
            weight_decay=config.weight_decay,
            adam_beta2=0.95,
            max_grad_norm=config.max_grad_norm,
            use_cpu=True,
            logging_steps=config.log_every_steps,
            save_steps=config.checkpoint_every_steps,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            log_level="error",
        )
        Trainer(model=model, args=arguments, train_dataset=Held(blocks)).train()


def ours(config: PretrainConfig, store: TokenStore, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """The pipeline's path, checks and publication included."""
    train(config, store, folder / "resume", folder / "models", len(tokenizer), tokenizer.eos_token_id, None)


def run(context: Context) -> Outcome:
    """Several turns over the documents of the first seed."""
    outcome = Outcome()
    logging.disable_progress_bar()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    tokenizer = train_tokenizer(
        texts, context.folder / "tokenizer", vocab_size=VOCABULARY, sequence_length=256
    )
    store = tokenise(texts, tokenizer, context.folder / "tokens")
    base = PretrainConfig(preset="proxy", checkpoint_every_steps=20, log_every_steps=5)
    tokens = max(4, STEPS // context.shrink) * base.batch_size * base.sequence_length
    config = base.model_copy(update={"token_budget": tokens})
    methods: dict[str, Callable[[Path], None]] = {
        PEER: lambda folder: plain(config, store, tokenizer, folder)
    }
    for name, across in ACROSS.items():
        own = config.model_copy(update={"attend_across_documents": across})
        methods[name] = lambda folder, own=own: ours(own, store, tokenizer, folder)

    names = list(methods)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(TURNS):
        order = names if turn % 2 == 0 else names[::-1]
        for name in order:
            folder = context.folder / "training"
            shutil.rmtree(folder, ignore_errors=True)
            begun = processor_seconds()
            methods[name](folder)
            taken[name].append(processor_seconds() - begun)
    for name in names:
        row = {"method": name, "tokens": tokens, "processor seconds": median(taken[name])}
        outcome.rows.append(row | {"tokens per processor second": tokens / median(taken[name])})
    for name in ACROSS:
        ratios = [mine / theirs for mine, theirs in zip(taken[name], taken[PEER], strict=True)]
        claim = f"{name}: processor seconds a token, against the plain trainer, median of {TURNS} turns"
        outcome.claims.append(at_most(claim, TARGET, median(ratios)))
        outcome.notes.append(f"{name}: turns from {min(ratios):.3f} to {max(ratios):.3f} of the trainer's.")
    return outcome

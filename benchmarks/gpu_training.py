"""Training of small models on a GPU. Knows no peer: `training` has one, on the processor."""

from __future__ import annotations

import shutil
from typing import Any

from benchmarks.data import texts_of
from benchmarks.harness import Context, Outcome
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
from datamask_pipeline.pretraining.train import pretrain

TITLE = "On a GPU: training"
QUESTION = "How many tokens a second, and which share of plain products' arithmetic?"
LONG = ON_DEVICE = True
DOCUMENTS, HELD_OUT, VOCABULARY = 2_500, 50, 4_096
SHAPES: dict[str, dict[str, Any]] = {
    "proxy": {"preset": "proxy", "token_budget": 2_000_000},
    "width 512": {
        "hidden_size": 512,
        "num_layers": 10,
        "num_heads": 8,
        "intermediate_size": 1_408,
        "sequence_length": 512,
        "batch_size": 64,
        "token_budget": 6_000_000,
    },
}


def run(context: Context) -> Outcome:
    """Each shape once, on documents of the first seed."""
    outcome = Outcome()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    tokenizer = train_tokenizer(
        texts, context.folder / "tokenizer", vocab_size=VOCABULARY, sequence_length=512
    )
    for name, shape in SHAPES.items():
        folder = context.folder / "training-on-gpu"
        shutil.rmtree(folder, ignore_errors=True)
        settings = shape | {"token_budget": max(32_768, shape["token_budget"] // context.shrink)}
        config = PretrainConfig(device="cuda", dtype="bfloat16", checkpoint_every_steps=10_000, **settings)
        result = pretrain(texts[HELD_OUT:], tokenizer, texts[:HELD_OUT], folder, config)
        row: dict[str, Any] = {
            "method": name,
            "parameters": result.num_parameters,
            "tokens": result.tokens_seen,
        }
        if result.speed is not None:
            row |= {
                "tokens per second": result.speed.tokens_per_second,
                "of plain products": result.speed.utilisation,
            }
        outcome.rows.append(
            row
            | {
                "first loss": result.curve[0]["loss"],
                "last loss": result.curve[-1]["loss"],
                "bits per byte": result.validation.bits_per_byte,
            }
        )
    outcome.notes.append(
        "What may not be concluded. That size is of no use: the wider network makes fewer steps, and no rate is tuned."
    )
    return outcome

"""What a pretraining run depends on, as plain values.

Knows no torch and no files: it is safe to import where the asset graph is built.
"""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from datamask_pipeline.settings import Settings, execution_field

Architecture = Literal["dense", "moe"]
#: Settings that another architecture does not read.
READ_BY_MOE = ("num_experts", "experts_per_token")


class PretrainConfig(Settings):
    """Every setting that changes the weights of a pretrained model. The defaults suit a demonstration."""

    architecture: Architecture = Field(
        "dense", description="`dense` is Llama-style; `moe` is Mixtral-style with routed experts."
    )
    hidden_size: int = Field(256, ge=8, description="Width of the residual stream.")
    num_layers: int = Field(3, ge=1, description="Number of transformer blocks.")
    num_heads: int = Field(4, ge=1, description="Attention heads of a block; divides `hidden_size`.")
    intermediate_size: int = Field(640, ge=8, description="Width of a feed-forward block, or of one expert.")
    num_experts: int = Field(4, ge=2, description="Experts of a block. Read by `moe` only.")
    experts_per_token: int = Field(2, ge=1, description="Experts a token is routed to. Read by `moe` only.")

    sequence_length: int = Field(256, ge=8, description="Tokens of one training block.")
    batch_size: int = Field(8, ge=1, description="Blocks of one optimiser step.")
    token_budget: int = Field(
        300_000,
        ge=1,
        description="Tokens to train on, rounded up to whole steps; a smaller subset is repeated.",
    )

    learning_rate: float = Field(3e-3, gt=0, le=1, description="Peak of the cosine schedule.")
    warmup_ratio: float = Field(0.05, ge=0, lt=1, description="Fraction of the steps spent warming up.")
    weight_decay: float = Field(0.1, ge=0, le=1, description="AdamW's decoupled weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this Euclidean norm.")
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of the initial weights and of the order of documents."
    )

    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Arithmetic of matrix products; the weights stay float32."
    )
    device: Literal["cpu", "cuda"] = execution_field("cpu", description="`cuda` is the first visible GPU.")
    threads: int = Field(1, ge=1, le=256, description="CPU threads; their number can change the last bits.")

    log_every_steps: int = Field(5, ge=1, description="Steps between two points of the loss curve.")
    checkpoint_every_steps: int = Field(50, ge=1, description="Steps between two checkpoints.")

    @property
    def num_steps(self) -> int:
        """Optimiser steps that cover the token budget."""
        return math.ceil(self.token_budget / (self.batch_size * self.sequence_length))

    @property
    def block_parameters(self) -> int:
        """Parameters of the transformer blocks and the last norm: all but the embedding of the vocabulary."""
        experts, router = (self.num_experts, self.num_experts) if self.architecture == "moe" else (1, 0)
        feed_forward = 3 * experts * self.intermediate_size * self.hidden_size + router * self.hidden_size
        block = 4 * self.hidden_size**2 + feed_forward + 2 * self.hidden_size
        return self.num_layers * block + self.hidden_size

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not an even multiple of num_heads {self.num_heads}; "
                "rotary positions need heads of even width"
            )
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} exceeds num_experts {self.num_experts}"
            )
        if self.checkpoint_every_steps % self.log_every_steps:
            raise ValueError(
                f"checkpoint_every_steps {self.checkpoint_every_steps} is not a multiple of log_every_steps "
                f"{self.log_every_steps}; a resumed run could not continue its loss curve"
            )
        return self

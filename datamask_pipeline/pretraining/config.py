"""What a pretraining run depends on, as plain values.

Knows no torch and no files: it is safe to import where the asset graph is built.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from datamask_pipeline.pretraining.presets import Preset, filled
from datamask_pipeline.settings import Settings, execution_field

Architecture = Literal["dense", "moe"]
#: Settings that another architecture does not read.
READ_BY_MOE = ("num_experts", "experts_per_token")


class PretrainConfig(Settings):
    """Every setting that changes the weights of a pretrained model. The defaults suit a demonstration."""

    preset: Preset | None = execution_field(
        None,
        description="Sizes and schedule that belong together: `smoke` (seconds), `proxy` (3.0 M parameters with 4,096 "
        "tokens of vocabulary, 3 M tokens), `paper-dense` (1.5 B), `paper-moe` (7 B). Settings given beside it win.",
    )
    architecture: Architecture = Field(
        "dense", description="`dense` is Llama-style; `moe` is Mixtral-style with routed experts."
    )
    hidden_size: int = Field(256, ge=8, description="Width of the residual stream.")
    num_layers: int = Field(3, ge=1, description="Number of transformer blocks.")
    num_heads: int = Field(4, ge=1, description="Attention heads of a block; divides `hidden_size`.")
    num_kv_heads: int | None = Field(
        None, ge=1, description="Heads of keys and values, which divide `num_heads`; null: as many as that."
    )
    intermediate_size: int = Field(640, ge=8, description="Width of a feed-forward block, or of one expert.")
    num_experts: int = Field(4, ge=2, description="Experts of a block. Read by `moe` only.")
    experts_per_token: int = Field(
        2,
        ge=2,
        description="Experts a token is routed to. Read by `moe` only. Their weights add up to one, so that a single one "
        "would always weigh 1 and the router would learn nothing from the text.",
    )
    tie_embeddings: bool = Field(True, description="Whether the first and the last matrix are one.")
    attend_across_documents: bool = Field(
        False, description="Whether a token sees other documents that stand before its own in a block."
    )

    sequence_length: int = Field(256, ge=8, description="Tokens of one training block.")
    batch_size: int = Field(8, ge=1, description="Blocks of one optimiser step, over all processes.")
    micro_batch_size: int | None = Field(
        None,
        ge=1,
        description="Blocks of one forward pass of one process; gradients are added up until a step has its batch. Null: "
        "all that a process has of a step.",
    )
    token_budget: int = Field(
        300_000,
        ge=1,
        validate_default=True,
        description="Tokens to train on, rounded up to whole steps, of which it covers one at least; a smaller subset is "
        "repeated.",
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
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that train one model together, each with its part of every batch: on `cuda` one for each "
        "of the first GPUs of this machine. Their number can change the last bits.",
    )
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
        return self._block_parameters(self.num_experts)

    @property
    def active_block_parameters(self) -> int:
        """Those of them that one token goes through: of the experts, the ones it is routed to."""
        return self._block_parameters(self.experts_per_token)

    @property
    def flop_per_token(self) -> int:
        """Arithmetic of training on one token but for the last matrix: 6 a parameter, and attention over half a block.

        Source: Chowdhery et al. 2022 (PaLM), appendix B, halved for causal attention.
        """
        attention = 6 * self.num_layers * self.hidden_size * self.sequence_length
        return 6 * self.active_block_parameters + attention

    @property
    def accumulation_steps(self) -> int:
        """Forward passes of one process that make up a step."""
        return self.batch_size // (self.processes * self.blocks_at_once)

    @property
    def blocks_at_once(self) -> int:
        """Blocks of one forward pass of one process."""
        return self.micro_batch_size or self.batch_size // self.processes

    def _block_parameters(self, experts: int) -> int:
        feed_forward = 3 * self.intermediate_size * self.hidden_size
        if self.architecture == "moe":
            feed_forward = experts * feed_forward + self.num_experts * self.hidden_size
        key_and_value = 2 * self.hidden_size**2 * (self.num_kv_heads or self.num_heads) // self.num_heads
        attention = 2 * self.hidden_size**2 + key_and_value
        return self.num_layers * (attention + feed_forward + 2 * self.hidden_size) + self.hidden_size

    @model_validator(mode="before")
    @classmethod
    def _preset_first(cls, values: Any) -> Any:
        return filled(values) if isinstance(values, Mapping) else values

    @field_validator("token_budget")
    @classmethod
    def _one_step(cls, budget: int, info: ValidationInfo) -> int:
        batch, length = (info.data.get(name, 1) for name in ("batch_size", "sequence_length"))
        if budget < batch * length:
            raise ValueError(
                f"is less than one step, which takes {batch * length:,} tokens, batch_size {batch:,} times sequence_length "
                f"{length:,}; raise it, or lower one of these"
            )
        return budget

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not an even multiple of num_heads {self.num_heads}; "
                "rotary positions need heads of even width"
            )
        if self.num_heads % (self.num_kv_heads or self.num_heads):
            raise ValueError(
                f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}; each head of keys and values "
                "serves equally many heads"
            )
        shares = self.processes * (self.micro_batch_size or 1)
        if self.batch_size % shares:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of {shares}, that is processes {self.processes} times "
                f"micro_batch_size {self.micro_batch_size or 1}; change one of the three"
            )
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} exceeds num_experts {self.num_experts}"
            )
        if self.num_steps == 1 and self.warmup_ratio:
            raise ValueError(
                f"token_budget {self.token_budget:,} is one step, at which the warm-up has a learning rate of 0, so that "
                "nothing would be learnt; raise token_budget, or set warmup_ratio to 0"
            )
        if self.checkpoint_every_steps % self.log_every_steps:
            raise ValueError(
                f"checkpoint_every_steps {self.checkpoint_every_steps} is not a multiple of log_every_steps "
                f"{self.log_every_steps}; a resumed run could not continue its loss curve"
            )
        return self

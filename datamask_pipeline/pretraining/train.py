"""Train a model on a subset, and take up again where a killed run stopped.

Knows no arm, selection or benchmark: texts, a tokenizer and a configuration in, weights and a loss curve
out. On the CPU the weights of an interrupted run equal, bit for bit, those of an undisturbed one.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.hardware import freed_pages_kept, present_device, torch_threads
from datamask_pipeline.lineage import canonical_json
from datamask_pipeline.pretraining.checkpoints import (
    DIVERGED,
    Checkpoint,
    Progress,
    Publish,
    Stopwatch,
    bind,
    loss_history,
    no_progress_bars,
    published,
    read_stopwatch,
    remove_halves,
    resumable,
    writing,
)
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.data import PackedBlocks, TokenStore, open_store, tokenise
from datamask_pipeline.pretraining.launch import launch
from datamask_pipeline.pretraining.model import (
    build_model,
    count_active_parameters,
    count_parameters,
    scale_router_loss,
    training_arguments,
)
from datamask_pipeline.pretraining.speed import Speed, speed_of
from datamask_pipeline.pretraining.validate import Validation, bits_per_byte


@dataclass(frozen=True)
class PretrainResult:
    """What a run did. `curve` holds one dict a logged step: step, tokens, loss (nats a token), learning_rate."""

    steps: int
    tokens_seen: int
    num_documents: int
    subset_tokens: int
    num_parameters: int
    num_active_parameters: int
    curve: list[dict[str, float]]
    checkpoints: list[Checkpoint]
    validation: Validation
    speed: Speed | None = field(compare=False)

    @property
    def epochs(self) -> float:
        """How often the subset was read: above 1 it was smaller than the token budget."""
        return self.tokens_seen / self.subset_tokens

    @property
    def final(self) -> Checkpoint:
        """The last checkpoint."""
        return self.checkpoints[-1]


def pretrain(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerFast,
    validation_texts: Iterable[str],
    directory: Path,
    config: PretrainConfig,
    progress: Progress | None = None,
) -> PretrainResult:
    """Pretrain one model on `texts`.

    Called again with the same arguments after it was killed, it continues; the result is the same. Nothing
    in `models/` depends on the clock or on how often the run was interrupted.

    Args:
        texts: The subset, in a fixed order; read once.
        tokenizer: The one all arms share.
        validation_texts: Texts that no arm trains on; read once, after the training.
        directory: Receives `models/step-<n>/` (weights) and `resume/` (tokens, optimiser state: to be
            removed once the result is recorded).
        config: See `PretrainConfig`.
        progress: Called after each step with (steps done, steps in all).

    Raises:
        ConfigurationError: The device is not there.
        InputError: No document, or no validation text.
        IntegrityError: `directory` holds another run.
        DataMaskError: The loss or the weights ceased to be finite; nothing of that step is kept. A process ended.
        StorageError: There is no room for weights or state.
    """
    device = present_device(config.device)
    states, models = directory / "resume", directory / "models"
    store = open_store(states / "tokens") or tokenise(texts, tokenizer, states / "tokens")
    bind(states, _fingerprint(config, tokenizer, store))
    remove_halves(states)
    train(config, store, states, models, len(tokenizer), tokenizer.eos_token_id, progress)
    last = published(models)[-1]
    with torch_threads(config.threads), no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(last.directory, local_files_only=True).to(device)
        validation = bits_per_byte(model, tokenizer, validation_texts, sequence_length=config.sequence_length)
    timed = read_stopwatch(states)
    return PretrainResult(
        steps=config.num_steps,
        tokens_seen=config.num_steps * config.batch_size * config.sequence_length,
        num_documents=store.num_documents,
        subset_tokens=store.num_tokens,
        num_parameters=count_parameters(model),
        num_active_parameters=count_active_parameters(model, config),
        curve=_curve(loss_history(states, last.step), config),
        checkpoints=published(models),
        validation=validation,
        speed=speed_of(config, vocab_size=len(tokenizer), **timed),
    )


def train(
    config: PretrainConfig,
    store: TokenStore,
    states: Path,
    models: Path,
    vocab_size: int,
    end_of_text: int,
    progress: Progress | None,
) -> None:
    """Train from the newest whole state on, by `config.processes` processes.

    Args:
        config: See `PretrainConfig`.
        store: The tokenised subset.
        states: Receives trainer states.
        models: Receives weights.
        vocab_size: Entries of the tokenizer.
        end_of_text: Its id of the end of a text.
        progress: Called after each step with (steps done, steps in all).

    Raises:
        DataMaskError: The loss or the weights ceased to be finite; nothing of that step is kept. A process ended.
        StorageError: There is no room for weights or state.
    """
    arguments = (config, store, states, models, vocab_size, end_of_text)
    if config.processes == 1:
        _train(*arguments, progress)
    else:
        launch(_train, arguments, processes=config.processes, progress=progress)


def _train(
    config: PretrainConfig,
    store: TokenStore,
    states: Path,
    models: Path,
    vocab_size: int,
    end_of_text: int,
    progress: Progress | None,
) -> None:
    """One of `config.processes` that do the same, or the only one."""
    with torch_threads(config.threads), freed_pages_kept(), no_progress_bars():
        model = build_model(config, vocab_size=vocab_size, end_of_text=end_of_text)
        scale_router_loss(model, config)
        blocks = PackedBlocks(
            store,
            sequence_length=config.sequence_length,
            num_blocks=config.num_steps * config.batch_size,
            seed=config.seed,
            attend_across_documents=config.attend_across_documents,
        )
        trainer = _FiniteTrainer(
            forward_arguments=training_arguments(config),
            model=model,
            args=_arguments(config, states),
            train_dataset=blocks,
            callbacks=[Publish(states, models, config.num_steps, progress), Stopwatch(states, config)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=_as_text(resumable(states)))


class _FiniteTrainer(Trainer):
    """Stops before the optimiser follows a loss that is not finite, takes up all weights of a state, and says where one
    finds no room."""

    def __init__(self, *, forward_arguments: dict[str, Any], **settings: Any) -> None:
        super().__init__(**settings)
        self._forward_arguments = forward_arguments

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The loss of a batch, by the arguments of training."""
        return super().compute_loss(model, inputs | self._forward_arguments, *args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One step's loss.

        Raises:
            DataMaskError: it is not finite.
        """
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise DataMaskError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1} of {self.state.max_steps} "
                f"(learning rate {self.lr_scheduler.get_last_lr()[0]:.2e}): {DIVERGED}"
            )
        return loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        # Experts lie on disk under other names than in the model: the trainer's own reading would pass over them.
        taken_up = self.model if model is None else model
        saved = type(self.model).from_pretrained(resume_from_checkpoint, local_files_only=True)
        taken_up.load_state_dict(saved.state_dict())

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with writing(Path(self.args.output_dir)):
            super()._save_checkpoint(*args, **kwargs)


def _arguments(config: PretrainConfig, states: Path) -> TrainingArguments:
    arguments = TrainingArguments(
        output_dir=str(states),
        per_device_train_batch_size=config.blocks_at_once,
        gradient_accumulation_steps=config.accumulation_steps,
        max_steps=config.num_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(config.warmup_ratio * config.num_steps),
        weight_decay=config.weight_decay,
        adam_beta2=0.95,  # as in the Llama papers; 0.999 is slow to follow in runs this short
        max_grad_norm=config.max_grad_norm,
        seed=config.seed,
        bf16=config.dtype == "bfloat16",
        use_cpu=config.device == "cpu",
        ddp_backend=_backend(config),
        ddp_find_unused_parameters=False,
        train_sampling_strategy="sequential",  # the blocks come shuffled
        logging_steps=config.log_every_steps,
        logging_nan_inf_filter=False,  # a loss that is not finite must be seen, not averaged away
        save_strategy="steps",
        save_steps=config.checkpoint_every_steps,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        log_level="error",
    )
    if config.device == "cuda" and config.processes == 1:
        arguments._n_gpu = 1  # else several visible GPUs would multiply the batch
    return arguments


def _backend(config: PretrainConfig) -> str | None:
    if config.processes == 1:
        return None
    return "gloo" if config.device == "cpu" else "nccl"


def _curve(history: Iterable[dict[str, float]], config: PretrainConfig) -> list[dict[str, float]]:
    tokens_per_step = config.batch_size * config.sequence_length
    return [
        {
            "step": entry["step"],
            "tokens": entry["step"] * tokens_per_step,
            "loss": entry["loss"],
            "learning_rate": entry["learning_rate"],
        }
        for entry in history
    ]


def _fingerprint(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast, store: TokenStore) -> str:
    digest = hashlib.sha256(canonical_json(config.result_config()).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    with (store.directory / "tokens.bin").open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _as_text(path: Path | None) -> str | None:
    return None if path is None else str(path)

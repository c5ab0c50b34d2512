import hashlib
import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from file_limit import no_file_above
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer

from datamask_pipeline.errors import (
    ConfigurationError,
    DataMaskError,
    InputError,
    IntegrityError,
    StorageError,
)
from datamask_pipeline.pretraining.checkpoints import resumable
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.train import PretrainResult, pretrain

#: Kills itself after a step.
_KILLED = """
import json, os, signal, sys
from pathlib import Path
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.tokenizer import load_tokenizer
from datamask_pipeline.pretraining.train import pretrain
job = json.loads(sys.stdin.read())
def deadly(step, total):
    print(step, flush=True)
    if step == job["killed_at"]:
        os.kill(os.getpid(), signal.SIGKILL)
pretrain(job["texts"], load_tokenizer(Path(job["tokenizer"])), job["validation"], Path(job["directory"]),
         PretrainConfig(**job["config"]), deadly)
"""


def _digests(directory: Path) -> dict[str, str]:
    """Every published file of a run."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((directory / "models").rglob("*"))
        if path.is_file()
    }


Run = Callable[..., PretrainResult]


@pytest.fixture
def run(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> Run:
    def start(directory: Path, config: PretrainConfig, documents: list[str] | None = None) -> PretrainResult:
        return pretrain(
            texts[20:] if documents is None else documents, tokenizer, texts[:20], directory, config
        )

    return start


def test_the_curve_ends_at_the_last_step(run: Run, config: PretrainConfig, directory: Path) -> None:
    result = run(directory, config.model_copy(update={"log_every_steps": 4, "token_budget": 11 * 64}))
    each = run(
        directory.with_name("each"), config.model_copy(update={"log_every_steps": 1, "token_budget": 11 * 64})
    )
    assert [point["step"] for point in result.curve] == [4, 8, 11]
    losses = [point["loss"] for point in each.curve]
    assert result.curve[-1]["loss"] == pytest.approx(sum(losses[8:]) / 3)


def test_the_result_counts_what_was_done(
    run: Run, config: PretrainConfig, directory: Path, texts: list[str]
) -> None:
    shortest = sorted(texts, key=len)[:4]
    result = run(directory, config, shortest)
    assert (result.steps, result.tokens_seen, result.num_documents) == (12, 768, 4)
    assert result.epochs == 768 / result.subset_tokens > 1
    assert [point["step"] for point in result.curve] == [2, 4, 6, 8, 10, 12]
    assert [point["tokens"] for point in result.curve] == [128, 256, 384, 512, 640, 768]
    assert [checkpoint.step for checkpoint in result.checkpoints] == [4, 8, 12]
    loaded = AutoModelForCausalLM.from_pretrained(result.final.directory)
    assert sum(parameter.numel() for parameter in loaded.parameters()) == result.num_parameters


@pytest.mark.sampled(1)
@pytest.mark.parametrize("architecture", ["dense", "moe"])
def test_it_learns(run: Run, config: PretrainConfig, directory: Path, architecture: str) -> None:
    longer = config.model_copy(
        update={"architecture": architecture, "token_budget": 150 * 64, "learning_rate": 1e-2}
    )
    result = run(directory, longer)
    untrained = run(directory.with_name("untrained"), longer.model_copy(update={"token_budget": 1}))
    assert result.curve[-1]["loss"] < result.curve[0]["loss"] - 0.5
    assert result.validation.bits_per_byte < 0.9 * untrained.validation.bits_per_byte


@pytest.mark.slow
def test_a_run_killed_twice_ends_with_the_same_bytes(
    run: Run,
    config: PretrainConfig,
    directory: Path,
    texts: list[str],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    job = {
        "texts": texts[20:],
        "validation": texts[:20],
        "tokenizer": str(tmp_path / "tokenizer"),
        "directory": str(directory),
        "config": config.model_dump(),
    }
    assert _steps_until_killed(job, 6) == [1, 2, 3, 4, 5, 6]
    assert _steps_until_killed(job, 11) == [5, 6, 7, 8, 9, 10, 11]  # from the checkpoint at step 4
    resumed = run(directory, config)
    undisturbed = run(tmp_path / "undisturbed", config)
    assert _digests(directory) == _digests(tmp_path / "undisturbed")
    assert resumed.curve == undisturbed.curve
    assert resumed.validation == undisturbed.validation


@pytest.mark.slow
def test_an_interrupted_mixture_goes_on_with_its_experts(
    run: Run, config: PretrainConfig, directory: Path, texts: list[str], tokenizer: PreTrainedTokenizerFast
) -> None:
    mixture = config.model_copy(update={"architecture": "moe"})

    def interrupt(step: int, total: int) -> None:
        if step == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(texts[20:], tokenizer, texts[:20], directory, mixture, interrupt)
    assert resumable(directory / "resume") == directory / "resume" / "checkpoint-4"
    resumed = run(directory, mixture)
    undisturbed = run(directory.with_name("undisturbed"), mixture)
    assert _digests(directory) == _digests(directory.with_name("undisturbed"))
    assert resumed.curve == undisturbed.curve


def _steps_until_killed(job: dict[str, object], killed_at: int) -> list[int]:
    """The steps of a run that kill -9 ends after a step."""
    given = json.dumps(job | {"killed_at": killed_at})
    done = forked.run(_KILLED, given=given)
    assert done.returncode == -signal.SIGKILL
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_half_a_checkpoint_is_not_resumed_from(run: Run, config: PretrainConfig, directory: Path) -> None:
    undisturbed = run(directory.with_name("undisturbed"), config)
    run(directory, config)
    newest = directory / "resume" / "checkpoint-12"
    half = newest.rename(directory / "resume" / "checkpoint-8")  # as if killed while it was written
    (half / "COMPLETE").unlink()
    (half / "optimizer.pt").write_bytes(b"half")
    again = run(directory, config)
    assert _digests(directory) == _digests(directory.with_name("undisturbed"))
    assert again.curve == undisturbed.curve


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["optimizer.pt", "trainer_state.json", "model.safetensors", "COMPLETE"])
def test_a_state_with_a_file_cut_short_is_not_resumed_from(
    name: str, run: Run, config: PretrainConfig, directory: Path
) -> None:
    """As after a power cut: the mark stands, and what was written before it does not."""
    short = config.model_copy(update={"token_budget": 4 * 64})
    undisturbed = run(directory.with_name("undisturbed"), short)
    run(directory, short)
    (directory / "resume" / "checkpoint-4" / name).write_bytes(b"")
    again = run(directory, short)
    assert _digests(directory) == _digests(directory.with_name("undisturbed"))
    assert again.curve == undisturbed.curve


@pytest.mark.sampled(2)
@pytest.mark.parametrize("left", [b"", b"half", None])
def test_a_state_whose_weights_were_published_cut_short_is_not_resumed_from(
    left: bytes | None, run: Run, config: PretrainConfig, directory: Path
) -> None:
    """As after a power cut: the state stands, and the weights of its step beside it do not."""
    short = config.model_copy(update={"token_budget": 8 * 64})
    run(directory.with_name("undisturbed"), short)
    run(directory, short)
    weights = directory / "models" / "step-0000008" / "model.safetensors"
    if left is None:
        weights.unlink()
    else:
        weights.write_bytes(left)
    run(directory, short)
    assert _digests(directory) == _digests(directory.with_name("undisturbed"))


def test_a_state_to_which_another_process_adds_a_file_is_resumed_from(
    run: Run, config: PretrainConfig, directory: Path
) -> None:
    """Each process of several writes its own draws' state, and the mark does not wait for them."""
    run(directory, config.model_copy(update={"token_budget": 4 * 64}))
    newest = directory / "resume" / "checkpoint-4"
    (newest / "rng_state_1.pth").write_bytes(b"late")
    assert resumable(directory / "resume") == newest


@pytest.mark.sampled(1)
@pytest.mark.parametrize("largest", ["checkpoint-4/model.safetensors", "checkpoint-4/optimizer.pt"])
def test_a_want_of_room_for_the_state_is_told_and_the_run_goes_on_after_it(
    largest: str, run: Run, config: PretrainConfig, directory: Path
) -> None:
    short = config.model_copy(update={"token_budget": 4 * 64})
    undisturbed = directory.with_name("undisturbed")
    run(undisturbed, short)
    size = (undisturbed / "resume" / largest).stat().st_size
    few = ["A text of which little is kept."]
    with no_file_above(size - 1), pytest.raises(StorageError, match="free disk space") as raised:
        run(directory, short, few)
    assert str(directory) in str(raised.value)
    run(directory, short, few)
    assert resumable(directory / "resume") == directory / "resume" / "checkpoint-4"


def test_a_finished_run_is_not_repeated(
    run: Run, config: PretrainConfig, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(directory, config)
    stamps = {path: path.stat().st_mtime_ns for path in (directory / "models").rglob("*.safetensors")}
    monkeypatch.setattr(Trainer, "training_step", lambda *_: pytest.fail("trained again"))
    assert run(directory, config) == first
    unchanged = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert len(unchanged) == len(stamps) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1e-4},
        {"warmup_ratio": 0.5},
        {"weight_decay": 0.9},
        {"max_grad_norm": 0.01},
        {"seed": 1},
        {"dtype": "bfloat16"},
        {"batch_size": 2},
        {"sequence_length": 32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_changes_the_weights(
    run: Run, config: PretrainConfig, directory: Path, change: dict[str, object], baseline: bytes
) -> None:
    result = run(directory, config.model_copy(update={"token_budget": 3 * 64, **change}))
    assert (result.final.directory / "model.safetensors").read_bytes() != baseline


@pytest.fixture(scope="module")
def baseline(
    texts: list[str],
    tokenizer: PreTrainedTokenizerFast,
    config: PretrainConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> bytes:
    """Weights after three steps with the settings unchanged."""
    short = config.model_copy(update={"token_budget": 3 * 64})
    result = pretrain(texts[20:], tokenizer, texts[:1], tmp_path_factory.mktemp("baseline"), short)
    return (result.final.directory / "model.safetensors").read_bytes()


def test_another_run_in_the_same_directory_is_refused(
    run: Run,
    config: PretrainConfig,
    directory: Path,
) -> None:
    run(directory, config)
    with pytest.raises(IntegrityError, match="another configuration"):
        run(directory, config.model_copy(update={"seed": 1}))


def test_a_run_goes_on_whether_its_settings_come_from_a_preset_or_not(
    run: Run,
    config: PretrainConfig,
    directory: Path,
) -> None:
    done = run(directory, config)
    assert run(directory, config.model_copy(update={"preset": "smoke"})) == done


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[torch.nn.Module], object]], None]:
    """Do something to the model before it is trained."""
    from datamask_pipeline.pretraining import train

    original = train.build_model

    def spoil(harm: Callable[[torch.nn.Module], object]) -> None:
        def build(*args: Any, **kwargs: Any) -> torch.nn.Module:
            model = original(*args, **kwargs)
            harm(model)
            return model

        monkeypatch.setattr(train, "build_model", build)

    return spoil


def at_call(number: int) -> Callable[..., bool]:
    """True when it is called for that time, counted from 1."""
    calls = itertools.count(1)
    return lambda: next(calls) == number


def test_a_loss_that_is_not_finite_ends_the_run_at_once(
    run: Run, config: PretrainConfig, directory: Path, spoil: Any
) -> None:
    now = at_call(6)
    spoil(
        lambda model: model.lm_head.register_forward_hook(
            lambda _, __, logits: logits * float("nan") if now() else None
        )
    )
    with pytest.raises(
        DataMaskError, match=r"loss is nan at step 6 of 12 \(learning rate .*lower learning_rate"
    ):
        run(directory, config)
    assert [item.name for item in sorted((directory / "models").iterdir())] == ["step-0000004"]
    assert [item.name for item in (directory / "resume").glob("checkpoint-*")] == ["checkpoint-4"]


def test_weights_that_are_not_finite_are_not_published(
    run: Run, config: PretrainConfig, directory: Path, spoil: Any
) -> None:
    """The last gradient before a checkpoint may overflow while its loss is still finite."""
    now = at_call(4)
    spoil(
        lambda model: model.lm_head.weight.register_hook(
            lambda gradient: gradient * float("inf") if now() else None
        )
    )
    with pytest.raises(DataMaskError, match=r"weights are not finite after step 4 .*lower learning_rate"):
        run(directory, config)
    assert not (directory / "models").exists()
    assert resumable(directory / "resume") is None


def test_blocks_are_read_in_the_order_of_the_stream(
    run: Run, config: PretrainConfig, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datamask_pipeline.pretraining import train

    read: list[int] = []

    class Watched(train.PackedBlocks):
        def __getitem__(self, block: int) -> dict[str, torch.Tensor]:
            read.append(block)
            return super().__getitem__(block)

    monkeypatch.setattr(train, "PackedBlocks", Watched)
    run(directory, config)
    assert read == list(range(12 * config.batch_size))


def test_what_is_missing_is_named(
    run: Run, config: PretrainConfig, directory: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(InputError, match="no document"):
        run(directory, config, [])
    with pytest.raises(InputError, match="validation set"):
        pretrain(["some text"], tokenizer, [], directory.with_name("unvalidated"), config)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigurationError, match="device: cpu"):
            run(directory, config.model_copy(update={"device": "cuda"}))


def test_the_number_of_threads_is_restored(
    config: PretrainConfig, directory: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    before, seen = torch.get_num_threads(), set()
    three = config.model_copy(update={"threads": before + 2})
    pretrain(
        ["some text"], tokenizer, ["more"], directory, three, lambda *_: seen.add(torch.get_num_threads())
    )
    assert seen == {before + 2}
    assert torch.get_num_threads() == before

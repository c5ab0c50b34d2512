import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import lm_eval.evaluator
import pyarrow.parquet as pq
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.harness import Evaluation, evaluate
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.model import build_model

_CONFIG = EvaluateConfig(questions_per_task=6, max_length=128, batch_size=8)


@pytest.fixture(scope="module")
def questions(
    documents: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> list[QuestionSet]:
    return prepare_questions(_CONFIG, tmp_path_factory.mktemp("questions"), documents)


@pytest.fixture(scope="module")
def evaluation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    questions: list[QuestionSet],
    tmp_path_factory: pytest.TempPathFactory,
) -> Evaluation:
    return evaluate(model, tokenizer, questions, tmp_path_factory.mktemp("work"), _CONFIG)


def test_every_benchmark_has_one_headline(evaluation: Evaluation) -> None:
    headlines = [row for row in evaluation.results if row.headline]
    assert [(row.task, row.metric) for row in headlines] == [
        (item.task, item.metric) for item in benchmarks_named([])
    ]
    for row in evaluation.results:
        assert (row.n, row.shots, row.question_source) == (6, 0, "local")
        assert row.stderr is not None
        if row.metric == "gold_bits_per_byte":
            assert row.value > 0
            assert row.chance is None
            continue
        assert 0 <= row.value <= 1
        if row.metric != "gold_probability":
            assert row.stderr == pytest.approx((row.value * (1 - row.value) / 5) ** 0.5)
    chances = {row.task: row.chance for row in headlines}
    assert chances["kqapro"] == pytest.approx(0.1)
    assert chances["winogrande"] == chances["piqa"] == 0.5
    assert chances["nq_open"] == 0


def test_the_headline_is_the_mean_of_the_answers(evaluation: Evaluation) -> None:
    assert any(row.headline for row in evaluation.results)
    for row in evaluation.results:
        if row.headline:
            values = [answer.value for answer in evaluation.answers if answer.task == row.task]
            assert len(values) == row.n
            assert row.value == pytest.approx(sum(values) / row.n)


def _log_likelihood(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, prompt: str, text: str
) -> float:
    start, whole = (tokenizer(item)["input_ids"] for item in (prompt, prompt + text))
    with torch.inference_mode():
        scores = torch.log_softmax(model(input_ids=torch.tensor([whole])).logits[0].double(), dim=-1)
    return float(sum(scores[place - 1, whole[place]] for place in range(len(start), len(whole))))


def test_answers_equal_those_of_a_plain_loop(
    evaluation: Evaluation,
    questions: list[QuestionSet],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    asked = {item.benchmark.task: pq.read_table(item.file).to_pylist() for item in questions}
    given = {(answer.task, answer.question_id): answer.value for answer in evaluation.answers}
    for row in asked["social_iqa"]:
        prompt = f"Q: {row['context']} {row['question']}\nA:"
        scores = [
            _log_likelihood(model, tokenizer, prompt, f" {row[key]}")
            for key in ("answerA", "answerB", "answerC")
        ]
        assert given["social_iqa", row["question_id"]] == float(
            scores.index(max(scores)) == int(row["label"]) - 1
        )
    for row in asked["piqa"]:
        prompt = f"Question: {row['goal']}\nAnswer:"
        per_character = [
            _log_likelihood(model, tokenizer, prompt, f" {row[key]}") / len(row[key])
            for key in ("sol1", "sol2")
        ]
        assert given["piqa", row["question_id"]] == float(
            per_character.index(max(per_character)) == row["label"]
        )


def test_an_end_of_text_that_a_question_writes_out_is_text(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, jsonl: Any, tmp_path: Path
) -> None:
    row = {
        "goal": "What ends <|endoftext|> here?",
        "sol1": "<|endoftext|>",
        "sol2": "A full stop.",
        "label": 0,
    }
    jsonl(tmp_path / "sets" / "piqa.jsonl", [row])
    config = _CONFIG.model_copy(update={"tasks": ["piqa"], "questions": str(tmp_path / "sets")})
    prepared = prepare_questions(config, tmp_path / "questions")
    (answer,) = evaluate(model, tokenizer, prepared, tmp_path / "work", config).answers
    prompt, text = "Question: What ends <|endoftext|> here?\nAnswer:", " <|endoftext|>"
    assert tokenizer.eos_token_id not in tokenizer(prompt + text)["input_ids"]
    expected = -_log_likelihood(model, tokenizer, prompt, text) / math.log(2)
    assert answer.gold_bits == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_same_model_gives_the_same_table_from_a_directory_too(
    evaluation: Evaluation,
    questions: list[QuestionSet],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    model.save_pretrained(tmp_path / "model")
    assert evaluate(tmp_path / "model", tokenizer, questions, tmp_path / "work", _CONFIG) == evaluation


def test_settings_reach_the_prompt(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    documents: list[tuple[str, str]],
    tmp_path: Path,
) -> None:
    truncated: list[dict[str, int]] = []
    for name, changes in {"none": {}, "two": {"shots": 2}, "short": {"max_length": 48}}.items():
        config = _CONFIG.model_copy(update={"tasks": ["mmlu", "nq_open"], **changes})
        prepared = prepare_questions(config, tmp_path / name / "questions", documents)
        found = evaluate(model, tokenizer, prepared, tmp_path / name / "work", config)
        assert {row.shots for row in found.results} == {config.shots}
        # Every choice of a question is a prompt: four of each here, and one of an open question.
        assert {(row.task, row.num_prompts) for row in found.results} == {
            (row.task, row.n * (4 if row.task == "mmlu" else 1)) for row in found.results
        }
        truncated.append({row.task: row.num_truncated for row in found.results})
    for task, number in truncated[0].items():
        assert number < truncated[1][task]
        assert number < truncated[2][task]


def _settings_of_other_libraries() -> list[object]:
    """What decides whether they ask the hub, where they keep data, and what they list of the machine."""
    offline = [huggingface_hub.constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE]
    places = [datasets.config.HF_DATASETS_CACHE, datasets.config.HF_MODULES_CACHE]
    return [dict(os.environ), offline, places, lm_eval.evaluator.add_env_info]


def test_no_other_library_is_changed_while_it_runs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: list[QuestionSet], tmp_path: Path
) -> None:
    before, during = _settings_of_other_libraries(), []
    hook = model.register_forward_pre_hook(lambda *_: during.append(_settings_of_other_libraries()))
    try:
        evaluate(model, tokenizer, questions[-1:], tmp_path, _CONFIG)
    finally:
        hook.remove()
    assert during
    assert all(found == before for found in during)


def test_an_answer_that_does_not_fit_is_named(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: list[QuestionSet], tmp_path: Path
) -> None:
    for task in ("hellaswag", "winogrande"):
        asked = [item for item in questions if item.benchmark.task == task]
        with pytest.raises(ConfigurationError, match=f"task '{task}': an answer of .* raise max_length"):
            evaluate(model, tokenizer, asked, tmp_path, _CONFIG.model_copy(update={"max_length": 4}))


def test_a_model_of_experts_answers_open_questions(
    tokenizer: PreTrainedTokenizerFast, questions: list[QuestionSet], tmp_path: Path
) -> None:
    """Generation reads a cache: the loss that balances experts in training cannot be computed there."""
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 32}
    config = PretrainConfig(architecture="moe", sequence_length=128, **sizes)
    model = build_model(config, vocab_size=len(tokenizer), end_of_text=tokenizer.eos_token_id)
    asked = [item for item in questions if item.benchmark.task == "nq_open"]
    found = evaluate(model, tokenizer, asked, tmp_path, _CONFIG)
    assert len(found.answers) == 6


_ALONE = """
import json, socket, sys
from pathlib import Path
import torch
def refuse(*args, **kwargs):
    raise AssertionError(f"the network was asked for {args}")
socket.socket.connect = socket.getaddrinfo = refuse
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.harness import evaluate
from datamask_pipeline.evaluation.questions import prepare_questions
from datamask_pipeline.pretraining.tokenizer import load_tokenizer
root = Path(sys.argv[1])
config = EvaluateConfig(questions_per_task=2, max_length=128)
questions = prepare_questions(config, root / "questions", json.loads(sys.stdin.read()))
found = evaluate(root / "model", load_tokenizer(root / "tokenizer"), questions, root / "work", config)
print(len(found.answers))
"""


@pytest.mark.slow
def test_it_needs_no_network_and_writes_nowhere_else(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    documents: list[tuple[str, str]],
    tmp_path: Path,
) -> None:
    model.save_pretrained(tmp_path / "root" / "model")
    tokenizer.save_pretrained(tmp_path / "root" / "tokenizer")
    for folder in ("home", "temporary", "current"):
        (tmp_path / folder).mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_"))}
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(tmp_path / "root")],
        input=json.dumps(documents),
        cwd=tmp_path / "current",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "24\n"
    left = [path for name in ("home", "temporary", "current") for path in (tmp_path / name).rglob("*")]
    assert [path for path in left if path.is_file()] == []
    assert "it/s" not in done.stderr  # no progress bars


def test_a_device_that_is_not_there_is_named(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: list[QuestionSet], tmp_path: Path
) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ConfigurationError, match="device: cpu"):
            evaluate(model, tokenizer, questions, tmp_path, _CONFIG.model_copy(update={"device": "cuda"}))

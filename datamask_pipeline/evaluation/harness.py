"""Run a model through lm-eval and return plain rows.

Knows no arm and no store. Nothing is fetched, as model, tokenizer and questions are given, and nothing is written
outside the work directory.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lm_eval.evaluator
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import get_aggregation
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.evaluation.answers import (
    PROBABILITY,
    AnswerRow,
    answer_row,
    gold_metrics,
    open_answer,
)
from datamask_pipeline.evaluation.benchmarks import render
from datamask_pipeline.evaluation.chatter import no_chatter
from datamask_pipeline.evaluation.config import EvaluateConfig, QuestionsConfig
from datamask_pipeline.evaluation.questions import QuestionSet
from datamask_pipeline.hardware import freed_pages_kept, present_device, torch_threads

RESAMPLES = 1_000
"""Of the questions, for standard errors that have no formula: they are known to two parts in a hundred."""

# lm-eval resamples in this process: those that it forks beside torch's threads may never end.
os.environ.setdefault("DISABLE_MULTIPROC", "1")


@dataclass(frozen=True)
class ResultRow:
    """One metric of one task.

    `value` of a headline is a fraction in 0..1, higher is better; that of bits per byte is better lower, and that of another
    metric of lm-eval's as lm-eval defines it. `stderr` is its standard error, null where none is known; `n` the number of
    questions; `version` the task definition's; `headline` marks the one metric that stands for the benchmark; `chance` is
    what guessing would score, null for bits per byte and for what is no mean over questions; `num_prompts` counts prompts,
    one for each choice, `num_truncated` those that lost their beginning.
    """

    task: str
    label: str
    metric: str
    value: float
    stderr: float | None
    n: int
    version: str
    headline: bool
    chance: float | None
    shots: int
    question_source: str
    questions_digest: str
    num_prompts: int
    num_truncated: int


@dataclass(frozen=True)
class Evaluation:
    """The results of one model: rows by task in canonical order, answers by task and question id."""

    results: list[ResultRow]
    answers: list[AnswerRow]


def evaluate(
    model: PreTrainedModel | Path,
    tokenizer: PreTrainedTokenizerFast,
    questions: Sequence[QuestionSet],
    work_directory: Path,
    config: EvaluateConfig,
) -> Evaluation:
    """Ask one model all questions. The same model and questions give the same rows.

    Args:
        model: A model, or a directory that `from_pretrained` reads.
        tokenizer: The model's, as `load_tokenizer` reads it: special tokens that a prompt writes out are plain text.
        questions: From `prepare_questions`.
        work_directory: Task definitions and a log go here; may be deleted afterwards.
        config: Shots, seed, batch size, length, device.

    Raises:
        ConfigurationError: The device is not there, or an answer does not fit into `max_length`.
        DataMaskError: lm-eval left out a task or a headline metric.
    """
    present_device(config.device)
    with quiet(work_directory / "harness.log"), torch_threads(config.threads), freed_pages_kept():
        if isinstance(model, Path):
            model = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, dtype=torch.float32)
        harness = HFLM(
            pretrained=model.to(config.device).eval(),
            tokenizer=tokenizer,
            batch_size=config.batch_size,
            max_length=config.max_length,
            add_bos_token=False,  # what no document was trained with
            backend="causal",
        )
        tasks = load_tasks(questions, work_directory / "tasks", config)
        _refuse_long_answers(tasks, harness)
        return ask(
            harness,
            tasks,
            questions,
            shots=config.shots,
            num_truncated=lambda samples: _num_truncated(samples, harness),
        )


def ask(
    model: LM,
    tasks: Mapping[str, Any],
    questions: Sequence[QuestionSet],
    *,
    shots: int,
    num_truncated: Callable[[list[dict[str, Any]]], int],
) -> Evaluation:
    """Ask whatever answers as lm-eval's models do.

    Args:
        model: Gives log-likelihoods, and answers open questions.
        tasks: From `load_tasks`.
        questions: The sets that the tasks were made of.
        shots: Solved examples before each question.
        num_truncated: Of one task's samples, how many prompts lost their beginning.

    Raises:
        DataMaskError: lm-eval left out a task or a headline metric.
    """
    report = lm_eval.evaluator.evaluate(model, {"tasks": dict(tasks)}, bootstrap_iters=RESAMPLES)
    results, answers = [], []
    for item in questions:
        name, metric = item.benchmark.task, item.benchmark.metric
        # Of a task with several filters, the first speaks for it; the others' scores are metrics beside it.
        first = report["samples"][name][0]["filter"]
        samples = [sample for sample in report["samples"][name] if sample["filter"] == first]
        scored = _score_open(model, tasks[name], samples)
        mine = [
            answer_row(tasks[name], sample, metric, gold)
            for sample, gold in zip(samples, scored, strict=True)
        ]
        cut = num_truncated(samples), sum(len(sample["arguments"]) for sample in samples)
        results += _results(report, item, tasks[name], mine, shots, cut, first)
        answers += sorted(mine, key=lambda row: row.question_id)
    return Evaluation(results, answers)


def _score_open(model: LM, task: Any, samples: list[dict[str, Any]]) -> list[tuple[str, float] | None]:
    """Of open questions, the answer that is scored with its log-likelihood, which lm-eval does not ask of generations."""
    if task.OUTPUT_TYPE == "multiple_choice":
        return [None] * len(samples)
    if task.OUTPUT_TYPE == "loglikelihood":
        return [(sample["arguments"][0][1], float(sample["filtered_resps"][0][0])) for sample in samples]
    requests = [
        Instance(
            "loglikelihood", sample["doc"], (sample["arguments"][0][0], open_answer(task, sample["doc"])), 0
        )
        for sample in samples
    ]
    likelihoods = [float(likelihood) for likelihood, _ in model.loglikelihood(requests)]
    return [(request.args[1], likelihood) for request, likelihood in zip(requests, likelihoods, strict=True)]


def load_tasks(
    questions: Sequence[QuestionSet], definitions: Path, config: QuestionsConfig
) -> dict[str, Any]:
    """lm-eval's task objects by name, with this many shots.

    Args:
        questions: From `prepare_questions`.
        definitions: Folder that receives the tasks' definitions.
        config: Shots.
    """
    for item in questions:
        render(
            item.benchmark,
            definitions,
            questions=item.file.resolve(),
            demonstrations=None if item.demonstrations is None else item.demonstrations.resolve(),
        )
    manager = TaskManager(include_path=str(definitions.resolve()), include_defaults=False)
    tasks: dict[str, Any] = manager.load([item.benchmark.task for item in questions])["tasks"]
    for task in tasks.values():
        task.set_config(key="num_fewshot", value=config.shots)
    return tasks


def _results(
    report: Any,
    item: QuestionSet,
    stock: Any,
    answers: Sequence[AnswerRow],
    shots: int,
    cut: tuple[int, int],
    first: str,
) -> list[ResultRow]:
    """The metrics lm-eval names `metric,filter` with their `metric_stderr,filter`, then those of the right answers.

    Those of other filters than the first keep lm-eval's whole name. `cut`: how many prompts lost their beginning, of how
    many.
    """
    task = item.benchmark.task
    scores = report["results"].get(task, {})
    found: list[tuple[str, float, Any, float | None]] = []
    for key, value in scores.items():
        metric, comma, name = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            averaged = stock.aggregation()[metric] is get_aggregation("mean")
            found.append(
                (
                    metric if name == first else key,
                    float(value),
                    scores.get(f"{metric}_stderr,{name}"),
                    item.chance if averaged else None,
                )
            )
    if sum(metric == item.benchmark.metric for metric, *_ in found) != 1:
        raise DataMaskError(
            f"lm-eval reported {sorted(scores)} for {task}, not {item.benchmark.metric!r} once"
        )
    for metric, (value, stderr) in gold_metrics(answers).items():
        found.append((metric, value, stderr, item.chance if metric == PROBABILITY else None))
    rows = [
        ResultRow(
            task=task,
            label=item.benchmark.label,
            metric=metric,
            value=value,
            stderr=float(stderr) if isinstance(stderr, int | float) and math.isfinite(stderr) else None,
            n=int(report["n-samples"][task]["effective"]),
            version=str(report["versions"][task]),
            headline=metric == item.benchmark.metric,
            chance=chance,
            shots=shots,
            question_source=item.source,
            questions_digest=item.digest,
            num_prompts=cut[1],
            num_truncated=cut[0],
        )
        for metric, value, stderr, chance in found
    ]
    return sorted(rows, key=lambda row: (not row.headline, row.metric))


def _refuse_long_answers(tasks: dict[str, Any], harness: HFLM) -> None:
    """Prompts may lose their beginning, answers may not: lm-eval would stop at a bare assertion."""
    for name, task in tasks.items():
        for document in task.test_docs():
            if task.OUTPUT_TYPE != "multiple_choice":
                scored = [open_answer(task, document).strip()]
            else:
                # With several contexts (WinoGrande) what is scored is the target behind them.
                scored = (
                    [task.doc_to_target(document)] if task.multiple_input else task.doc_to_choice(document)
                )
            longest = max(len(harness.tok_encode(f" {text}")) for text in scored)
            if longest > harness.max_length:
                raise ConfigurationError(
                    f"task {name!r}: an answer of question {document['question_id']} has {longest} tokens, "
                    f"max_length is {harness.max_length}; raise max_length, or take the question out"
                )


def _num_truncated(samples: list[dict[str, Any]], harness: HFLM) -> int:
    """Prompts that lose their beginning: with what is scored or generated they exceed the model's context."""
    texts, room = [], []
    for sample in samples:
        for prompt, rest in sample["arguments"]:
            scored = isinstance(rest, str)  # else generation settings
            texts.append(prompt + rest if scored else prompt)
            # The last token of a scored text is predicted, never read.
            room.append(
                harness.max_length + 1 if scored else harness.max_length - _num_generated(rest, harness)
            )
    encoded = harness.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return sum(len(ids) > limit for ids, limit in zip(encoded, room, strict=True))


def _num_generated(settings: Mapping[str, Any], harness: HFLM) -> int:
    """Tokens that lm-eval keeps free for a generation; a task that names no number gets lm-eval's own."""
    return int(normalize_gen_kwargs(dict(settings), harness.max_gen_toks)["max_gen_toks"])


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """No chatter, and progress bars into a file, until the block ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(transformers_logging.set_verbosity, transformers_logging.get_verbosity())
        transformers_logging.set_verbosity_error()
        stack.enter_context(no_chatter())
        stack.enter_context(redirect_stderr(stack.enter_context(log.open("w"))))
        yield

"""Each question's right answer has its bits, bytes and share; who knows all answers scores 1, who guesses scores chance."""

import hashlib
import json
import math
import random
import statistics
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from datamask_pipeline.evaluation.answers import BITS, PROBABILITY, AnswerRow, gold_metrics, gold_place
from datamask_pipeline.evaluation.benchmarks import all_benchmarks
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.gold import ScoredQuestion, scored_questions
from datamask_pipeline.evaluation.harness import Evaluation, ask, load_tasks
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions

_CONFIG = EvaluateConfig(questions_per_task=30, tasks=list(all_benchmarks()))
_OPEN = {"nq_open", "triviaqa"}


class Oracle(LM):
    """Finds the right answers certain, and any other a million times less likely than that."""

    def __init__(self, scored: list[ScoredQuestion]) -> None:
        super().__init__()
        self.right = {each.pairs[each.gold] for each in scored}
        self.answers = {pairs[0]: pairs[1] for each in scored if len(each.pairs) == 1 for pairs in each.pairs}

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(0.0 if request.args in self.right else -1e6, False) for request in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [self.answers[request.args[0]] for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


class Guesser(Oracle):
    """Finds any answer as likely as the next, but for a number drawn from what is asked."""

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-20 * self._draw(request.args), False) for request in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [f"{self._draw(request.args):.6f}" for request in requests]

    def _draw(self, asked: Any) -> float:
        return random.Random(hashlib.sha256(repr(asked).encode()).hexdigest()).random()


@dataclass
class Asked:
    """The questions, each as it is scored, and what both said."""

    questions: list[QuestionSet]
    scored: list[ScoredQuestion]
    found: dict[type[LM], Evaluation]


@pytest.fixture(scope="module")
def asked(documents: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("gold")
    questions = prepare_questions(_CONFIG, folder / "questions", documents)
    scored = scored_questions(questions, folder, _CONFIG)
    found = {}
    for kind in (Oracle, Guesser):
        tasks = load_tasks(questions, folder / kind.__name__, _CONFIG)
        found[kind] = ask(kind(scored), tasks, questions, shots=0, num_truncated=lambda samples: 0)
    return Asked(questions, scored, found)


@pytest.mark.slow
def test_an_oracle_scores_one(asked: Asked) -> None:
    questions, found = asked.questions, asked.found
    values = {(row.task, row.metric): row.value for row in found[Oracle].results}
    assert {row.task: row.value for row in found[Oracle].results if row.headline} == {
        item.benchmark.task: 1.0 for item in questions
    }
    for item in questions:
        task = item.benchmark.task
        assert values[task, BITS] == 0.0
        assert values.get((task, PROBABILITY)) == (None if task in _OPEN else 1.0)


def test_who_guesses_scores_chance_and_nothing_on_open_tasks(asked: Asked) -> None:
    questions, found = asked.questions, asked.found
    rows = {(row.task, row.metric): row for row in found[Guesser].results}
    for item in questions:
        task, headline = item.benchmark.task, rows[item.benchmark.task, item.benchmark.metric]
        if task in _OPEN:
            assert headline.value == item.chance == 0.0
            continue
        error = math.sqrt(item.chance * (1 - item.chance) / item.num_questions)
        assert abs(headline.value - item.chance) < 3 * error
        # A share between 0 and 1 varies no more than that; thirty of them do not say how much.
        assert abs(rows[task, PROBABILITY].value - item.chance) < 3 * error


def test_bits_and_share_are_those_of_the_log_likelihoods(asked: Asked) -> None:
    model = Guesser(asked.scored)
    answers = {(row.task, row.question_id): row for row in asked.found[Guesser].answers}
    for each in asked.scored:
        row = answers[each.task, each.question_id]
        nats = [
            likelihood
            for likelihood, _ in model.loglikelihood(
                [Instance("loglikelihood", {}, pair, 0) for pair in each.pairs]
            )
        ]
        assert row.gold_bits == pytest.approx(-nats[each.gold] / math.log(2))
        assert row.gold_bytes == len(each.pairs[each.gold][1].encode())
        if each.task in _OPEN:
            assert row.gold_probability is None
        else:
            weights = [math.exp(of) for of in nats]
            assert row.gold_probability == pytest.approx(weights[each.gold] / sum(weights))


def test_the_error_of_bits_per_byte_covers_the_true_ratio() -> None:
    generator = random.Random(0)
    covered = 0
    for _ in range(300):
        sizes = [generator.randint(2, 60) for _ in range(40)]
        rows = [AnswerRow("t", str(n), "acc", 0, 2 * n + generator.gauss(0, 5), n, None) for n in sizes]
        value, error = gold_metrics(rows)[BITS]
        assert error is not None
        covered += abs(value - 2) < 1.96 * error
    assert 273 <= covered <= 297
    assert gold_metrics([AnswerRow("t", "q", "acc", 0, 8.0, 4, None)]) == {BITS: (2.0, None)}


def test_the_error_of_a_share_is_that_of_a_mean() -> None:
    shares = [0.2, 0.4, 0.9]
    rows = [AnswerRow("t", str(n), "acc", 0, 8.0, 4, share) for n, share in enumerate(shares)]
    found = gold_metrics([*rows, AnswerRow("t", "open", "acc", 0, 8.0, 4, None)])[PROBABILITY]
    assert found == pytest.approx((0.5, statistics.stdev(shares) / math.sqrt(3)))


@pytest.mark.parametrize(("target", "place"), [([2, 0], 2), (["b", "a"], 1), ("c", 2), (1, 1)])
def test_of_several_right_choices_the_first_is_scored(target: Any, place: int) -> None:
    task = SimpleNamespace(
        multiple_input=False, doc_to_target=lambda _: target, doc_to_choice=lambda _: ["a", "b", "c"]
    )
    assert gold_place(task, {}) == place


def test_the_answer_of_an_open_question_is_its_value_not_its_first_alias(tmp_path: Path) -> None:
    """Aliases stand in no order: most begin with a title that redirects to the answer's page."""
    folder = tmp_path / "files" / "triviaqa"
    folder.mkdir(parents=True)
    aliases = ["Eleanor rigby (person)", "Eleanor Rigby", "Rigby"]
    row = {"question": "Who died in the church?", "answer": {"value": "Eleanor Rigby", "aliases": aliases}}
    (folder / "validation.jsonl").write_text(json.dumps(row) + "\n")
    config = EvaluateConfig(questions=str(folder.parent), tasks=["triviaqa"])
    questions = prepare_questions(config, tmp_path / "made")
    (scored,) = scored_questions(questions, tmp_path / "tasks", config)
    assert scored.pairs[scored.gold][1] == " Eleanor Rigby"

"""What one model says of each question: the task's metric, and how likely it finds the right answer.

Knows what lm-eval returns; knows no task by name and no model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Metrics of every task beside its own.
BITS, PROBABILITY = "gold_bits_per_byte", "gold_probability"


@dataclass(frozen=True)
class AnswerRow:
    """What one question added to its task: two models can be compared in pairs.

    Attributes:
        metric: The task's headline metric.
        value: What the answer adds to it.
        gold_bits: -log2 likelihood of the right answer, given its prompt; of an open question, see `open_answer`.
        gold_bytes: UTF-8 bytes of that answer as it is scored, with the blank before it.
        gold_probability: Its likelihood as a share of those of all choices; None for an open question.
    """

    task: str
    question_id: str
    metric: str
    value: float
    gold_bits: float
    gold_bytes: int
    gold_probability: float | None


def answer_row(
    task: Any, sample: Mapping[str, Any], metric: str, gold: tuple[str, float] | None
) -> AnswerRow:
    """The row of one of lm-eval's samples.

    Args:
        task: lm-eval's task.
        sample: Its document, requests, responses and metrics.
        metric: The task's headline metric.
        gold: Of an open question, the answer that was scored with its log-likelihood in nats.
    """
    document = sample["doc"]
    share = None
    if gold is None:
        texts = [answer for _, answer in sample["arguments"]]
        likelihoods = [float(response[0]) for response in sample["filtered_resps"]]
        number = len(task.doc_to_choice(document))  # mutual information asks for as many again
        place = gold_place(task, document)
        text, likelihood = texts[place], likelihoods[place]
        share = 1 / math.fsum(math.exp(min(other - likelihood, 700.0)) for other in likelihoods[:number])
    else:
        text, likelihood = gold
    return AnswerRow(
        task.config.task,
        document["question_id"],
        metric,
        float(sample[metric]),
        -likelihood / math.log(2),
        len(text.encode()),
        share,
    )


def gold_place(task: Any, document: Any) -> int:
    """Place of the right choice, of the first of several; lm-eval may state it as the text (WinoGrande, COPA)."""
    gold = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    gold = gold[0] if isinstance(gold, list) else gold
    return int(task.doc_to_choice(document).index(gold)) if isinstance(gold, str) else int(gold)


def open_answer(task: Any, document: Any) -> str:
    """The answer of an open question, as it is scored: lm-eval's `loglikelihood` tasks bring their blank.

    It is what the question names as its answer's value, among what is accepted; the first accepted one where it names none.
    """
    accepted = task.doc_to_target(document)
    if isinstance(accepted, list | tuple):
        answer = document.get("answer")
        value = answer.get("value") if isinstance(answer, Mapping) else None
        accepted = value if value in accepted else accepted[0]
    return f"{'' if task.OUTPUT_TYPE == 'loglikelihood' else task.config.target_delimiter}{accepted}"


def gold_metrics(rows: Sequence[AnswerRow]) -> dict[str, tuple[float, float | None]]:
    """Of one task, each gold metric with its standard error over the questions; an open task has no probability.

    Formula:
        bits per byte = sum of bits / sum of bytes; its error is that of a ratio: the standard deviation of
        (bits - bits per byte x bytes), over the mean of bytes and the root of the number of questions.
    """
    size = sum(row.gold_bytes for row in rows)
    ratio = math.fsum(row.gold_bits for row in rows) / size
    spread = _error([row.gold_bits - ratio * row.gold_bytes for row in rows])
    found = {BITS: (ratio, None if spread is None else spread * len(rows) / size)}
    shares = [row.gold_probability for row in rows if row.gold_probability is not None]
    if shares:
        found[PROBABILITY] = (math.fsum(shares) / len(shares), _error(shares))
    return found


def _error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; none of a single value."""
    number = len(values)
    if number < 2:
        return None
    mean = math.fsum(values) / number
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1) / number)

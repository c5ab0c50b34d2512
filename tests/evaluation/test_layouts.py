"""Every published variant gives the same stock row; every fault has its reason."""

import ast
import random
from typing import Any

import pytest

from datamask_pipeline.errors import InputError, UnknownNameError
from datamask_pipeline.evaluation.layouts.base import BadRow, Item
from datamask_pipeline.families import LAYOUTS

_ABCD = {"text": ["a", "b", "c", "d"], "label": ["A", "B", "C", "D"]}
_OBQA = {"question_stem": "Q", "choices": _ABCD, "answerKey": "C"}
_MMLU = {"question": "Q", "subject": "anatomy", "choices": ["w", "x", "y", "z"], "answer": 2}
_SIQA = {"context": "C", "question": "Q", "answerA": "a", "answerB": "b", "answerC": "c"}
_PROBLEM = {"question": "Q", "options": ["a", "b", "c", "d"], "answer": "B"}
_HELLASWAG = {"activity_label": "Roof", "endings": ["a", "b", "c", "d"], "label": 3}
_TRIVIA = {"question": "Q", "answer": {"value": "Antelope", "aliases": ["Antelopes", "Antelope"]}}


def _read(layout: str, row: dict[str, Any]) -> Item:
    return LAYOUTS.make(layout).read(row)


@pytest.mark.parametrize(
    ("layout", "one", "other"),
    [
        (
            "openbookqa",
            _OBQA,
            {
                "question": {
                    "stem": "Q",
                    "choices": [{"text": t, "label": t.upper()} for t in "abcd"],
                },
                "answerKey": "C",
            },
        ),
        ("mmlu", _MMLU, {**_MMLU, "answer": "C"}),
        (
            "mmlu",
            _MMLU,
            {"question": "Q", "subject": "anatomy", "A": "w", "B": "x", "C": "y", "D": "z", "answer": "C"},
        ),
        ("social_iqa", {**_SIQA, "label": "2"}, {**_SIQA, "correct": "B"}),
        ("social_iqa", {**_SIQA, "label": "2"}, {**_SIQA, "label": 2}),
        ("race", {"article": "A", "problems": [_PROBLEM]}, {"article": "A", **_PROBLEM}),
        ("race", {"article": "A", "problems": [_PROBLEM]}, {"article": "A", "problems": repr([_PROBLEM])}),
        ("nq_open", {"question": "Q", "answer": ["x"]}, {"question": "Q", "answer": "x"}),
        (
            "hellaswag",
            {**_HELLASWAG, "ctx_a": "A man sits on a roof.", "ctx_b": "he"},
            {**_HELLASWAG, "ctx": "A man sits on a roof. he", "label": "3"},
        ),
        (
            "hellaswag",
            {**_HELLASWAG, "ctx_a": "Open the box.", "ctx_b": ""},
            {**_HELLASWAG, "ctx": "Open the box."},
        ),
        (
            "triviaqa",
            _TRIVIA,
            {**_TRIVIA, "question_id": 7},
        ),
    ],
)
def test_variants_of_a_layout_give_the_same_item(
    layout: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert _read(layout, one) == _read(layout, other)


def test_arc_keeps_numbered_labels() -> None:
    row = {"question": "Q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}
    item = _read("arc", row)
    assert (item.row["answerKey"], item.num_choices) == ("2", 2)


def test_trivia_accepts_its_value_even_if_no_alias_names_it() -> None:
    item = _read("triviaqa", {"question": "Q", "answer": {"value": "x", "aliases": ["y"]}})
    assert item.row["answer"] == {"value": "x", "aliases": ["x", "y"]}


def test_race_joins_the_questions_on_one_article() -> None:
    layout = LAYOUTS.make("race")
    rows = [
        {"article": article, **_PROBLEM, "question": question}
        for article, question in [("A", "1"), ("B", "2"), ("A", "3")]
    ]
    items = layout.finish([layout.read(row) for row in rows], 0)
    asked = {
        item.row["article"]: [p["question"] for p in ast.literal_eval(item.row["problems"])] for item in items
    }
    assert asked == {"A": ["1", "3"], "B": ["2"]}
    assert sum(item.num_rows for item in items) == len(rows)


_ANSWERS = [
    *"abcdefghijkl",
    *(f"Name {n}" for n in range(12)),
    *map(str, range(12)),
    "yes",
    "no",
    "1999-01-01",
]


def _kqa(seed: int, order: int = 1, answers: list[str] = _ANSWERS) -> dict[str, Item]:
    layout = LAYOUTS.make("kqapro")
    items = [layout.read({"question": f"Q{answer}", "answers": [answer, "a"]}) for answer in answers[::order]]
    finished = layout.finish(items, seed)
    assert all(item.row["choices_drawn"] for item in finished)
    assert all(item.num_choices == len(item.row["choices"]) for item in finished)
    return {item.row["answer"]: item for item in finished}


def test_kqapro_draws_wrong_answers_of_the_right_ones_form() -> None:
    drawn = _kqa(seed=0)
    assert drawn == _kqa(seed=0, order=-1) != _kqa(seed=1)
    for answer, item in drawn.items():
        choices = item.row["choices"]
        assert len(set(choices)) == len(choices)
        assert choices.count(answer) == 1
        assert answer == "a" or "a" not in choices  # accepted for every question
    assert set(drawn["yes"].row["choices"]) == set(drawn["no"].row["choices"]) == {"yes", "no"}
    for form in ("abcdefghijkl", [f"Name {n}" for n in range(12)], [str(n) for n in range(12)]):
        for answer in form:
            if drawn[answer].num_choices == 10:
                assert set(drawn[answer].row["choices"]) <= {*form, "1999-01-01"}
    assert {item.num_choices for item in drawn.values()} == {2, 10}
    assert len({item.row["choices"].index(answer) for answer, item in drawn.items()}) > 4


def test_kqapro_is_not_solved_without_the_question() -> None:
    """The shortest, the longest or the middle one, or yes where it is offered, is right as often as chance says."""
    generator = random.Random(0)
    words = ["x" * generator.randint(2, 30) for _ in range(40)]
    answers = [f"{word.title()} {n}" for n, word in enumerate(words * 5)]
    answers += [str(generator.randint(0, 900)) for _ in range(60)] + [
        "1990",
        "2001-02-03",
        "4.5 metre",
        "21 metre",
    ]
    layout = LAYOUTS.make("kqapro")
    rows = [
        {"question": f"Q{n}", "answers": [answer]} for n, answer in enumerate(answers + ["yes", "no"] * 20)
    ]
    items = layout.finish([layout.read(row) for row in rows], 0)
    chance = sum(1 / item.num_choices for item in items) / len(items)
    error = (chance * (1 - chance) / len(items)) ** 0.5
    for place in (0, 5, -1):
        hits = 0
        for item in items:
            by_length = sorted(item.row["choices"], key=len)
            guess = "yes" if "yes" in by_length else by_length[min(place, len(by_length) - 1)]
            hits += guess == item.row["answer"]
        assert abs(hits / len(items) - chance) < 3 * error


def test_kqapro_keeps_the_choices_it_is_given() -> None:
    row = {"question": "Q", "choices": list("abcdefghij"), "answer": "c"}
    layout = LAYOUTS.make("kqapro")
    (item,) = layout.finish([layout.read(row)], 0)
    assert item.row == {**row, "choices_drawn": False}


def test_kqapro_offers_fewer_choices_or_needs_another_answer() -> None:
    layout = LAYOUTS.make("kqapro")
    few = layout.finish([layout.read({"question": f"Q{n}", "answers": [str(n)]}) for n in range(9)], 0)
    assert {item.num_choices for item in few} == {9}
    with pytest.raises(InputError, match="no other answer of the form of 'one'"):
        layout.finish([layout.read({"question": "Q", "answers": ["one"]})], 0)


@pytest.mark.parametrize(
    ("layout", "row", "reason"),
    [
        ("arc", {"question": "Q", "choices": _ABCD, "answerKey": "E"}, "'answerKey' is 'E', none of: A, B"),
        ("arc", {"question": "Q", "choices": ["a"], "answerKey": "A"}, "'choices' is missing or not a pair"),
        (
            "arc",
            {"question": "Q", "choices": {**_ABCD, "label": ["A", "B", "A", "D"]}, "answerKey": "A"},
            "two choices have one label: A, B, A, D",
        ),
        ("arc", {"choices": _ABCD, "answerKey": "A"}, "'question' is missing"),
        (
            "arc",
            {"question": "Q", "choices": {**_ABCD, "label": ["A", "B"]}, "answerKey": "A"},
            "4 choices have 2",
        ),
        ("openbookqa", {**_OBQA, "question_stem": " "}, "'question_stem' is empty"),
        ("mmlu", {**_MMLU, "answer": 4}, "'answer' is 4"),
        ("mmlu", {**_MMLU, "answer": True}, "'answer' is True"),
        ("mmlu", {**_MMLU, "choices": ["a", ""]}, "entry that is empty"),
        ("mmlu", {**_MMLU, "subject": None}, "'subject' is missing or null"),
        ("hellaswag", {**_HELLASWAG, "ctx": "x", "label": ""}, "'label' is ''"),
        ("hellaswag", _HELLASWAG, "'ctx' is missing"),
        ("hellaswag", {**_HELLASWAG, "ctx_a": "x", "ctx_b": 5}, "'ctx_b' is int, not text"),
        ("openbookqa", {"question": {"stem": "Q", "choices": ["a"]}, "answerKey": "A"}, "no list of pairs"),
        ("piqa", {"goal": "g", "sol1": "1", "sol2": "2"}, "'label' is None"),
        ("piqa", {"goal": 5, "sol1": "1", "sol2": "2", "label": 0}, "'goal' is int"),
        ("social_iqa", {**_SIQA, "label": "0"}, "'label' is '0'"),
        (
            "winogrande",
            {"sentence": "no blank", "option1": "a", "option2": "b", "answer": "1"},
            "has no blank",
        ),
        (
            "winogrande",
            {"sentence": "ends in _", "option1": "a", "option2": "b", "answer": "1"},
            "text behind it",
        ),
        (
            "winogrande",
            {"sentence": "One _ and _ too.", "option1": "a", "option2": "b", "answer": "1"},
            "more than one blank",
        ),
        ("nq_open", {"question": "Q", "answer": []}, "fewer than 1"),
        ("triviaqa", {"question": "Q", "answer": "x"}, "'answer' is missing or has no 'value'"),
        ("race", {"article": "A", **_PROBLEM, "answer": "E"}, "'answer' is 'E'"),
        ("race", {"article": "A", **_PROBLEM, "options": list("abcde")}, "has 5 entries, not 4"),
        ("race", {"article": "A", "problems": "[{"}, "'problems' is no list"),
        ("race", {"article": "A", "problems": []}, "'problems' is no list, or empty"),
        ("race", {"article": "A", "problems": "['Q']"}, "'problems' holds str, not questions"),
        ("kqapro", {"question": "Q"}, "'answers' is missing"),
        (
            "commonsense_qa",
            {"question": "Q", "choices": _ABCD, "answerKey": "A"},
            "labels A, B, C, D, not A to E",
        ),
        ("kqapro", {"question": "Q", "choices": ["a", "b"], "answer": "c"}, "0 times, not once"),
    ],
)
def test_a_fault_has_its_reason(layout: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        _read(layout, row)


def test_an_unknown_layout_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="choose one of: arc, commonsense_qa, hellaswag"):
        LAYOUTS.make("boolq")

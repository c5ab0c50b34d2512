import ast
import json
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import all_benchmarks
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.local_questions import write_local_questions
from datamask_pipeline.evaluation.passages import content_words, find_spots, is_prose
from datamask_pipeline.evaluation.questions import prepare_questions

Documents = list[tuple[str, str]]


@pytest.fixture(scope="module")
def sets(documents: Documents, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("local")
    write_local_questions(iter(documents), directory, num_questions=24, seed=0)
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in directory.glob("*.jsonl")
    }


def test_there_is_a_set_for_every_benchmark(sets: dict[str, list[dict[str, Any]]]) -> None:
    assert set(sets) == set(all_benchmarks())
    assert {len(rows) for rows in sets.values()} == {24}


def test_they_are_accepted_as_any_other_set_and_say_local(documents: Documents, tmp_path: Path) -> None:
    prepared = prepare_questions(EvaluateConfig(questions_per_task=24), tmp_path, documents)
    assert [item.source for item in prepared] == ["local"] * 12
    assert [(item.num_rejected, item.num_questions) for item in prepared] == [(0, 24)] * 12
    again = prepare_questions(EvaluateConfig(questions_per_task=24), tmp_path / "again", documents[::-1])
    assert [item.digest for item in again] == [item.digest for item in prepared]
    other = prepare_questions(EvaluateConfig(questions_per_task=24, seed=1), tmp_path / "other", documents)
    assert not {item.digest for item in other} & {item.digest for item in prepared}


def test_the_right_answers_are_those_of_the_document(
    sets: dict[str, list[dict[str, Any]]], documents: Documents
) -> None:
    texts = {identity: " ".join(text.split()) for identity, text in documents}

    def stands(row: dict[str, Any], text: str) -> bool:
        return text in texts[row["document_id"]]

    assert all(sets.values())
    for row in sets["hellaswag"]:
        assert stands(row, f"{row['ctx_a']} {row['endings'][int(row['label'])]}")
    for row in sets["piqa"]:
        right = row["sol1"], row["sol2"]
        assert stands(row, f"{row['goal']} {right[row['label']]}")
    for row in sets["openbookqa"]:
        right = row["choices"]["text"][row["choices"]["label"].index(row["answerKey"])]
        assert stands(row, f"{row['question_stem']} {right}")
    for row in sets["social_iqa"]:
        assert stands(row, f"{row['context']} {row['answer' + 'ABC'[int(row['label']) - 1]]}")
    for row in sets["winogrande"]:
        assert stands(row, row["sentence"].replace("_", row[f"option{row['answer']}"]))
    for row in sets["kqapro"]:
        sentence = row["question"].removesuffix(" Which word is missing?")
        assert stands(row, sentence.replace("____", row["answer"]))
        assert len(set(row["choices"])) == 10
    for row in sets["triviaqa"]:
        sentence = row["question"].partition("Complete the sentence: ")[2]
        assert stands(row, sentence.replace("____", row["answer"]["value"]))
    for row in sets["nq_open"]:
        sentence, _, word = row["question"].partition('" which word comes after ')
        shown = word.strip('"')
        assert f"{shown} {row['answer'][0]}" in sentence
    for row in sets["race_high"]:
        for problem in ast.literal_eval(row["problems"]):
            standing = [option in row["article"] for option in problem["options"]]
            assert standing == [letter == problem["answer"] for letter in "ABCD"]


def test_no_two_options_are_equal_where_documents_share_a_template(tmp_path: Path) -> None:
    """The end of a sentence that stands in each of them was offered as a wrong one, too."""
    names = [f"{first}{second}" for first in "bcdfghklm" for second in ("andol", "erist", "olute", "umara")]
    shared = [
        (
            name,
            f"The illness that is called {name} has a cause that is not known to anybody today. "
            f"Many {name} words about {name[::-1]} stand beside it in this {name}ic place. "
            f"At last un{name} ends all of it with some more {name}s and {name[::-1]} words.",
        )
        for name in names
    ]
    write_local_questions(shared, tmp_path, num_questions=24, seed=0)
    rows = {
        task: [json.loads(line) for line in (tmp_path / f"{task}.jsonl").read_text().splitlines()]
        for task in ("piqa", "openbookqa")
    }
    assert sum("illness" in row["question_stem"] for row in rows["openbookqa"]) > 3
    assert all(row["sol1"] != row["sol2"] for row in rows["piqa"])
    assert all(len({*row["choices"]["text"]}) == 4 for row in rows["openbookqa"])


def test_the_right_answer_stands_anywhere(sets: dict[str, list[dict[str, Any]]]) -> None:
    assert {row["label"] for row in sets["hellaswag"]} == {"0", "1", "2", "3"}
    assert {row["answerKey"] for row in sets["arc_challenge"]} == set("ABCD")
    assert {row["answer"] for row in sets["winogrande"]} == {"1", "2"}
    assert {row["answer"] for row in sets["mmlu"]} == {0, 1, 2, 3}


def test_prose_has_six_to_forty_words_and_blanks_stand_for_long_words_inside_that_stand_once() -> None:
    lengths = {size: is_prose("Word" + " word" * (size - 1) + ".") for size in (5, 6, 40, 41)}
    assert lengths == {5: False, 6: True, 40: True, 41: False}
    assert content_words("Some other windy rivers fill the windy valley beyond Rome behind.") == [
        "rivers",
        "valley",
        "beyond",
    ]


def test_a_sentence_of_many_documents_is_asked_once_with_those_around_it() -> None:
    first, second, third = (
        f"The {name} of them is told in this place." for name in ("first", "second", "third")
    )
    text = f"{first} {second} {third}"
    found = find_spots([("a", text), ("b", f"{text}\n\nCode = 1")], num_documents=2, seed=0)
    assert [(spot.before, spot.sentence, spot.after) for spot in found] == [
        ((), first, (second, third)),
        ((first,), second, (third,)),
    ]


def test_too_little_prose_is_refused(documents: Documents, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too little prose"):
        write_local_questions(documents[:3], tmp_path, num_questions=4, seed=0)
    assert not list(tmp_path.iterdir())

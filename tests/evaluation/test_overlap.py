"""Words are the same however Unicode writes them."""

import unicodedata

import pytest

from datamask_pipeline.evaluation.overlap import QuestionNgrams, fields

ASKED = "Où est l'élève né à Łódź qui a écrit la première œuvre officielle"


@pytest.mark.parametrize(
    "text",
    [
        ASKED,
        unicodedata.normalize("NFD", ASKED).upper(),
        ASKED.replace("offi", "o\ufb03"),
        ASKED.replace("premi", "pre\u00admi"),
        ASKED.replace("est", "es\u2060t"),
        ASKED.replace("est", "e\ufe0fst\u200e"),
        ASKED.replace(" ", "\u200b"),
        ASKED.replace("qui a", "\uff51\uff55\uff49 a"),
        f"<p>{ASKED.replace(' ', chr(10))}</p>",
    ],
)
def test_a_question_is_found_however_it_is_written(text: str) -> None:
    questions = QuestionNgrams([(("asked", 0), ASKED)], ngram=14)  # all its words
    assert questions.found_in(text)
    assert not questions.found_in(text.replace("a", "o").replace("A", "O"))


@pytest.mark.parametrize(
    "row",
    [
        {"sentence": "Nobody who lives near the old mill forgets how _ sang there in the dark of winter.",
         "option1": "Anna", "option2": "the miller's son", "answer": "1"},
        {"question": "Nobody who lives near the old mill forgets how ____ sang there in the dark of winter.",
         "options": ["Berta", "the miller's son"], "question_id": "17"},
    ],
)  # fmt: skip
def test_a_question_with_a_blank_is_found_where_it_is_filled(row: dict[str, object]) -> None:
    """At 13 words every run of this sentence spans its blank."""
    questions = QuestionNgrams(fields("asked", [row]), ngram=13)
    sentence = "Nobody who lives near the old mill forgets how {} sang there in the dark of winter."
    assert questions.found_in(sentence.format("the miller's son"))
    assert not questions.found_in(sentence.format("a stranger"))
    assert questions.tasks == {"asked": {"questions": 1, "too_short": 0}}


def test_the_questions_on_a_passage_are_fields_of_their_own() -> None:
    problem = {
        "question": "Who sang at\nthe mill\xa0in June? It was _ .",
        "options": ["Anna", "Berta"],
        "answer": "A",
    }
    row = {"article": "Some passage.", "problems": repr([problem])}
    questions = QuestionNgrams(fields("race_high", [row]), ngram=8)
    assert questions.found_in("Who sang at the mill in June?\nIt was Berta.")
    assert not questions.found_in("In June it was _. options Anna Berta answer A")
    assert QuestionNgrams(fields("race_high", [row]), ngram=20).tasks["race_high"]["too_short"] == 1
    assert list(fields("other", [{"problems": "no list"}])) == [(("other", 0), "no list")]


def test_numbers_and_keys_are_no_text_and_a_question_without_any_is_told() -> None:
    row = {
        "question_id": "a b c",
        "document_id": "d e f",
        "answerKey": "A",
        "label": "two words",
        "number": 3,
    }
    assert list(fields("asked", [row, row | {"stem": "g h"}])) == [(("asked", 0), ""), (("asked", 1), "g h")]
    assert QuestionNgrams(fields("asked", [row]), ngram=2).tasks == {
        "asked": {"questions": 1, "too_short": 1}
    }


def test_an_underscore_inside_a_word_is_no_blank() -> None:
    row = {"question": "What does read_csv return?", "answer": "a table"}
    assert [text for _, text in fields("asked", [row])] == list(row.values())

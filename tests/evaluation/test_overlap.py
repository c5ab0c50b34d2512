"""Words are the same however Unicode writes them."""

import unicodedata

import pytest

from datamask_pipeline.evaluation.overlap import QuestionNgrams

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
    questions = QuestionNgrams([(("asked", 0), ASKED)], ngram=10)
    assert questions.found_in(text)
    assert not questions.found_in(text.replace("a", "o").replace("A", "O"))

"""Small question sets made out of the pipeline's own held-out documents.

Knows no model. Nothing here is a published question: each set has the columns and the form of its
benchmark, filled with sentences and words of real text. What is asked is which sentence follows, which
half belongs, which word is missing. The results say `local`, and are worth comparing among models of one
experiment only.
"""

import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import all_benchmarks
from datamask_pipeline.evaluation.passages import Spot, content_words, find_spots

_DOCUMENTS_PER_QUESTION = 10
_FEWEST_DOCUMENTS, _FEWEST_WORDS = 10, 100  # enough for ten different words and four different texts
_LETTERS = "ABCD"
_GAP = "____"


@dataclass(frozen=True)
class _Pool:
    """Where wrong answers come from: real sentences and words of other documents."""

    spots: list[Spot]
    words: list[str]
    generator: random.Random

    def sentences(self, spot: Spot, number: int, part: Callable[[str], str] = str) -> list[str] | None:
        """Different sentences of other documents, or parts of them, none of which stands around the spot as well.

        None where there are too few, as among documents that share a template.
        """
        around = {part(sentence) for sentence in (*spot.before, spot.sentence, *spot.after)}
        others = dict.fromkeys(
            part(other.sentence) for other in self.spots if other.document_id != spot.document_id
        )
        different = [other for other in others if other not in around]
        return self.generator.sample(different, number) if len(different) >= number else None

    def missing(self, spot: Spot, number: int) -> tuple[str, str, list[str]] | None:
        """The sentence with a gap, the word that fills it, and wrong words; None if no word will do."""
        candidates = content_words(spot.sentence)
        if not candidates:
            return None
        word = self.generator.choice(candidates)
        gapped = re.sub(rf"\b{word}\b", _GAP, spot.sentence)
        wrong = self.generator.sample([other for other in self.words if other not in spot.sentence], number)
        return gapped, word, wrong

    def mixed(self, right: str, wrong: list[str]) -> tuple[list[str], int]:
        """All options in random order, and where the right one stands."""
        options = [right, *wrong]
        self.generator.shuffle(options)
        return options, options.index(right)


Row = dict[str, Any]
_Maker = Callable[[Spot, _Pool], Row | None]


def write_local_questions(
    documents: Iterable[tuple[str, str]], directory: Path, *, num_questions: int, seed: int
) -> None:
    """Write `<task>.jsonl` for each task of a layout that is known here, and `about.json`, below `directory`.

    Args:
        documents: (id, text) of documents that no model is trained on.
        directory: Where the sets go.
        num_questions: Questions a task, or fewer if the documents yield no more.
        seed: The same documents and seed give the same files.

    Raises:
        InputError: The documents hold too little prose.
    """
    spots = find_spots(documents, num_documents=num_questions * _DOCUMENTS_PER_QUESTION, seed=seed)
    words = sorted({word for spot in spots for word in content_words(spot.sentence)})
    num_documents = len({spot.document_id for spot in spots})
    too_little = InputError(
        "the held-out documents hold too little prose to make questions from",
        field="documents",
        value=num_documents,
        remedy="raise pool.validation_share or pool.validation_documents, give more documents, or point "
        "evaluate.questions at a directory",
    )
    if num_documents < _FEWEST_DOCUMENTS or len(words) < _FEWEST_WORDS:
        raise too_little
    directory.mkdir(parents=True, exist_ok=True)
    for task, make in _makers().items():
        generator = random.Random(f"{task}:{seed}")
        pool = _Pool(spots, words, generator)
        rows: list[Row] = []
        for spot in generator.sample(spots, len(spots)):
            if len(rows) < num_questions and (row := make(spot, pool)) is not None:
                rows.append({"document_id": spot.document_id, **row})
        if not rows:
            raise too_little
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (directory / f"{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    about = {"source": "local", "made_from": "held-out documents", "seed": seed, "sentences": len(spots)}
    (directory / "about.json").write_text(json.dumps(about, indent=2) + "\n")


def tasks_made() -> set[str]:
    """The tasks that questions can be made for."""
    return set(_makers())


def _makers() -> dict[str, _Maker]:
    """What makes the questions of each task: its own maker, or that of a task in the same layout."""
    tasks = all_benchmarks()
    by_layout = {tasks[task].layout: make for task, make in _MAKERS.items()}
    found = {task: _MAKERS.get(task, by_layout.get(benchmark.layout)) for task, benchmark in tasks.items()}
    return {task: make for task, make in found.items() if make is not None}


def _hellaswag(spot: Spot, pool: _Pool) -> Row | None:
    """Which sentence continues the paragraph."""
    if (wrong := pool.sentences(spot, 3)) is None:
        return None
    endings, label = pool.mixed(spot.after[0], wrong)
    context = " ".join((*spot.before[-1:], spot.sentence))
    return {"activity_label": "Text", "ctx_a": context, "ctx_b": "", "endings": endings, "label": str(label)}


def _winogrande(spot: Spot, pool: _Pool) -> Row | None:
    """Which of two words makes the rest of the sentence likelier."""
    if (found := pool.missing(spot, 1)) is None:
        return None
    gapped, word, wrong = found
    (first, second), place = pool.mixed(word, wrong)
    return {
        "sentence": gapped.replace(_GAP, "_"),
        "option1": first,
        "option2": second,
        "answer": str(place + 1),
    }


def _piqa(spot: Spot, pool: _Pool) -> Row | None:
    """Which of two endings belongs to the beginning of a sentence."""
    goal, right = _begin(spot.sentence), _end(spot.sentence)
    if (wrong := pool.sentences(spot, 1, _end)) is None:
        return None
    (first, second), label = pool.mixed(right, wrong)
    return {"goal": goal, "sol1": first, "sol2": second, "label": label}


def _openbookqa(spot: Spot, pool: _Pool) -> Row | None:
    """Which of four endings belongs to the beginning of a sentence."""
    if (wrong := pool.sentences(spot, 3, _end)) is None:
        return None
    options, place = pool.mixed(_end(spot.sentence), wrong)
    return {"question_stem": _begin(spot.sentence), **_labelled(options, place)}


def _arc_challenge(spot: Spot, pool: _Pool) -> Row | None:
    """Which sentence comes from the same place as a given one."""
    if (wrong := pool.sentences(spot, 3)) is None:
        return None
    options, place = pool.mixed(spot.after[0], wrong)
    return {
        "question": f'Which sentence stands in the same text as "{spot.sentence}"?',
        **_labelled(options, place),
    }


def _social_iqa(spot: Spot, pool: _Pool) -> Row | None:
    """Which of three sentences comes next."""
    if (wrong := pool.sentences(spot, 2)) is None:
        return None
    options, place = pool.mixed(spot.after[0], wrong)
    answers = dict(zip(("answerA", "answerB", "answerC"), options, strict=True))
    return {"context": spot.sentence, "question": "What is said next?", **answers, "label": str(place + 1)}


def _mmlu(spot: Spot, pool: _Pool) -> Row | None:
    """Which of four words is missing, the next sentence shown."""
    if (found := pool.missing(spot, 3)) is None:
        return None
    gapped, word, wrong = found
    options, place = pool.mixed(word, wrong)
    question = f"Which word is missing? {gapped} {spot.after[0]}"
    return {"question": question, "subject": "words_in_context", "choices": options, "answer": place}


def _commonsense_qa(spot: Spot, pool: _Pool) -> Row | None:
    """Which of five words is missing."""
    if (found := pool.missing(spot, 4)) is None:
        return None
    gapped, word, wrong = found
    options, place = pool.mixed(word, wrong)
    labels = list("ABCDE")
    return {
        "question": f"{gapped} Which word is missing?",
        "choices": {"text": options, "label": labels},
        "answerKey": labels[place],
    }


def _kqapro(spot: Spot, pool: _Pool) -> Row | None:
    """Which of ten words is missing."""
    if (found := pool.missing(spot, 9)) is None:
        return None
    gapped, word, wrong = found
    options, _ = pool.mixed(word, wrong)
    return {"question": f"{gapped} Which word is missing?", "choices": options, "answer": word}


def _nq_open(spot: Spot, pool: _Pool) -> Row | None:
    """Which word follows another one in a sentence that is shown."""
    words = spot.sentence.rstrip(".!?").split()
    places = [
        place
        for place in range(len(words) - 1)
        if words[place + 1].isalpha() and words.count(words[place]) == 1
    ]
    if not places:
        return None
    place = pool.generator.choice(places)
    question = f'in the sentence "{spot.sentence}" which word comes after "{words[place]}"'
    return {"question": question, "answer": [words[place + 1]]}


def _triviaqa(spot: Spot, pool: _Pool) -> Row | None:
    """The last word of a sentence whose context is shown."""
    start, _, last = spot.sentence.rstrip(".!?").rpartition(" ")
    if not last.isalpha():
        return None
    question = " ".join((*spot.before[-1:], "Complete the sentence:", f"{start} {_GAP}"))
    return {"question": question, "answer": {"value": last, "aliases": [last]}}


def _race_high(spot: Spot, pool: _Pool) -> Row | None:
    """Which sentences occur in a passage of three to six: two questions, as on one article."""
    sentences = (spot.sentence, *spot.after)[:6]
    if len(sentences) < 3:
        return None
    problems = []
    for right in pool.generator.sample(sentences, 2):
        if (wrong := pool.sentences(spot, 3)) is None:
            return None
        options, place = pool.mixed(right, wrong)
        question = "Which sentence stands in the article?"
        problems.append({"question": question, "options": options, "answer": _LETTERS[place]})
    return {"article": " ".join(sentences), "problems": repr(problems)}


def _race_middle(spot: Spot, pool: _Pool) -> Row | None:
    """Which word stands in the gap of a sentence of a passage of two."""
    if (found := pool.missing(spot, 3)) is None:
        return None
    gapped, word, wrong = found
    options, place = pool.mixed(word, wrong)
    return {
        "article": f"{spot.sentence} {spot.after[0]}",
        "question": f"In the article, which word stands in the gap of: {gapped}",
        "options": options,
        "answer": _LETTERS[place],
    }


def _labelled(options: list[str], place: int) -> Row:
    return {"choices": {"text": options, "label": list(_LETTERS)}, "answerKey": _LETTERS[place]}


def _begin(sentence: str) -> str:
    words = sentence.split()
    return " ".join(words[: len(words) // 2])


def _end(sentence: str) -> str:
    words = sentence.split()
    return " ".join(words[len(words) // 2 :])


_MAKERS: dict[str, _Maker] = {
    "race_high": _race_high,
    "race_middle": _race_middle,
    "hellaswag": _hellaswag,
    "nq_open": _nq_open,
    "openbookqa": _openbookqa,
    "kqapro": _kqapro,
    "mmlu": _mmlu,
    "triviaqa": _triviaqa,
    "arc_challenge": _arc_challenge,
    "social_iqa": _social_iqa,
    "piqa": _piqa,
    "winogrande": _winogrande,
    "commonsense_qa": _commonsense_qa,
}

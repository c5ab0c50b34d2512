"""What an experiment draws from: every document of a release as tokens, with its vector and quality; and what is asked.

Knows the record and the ruler; knows no arm. Shape suffixes: N documents.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline import texts
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.config import QuestionsConfig
from datamask_pipeline.evaluation.gold import ScoredQuestion, scored_questions
from datamask_pipeline.experiment.outside import Outside
from datamask_pipeline.experiment.planted import Planted
from datamask_pipeline.ngram.asked import AskedQuestions, Encode, encoded, parted_tokens
from datamask_pipeline.ngram.trigram import Asked, Numbers, Texts, TrigramModel
from datamask_pipeline.pretraining.tokenizer import encoder, load_tokenizer
from datamask_pipeline.quality.combine import combine_scores
from datamask_pipeline.schema import CURATED, HELD_OUT, SCORE_PREFIX
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.stages import questions as questions_stage
from datamask_pipeline.stages import tokenizer as tokenizer_stage
from datamask_pipeline.stages.gather import index_scores
from datamask_pipeline.stages.release_rows import read_rows
from datamask_pipeline.storage import Ref, Store


@dataclass(frozen=True)
class Inputs:
    """The artefacts of a release that an experiment reads."""

    index: Ref
    candidates: Ref
    tokenizer: Ref
    questions: Ref
    documents: Mapping[str, Ref]
    embeddings: Mapping[str, Ref]

    def refs(self) -> dict[str, Ref | str]:
        """All of them by name, as a fingerprint takes them."""
        found: dict[str, Ref | str] = {
            name: getattr(self, name) for name in ("index", "candidates", "tokenizer", "questions")
        }
        found |= {f"documents/{crawl}": ref for crawl, ref in self.documents.items()}
        return found | {f"embeddings/{crawl}": ref for crawl, ref in self.embeddings.items()}


@dataclass(frozen=True)
class Documents:
    """Documents that may be chosen.

    Attributes:
        tokens: Of each document, its end of text included; of a cut one, its first tokens.
        texts: Their texts; of a cut one, those of its first tokens.
        lengths_N: Tokens of each.
        quality_N: Quality of each, higher is better.
        vectors: The embeddings.
        scores: Each scorer's score of each, which quality is made of, by the scorer's name.
        planted: Which were planted; ``None``: nothing was.
        domains: The registrable domain of each, or its host; empty where it has none.
        outside: Of each arm whose subset somebody else chose, by its name, which documents are in it.
    """

    tokens: list[NDArray[np.int64]]
    texts: list[str]
    lengths_N: NDArray[np.int64]
    quality_N: NDArray[np.float64]
    vectors: ShardedVectors
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    planted: Planted | None = None
    domains: Sequence[str] = ()
    outside: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def part(self, index_n: NDArray[np.int64]) -> "Documents":
        """Some of them."""
        return Documents(
            [self.tokens[place] for place in index_n],
            [self.texts[place] for place in index_n],
            self.lengths_N[index_n],
            self.quality_N[index_n],
            self.vectors.chosen(index_n),
            {name: values_N[index_n] for name, values_N in self.scores.items()},
            None if self.planted is None else self.planted.part(index_n),
            [self.domains[place] for place in index_n] if self.domains else (),
            {arm: held_N[index_n] for arm, held_N in self.outside.items()},
        )


@dataclass(frozen=True)
class Ruler:
    """What every model is asked: questions, then held-out documents, then curated ones where there are some.

    Attributes:
        tasks: Name of each item's task.
        bytes_I: UTF-8 bytes of each item.
        right: Prompt and right answer of each question.
        document_texts: The tokens of the held-out and of the curated documents.
    """

    encode: Encode
    end: int
    vocabulary: int
    asked: AskedQuestions
    documents: Asked
    tasks: list[str]
    bytes_I: NDArray[np.int64]
    right: list[tuple[str, str]]
    document_texts: Texts

    def bits(self, learnt: Texts) -> Numbers:
        """Bits of each item by a trigram model of these texts."""
        model = TrigramModel(learnt, vocabulary=self.vocabulary, before=self.end)
        return np.concatenate([self.asked.answers(model).gold_bits_Q, model.bits(self.documents)])

    def longer_than(self, length: int) -> dict[str, int]:
        """Of each task the questions that have more tokens than this, right answer included; of none: left out."""
        asked = zip(self.tasks, parted_tokens(self.right, self.encode), strict=False)
        return dict(Counter(task for task, (ids, _) in asked if len(ids) > length))


def read_questions(store: Store, questions: Ref, scratch: Path) -> list[ScoredQuestion]:
    """Every question with its right answer alone: nobody asks here how likely the wrong ones are."""
    settings = store.manifest(questions)["basis"]["config"]
    prompts = QuestionsConfig(shots=settings["shots"], fewshot_seed=settings["fewshot_seed"])
    sets = questions_stage.load(store, questions, scratch)
    found = scored_questions(sets, scratch / "lm-eval", prompts)
    return [replace(one, pairs=(one.pairs[one.gold],), gold=0) for one in found]


def refuse_long_answers(
    questions: Sequence[ScoredQuestion], encode: Encode, lengths: Mapping[str, int]
) -> None:
    """Refuse sequences that have no room for an answer; a prompt may lose its beginning, an answer may not.

    Args:
        questions: As of `read_questions`.
        encode: Makes tokens.
        lengths: Tokens of a network's sequences, by the setting that gives them.

    Raises:
        ConfigurationError: an answer has more tokens.
    """
    setting, least = min(lengths.items(), key=lambda item: item[1])
    asked = parted_tokens([one.pairs[0] for one in questions], encode)
    sizes = [len(ids) - before for ids, before in asked]
    if sizes and max(sizes) > least:
        longest = questions[int(np.argmax(sizes))]
        raise ConfigurationError(
            f"{setting} {least}: the answer of question {longest.question_id} of task {longest.task!r} has {max(sizes)} "
            f"tokens, the most of all; raise it to {max(sizes)} at least, or leave the task out of chain.evaluate.tasks"
        )


def read_ruler(
    store: Store, inputs: Inputs, scratch: Path, lengths: Mapping[str, int] | None = None
) -> Ruler:
    """Make tokens of questions and documents once for all models; ``lengths`` and errors as of `refuse_long_answers`."""
    loaded = load_tokenizer(store.local_copy(inputs.tokenizer, tokenizer_stage.TREE, scratch))
    encode, end = encoder(loaded), int(loaded.eos_token_id)
    questions = read_questions(store, inputs.questions, scratch)
    if lengths:
        refuse_long_answers(questions, encode, lengths)
    asked = AskedQuestions.of(questions, encode, end)
    held_out = [
        text for _, text in texts.pool_documents(store, inputs.candidates, inputs.documents, "validation")
    ]
    if not held_out:
        raise InputError(
            "the release holds out no document to measure on", remedy="raise pool.validation_share"
        )
    curated = [text for _, text in questions_stage.load_curated(store, inputs.questions, scratch)]
    sizes = [len(text.encode()) for text in (*held_out, *curated)]
    document_texts = Texts.of(list(encoded([*held_out, *curated], encode, end)))
    return Ruler(
        encode,
        end,
        len(loaded),
        asked,
        Asked.of(document_texts, end),
        [question.task for question in questions] + [HELD_OUT] * len(held_out) + [CURATED] * len(curated),
        np.concatenate([asked.gold_bytes_Q, np.array(sizes, np.int64)]),
        [one.pairs[0] for one in questions],
        document_texts,
    )


def read_documents(
    store: Store, inputs: Inputs, ruler: Ruler, outside: Mapping[str, Outside] | None = None
) -> Documents:
    """Every eligible document with a vector and every score, in canonical order.

    Args:
        store: The record.
        inputs: The artefacts.
        ruler: Makes tokens.
        outside: Subsets that somebody else chose, by arm.

    Raises:
        InputError: no document has every score; none of a subset is among them.
    """
    rows = read_rows(store, inputs.index, inputs.embeddings, {}, "rank", "domain")
    if rows.vectors is None:
        raise InputError(
            "the release has no document with every score", remedy="look at `datamask audit funnel`"
        )
    position_R = store.read_table(inputs.index, ["position"]).column(0).to_numpy()
    wanted = set(position_R[rows.scored_R].tolist())
    eligible = store.read_table(inputs.candidates, ["position", "eligible"]).to_pydict()
    places = [place for place, one in zip(eligible["position"], eligible["eligible"], strict=True) if one]
    found = texts.pool_documents(store, inputs.candidates, inputs.documents, "eligible")
    named = [each for place, each in zip(places, found, strict=True) if place in wanted]
    kept = [text for _, text in named]
    tokens = list(encoded(kept, ruler.encode, ruler.end))
    lengths_N = np.array([len(each) for each in tokens], np.int64)
    columns = index_scores(store, inputs.index).names
    scores = {
        name.removeprefix(SCORE_PREFIX): column.to_numpy()[rows.scored_R]
        for name, column in zip(columns, store.read_table(inputs.index, columns).columns, strict=True)
    }
    held = {arm: each.holds([name for name, _ in named], kept) for arm, each in (outside or {}).items()}
    for arm, held_N in held.items():
        if not held_N.any():
            raise InputError(
                f"arm {arm!r}: none of the subset's rows is a document of the pool",
                remedy="look at its ids; `datamask audit external` says where they are",
            )
    groups = () if rows.groups is None else rows.groups.at(np.arange(len(rows)))
    return Documents(tokens, kept, lengths_N, rows.quality_N, rows.vectors, scores, None, groups, held)


def combined_quality(
    scores: Mapping[str, NDArray[np.float64]], weights: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """One quality out of several scores by their ranks, (N,).

    Args:
        scores: By scorer, (N,) each.
        weights: Of each scorer; equal ones for ``None``.

    Raises:
        ConfigurationError: a scorer has no scores.
    """
    return combine_scores(scores, weights or dict.fromkeys(scores, 1.0), normalisation="rank")


def first_tokens(documents: Documents, num_tokens: int, decode: Any) -> Documents:
    """Documents cut to their first tokens; shorter ones are left out.

    Args:
        documents: Whole ones.
        num_tokens: Tokens of each.
        decode: Texts of lists of tokens.

    Raises:
        InputError: none is long enough.
    """
    long_n = np.flatnonzero(documents.lengths_N > num_tokens)
    if not len(long_n):
        raise InputError(f"no document has more than {num_tokens} tokens", remedy="lower `first_tokens`")
    part = documents.part(long_n)
    tokens = [each[:num_tokens] for each in part.tokens]
    lengths = np.full(len(tokens), num_tokens, np.int64)
    return replace(part, tokens=tokens, texts=decode(tokens), lengths_N=lengths)

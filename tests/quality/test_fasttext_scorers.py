"""The fastText scorers through the real reader, on small models with weights chosen by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tiny_fasttext import probability, write_model

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.families import SCORERS
from datamask_pipeline.quality import ScoreBatch, Scorer
from datamask_pipeline.quality.dclm_fasttext import normalise as dclm_line
from datamask_pipeline.quality.ultra_fineweb_fasttext import normalise as ultra_line

WORDS = {"good": 3.0, "fine": 1.0, "bad": -2.0}


def scores(scorer: Scorer, texts: list[str]) -> list[float]:
    return scorer.score(ScoreBatch(pa.table({"text": texts}))).values_N.tolist()


def tokenizer_file(path: Path) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("g", "o"), ("go", "o"), ("goo", "d"), ("b", "a"), ("ba", "d")]
    vocabulary = letters | {a + b: len(letters) + n for n, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
    return path


def test_dclm_scores_are_the_probability_of_hq(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.bin", ("hq", "cc"), WORDS)
    scorer = SCORERS.make("dclm_fasttext", {"model_file": str(model)})
    texts = ["good fine", "bad bad words", "unknown", "good\nbad\r\nfine", "", "good\u2028bad"]
    expected = [probability(WORDS, dclm_line(text)) for text in texts]
    np.testing.assert_allclose(scores(scorer, texts), expected, atol=2e-5)
    assert min(expected) < 0.5 < max(expected)
    assert scorer.scale == (0.0, 1.0)
    assert scorer.revision.startswith("sha256:")
    assert scorer.revision.endswith("+dclm-1")


def test_the_order_of_the_labels_does_not_matter(tmp_path: Path) -> None:
    flipped = {word: -weight for word, weight in WORDS.items()}
    one = write_model(tmp_path / "1.bin", ("hq", "cc"), WORDS)
    two = write_model(tmp_path / "2.bin", ("cc", "hq"), flipped)
    texts = ["good fine", "bad", "fine bad bad"]
    found = [scores(SCORERS.make("dclm_fasttext", {"model_file": str(path)}), texts) for path in (one, two)]
    np.testing.assert_allclose(found[0], found[1], atol=2e-5)


def test_a_score_never_exceeds_its_scale(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.bin", ("hq", "cc"), {"good": 400.0, "bad": -400.0})
    found = scores(SCORERS.make("dclm_fasttext", {"model_file": str(model)}), ["good", "bad"])
    assert 0.0 <= found[1] < 1e-4
    assert 1 - 1e-4 < found[0] <= 1.0


def test_dclm_makes_one_line_of_a_text() -> None:
    assert dclm_line("  a b\n\nc\r\n d\t\n") == "a b  c  d"


def test_ultra_fineweb_puts_tokens_of_the_folded_text_on_one_line(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file(tmp_path / "tokenizer.json")))
    assert ultra_line("Góod", tokenizer) == "good"
    assert ultra_line("BAD good", tokenizer) == "bad good"
    assert ultra_line("bad\n\n\n\ngood\tbad\r", tokenizer) == r"bad \n \n good \t bad \r"
    assert ultra_line("", tokenizer) == ""
    tokenizer.add_special_tokens(["</s>"])
    assert ultra_line("good</s>bad", tokenizer) == "good </s> bad"


def test_ultra_fineweb_scores_every_row(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.bin", ("neg", "pos"), {word: -weight for word, weight in WORDS.items()})
    options = {"model_file": str(model), "tokenizer_file": str(tokenizer_file(tmp_path / "t.json"))}
    scorer = SCORERS.make("ultra_fineweb_fasttext", options)
    texts = ["GOOD", "", "bad", "góod\nbad"]
    expected = [probability(WORDS, line) for line in ("good", "", "bad", "good bad")]
    np.testing.assert_allclose(scores(scorer, texts), expected, atol=2e-5)
    assert "+ultra-fineweb-2+tokenizer-sha256:" in scorer.revision
    with (tmp_path / "t.json").open("a") as stream:
        stream.write("\n")
    assert SCORERS.make("ultra_fineweb_fasttext", options).revision != scorer.revision


def test_a_tokenizer_of_the_hub_is_part_of_the_identity(tmp_path: Path) -> None:
    options = {"model_file": str(write_model(tmp_path / "m.bin", ("pos", "neg"), WORDS))}
    first, second = (
        SCORERS.make("ultra_fineweb_fasttext", options | {"revision": commit})
        for commit in ("a" * 40, "b" * 40)
    )
    assert first.revision.endswith(f"+ultra-fineweb-2+tokenizer-{'a' * 40}")
    assert first.identity() != second.identity()
    own = options | {"tokenizer_file": str(tokenizer_file(tmp_path / "t.json"))}
    same = [
        SCORERS.make("ultra_fineweb_fasttext", own | {"revision": pin}).revision for pin in (None, "a" * 40)
    ]
    assert same[0] == same[1], "model and tokenizer are files, so nothing is taken from the hub"


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pin `revision`"):
        SCORERS.make("dclm_fasttext")
    with pytest.raises(InputError, match="no such fastText model"):
        SCORERS.make("dclm_fasttext", {"model_file": str(tmp_path / "none.bin")})
    other = write_model(tmp_path / "other.bin", ("pos", "neg"), WORDS)
    with pytest.raises(InputError, match="labels are not __label__hq and __label__cc"):
        scores(SCORERS.make("dclm_fasttext", {"model_file": str(other)}), ["good"])
    broken = tmp_path / "broken.bin"
    broken.write_bytes(b"not a model at all")
    with pytest.raises(InputError, match="not a supervised fastText model"):
        scores(SCORERS.make("dclm_fasttext", {"model_file": str(broken)}), ["good"])
    options = {"model_file": str(other)}
    with pytest.raises(ConfigurationError, match="give `tokenizer_file` beside `model_file`"):
        SCORERS.make("ultra_fineweb_fasttext", options)


def test_a_commit_beside_files_alone_is_refused_as_nothing_is_taken_from_it(tmp_path: Path) -> None:
    commit = {"revision": "a" * 40}
    model = {"model_file": str(write_model(tmp_path / "m.bin", ("hq", "cc"), WORDS))}
    tokenizer = {"tokenizer_file": str(tokenizer_file(tmp_path / "t.json"))}
    with pytest.raises(ConfigurationError, match=r"revision 'a+' is the commit of .*; leave `revision` out"):
        SCORERS.make("dclm_fasttext", model | commit).check()
    with pytest.raises(ConfigurationError, match=r"m\.bin' and '.*t\.json'; leave `revision` out"):
        SCORERS.make("ultra_fineweb_fasttext", model | tokenizer | commit).check()
    for name, options in (
        ("dclm_fasttext", model),
        ("dclm_fasttext", commit),
        ("ultra_fineweb_fasttext", model | commit),  # the tokenizer's
        ("ultra_fineweb_fasttext", tokenizer | commit),
        ("ultra_fineweb_fasttext", model | tokenizer),
    ):
        SCORERS.make(name, options).check()

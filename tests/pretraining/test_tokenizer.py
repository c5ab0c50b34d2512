import errno
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from file_limit import no_file_above
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError
from datamask_pipeline.pretraining.data import tokenise
from datamask_pipeline.pretraining.tokenizer import adopt_tokenizer, encoder, load_tokenizer, train_tokenizer

_TRAIN = """
import json, sys
from pathlib import Path
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
texts = json.loads(sys.stdin.read())
train_tokenizer(texts, Path(sys.argv[1]), vocab_size=400, sequence_length=16)
"""


def test_any_order_and_process_gives_the_same_file(texts: list[str], tmp_path: Path) -> None:
    train_tokenizer(texts, tmp_path / "here", vocab_size=400, sequence_length=16)
    shuffled = random.Random(0).sample(texts, len(texts))
    argv = [sys.executable, "-c", _TRAIN, str(tmp_path / "there")]
    subprocess.run(argv, input=json.dumps(shuffled), text=True, check=True)
    here, there = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("here", "there"))
    assert here == there
    train_tokenizer(texts[:60], tmp_path / "other", vocab_size=400, sequence_length=16)
    assert (tmp_path / "other" / "tokenizer.json").read_bytes() != here


def test_every_text_survives_a_round_trip(texts: list[str], tmp_path: Path) -> None:
    train_tokenizer(texts, tmp_path, vocab_size=400, sequence_length=16)
    tokenizer = load_tokenizer(tmp_path)
    for text in [*texts, "  naïve 数据\t\n\n🐴 \x00 ."]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) <= 400


def test_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        train_tokenizer(iter([]), tmp_path, vocab_size=400, sequence_length=16)


def test_a_disk_without_room_is_told_as_one(texts: list[str], tmp_path: Path) -> None:
    with no_file_above(1000), pytest.raises(OSError, match="tokenizer") as raised:
        train_tokenizer(texts, tmp_path / "learnt", vocab_size=400, sequence_length=16)
    assert raised.value.errno == errno.EFBIG
    train_tokenizer(texts, tmp_path / "learnt", vocab_size=400, sequence_length=16)
    with no_file_above(1000), pytest.raises(OSError, match="tokenizer") as raised:
        adopt_tokenizer(tmp_path / "learnt", tmp_path / "adopted", name="it", sequence_length=16)
    assert raised.value.errno == errno.EFBIG


def test_an_end_of_text_that_a_document_writes_out_is_text(texts: list[str], tmp_path: Path) -> None:
    learnt = train_tokenizer(texts, tmp_path / "learnt", vocab_size=400, sequence_length=16)
    adopted = adopt_tokenizer(tmp_path / "learnt", tmp_path / "adopted", name="it", sequence_length=16)
    documents = ["Write <|endoftext|> behind it.", "<|endoftext|>"]
    for number, tokenizer in enumerate([learnt, adopted, load_tokenizer(tmp_path / "adopted")]):
        ends = [tokenizer.eos_token_id]
        for text, ids in zip(documents, encoder(tokenizer)(documents), strict=True):
            assert not {*ends} & {*ids}
            assert tokenizer.decode(ids) == text
            assert tokenizer.encode(text, add_special_tokens=False) == ids
        store = tokenise(documents, tokenizer, tmp_path / f"tokens {number}")
        assert [*store.tokens_T] == [
            token for ids in encoder(tokenizer)(documents) for token in [*ids, *ends]
        ]


def test_one_that_makes_an_end_of_text_of_words_is_refused(tmp_path: Path) -> None:
    pieces = [("</s>", 0.0), *((letter, -5.0) for letter in "abc</s> ")]
    unigram = Tokenizer(models.Unigram(list(dict(pieces).items()), 1))
    unigram.add_special_tokens(["</s>"])
    PreTrainedTokenizerFast(tokenizer_object=unigram, eos_token="</s>").save_pretrained(tmp_path / "it")
    with pytest.raises(
        InputError, match="the tokenizer of it ends a text where a document writes out '</s>'"
    ):
        adopt_tokenizer(tmp_path / "it", tmp_path / "adopted", name="it", sequence_length=16)


def test_one_whose_entries_are_not_numbered_one_by_one_is_refused(texts: list[str], tmp_path: Path) -> None:
    train_tokenizer(texts, tmp_path / "it", vocab_size=300, sequence_length=16)
    file = tmp_path / "it" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary, key=lambda entry: int(vocabulary[entry]))] = 319
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="the tokenizer of it has 300 entries, of which one is number 319"):
        adopt_tokenizer(tmp_path / "it", tmp_path / "adopted", name="it", sequence_length=16)

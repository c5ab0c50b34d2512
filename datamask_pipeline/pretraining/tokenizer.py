"""The tokenizer that all arms of an experiment share: a byte-level BPE learnt here, or another model's.

Knows no model and no arm. Bytes are the alphabet of the one learnt here, so no text is out of vocabulary and the number of
bytes of a text can be compared between tokenizers. What a text holds is text: one that writes out `<|endoftext|>` does not
end there.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError

END_OF_TEXT = "<|endoftext|>"


def train_tokenizer(
    texts: Iterable[str], directory: Path, *, vocab_size: int, sequence_length: int
) -> PreTrainedTokenizerFast:
    """Learn merges from `texts` and save the tokenizer; the same texts give the same files.

    Args:
        texts: The sample, the same for every arm; its order does not matter.
        directory: Where `tokenizer.json` and its configuration are written.
        vocab_size: Upper bound of the entries; a small sample yields fewer.
        sequence_length: Recorded as the length the models are trained for.

    Raises:
        InputError: There was no text to learn from.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    counted = _Counted(texts)
    tokenizer.train_from_iterator(counted, trainer)
    if not counted.characters:
        raise InputError("the tokenizer's sample holds no text", remedy="give at least one document")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=sequence_length,
        clean_up_tokenization_spaces=False,
    )
    _save(fast, directory)
    return load_tokenizer(directory)


def adopt_tokenizer(
    files: Path, directory: Path, *, name: str, sequence_length: int
) -> PreTrainedTokenizerFast:
    """Save the tokenizer of another model as `train_tokenizer` does; no code of its repository is run.

    Args:
        files: Holds its `tokenizer.json`, with its configuration beside it where there is one.
        directory: Where it is written.
        name: What errors call it.
        sequence_length: Recorded as the length the models are trained for.

    Raises:
        InputError: It cannot be read, or has no end of a text of its own, by which documents are told apart.
    """
    fast = read_tokenizer(files, name)
    fast.model_max_length = sequence_length
    if fast.pad_token_id is None:
        fast.pad_token = fast.eos_token
    _save(fast, directory)
    return load_tokenizer(directory)


def _save(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write it as its library does, which tells by a bare `Exception` what the system refuses.

    Raises:
        OSError: there is no room, or the file system refuses.
    """
    try:
        tokenizer.save_pretrained(directory)
    except Exception as error:
        refused = re.search(r"\(os error (\d+)\)$", str(error))
        if type(error) is not Exception or refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number), str(directory / "tokenizer.json")) from error


def read_tokenizer(files: Path, name: str | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer of another model out of its files.

    Raises:
        InputError: It cannot be read, names no end of a text, or makes one of a text that writes it out; its entries are
            not numbered without gaps, as models and counts take them.
    """
    called = name or str(files)
    try:
        fast = PreTrainedTokenizerFast.from_pretrained(files, local_files_only=True)
    except Exception as error:  # the library raises bare ones for what it cannot read
        raise InputError(
            f"{called} holds no tokenizer that can be read: {error}",
            remedy="give one with a whole tokenizer.json",
        ) from error
    if fast.eos_token_id is None:
        raise InputError(
            f"the tokenizer of {called} names no end of a text",
            remedy="state `eos_token` in its tokenizer_config.json",
        )
    if (most := max(fast.get_vocab().values())) >= len(fast):
        raise InputError(
            f"the tokenizer of {called} has {len(fast):,} entries, of which one is number {most:,}, counted from 0",
            remedy="name one whose entries are numbered without gaps",
        )
    # Of a Unigram model every entry is a piece that words are made of, the special ones too.
    if fast.eos_token_id in fast.encode(fast.eos_token, add_special_tokens=False, split_special_tokens=True):
        raise InputError(
            f"the tokenizer of {called} ends a text where a document writes out {fast.eos_token!r}",
            remedy="name one to which its special tokens are no words, such as a byte-level BPE",
        )
    return fast


def load_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """Read back what was saved; special tokens that a text writes out are plain text to it, in lm-eval too."""
    return PreTrainedTokenizerFast.from_pretrained(
        directory, local_files_only=True, split_special_tokens=True
    )


def encoder(tokenizer: PreTrainedTokenizerFast) -> Callable[[list[str]], list[list[int]]]:
    """What makes tokens of texts, as training does: nothing is added to them, and special tokens in them are plain text.

    Args:
        tokenizer: As `load_tokenizer` reads it.
    """
    return lambda texts: [
        encoding.ids for encoding in tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    ]


class _Counted:
    """Passes texts on and counts their characters."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts, self.characters = texts, 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.characters += len(text)
            yield text

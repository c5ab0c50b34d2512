"""Documents as one memory-mapped stream of tokens, cut into blocks.

Knows no model, arm or selection. Legend of array suffixes: D documents, T tokens.
"""

import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError
from datamask_pipeline.pretraining.tokenizer import encoder

_DOCUMENTS_AT_ONCE = 512  # bounds memory; has no influence on the tokens
Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items in order, the last one shorter (itertools has this from Python 3.12)."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


@dataclass(frozen=True)
class TokenStore:
    """Tokenised documents on disk: a flat file of tokens and where each document begins in it."""

    directory: Path
    num_documents: int
    num_tokens: int

    @property
    def tokens_T(self) -> np.ndarray:
        """All tokens in document order, memory-mapped, an end of text after each document."""
        return np.memmap(self.directory / "tokens.bin", dtype=np.uint32, mode="r")

    @property
    def offsets_D(self) -> np.ndarray:
        """First token of each document and, last, the number of tokens: num_documents + 1 entries."""
        return np.fromfile(self.directory / "offsets.bin", dtype=np.int64)


def tokenise(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, directory: Path) -> TokenStore:
    """Write the tokens of `texts` below `directory`; `counts.json`, put there last and at once, marks the store whole.

    Raises:
        InputError: There is no document.
    """
    directory.mkdir(parents=True, exist_ok=True)
    encode, ends = encoder(tokenizer), array("q", [0])
    with (directory / "tokens.bin").open("wb") as stream:
        for batch in batched(texts, _DOCUMENTS_AT_ONCE):
            for ids in encode(batch):
                ids_T = np.array([*ids, tokenizer.eos_token_id], dtype=np.uint32)
                stream.write(ids_T.tobytes())
                ends.append(ends[-1] + len(ids_T))
    if len(ends) == 1:
        raise InputError("there is no document to train on", remedy="raise the selection's ratio or budget")
    return _finished(directory, np.frombuffer(ends, dtype=np.int64))


def keep_tokens(tokens_T: np.ndarray, offsets_D: np.ndarray, directory: Path) -> TokenStore:
    """The same of documents that are tokens already, an end of text after each.

    Args:
        tokens_T: All tokens in document order.
        offsets_D: First token of each document and, last, the number of tokens.
        directory: Receives the store.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokens.bin").write_bytes(tokens_T.astype(np.uint32).data)
    return _finished(directory, offsets_D.astype(np.int64))


def _finished(directory: Path, offsets_D: np.ndarray) -> TokenStore:
    (directory / "offsets.bin").write_bytes(offsets_D.data)
    documents, tokens = len(offsets_D) - 1, int(offsets_D[-1])
    private = directory / "counts.tmp"
    private.write_text(json.dumps({"documents": documents, "tokens": tokens}))
    private.replace(directory / "counts.json")
    return TokenStore(directory, documents, tokens)


def open_store(directory: Path) -> TokenStore | None:
    """The store a finished `tokenise` left, or None.

    One with a file cut short is none: of a machine that lost power the last one may stand where the others do not.
    """
    try:
        read = json.loads((directory / "counts.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    store = TokenStore(directory, read["documents"], read["tokens"])
    sizes = {
        "tokens.bin": np.dtype(np.uint32).itemsize * store.num_tokens,
        "offsets.bin": np.dtype(np.int64).itemsize * (store.num_documents + 1),
    }
    files = {directory / name: size for name, size in sizes.items()}
    is_whole = all(file.is_file() and file.stat().st_size == size for file, size in files.items())
    return store if is_whole else None


class PackedBlocks(Dataset[dict[str, torch.Tensor]]):
    """Blocks of an endless stream: every epoch holds each document once, in an order of its own.

    Blocks run over the borders of documents and epochs, so that no token is left out and none padded; the first one of a
    block is read and not predicted. Unless asked otherwise `position_ids` begin at 0 with each document of a block, by which
    the model keeps documents apart.

    Args:
        store: The tokenised subset.
        sequence_length: Tokens of a block.
        num_blocks: Length of this dataset.
        seed: Together with the epoch's number it settles the order of documents.
        attend_across_documents: Leave out the positions, so that a block is one text.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        sequence_length: int,
        num_blocks: int,
        seed: int,
        attend_across_documents: bool = False,
    ) -> None:
        self._tokens_T, self._offsets_D = store.tokens_T, store.offsets_D
        self._length, self._num_blocks, self._seed = sequence_length, num_blocks, seed
        self._num_tokens, self._is_one_text = store.num_tokens, attend_across_documents
        self._epoch = -1
        self._order_D = self._starts_D = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._num_blocks

    def __getitem__(self, block: int) -> dict[str, torch.Tensor]:
        pieces, wanted, position = [], self._length, block * self._length
        while wanted:
            piece_T = self._piece(*divmod(position, self._num_tokens), wanted)
            pieces.append(piece_T)
            wanted, position = wanted - len(piece_T), position + len(piece_T)
        ids = torch.from_numpy(np.concatenate(pieces).astype(np.int64))
        block_T = {"input_ids": ids, "labels": ids.clone()}
        if not self._is_one_text:
            positions = np.concatenate([np.arange(len(piece_T)) for piece_T in pieces])
            block_T["position_ids"] = torch.from_numpy(positions)
        return block_T

    def _piece(self, epoch: int, position: int, wanted: int) -> np.ndarray:
        """Up to `wanted` tokens of the document that stands at `position` of an epoch."""
        self._enter(epoch)
        place = int(np.searchsorted(self._starts_D, position, side="right")) - 1
        document = self._order_D[place]
        begin = self._offsets_D[document] + position - self._starts_D[place]
        return self._tokens_T[begin : min(begin + wanted, self._offsets_D[document + 1])]

    def _enter(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        lengths_D = np.diff(self._offsets_D)
        self._order_D = np.random.default_rng([self._seed, epoch]).permutation(len(lengths_D))
        self._starts_D = np.concatenate([[0], np.cumsum(lengths_D[self._order_D])[:-1]])
        self._epoch = epoch

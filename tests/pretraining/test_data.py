from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError
from datamask_pipeline.pretraining.data import PackedBlocks, open_store, tokenise


def _stream(blocks: PackedBlocks) -> list[int]:
    return [int(token) for block in range(len(blocks)) for token in blocks[block]["input_ids"]]


def test_each_epoch_holds_every_document_once(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    store = tokenise(texts[:9], tokenizer, tmp_path)
    length = 7
    blocks = PackedBlocks(
        store, sequence_length=length, num_blocks=-(-3 * store.num_tokens // length), seed=0
    )
    stream = _stream(blocks)
    orders = []
    for epoch in range(3):
        tokens = stream[epoch * store.num_tokens : (epoch + 1) * store.num_tokens]
        documents = tokenizer.decode(tokens).split(tokenizer.eos_token)
        assert documents.pop() == ""
        assert sorted(documents) == sorted(texts[:9])
        orders.append(documents)
    assert orders[0] != orders[1] != orders[2]


def test_a_block_does_not_depend_on_what_was_read_before(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    store = tokenise(texts[:5], tokenizer, tmp_path)

    def blocks(seed: int) -> PackedBlocks:
        return PackedBlocks(store, sequence_length=11, num_blocks=200, seed=seed)

    in_order, other = _stream(blocks(0)), blocks(0)
    for block in (199, 0, 57, 198):
        assert other[block]["input_ids"].tolist() == in_order[block * 11 : block * 11 + 11]
    assert _stream(blocks(1)) != in_order


def test_a_store_is_whole_or_absent(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    assert open_store(tmp_path) is None
    store = tokenise(texts, tokenizer, tmp_path)
    assert open_store(tmp_path) == store
    assert store.num_documents == len(texts)
    assert store.num_tokens == len(store.tokens_T) == int(store.offsets_D[-1])
    lengths = [len(tokenizer(text)["input_ids"]) + 1 for text in texts]
    assert np.diff(store.offsets_D).tolist() == lengths


def test_no_document_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no document"):
        tokenise([], tokenizer, tmp_path)
    assert open_store(tmp_path) is None


def test_positions_begin_anew_with_each_document(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    store = tokenise(texts[:5], tokenizer, tmp_path)
    blocks = PackedBlocks(store, sequence_length=150, num_blocks=20, seed=0)
    for block in range(len(blocks)):
        ids, positions = (blocks[block][name].tolist() for name in ("input_ids", "position_ids"))
        expected, position = [], 0
        for token in ids:
            expected.append(position)
            position = 0 if token == tokenizer.eos_token_id else position + 1
        assert positions == expected
    one_text = PackedBlocks(store, sequence_length=150, num_blocks=1, seed=0, attend_across_documents=True)
    assert set(one_text[0]) == {"input_ids", "labels"}

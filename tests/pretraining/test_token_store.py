"""A token store that a kill left behind is whole or absent."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.pretraining.data import open_store, tokenise


class Killed(BaseException):
    """The process ended here."""


def test_a_mark_that_was_half_written_is_no_mark(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Path, text: str) -> int:
        with self.open("w") as stream:
            stream.write(text[: len(text) // 2])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", half)
        with pytest.raises(Killed):
            tokenise(texts, tokenizer, tmp_path)
    assert open_store(tmp_path) is None
    assert tokenise(texts, tokenizer, tmp_path) == open_store(tmp_path)


@pytest.mark.parametrize("left", [0, 16])
@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "counts.json"])
def test_a_store_with_a_file_cut_short_is_none(
    name: str, left: int, texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """As after a power cut: what says that the store is whole stands, and another file does not."""
    store = tokenise(texts, tokenizer, tmp_path)
    file = tmp_path / name
    whole = file.read_bytes()
    file.write_bytes(whole[:left])
    assert open_store(tmp_path) is None
    assert tokenise(texts, tokenizer, tmp_path) == store
    assert file.read_bytes() == whole


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin"])
def test_a_store_without_a_file_is_none(
    name: str, texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tokenise(texts, tokenizer, tmp_path)
    (tmp_path / name).unlink()
    assert open_store(tmp_path) is None

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

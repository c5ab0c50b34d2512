"""A second name for a file, or its bytes again where there is none to be had."""

import os
from pathlib import Path

import pytest

from datamask_pipeline.storage import link_or_copy


def test_it_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"bytes")
    assert link_or_copy(tmp_path / "one", tmp_path / "two") == str(tmp_path / "two")
    assert (tmp_path / "one").samefile(tmp_path / "two")


def test_without_links_the_bytes_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no links here")

    (tmp_path / "one").write_bytes(b"bytes")
    monkeypatch.setattr(os, "link", refuse)
    link_or_copy(tmp_path / "one", tmp_path / "two")
    assert not (tmp_path / "one").samefile(tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == b"bytes"


def test_what_is_not_there_is_no_file_twice(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        link_or_copy(tmp_path / "none", tmp_path / "two")
    assert not (tmp_path / "two").exists()

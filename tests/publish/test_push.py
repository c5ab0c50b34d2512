"""A data set goes to the hub in one commit, and a refusal is one clear line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upload_server import UploadServer

from datamask_pipeline.errors import ConfigurationError, StorageError
from datamask_pipeline.publish.push import push_folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadServer]:
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    server = UploadServer()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mask" / "data").mkdir(parents=True)
    (tmp_path / "mask" / "README.md").write_text("---\nlicense: odc-by\n---\n")
    (tmp_path / "mask" / "data" / "train-00000-of-00001.parquet").write_bytes(b"PAR1" * 100)
    return tmp_path / "mask"


def test_every_file_arrives_in_one_commit(server: UploadServer, folder: Path) -> None:
    server.files[".gitattributes"] = b"*.parquet filter=lfs"
    before = server.head
    assert push_folder(str(folder), "me/mask", endpoint=server.endpoint) == server.head
    assert server.parents == [before]
    del server.files[".gitattributes"]
    expected = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}
    assert server.files == expected
    assert server.commits == 1


def test_the_same_data_set_again_is_no_commit_and_another_one_is_refused(
    server: UploadServer, folder: Path
) -> None:
    (folder / "manifest.json").write_text('{"root": "aaaa"}')
    commit = push_folder(str(folder), "me/mask", endpoint=server.endpoint)
    assert push_folder(str(folder), "me/mask", endpoint=server.endpoint) == commit
    (folder / "manifest.json").write_text('{"root": "bbbb"}')
    (folder / "data" / "train-00000-of-00001.parquet").rename(
        folder / "data" / "train-00000-of-00002.parquet"
    )
    with pytest.raises(
        StorageError, match=r"^another data set stands at me/mask, with root digest aaaa; name another place$"
    ):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)
    assert server.commits == 1
    assert server.head == commit


def test_a_data_set_that_was_altered_on_the_hub_is_told_and_left(server: UploadServer, folder: Path) -> None:
    (folder / "manifest.json").write_text('{"root": "cccc"}')
    push_folder(str(folder), "me/mask", endpoint=server.endpoint)
    server.files["README.md"] = server.files["README.md"].replace(b"odc-by", b"pddl01")
    with pytest.raises(
        StorageError, match=r"^this data set stands at me/mask already, and its README\.md was altered"
    ):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)
    assert server.commits == 1


def test_a_data_set_of_somebody_else_on_the_hub_is_not_added_to(server: UploadServer, folder: Path) -> None:
    server.files |= {".gitattributes": b"", "README.md": b"", "train.csv": b"a,b"}
    with pytest.raises(StorageError, match=r"^me/mask holds train\.csv and is no data set of this program"):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)
    assert server.commits == 0


def test_of_an_object_store_no_folder_of_this_machine_is_sent_that_is_called_as_there(
    server: UploadServer, folder: Path
) -> None:
    MemoryFileSystem().pipe_file(f"{folder}/README.md", b"of the object store")
    push_folder(f"memory://{folder}", "me/mask", endpoint=server.endpoint)
    assert server.files == {"README.md": b"of the object store"}


def test_a_refusal_says_what_could_not_be_done(server: UploadServer, folder: Path) -> None:
    server.refuse = True
    with pytest.raises(
        StorageError, match=r"cannot upload to me/mask: .*403.*set HF_TOKEN to a token that may"
    ):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)


def test_a_server_that_does_not_answer_is_told_with_what_to_do(server: UploadServer, folder: Path) -> None:
    server.close()
    with pytest.raises(
        StorageError, match=r"cannot upload to me/mask: .*nothing was published there; call the same"
    ):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)


def test_without_a_token_it_says_so(
    server: UploadServer, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    server.refuse = True
    with pytest.raises(StorageError, match=r"cannot upload to me/mask: .*set HF_TOKEN"):
        push_folder(str(folder), "me/mask", endpoint=server.endpoint)


@pytest.mark.parametrize("name", ["mask", "me/mask/more", "me/", "../mask", "me/ma sk"])
def test_what_is_no_name_is_refused_before_any_request(folder: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="write owner/name"):
        push_folder(str(folder), name)

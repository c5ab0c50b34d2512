"""A tokenizer of another model: from a directory, and from a hub at a pinned commit."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources.hub_server import COMMIT, HubServer

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pretraining.tokenizer import load_tokenizer, train_tokenizer
from datamask_pipeline.stages import tokenizer
from datamask_pipeline.stages.tokenizer import TREE, TokenizerConfig
from datamask_pipeline.storage import Ref, Store, require

TEXT = "A tokenizer that somebody else has learnt, from other documents."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train_tokenizer([TEXT], tmp_path / "other", vocab_size=290, sequence_length=32)
    (tmp_path / "other" / "modeling.py").write_text("raise SystemExit('code of the repository was run')")
    return tmp_path / "other"


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    server = HubServer("somebody/model", {path.name: path.read_bytes() for path in folder.iterdir()})
    yield server
    server.close()


def _made(run: Pipeline, store: Store, config: TokenizerConfig) -> Ref:
    tokenizer.check(config)
    candidates = require(run.store, "pool", "first")
    return tokenizer.run(config, store=store, release="first", candidates=candidates, documents={})


def _ids(store: Store, made: Ref, scratch: Path) -> list[int]:
    taken = load_tokenizer(store.local_copy(made, TREE, scratch))
    assert taken.model_max_length == 64
    assert taken.eos_token_id is not None
    assert taken.pad_token_id is not None
    return list(taken(TEXT)["input_ids"])


def test_a_directory_and_the_hub_give_the_same(
    tiny_run: Pipeline, folder: Path, hub: HubServer, tmp_path: Path
) -> None:
    store = Store(tmp_path / "record")
    local = _made(tiny_run, store, TokenizerConfig(name=str(folder), sequence_length=64))
    ids = _ids(store, local, tmp_path)
    remote = TokenizerConfig(
        name="somebody/model",
        revision=COMMIT,
        sequence_length=64,
        endpoint=hub.endpoint,
        cache_dir=str(tmp_path / "cache"),
    )
    assert _ids(store, _made(tiny_run, store, remote), tmp_path) == ids
    assert ids == load_tokenizer(folder)(TEXT)["input_ids"]
    manifest = store.manifest(require(store, "tokenizer", "first"))
    assert (manifest["metadata"]["name"], manifest["metadata"]["revision"]) == ("somebody/model", COMMIT)


def test_content_decides_and_not_the_place(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    settings = TokenizerConfig(name=str(folder)).result_config()
    folder.rename(moved)
    assert TokenizerConfig(name=str(moved)).result_config() == settings
    given = json.loads((moved / "tokenizer.json").read_text())
    (moved / "tokenizer.json").write_text(json.dumps(given | {"truncation": None, "padding": None}) + "\n")
    assert TokenizerConfig(name=str(moved)).result_config() != settings


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"revision": COMMIT}, "tokenizer.revision: not read"),
        ({"name": "somebody/model"}, "pin tokenizer.revision to a commit hash"),
        ({"name": __file__}, "give the directory that holds tokenizer.json"),
        ({"name": ""}, "give the directory that holds tokenizer.json"),
        ({"name": "somebody/model", "revision": "main"}, "no commit hash"),
        ({"name": "/no/such/place"}, "is no directory"),
        ({"name": "somebody/model", "revision": COMMIT, "vocab_size": 400}, "tokenizer.vocab_size: not read"),
    ],
)
def test_what_cannot_be_taken_is_refused_before_any_work(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        tokenizer.check(TokenizerConfig(**settings))  # type: ignore[arg-type]


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no tokenizer\.json"):
        tokenizer.check(TokenizerConfig(name=str(tmp_path)))


def test_one_that_ends_no_text_is_refused_before_any_work(folder: Path) -> None:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ConfigurationError, match=rf"tokenizer\.name: .*{folder.name} names no end of a text"):
        tokenizer.check(TokenizerConfig(name=str(folder)))


def test_a_broken_one_is_refused_before_any_work(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"tokenizer\.name: .* holds no tokenizer that can be read"):
        tokenizer.check(TokenizerConfig(name=str(folder)))


def test_a_broken_one_of_the_hub_is_told_by_its_name(
    tiny_run: Pipeline, hub: HubServer, tmp_path: Path
) -> None:
    hub.files["tokenizer.json"] = b"{"
    config = TokenizerConfig(
        name="somebody/model", revision=COMMIT, endpoint=hub.endpoint, cache_dir=str(tmp_path / "cache")
    )
    with pytest.raises(InputError, match=r"^somebody/model holds no tokenizer that can be read"):
        _made(tiny_run, Store(tmp_path / "record"), config)

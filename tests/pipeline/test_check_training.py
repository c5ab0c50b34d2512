"""Devices, sizes and question files of training and evaluation are looked at before the first document is read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pretraining.checks import check
from datamask_pipeline.pretraining.config import PretrainConfig

PIQA = {"goal": "to open a jar", "sol1": "turn the lid", "sol2": "turn the table", "label": 0}


@pytest.fixture
def chain(tiny_config_file: Path, tmp_path: Path) -> Callable[[dict[str, Any]], Pipeline]:
    def build(settings: dict[str, Any]) -> Pipeline:
        return Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record"), **settings}))

    return build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Questions of one task."""
    found = tmp_path / "questions"
    found.mkdir()
    (found / "piqa.jsonl").write_text(json.dumps(PIQA) + "\n")
    return found


def refused(pipeline: Pipeline, before: str, words: str) -> None:
    pipeline.check(before)
    with pytest.raises(DataMaskError, match=words):
        pipeline.check()


def test_a_folder_of_questions_has_to_be_there(chain: Any) -> None:
    refused(chain({"evaluate.questions": "/no/such/folder"}), "tokenizer", "does not exist.*/no/such/folder")


def test_every_task_needs_a_file(chain: Any, folder: Path) -> None:
    given = {"evaluate.questions": str(folder), "evaluate.tasks": ["piqa"]}
    chain(given).check()
    refused(
        chain(given | {"evaluate.tasks": ["piqa", "mmlu"]}), "tokenizer", "no question file for task 'mmlu'"
    )
    globs = given | {"evaluate.demonstration_files": {"piqa": "solved.*"}}
    refused(chain(globs), "tokenizer", r"no file for task 'piqa' matches demonstration_files.*solved\.\*")
    unknown = given | {"evaluate.question_files": {"piqua": "*.jsonl"}}
    refused(chain(unknown), "tokenizer", "benchmark task 'piqua'")


@pytest.mark.parametrize("setting", ["question_files", "demonstration_files"])
def test_files_are_of_published_questions(chain: Any, setting: str) -> None:
    named = {f"evaluate.{setting}": {"piqa": "mine.jsonl"}}
    refused(chain(named), "tokenizer", f"evaluate.{setting} names files .* evaluate.questions is `local`")


def test_a_split_has_to_be_there(chain: Any, folder: Path) -> None:
    (folder / "piqa").mkdir()
    (folder / "piqa.jsonl").rename(folder / "piqa" / "train.jsonl")
    given = {"evaluate.questions": str(folder), "evaluate.tasks": ["piqa"]}
    refused(
        chain(given), "tokenizer", "'piqa' asks the split 'validation', which is not there: piqa/train.jsonl"
    )
    refused(chain(given), "tokenizer", rf"\(folder {re.escape(str(folder))}\)")
    (folder / "piqa" / "train.jsonl").rename(folder / "piqa" / "validation.jsonl")
    chain(given).check()
    shown = given | {"evaluate.shots": 2}
    refused(chain(shown), "tokenizer", "takes its solved examples from the split 'train', which is not there")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("piqa.parquet", b"PAR1 but not whole", "the file cannot be read"),
        ("piqa.jsonl", b"\xff\xfe", "the file cannot be read"),
        ("piqa.jsonl", b"", "for task 'piqa': the file is empty"),
        ("piqa.jsonl", b'{"goal": "to open a jar"}\n' * 2, "in any of its 2 rows: .*'sol1' is missing"),
        ("piqa.jsonl", b'{"goal": "to open a jar"}\n' * 101, "in the first 100 rows: .*'sol1' is missing"),
    ],
)
def test_a_file_has_to_be_readable_and_in_its_tasks_layout(
    name: str, content: bytes, words: str, chain: Any, folder: Path
) -> None:
    (folder / "piqa.jsonl").unlink()
    (folder / name).write_bytes(content)
    given = {"evaluate.questions": str(folder), "evaluate.tasks": ["piqa"]}
    refused(chain(given), "tokenizer", f"{words}.*{re.escape(str(folder / name))}|{re.escape(name)}.*{words}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(("stage", "before"), [("pretrain", "questions"), ("evaluate", "pretrain")])
def test_a_device_has_to_be_there(stage: str, before: str, chain: Any) -> None:
    refused(
        chain({f"{stage}.device": "cuda"}), before, f"{stage}.device.*'cuda' is not available.*device: cpu"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"preset": "smoke", "device": "cuda"}, ""),
        ({"preset": "paper-dense"}, ", which preset 'paper-dense' asks for"),
    ],
)
def test_a_preset_is_named_only_where_it_asks_for_the_device(settings: dict[str, Any], asked: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"^pretrain\.device{asked}: device 'cuda' is not available"
    ):
        check(PretrainConfig.model_validate(settings))


def test_a_model_has_to_fit_into_the_machine(chain: Any) -> None:
    refused(
        chain({"pretrain.hidden_size": 1_000_000}),
        "questions",
        r"run 'random\.dense\.seed0'.*parameters take .* GB",
    )


def test_models_need_documents_to_be_validated_on(chain: Any) -> None:
    refused(chain({"pool.validation_share": 0.0}), "materialise", r"pool\.validation_share is 0.*raise it")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pretrain.seed": 3}, r"pretrain\.seed: .*list `seeds` beside `pretrain`, e\.g\. seeds: \[3\]"),
        ({"pretrain.seeds": [0, 1]}, r"pretrain\.seeds: .*e\.g\. seeds: \[0, 1\]"),
        ({"architectures.dense.seed": 4}, r"architectures\.dense\.seed: .*e\.g\. seeds: \[4\]"),
        ({"seeds": [-1]}, r"seeds\.0: .*greater than or equal to 0"),
        ({"seeds": []}, r"seeds: must have at least 1 \(given: \[\]\)"),
    ],
)
def test_seeds_stand_in_one_place(chain: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chain(given)

"""Questions straight from the hub: a local server that speaks its protocol, made rows in the places of the real ones."""

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from sources.hub_server import HubServer
from stock_tasks import FILES, Row, our_task, prompts_and_targets, stock_task
from test_stock_prompts import _SIZES, _row

from datamask_pipeline.errors import ConfigurationError, DataMaskError, InputError, StorageError
from datamask_pipeline.evaluation.benchmarks import all_benchmarks
from datamask_pipeline.evaluation.checks import check_questions
from datamask_pipeline.evaluation.config import EvaluateConfig, HubConfig
from datamask_pipeline.evaluation.questions import prepare_questions
from datamask_pipeline.hub import HubRepository
from datamask_pipeline.stages.questions import digest_of_files

TASKS = list(all_benchmarks())


def rows_of(task: str, split: str) -> list[Row]:
    if task == "kqapro":
        names = [f"{split} {letter}" for letter in "abcdefghij"]
        return [{"question": f"{split} {n}?", "choices": names, "answer": names[n]} for n in range(8)]
    return [_row(task, split, n) for n in range(_SIZES[split])]


def name_of(pattern: str) -> str:
    """A file that the hub could hold where a task's definition looks for this one."""
    if pattern.startswith("race_"):
        return pattern.replace("*", ".jsonl")
    return pattern.removeprefix("*").replace("*", "-00000-of-00001.parquet").replace("--", "-")


def content_of(name: str, rows: list[Row]) -> bytes:
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), stream := io.BytesIO())
        return stream.getvalue()
    lines = name.endswith(".jsonl")
    return ("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    server = HubServer("nobody/nothing", {})
    for task, benchmark in all_benchmarks().items():
        assert benchmark.repository is not None
        assert benchmark.revision is not None
        files = server.repositories.setdefault(
            (benchmark.repository, benchmark.revision), {"README.md": b"#"}
        )
        for split, pattern in benchmark.hub_files.items():
            files[name_of(pattern)] = content_of(name_of(pattern), rows_of(task, split))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    yield server
    server.close()


@pytest.fixture
def asked(hub: HubServer, tmp_path: Path) -> Callable[..., EvaluateConfig]:
    def make(*tasks: str, revisions: dict[str, str] | None = None, **settings: Any) -> EvaluateConfig:
        place = {"endpoint": hub.endpoint, "cache_dir": str(tmp_path / "cache"), "revisions": revisions or {}}
        return EvaluateConfig(questions="hub", hub=HubConfig(**place), tasks=[*tasks], **settings)

    return make


Asked = Callable[..., EvaluateConfig]


@pytest.mark.parametrize("shots", [0, 2])
def test_every_task_asks_the_rows_of_its_split_and_its_record_names_commit_and_files(
    asked: Asked, tmp_path: Path, shots: int
) -> None:
    for found in prepare_questions(asked(*TASKS, shots=shots), tmp_path):
        benchmark = found.benchmark
        assert found.source == f"{benchmark.repository}@{benchmark.revision}"
        assert found.split == benchmark.split
        assert found.num_read == len(rows_of(benchmark.task, benchmark.split))
        assert found.files[0].file == name_of(benchmark.hub_files[benchmark.split])
        shown = [file.file for file in found.files if file.use == "examples"]
        own = benchmark.examples_split != benchmark.split
        assert shown == (
            [name_of(benchmark.hub_files[benchmark.examples_split or ""])] if shots and own else []
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", sorted(set(FILES) - {"race_high", "race_middle", "nq_open", "triviaqa"}))
def test_prompts_are_those_of_stock_lm_eval(asked: Asked, tmp_path: Path, task: str) -> None:
    (found,) = prepare_questions(asked(task, shots=2), tmp_path)
    splits = {split: rows_of(task, split) for split in ("train", "validation", "test")}
    ours = our_task(found, tmp_path / "task", 2)
    assert prompts_and_targets(ours) == prompts_and_targets(stock_task(FILES[task], splits, 2))


def test_what_was_fetched_once_needs_no_hub(
    hub: HubServer, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("piqa", "mmlu")
    check_questions(config)
    digest, requests = digest_of_files(config), sum(hub.requests.values())
    assert requests > 0
    check_questions(config)
    assert sum(hub.requests.values()) == requests
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert digest_of_files(config) == digest
    assert [found.num_read for found in prepare_questions(config, tmp_path)] == [20, 20]


def test_a_damaged_copy_in_the_cache_is_fetched_again_or_refused(
    hub: HubServer, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked("piqa")
    digest, requests = digest_of_files(config), sum(hub.requests.values())
    (copy,) = (path for path in (tmp_path / "cache").rglob("*.parquet") if "validation" in path.name)
    whole = copy.read_bytes()
    copy.resolve().write_bytes(whole[:-7] + b"changed")
    assert digest_of_files(config) == digest
    assert copy.read_bytes() == whole
    assert sum(hub.requests.values()) > requests
    copy.resolve().write_bytes(whole[:-7] + b"changed")
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(
            StorageError, match=r"not what the hub calls it, and HF_HUB_OFFLINE is set.*baber/piqa/"
        ):
            digest_of_files(config)
    hub.faults = lambda method, path: "corrupt"
    with pytest.raises(StorageError, match="not what the hub calls it, twice"):
        digest_of_files(config)


@pytest.mark.parametrize("called", ["git", "sha1", "anything"])
def test_a_small_file_is_held_against_gits_digest_of_it(hub: HubServer, tmp_path: Path, called: str) -> None:
    """A server that calls its files by anything else is believed, once it has sent the same again."""
    content, commit = b"label: 1\n", "c" * 40
    hub.called = {
        "git": hashlib.sha1(b"blob 9\0" + content).hexdigest(),
        "sha1": hashlib.sha1(content).hexdigest(),
        "anything": "d" * 40,
    }[called]
    hub.repositories["owner/small", commit] = {"a.jsonl": content}
    repository = HubRepository(
        "owner/small", commit, kind="dataset", endpoint=hub.endpoint, cache_dir=str(tmp_path)
    )
    for damaged in (None, None, b"label: 0\n"):
        if damaged is not None and called != "anything":
            (tmp_path / "datasets--owner--small" / "blobs" / hub.called).write_bytes(damaged)
        root = repository.download_matching(["*.jsonl"])
        assert (root / "a.jsonl").read_bytes() == content


def test_another_commit_is_another_set(hub: HubServer, asked: Asked) -> None:
    commit = "f" * 40
    known = str(all_benchmarks()["piqa"].revision)
    hub.repositories["baber/piqa", commit] = dict(hub.repositories["baber/piqa", known])
    other = asked("piqa", revisions={"piqa": commit})
    assert digest_of_files(asked("piqa")) != digest_of_files(other)
    check_questions(other)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"revisions": {"piqa": "main"}}, "pin the commit"),
        ({"revisions": {"piqa": "e" * 40}}, "knows no such repository, commit or file"),
        ({"revisions": {"pica": "e" * 40}}, "did you mean"),
        (
            {"question_files": {"piqa": "dev*"}},
            r"no question file of task 'piqa' matches 'dev\*' in baber/piqa@142f.*validation-00000-of-00001.parquet",
        ),
        ({"question_files": {"piqa": "*"}}, "several sets"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(asked: Asked, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(DataMaskError, match=told):
        check_questions(asked("piqa", **settings))


@pytest.mark.parametrize("questions", ["local", "folder"])
def test_commits_are_for_the_hub_alone(questions: str) -> None:
    mine = EvaluateConfig(questions=questions, hub=HubConfig(revisions={"piqa": "a" * 40}))
    with pytest.raises(ConfigurationError, match=r"hub\.revisions are for"):
        check_questions(mine)


@pytest.mark.parametrize(
    ("fault", "told"),
    [("404", "knows no such"), ("429", "allows no more requests"), ("500", "run again")],
)
def test_a_hub_that_does_not_deliver_stops_before_any_work(
    hub: HubServer, asked: Asked, monkeypatch: pytest.MonkeyPatch, fault: str, told: str
) -> None:
    monkeypatch.setattr(time, "sleep", hub.waits.append)
    hub.faults = lambda method, path: fault
    with pytest.raises(DataMaskError, match=told):
        check_questions(asked("piqa"))


def test_a_hub_that_cannot_be_reached_is_told_from_one_that_does_not_deliver(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    config = asked("piqa")
    elsewhere = config.hub.model_copy(update={"endpoint": "http://127.0.0.1:9"})
    with pytest.raises(StorageError, match=r"no connection to the hub .*HF_ENDPOINT.*local folder"):
        check_questions(config.model_copy(update={"hub": elsewhere}))


def test_a_set_with_a_missing_shard_is_refused(hub: HubServer, asked: Asked) -> None:
    files = hub.repositories["Rowan/hellaswag", str(all_benchmarks()["hellaswag"].revision)]
    files["data/validation-00000-of-00002.parquet"] = files.pop("data/validation-00000-of-00001.parquet")
    with pytest.raises(InputError, match="shard of the split is missing"):
        check_questions(asked("hellaswag"))


def test_the_documentation_names_every_commit_and_place() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text().splitlines()
    for task, benchmark in all_benchmarks().items():
        (line,) = [line for line in lines if f"`{task}`" in line and f"`{benchmark.repository}`" in line]
        assert f"`{benchmark.revision}`" in line
        assert f"`{benchmark.hub_files[benchmark.split]}`" in line

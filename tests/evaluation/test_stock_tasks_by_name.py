"""Any of lm-eval's tasks by its name: made rows from a local hub, through lm-eval's own definition."""

import io
import json
import math
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import constants
from sources.hub_server import HubServer
from stock_tasks import Row, our_task, prompts_and_targets, stock_task
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.evaluation.checks import check_questions, check_room
from datamask_pipeline.evaluation.config import EvaluateConfig, HubConfig
from datamask_pipeline.evaluation.gold import scored_questions
from datamask_pipeline.evaluation.harness import evaluate
from datamask_pipeline.evaluation.question_files import splits_of
from datamask_pipeline.evaluation.questions import _read, prepare_questions
from datamask_pipeline.evaluation.stock import file_of_task, stock_tasks

_COMMIT = "a" * 40
_NUMBER = 20
_FILES = {
    "sciq": "sciq/sciq.yaml",
    "copa": "super_glue/copa/default.yaml",
    "boolq": "super_glue/boolq/default.yaml",
    "lambada_openai": "lambada/lambada_openai.yaml",
    "wsc273": "wsc273/default.yaml",
    "winogender_female": "winogender/winogender_female.yaml",
    "gsm8k": "gsm8k/gsm8k.yaml",
}


def _row(task: str, split: str, n: int) -> Row:
    rows: dict[str, Row] = {
        "sciq": {"question": f"{split} {n}?", "support": f" About {n}.", "correct_answer": f"right {n}",
                 **{f"distractor{place}": f"wrong {place} {n}" for place in (1, 2, 3)}},
        "copa": {"premise": f"The {split} {n} fell.", "choice1": f"It was {n}.", "choice2": f"They saw {n}.",
                 "question": ("cause", "effect")[n % 2], "idx": n, "label": n % 2},
        "boolq": {"question": f"is {split} {n} so", "passage": f"{n} is so.", "idx": n, "label": n % 2},
        "lambada_openai": {"text": f"In {split} {n} they came to the town, and left the town{n}"},
        "wsc273": {"text": f"The cat met  the dog {n}. It ran away {n}.", "pronoun": "It", "pronoun_loc": 20 + len(str(n)),
                   "options": ["The cat", "The dog"], "label": n % 2},
        "winogender_female": {"sentence": f"She told the nurse {n}.", "pronoun": "she", "occupation": f"nurse {n}",
                              "participant": f"guest {n}", "label": n % 2, "gender": ("female", "male")[n % 2]},
        "gsm8k": {"question": f"{split} {n} and 1?", "answer": f"{n} and 1 is {n + 1}\n#### {n + 1}"},
        "gpqa_main_zeroshot": {"Question": f"{n}?", "Correct Answer": f"r{n}",
                               **{f"Incorrect Answer {place}": f"w{place}{n}" for place in (1, 2, 3)}},
    }  # fmt: skip
    return rows[task]


def _content(rows: list[Row]) -> bytes:
    pq.write_table(pa.Table.from_pylist(rows), stream := io.BytesIO())
    return stream.getvalue()


def _splits(task: str) -> dict[str, list[Row]]:
    (benchmark,) = benchmarks_named([task])
    return {split: [_row(task, split, n) for n in range(_NUMBER)] for split in benchmark.hub_files}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    server = HubServer("nobody/nothing", {})
    for task in (*_FILES, "gpqa_main_zeroshot"):
        (benchmark,) = benchmarks_named([task])
        files = server.repositories.setdefault((str(benchmark.repository), _COMMIT), {"README.md": b"#"})
        for split, rows in _splits(task).items():
            files[benchmark.hub_files[split].replace("*", "00000-of-00001.parquet")] = _content(rows)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    yield server
    server.close()


Asked = Callable[..., EvaluateConfig]


@pytest.fixture
def asked(hub: HubServer, tmp_path: Path) -> Asked:
    def make(*tasks: str, **settings: Any) -> EvaluateConfig:
        place = {"endpoint": hub.endpoint, "cache_dir": str(tmp_path / "cache")}
        revisions = dict.fromkeys(tasks, _COMMIT)
        return EvaluateConfig(
            questions="hub", hub=HubConfig(**place, revisions=revisions), tasks=[*tasks], **settings
        )

    return make


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("task", "shots"),
    [
        *((task, 0) for task in _FILES),
        *((task, 3) for task in ("sciq", "copa", "boolq", "gsm8k")),
    ],
)
def test_prompts_and_targets_are_lm_evals_own(asked: Asked, tmp_path: Path, task: str, shots: int) -> None:
    config = asked(task, shots=shots)
    check_questions(config)
    (found,) = prepare_questions(config, tmp_path)
    ours = prompts_and_targets(our_task(found, tmp_path / "task", shots))
    assert ours == prompts_and_targets(stock_task(_FILES[task], _splits(task), shots))
    number = _NUMBER // 2 if task == "winogender_female" else _NUMBER
    assert len(ours) == found.num_questions == number
    assert found.source == f"{found.benchmark.repository}@{_COMMIT}"


def test_lm_evals_remarks_on_a_task_stay_out_of_the_log(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    check_questions(asked("sciq"))
    assert not [record for record in caplog.records if record.name.startswith("lm_eval")]


def test_rows_that_lm_eval_leaves_out_are_counted(asked: Asked, tmp_path: Path) -> None:
    (found,) = prepare_questions(asked("winogender_female"), tmp_path)
    assert (found.num_read, found.num_items, found.num_rejected) == (_NUMBER, 10, 10)
    assert {row.reason for row in found.rejected} == {"lm-eval's process_docs leaves it out"}


def test_chance_is_one_over_the_choices_and_nothing_on_open_tasks(asked: Asked, tmp_path: Path) -> None:
    sets = prepare_questions(asked("sciq", "copa", "lambada_openai", "gsm8k"), tmp_path)
    assert {found.benchmark.task: found.chance for found in sets} == {
        "sciq": 0.25,
        "copa": 0.5,
        "lambada_openai": 0.0,
        "gsm8k": 0.0,
    }


@pytest.mark.parametrize(
    ("task", "field", "value", "reason"),
    [
        ("sciq", "support", None, "lm-eval makes no question of it"),
        ("boolq", "label", -1, "the right one of 2 choices would be number -1"),
        ("copa", "choice1", None, "lm-eval makes no question of it"),
        ("lambada_openai", "text", "", "its answer is empty"),
    ],
)
def test_a_row_that_cannot_be_asked_is_refused_with_its_reason(
    asked: Asked, hub: HubServer, tmp_path: Path, task: str, field: str, value: Any, reason: str
) -> None:
    (benchmark,) = benchmarks_named([task])
    rows = [_row(task, benchmark.split, n) for n in range(3)]
    rows[1][field] = value
    name = benchmark.hub_files[benchmark.split].replace("*", "00000-of-00001.parquet")
    hub.repositories[str(benchmark.repository), _COMMIT][name] = _content(rows)
    (found,) = prepare_questions(asked(task), tmp_path)
    assert (found.num_read, found.num_questions) == (3, 2)
    (refused,) = found.rejected
    assert refused.row == 1
    assert refused.reason.startswith(reason)


@pytest.mark.parametrize(
    ("task", "told"),
    [("sciq", "task 'sciq' holds values of several types"), ("wsc273", "the rows cannot be taken together")],
)
def test_a_column_of_several_types_is_told(tmp_path: Path, task: str, told: str) -> None:
    """Alone, each of the rows can be asked; together they are no table."""
    rows = [_row(task, "test", n) | {"note": note} for n, note in enumerate([1, "one"])]
    (tmp_path / f"{task}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match=told):
        prepare_questions(EvaluateConfig(questions=str(tmp_path), tasks=[task]), tmp_path / "made")


def test_lm_eval_draws_no_examples_for_a_row_that_it_leaves_out(asked: Asked) -> None:
    (benchmark,) = benchmarks_named(["winogender_female"])
    (split,) = splits_of(asked("winogender_female"), benchmark)
    read = _read(benchmark, split, 0, use="asked")
    assert [item.place for item in read.items] == list(range(10))


def test_a_task_whose_questions_are_drawn_by_chance_is_refused(asked: Asked, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="process_docs makes other questions"):
        prepare_questions(asked("gpqa_main_zeroshot"), tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("humaneval", "runs the programs that a model writes"),
        ("wikitext", "output type is 'loglikelihood_rolling'"),
        ("squadv2", "is a Python class"),
        ("mmlu_stem", "is a group of tasks in lm-eval; name those of its tasks"),
        ("truthfulqa_gen", "no metric that is a share of its questions"),
        ("noticia", "fetches from the hub at no fixed version"),
        ("sciqq", r"unknown benchmark task 'sciqq'.*any task of lm-eval's"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name_with_the_reason(asked: Asked, task: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check_questions(asked(task))


def test_a_set_of_the_hub_needs_its_commit(asked: Asked) -> None:
    config = asked("sciq")
    without = config.model_copy(update={"hub": config.hub.model_copy(update={"revisions": {}})})
    with pytest.raises(ConfigurationError, match="needs the commit of its data set allenai/sciq"):
        check_questions(without)


def test_files_elsewhere_in_the_repository_are_named(asked: Asked, hub: HubServer) -> None:
    files = hub.repositories["allenai/sciq", _COMMIT]
    files["made/asked.parquet"] = files.pop("data/test-00000-of-00001.parquet")
    with pytest.raises(InputError, match=r"matches 'data/test-\*'.*holds .*made/asked.parquet"):
        check_questions(asked("sciq"))
    check_questions(asked("sciq", question_files={"sciq": "made/*"}))


def test_a_process_that_has_loaded_nothing_knows_lm_evals_metrics() -> None:
    code = "from datamask_pipeline.evaluation.benchmarks import benchmarks_named as named\n"
    code += "print(named(['lambada_openai'])[0].metric)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "acc\n", done.stderr


def test_local_questions_exist_for_our_tasks_alone() -> None:
    with pytest.raises(ConfigurationError, match="no questions of `local` for 'sciq'"):
        check_questions(EvaluateConfig(tasks=["sciq", "piqa"]))


def test_a_task_with_examples_of_its_own_shows_none(asked: Asked) -> None:
    with pytest.raises(ConfigurationError, match="cannot show solved examples"):
        check_questions(asked("mmlu_pro_biology", shots=2))


def test_a_generation_longer_than_the_context_is_refused_before_any_work() -> None:
    with pytest.raises(ConfigurationError, match=r"generates up to 256 tokens, evaluate\.max_length is 256"):
        check_room(EvaluateConfig(tasks=["gsm8k"]))
    check_room(EvaluateConfig(tasks=["gsm8k"], max_length=512))
    check_room(EvaluateConfig())


@pytest.mark.slow
def test_a_task_is_found_where_lm_evals_own_index_has_it() -> None:
    """Group, tag and task may share words, and a definition may be included under another name."""
    from lm_eval.tasks._index import Kind, TaskIndex

    for folder in ("lambada", "super_glue", "truthfulqa", "aclue", "race"):
        for name, entry in TaskIndex.build([stock_tasks() / folder]).items():
            if entry.kind == Kind.TASK:
                assert file_of_task(name) == entry.yaml_path


def _log_likelihood(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, prompt: str, text: str
) -> float:
    start, whole = (tokenizer(item)["input_ids"] for item in (prompt, prompt + text))
    with torch.inference_mode():
        scores = torch.log_softmax(model(input_ids=torch.tensor([whole])).logits[0].double(), dim=-1)
    return float(sum(scores[place - 1, whole[place]] for place in range(len(start), len(whole))))


def test_a_model_is_measured_by_lm_evals_metric_and_by_the_right_answer(
    asked: Asked,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multiprocessing, "Pool", None)  # forked beside torch's threads it may never end
    config = asked("sciq", "lambada_openai", "gsm8k", questions_per_task=4, max_length=290)
    prepared = prepare_questions(config, tmp_path / "q")
    found = evaluate(model, tokenizer, prepared, tmp_path / "work", config)
    metrics = {(row.task, row.metric): row for row in found.results}
    assert {task: row.metric for (task, _), row in metrics.items() if row.headline} == {
        "gsm8k": "exact_match",
        "lambada_openai": "acc",
        "sciq": "acc_norm",
    }
    assert metrics["lambada_openai", "perplexity"].chance is None
    assert metrics["lambada_openai", "perplexity"].stderr > 0
    assert metrics["lambada_openai", "acc"].chance == 0.0
    assert ("gsm8k", "exact_match,flexible-extract") in metrics
    assert ("sciq", "gold_probability") in metrics
    answers = {(row.task, row.question_id): row for row in found.answers}
    assert len(answers) == len(found.answers) == 12  # once each, whatever a task's filters
    for each in scored_questions(prepared, tmp_path / "scored", config):
        row = answers[each.task, each.question_id]
        prompt, right = each.pairs[each.gold]
        assert row.gold_bits == pytest.approx(
            -_log_likelihood(model, tokenizer, prompt, right) / math.log(2), rel=1e-4
        )
        assert row.gold_bytes == len(right.encode())
        if each.task == "lambada_openai":
            assert right.startswith(" town")  # one blank: lm-eval's definition brings it
    perplexity = math.exp(
        sum(row.gold_bits for key, row in answers.items() if key[0] == "lambada_openai") * math.log(2) / 4
    )
    assert metrics["lambada_openai", "perplexity"].value == pytest.approx(perplexity, rel=1e-4)

"""`datamask config check` refuses what a run refuses before its work, and tells every setting."""

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import DataMaskError
from datamask_pipeline.pipeline import load_config
from datamask_pipeline.pipeline.describe import described
from datamask_pipeline.stages.select import SelectConfig


def check(path: Path, *settings: str) -> Any:
    options = [word for setting in settings for word in ("-s", setting)]
    return CliRunner().invoke(app, ["config", "check", "-c", str(path), *options])


def test_prompts_longer_than_what_models_are_trained_on_are_told_of(tiny_config_file: Path) -> None:
    lengths = {"pretrain.sequence_length": 64, "evaluate.max_length": 96}
    shown = check(tiny_config_file, *(f"{name}={value}" for name, value in lengths.items())).output
    assert "# models of dense are trained on sequences of 64 tokens and asked prompts of up to 96 " in shown
    within = check(tiny_config_file, "pretrain.sequence_length=64", "evaluate.max_length=64").output
    assert "are trained on sequences of" not in within


def test_quietly_it_prints_comments_and_that_all_is_well(tiny_config_file: Path) -> None:
    command = ["config", "check", "--quiet", "-c", str(tiny_config_file)]
    *comments, last = CliRunner().invoke(app, command).output.splitlines()
    assert last.startswith(
        "the configuration is sound; a run may still refuse what it finds in the documents: "
    )
    assert comments == [line for line in check(tiny_config_file).output.splitlines() if line.startswith("# ")]
    assert any(line.startswith("# release first ") for line in comments)
    assert "names no place" in str(CliRunner().invoke(app, [*command, "-s", "store=''"]).exception)


@pytest.mark.parametrize("setting", ["storage_options", "source.options.storage_options"])
def test_of_what_may_hold_a_secret_the_names_alone_are_shown(tiny_config_file: Path, setting: str) -> None:
    """What it prints goes into logs of builds; nested values may hold one too."""
    options = {"secret": "KEPT-TO-MYSELF", "client_kwargs": {"token": "KEPT-TO-MYSELF"}}
    shown = list(described(load_config(str(tiny_config_file), {setting: options})))
    assert not [line for line in shown if "KEPT-TO-MYSELF" in line]
    (line,) = [line.strip() for line in shown if "client_kwargs" in line]
    assert line.startswith("storage_options: {secret: '...', client_kwargs: '...'}  # default {}. ")
    assert list(described(load_config(str(tiny_config_file)))), "without any, too"


def test_a_list_of_no_tasks_is_told_to_mean_all(tiny_config_file: Path) -> None:
    told = "# evaluate.tasks names no task, so the paper's twelve are asked; a run without evaluation is `datamask run"
    assert told in check(tiny_config_file, "evaluate.tasks=[]").output
    assert told not in check(tiny_config_file, "evaluate.tasks=[piqa]").output
    assert told not in check(tiny_config_file).output


def test_without_an_arm_random_arms_are_compared_with_the_first(tiny_config_file: Path) -> None:
    arms = "arms={top: {policy: quality_topk}, datamask: {policy: datamask}}"
    result = check(tiny_config_file, arms)
    assert result.exit_code == 0, result.exception
    assert "# arms are compared with top, the first one, as none is called random" in result.output
    assert "are compared with" not in check(tiny_config_file).output.partition("\n# ")[2]
    refused = check(tiny_config_file, arms, "compare.baseline=random")
    assert "compare.baseline: unknown arm to compare with 'random'" in str(refused.exception)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("source.name=lokal", "source.name: unknown document source 'lokal' (did you mean 'local'?)"),
        ("source.options.root=/no/such/folder", "no such file or directory (file /no/such/folder)"),
        ("source.options.rooot=x", "source.options.rooot: unknown setting (did you mean 'root'?)"),
        (
            "source.options.format_options={parqet: {}}",
            "source.options.format_options.parqet: options of a file format",
        ),
        (
            "source.options.format_options={jsonl: {x: 1}}",
            "source.options.format_options.jsonl.x: unknown setting",
        ),
        ("embed.encoder=minilm", "embed.encoder: encoder 'minilm' is neither a preset"),
        ("embed.encoder=minilm", "did you mean 'minilm-mean-cls'?"),
        ("embed.heads=[fineweb_ed]", "embed.heads: unknown quality scorer 'fineweb_ed' (did you mean"),
        ("seeds=3", "seeds: must be a list, e.g. [3] (given: 3)"),
        (
            "pretrain.token_budget=1e5",
            "pretrain.token_budget: must be a whole number, and YAML takes this for text; write 100000 (given: '1e5')",
        ),
        (
            "seeds=[1.5e1]",
            "seeds.0: must be a whole number, and YAML takes this for text; write 15 (given: '1.5e1')",
        ),
        ("seeds=['1.55e1']", "seeds.0: Input should be a valid integer"),
        ("seeds=['1e']", "seeds.0: Input should be a valid integer"),
        ("arms.random.scorers=[]", "arms.random.scorers: must be a mapping, e.g. {NAME: VALUE} (given: [])"),
        ("pretrain.token_budget=3", "pretrain.token_budget: is less than one step, which takes "),
        (
            "tokenizer.vocab_size=100000000",
            "tokenizer.vocab_size: Input should be less than or equal to 1048576 (given: 100000000)",
        ),
        ("seeds=null", "seeds: must be a list (given: null)"),
        ("seeds=[0, 0]", "seeds: 0 is repeated; name each once"),
        ("releases.first.crawls=[a, b, a]", "releases.first.crawls: 'a' is repeated"),
        ("evaluate.tasks=[piqa, piqa]", "evaluate.tasks: 'piqa' is repeated"),
        ("score.scorers=[rules, rules]", "score.scorers: ['rules'] stand twice"),
        (
            "architectures.dense.num_experts=3",
            "architectures.dense.num_experts: no architecture reads it here",
        ),
        ("pretrain.experts_per_token=3", "pretrain.experts_per_token: no architecture reads it here"),
        ("score.scorers=[ruels]", "score.scorers: unknown quality scorer 'ruels' (did you mean 'rules'?)"),
        ("score.options={rules: {x: 1}}", "score.options.rules.x: unknown setting"),
        ("score.options={probe: {}}", "score.options.probe: options of a quality scorer that is not used"),
        (
            "select.diversity=Pairsimi",
            "select.diversity: unknown diversity metric 'Pairsimi' (did you mean 'Pair_simi'?)",
        ),
        (
            "select={diversity: Facility, diversity_options: {Facility: {landmarks: 3}}}",
            "Facility.landmarks: unknown",
        ),
        (
            "arms.random.policy=randm",
            "arms.random.policy: unknown selection policy 'randm' (did you mean 'random'?)",
        ),
        (
            "arms.random.num_epochs=9",
            "arms.random.num_epochs: neither objective, budget nor policy 'random' reads",
        ),
        (
            "select.num_clusters=9",
            "select.num_clusters: no arm reads such a setting; it is read by: policy semdedup",
        ),
        ("select.policy=greedy", "select.policy: no arm reads it, as each has its own (arms.random.policy"),
        (
            "select.scorers={rulez: 1}",
            "select.scorers: unknown scorer of arm 'random' 'rulez' (did you mean 'rules'?)",
        ),
        ("evaluate.tasks=[piq]", "evaluate.tasks: unknown benchmark task 'piq' (did you mean 'piqa'?)"),
        ("evaluate.questions=/no/such/folder", "/no/such/folder"),
        (
            "compare.baseline=rndom",
            "compare.baseline: unknown arm to compare with 'rndom' (did you mean 'random'?)",
        ),
        ("store=''", "store: names no place; give a directory or an fsspec URL"),
        (
            "store='${DATA}/record'",
            "store: no variables of the environment are read in it ('${DATA}/record')",
        ),
        ("select.ratio=true", "select.ratio: a boolean stands where a number is needed (given: true)"),
        (
            "pool.near_duplicates=yes",
            "pool.near_duplicates: must be settings, of: shingle_words, num_permutations, threshold; {} takes all "
            "defaults (given: true)",
        ),
        (
            "releases.first=3",
            "releases.first: must be settings, of: crawls, given, every, max_age_days; {} takes all defaults (given: 3)",
        ),
        ("evaluate.shots=true", "evaluate.shots: a boolean stands where a number is needed (given: true)"),
        ("ingest={min_chars: 100, max_chars: 10}", "ingest: min_chars 100 is above max_chars 10"),
        (
            "redundancy.memory_limit=2 bananas",
            "redundancy.memory_limit: is no amount of memory from 1MB; give a number",
        ),
        ("redundancy.memory_limit='2'", "redundancy.memory_limit: is no amount of memory from 1MB"),
        ("redundancy.memory_limit=101%", "(given: '101%')"),
        (
            "source.options.extra_columns={text: string}",
            "source.options.extra_columns: 'text' is a column of every document already",
        ),
        (
            "source.options.extra_columns={content_hash: string}",
            "source.options.extra_columns: 'content_hash' is a column that the record writes itself",
        ),
        (
            "releases={2024-01-01: {}}",
            "releases.2024-01-01: must be text, but YAML takes it bare for a date; put it in quotes (given: 2024-01-01)",
        ),
        (
            "releases={first: {crawls: [2024-01-01]}}",
            "tiny.yaml: releases.first.crawls.0: must be text, but YAML takes it bare for a date; put it in quotes (given: "
            "2024-01-01)",
        ),
        (
            "select.quotas={1: 0.5, 2: 0.5}",
            "select.quotas.1: must be text, but YAML takes it bare for a number; put it in quotes (given: 1)",
        ),
        ("pretrain.hidden_sise=3", "pretrain.hidden_sise: unknown setting (did you mean 'hidden_size'?)"),
    ],
)
def test_what_a_run_refuses_is_refused(setting: str, told: str, tiny_config_file: Path) -> None:
    result = check(tiny_config_file, setting)
    assert isinstance(result.exception, DataMaskError), result.output
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)


def test_every_setting_stands_there_with_value_default_and_meaning(tiny_config_file: Path) -> None:
    arms = "arms={random: {policy: random}, paper: {policy: policy_gradient, num_epochs: 9, diversity: Facility}}"
    result = check(tiny_config_file, arms, "architectures={dense: {}, wide: {hidden_size: 64}}")
    assert result.exception is None, result.exception
    off = result.output.splitlines().index(
        next(line for line in result.output.splitlines() if "near_duplicates: null" in line)
    )
    assert result.output.splitlines()[off + 1].startswith(
        "  #   shingle_words: 5  # default 5. Consecutive words"
    )
    assert "    num_epochs: 9  # default 5000. Epochs." in result.output.splitlines()
    shown = yaml.safe_load(result.output)
    config = load_config(str(tiny_config_file), {"arms.paper": {"policy": "policy_gradient"}})
    for arm in ("random", "paper"):
        assert set(shown["arms"][arm]) == set(type(config.select_config(arm)).model_fields)
    assert shown["arms"]["paper"]["diversity_options"]["Facility"]["num_landmarks"] == 20_000
    assert set(shown["select"]) >= {*SelectConfig.model_fields, "num_epochs", "num_rollouts"}
    assert shown["architectures"]["wide"]["hidden_size"] == 64
    assert shown["pretrain"]["hidden_size"] == shown["architectures"]["dense"]["hidden_size"] == 16
    assert shown["source"]["options"]["optional_columns"]
    lines = [line for line in result.output.splitlines() if not line.endswith(":")]
    assert all("#" in line for line in lines), "each setting says what it means"


def test_beside_another_budget_no_ratio_stands_that_would_be_refused(tiny_config_file: Path) -> None:
    arms = "arms={random: {policy: random}, small: {policy: datamask, num_documents: 5, ratio: null}}"
    shown = yaml.safe_load(check(tiny_config_file, arms).output)
    assert shown["select"]["ratio"] == shown["arms"]["random"]["ratio"] == 0.3
    assert "ratio" not in shown["arms"]["small"]
    assert shown["arms"]["small"]["num_documents"] == 5
    for_all = yaml.safe_load(check(tiny_config_file, "select={num_tokens: 900}").output)
    assert for_all["select"]["num_tokens"] == 900
    assert not any("ratio" in settings for settings in (for_all["select"], *for_all["arms"].values()))


def test_an_engine_that_is_not_installed_is_refused_before_any_work(
    tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "compute.engine: ray is not installed; pip install" in str(
        check(tiny_config_file, "compute={engine: ray, workers: 2}").exception
    )
    alone = check(tiny_config_file, "compute={engine: ray}")
    assert alone.exception is None, "one worker needs none"
    assert "# compute.workers is 1: this process works on shards alone, without Ray; raise it" in alone.output
    over = "arms.datamask={policy: datamask, diversity: Pair_simi, over: shards}"
    assert "is not installed" in str(check(tiny_config_file, "compute={engine: ray}", over).exception), (
        "actors hold the documents of a selection over shards, one of them too"
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nonsense", "names no host and port; give `auto`, host:6379 or ray://host:10001"),
        ("host:700000", "names no host and port"),
        ("127.0.0.1:1", "no Ray cluster answers at '127.0.0.1:1' ("),
        ("ray://127.0.0.1:1", "start one there with `ray start --head`, or leave compute.address out"),
    ],
)
def test_a_cluster_that_does_not_answer_is_refused_before_any_work(
    tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch, address: str, told: str
) -> None:
    ray = types.ModuleType("ray")
    ray.__spec__ = importlib.machinery.ModuleSpec("ray", None)
    monkeypatch.setitem(sys.modules, "ray", ray)  # as if it were installed
    refused = check(tiny_config_file, f"compute={{engine: ray, workers: 2, address: '{address}'}}").exception
    assert str(refused).startswith("compute.address: ")
    assert told in str(refused)

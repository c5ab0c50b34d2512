"""The asset graph as a whole: what is in it, how it loads, how it is configured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.automation_tick_evaluation_context import (
    build_run_requests_with_backfill_policies,
)
from dagster._core.definitions.events import AssetKeyPartitionKey

import assets
import resources
from assets.factory import OWNERS, RETRIES, shown_of
from assets.launchpad import code_version, launchpad
from datamask_pipeline.definitions import PRELOADED, build_defs
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import FLOW, load_config

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("asset_graph.json")
HEAVY = "torch transformers sentence_transformers datasets lm_eval sklearn scipy matplotlib".split()


def test_importing_the_definitions_loads_nothing_heavy() -> None:
    code = (
        f"import sys, datamask_pipeline.definitions\nprint([name for name in {HEAVY} if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert shown == "[]\n"


def test_top_level_packages_are_this_checkouts() -> None:
    workspace = ROOT / "workspace.yaml"
    location = yaml.safe_load(workspace.read_text())["load_from"][0]["python_file"]
    assert (ROOT / location["relative_path"]).is_file()
    for package in (assets, resources):
        assert Path(str(package.__file__)).parents[1] == workspace.parent


def test_every_loader_uses_the_same_location_name() -> None:
    import tomllib

    location = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"][0]["python_file"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert location["location_name"] == project["code_location_name"]


def test_the_asset_graph_is_the_one_on_record(tiny_defs: dg.Definitions) -> None:
    """A change of the graph is a change of the product: UPDATE_ASSET_GRAPH=1 accepts it."""
    found = _graph(tiny_defs)
    if os.environ.get("UPDATE_ASSET_GRAPH"):
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(SNAPSHOT.read_text())


def test_definitions_are_loadable(tiny_defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(tiny_defs)


def test_every_asset_has_a_blocking_check_and_is_described(tiny_defs: dg.Definitions) -> None:
    graph = tiny_defs.resolve_asset_graph()
    checked = {key.asset_key for key in graph.asset_check_keys if graph.get_check_spec(key).blocking}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.owners == OWNERS, key
        assert node.kinds, key
        if not node.is_executable:  # of an experiment: told by steps of its job, which fail instead
            continue
        assert key in checked, key
        assert node.code_version, key


def test_a_step_is_tried_again_whatever_job_it_is_of(tiny_defs: dg.Definitions) -> None:
    """But for the one that computes nothing: it says what failed."""
    jobs = tiny_defs.get_repository_def().get_all_jobs()
    steps = {node.definition.name: node.definition for job in jobs for node in job.nodes}
    assert {"freeze_release", "sweep_record", "published_data_set", "measure"} <= set(steps)
    assert {name for name, step in steps.items() if step.retry_policy != RETRIES} == {"all_made"}


def test_a_backfill_gives_each_run_one_partition_by_its_name(tiny_defs: dg.Definitions) -> None:
    """A step refuses a range of partitions, be it of one."""
    graph = tiny_defs.resolve_asset_graph()
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.partition_loading_context(dynamic_partitions_store=instance),
    ):
        instance.add_dynamic_partitions("crawls", ["tiny-2024-10", "tiny-2024-18"])
        instance.add_dynamic_partitions("releases", ["first", "second"])
        for asset in (output.asset for stage in FLOW for output in stage.makes if output.asset):
            key = dg.AssetKey(asset)
            if not graph.has(key):  # of a stage that is switched off
                continue
            partitions = graph.get(key).partitions_def
            assert partitions is not None
            wanted = {*partitions.get_partition_keys()}
            requests = build_run_requests_with_backfill_policies(
                {AssetKeyPartitionKey(key, partition) for partition in wanted},
                graph,
                instance,
            )
            assert {request.partition_key for request in requests} == wanted, asset


def test_the_launchpad_names_bounds_choices_and_what_is_configured() -> None:
    config = load_config("demo")
    fields = launchpad(*(config.select_config(arm) for arm in config.arms))
    assert "Bounds: >= 0, <= 1" in str(fields["lamb"].description)
    assert "Configured: 0.5" in str(fields["lamb"].description)
    assert {value.config_value for value in fields["dtype"].config_type.enum_values} == {
        "auto",
        "float32",
        "bfloat16",
    }
    assert not any(field.is_required for field in fields.values())


def test_the_launchpad_says_what_each_setting_of_a_job_is(tiny_defs: dg.Definitions) -> None:
    for job in ("freeze_job", "sweep_job", "publish_job"):
        for node in tiny_defs.resolve_job_def(job).graph.node_defs:
            fields = node.config_schema.config_type.fields  # type: ignore[attr-defined]
            assert [name for name, field in fields.items() if not field.description] == [], job


def test_code_version_follows_settings_that_matter() -> None:
    config = load_config("demo")
    changed = load_config("demo", {"select.lamb": 0.25})
    moved = load_config("demo", {"select.num_workers": 3})
    arm = next(iter(config.arms))
    version = code_version("1", config.select_config(arm))
    assert version != code_version("2", config.select_config(arm))
    assert version != code_version("1", changed.select_config(arm))
    assert version == code_version("1", moved.select_config(arm))


def test_a_broken_configuration_is_refused_by_name(tiny_config_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="latio"):
        build_defs(config=str(tiny_config_file), settings={"select.latio": 0.1})


def test_a_file_of_checks_is_of_a_stage_and_names_its_assets() -> None:
    """A check under a misspelt name would never run."""
    folder = Path(str(assets.__file__)).parent
    having_checks = {path.stem for path in folder.glob("*.py") if "\nSHOWN = " in path.read_text()}
    assert having_checks == {stage.name for stage in FLOW}
    for stage in FLOW:
        assert set(shown_of(stage)) == {output.asset for output in stage.makes}


def _graph(defs: dg.Definitions) -> dict[str, object]:
    graph = defs.resolve_asset_graph()
    shown = {}
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        partitions = node.partitions_def
        shown[key.to_user_string()] = {
            "deps": sorted(parent.to_user_string() for parent in node.parent_keys),
            "mappings": {
                parent.to_user_string(): type(mapping).__name__
                for parent, mapping in sorted(node.partition_mappings.items())
            },
            "group": node.group_name,
            "partitions": _partitions(partitions),
            "kinds": sorted(node.kinds),
            "checks": sorted(
                f"{check.name}{'' if graph.get_check_spec(check).blocking else ' (warning)'}"
                for check in graph.asset_check_keys
                if check.asset_key == key
            ),
        }
    return shown


def _partitions(partitions: object) -> object:
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return {d.name: _partitions(d.partitions_def) for d in partitions.partitions_defs}
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        return f"dynamic {partitions.name}"
    if isinstance(partitions, dg.StaticPartitionsDefinition):
        return list(partitions.get_partition_keys())
    return str(partitions)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["assets.py", "resources.py"])
def test_a_foreign_file_of_that_name_is_not_taken_for_ours_where_steps_are_forked(
    name: str, tmp_path: Path
) -> None:
    """Where Dagster was started there may be one: the process that steps are forked from looks there first."""
    (tmp_path / name).write_text("raise SystemExit('run')")
    programme = (
        f"import {', '.join(PRELOADED)}; import assets, resources; print(assets.__path__, resources.__path__)"
    )
    done = subprocess.run([sys.executable, "-c", programme], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stdout

"""No asset check refuses a sound result: every policy, every metric, and what leaves numbers out, through Dagster.

A plain run has no checks. One that is too strict stops the demo and every scheduled run, and nothing else shows it.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from stages.test_one_pass import make_models
from torch import Tensor

from assets.partitions import CRAWLS, RELEASES, partition_key
from datamask_pipeline import families
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.pipeline import Pipeline, load_config

RELEASE = "first"
SELECT = {"num_steps": 3, "num_swap_rounds": 1, "num_restarts": 1, "num_kicks": 1}
SELECT |= {"num_epochs": 5, "num_rollouts": 8, "partial": 1.0}
ARMS: dict[str, dict[str, Any]] = {
    **{f"policy_{name}": {"policy": name} for name in POLICIES.names()},
    "policy_partitioned_greedy": {"policy": "partitioned_greedy", "diversity": "Pair_graph"},
    **{f"metric_{name}": {"diversity": name} for name in METRICS.names()},
    "greedy_facility": {"policy": "greedy", "diversity": "Facility"},
    "mixture": {"diversity": {"Facility": 1.0, "Pair_simi": 2.0}},
    "black_box": {"policy": "policy_gradient", "diversity": "BlackBox"},
    "black_box_at_random": {"policy": "random", "diversity": "BlackBox"},
    "pruned": {"quality_pruning": 0.3},
    "pruned_black_box": {"policy": "policy_gradient", "quality_pruning": 0.3, "diversity": "BlackBox"},
    "pruned_blocks": {"quality_pruning": 0.3, "block_rows": 30},
    "tokens": {"num_tokens": 900},
    "tokens_of_facility": {"num_tokens": 900, "diversity": "Facility"},
    "quality_alone": {"lamb": 1.0},
    "diversity_alone": {"lamb": 0.0},
}


class BlackBox(DiversityMetric):
    """Values and nothing else."""

    name = "BlackBox"

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        sums_GD = masks_GN.to(embeddings_ND.dtype) @ embeddings_ND
        return 1 - (sums_GD.norm(dim=1) / masks_GN.sum(1)).double()


def run_job(
    name: str, key: str, instance: dg.DagsterInstance, config: Path, settings: dict[str, Any]
) -> None:
    """Run one job, and demand that each of its checks was asked and no blocking one said no."""
    defs = build_defs(config=str(config), settings=settings)
    job = defs.resolve_job_def(name)
    result = job.execute_in_process(instance=instance, partition_key=key, raise_on_error=False)
    found = result.get_asset_check_evaluations()
    failed = [
        (check.asset_key.to_user_string(), check.check_name, dict(check.metadata))
        for check in found
        if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR
    ]
    assert not failed
    assert result.success
    asked = {(check.asset_key, check.check_name) for check in found}
    assert asked == {(key.asset_key, key.name) for key in job.asset_layer.asset_graph.asset_check_keys}


@pytest.fixture(scope="module")
def of_arms(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dg.DagsterInstance, Path, dict[str, Any]]]:
    """The tiny chain's record under other arms; policies tell their steps often."""
    root = tmp_path_factory.mktemp("arms") / "record"
    shutil.copytree(tiny_run.store.root, root)
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setitem(families._classes(METRICS), BlackBox.name, BlackBox)
        for module in ("greedy", "facility.dense"):
            patch.setattr(f"datamask_pipeline.selection.{module}.REPORT_EVERY", 4)
        instance.add_dynamic_partitions(str(RELEASES.name), [RELEASE])
        settings = {"store": str(root), "select": SELECT, "arms": ARMS, "compare.baseline": next(iter(ARMS))}
        yield instance, tiny_config_file, settings


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arm", ARMS)
def test_the_checks_pass_every_arm(
    arm: str, of_arms: tuple[dg.DagsterInstance, Path, dict[str, Any]]
) -> None:
    run_job("arm_job", partition_key("arm", f"{RELEASE}/{arm}"), *of_arms)


@pytest.mark.slow
def test_the_checks_pass_an_embedding_with_heads(tiny_config_file: Path, tmp_path: Path) -> None:
    encoder, edu = make_models(tmp_path / "models")
    options = {
        name: {"model": edu, "dtype": "float32", "max_tokens": 64, "device": "cpu"}
        for name in ("fineweb_edu:second", "fineweb_edu:first")
    }
    settings = {
        "store": str(tmp_path / "record"),
        "embed": {"encoder": encoder, "dtype": "float32", "heads": list(options), "head_options": options},
        "score": {"scorers": ["rules", *options], "options": options},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(CRAWLS.name), ["tiny-2024-10"])
        run_job("crawl_job", "tiny-2024-10", instance, tiny_config_file, settings)


@pytest.mark.slow
def test_the_checks_pass_a_crawl_that_kept_no_document(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_config_file.parent / "crawls", tmp_path / "crawls")
    (tmp_path / "crawls" / "a-first").mkdir()
    (tmp_path / "crawls" / "a-first" / "000.jsonl").write_text('{"id": "x", "text": "  "}\n')
    settings = {"store": str(tmp_path / "record"), "source.options": {"root": str(tmp_path / "crawls")}}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    assert pipeline.release_crawls(RELEASE)[0] == "a-first"
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(CRAWLS.name), pipeline.crawls())
        instance.add_dynamic_partitions(str(RELEASES.name), [RELEASE])
        for crawl in pipeline.crawls():
            run_job("crawl_job", crawl, instance, tiny_config_file, settings)
        run_job("release_job", RELEASE, instance, tiny_config_file, settings)
        for arm in pipeline.config.arms:
            key = partition_key("arm", f"{RELEASE}/{arm}")
            run_job("arm_job", key, instance, tiny_config_file, settings)

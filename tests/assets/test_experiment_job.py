"""An experiment through Dagster: one job from subsets to report, with what the command finds; what is measured stays."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from tiny_experiment import experiment_file

from datamask_pipeline.definitions import build_defs
from datamask_pipeline.experiment import run as running
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require


@pytest.fixture
def launched(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> Any:
    """Launches the job on a small experiment, of which four draws have two arms more than they need."""
    experiment = {
        "name": "by-job",
        "question": "Is quality better than chance?",
        "contrast": ["quality", "random"],
        "num_random": 2,
        "pools": {"whole": {}},
        "arms": {"random": {}, "random_again": {}, "quality": {"select": {"policy": "quality_topk"}}},
    }
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    job = build_defs(config=str(tiny_config_file)).resolve_job_def("experiment_job")

    def launch(instance: dg.DagsterInstance, **changes: Any) -> dg.ExecuteInProcessResult:
        path = experiment_file(tmp_path, tiny_config_file, **{**experiment, **changes})
        settings = {
            "file": str(path),
            "data": str(tiny_config_file.parent),
            "store": str(record),
            "to": str(tmp_path / "report"),
        }
        return job.execute_in_process(
            instance=instance,
            run_config={"resources": {"experiment": {"config": settings}}},
            raise_on_error=False,
        )

    return launch, Store(str(record)), tmp_path / "report"


def test_one_job_goes_from_subsets_to_the_report(launched: Any) -> None:
    launch, store, folder = launched
    with dg.DagsterInstance.ephemeral() as instance:
        result = launch(instance)
        assert result.success
        told = {
            (str(event.asset_key.to_user_string()), event.partition): event.materialization.metadata
            for event in result.get_asset_materialization_events()
        }
        keys = [f"by-job/whole/{number:03d}" for number in range(4)]
        assert set(told) == {("experiment_draw", key) for key in keys} | {("experiment_report", "by-job")}
        refs = [require(store, "experiment", key) for key in keys]
        for key, ref in zip(keys, refs, strict=True):
            assert told["experiment_draw", key]["fingerprint"].value == ref.fingerprint
        text = (folder / "by-job.md").read_text()
        answer = told["experiment_report", "by-job"]["pool whole"].value
        assert f"**{answer}**" in text
        assert "quality" in answer
        assert sorted(instance.get_dynamic_partitions("experiment_draws")) == keys
        # Launched again it finds all of it, and says the same.
        again = launch(instance)
        assert again.success
        assert [require(store, "experiment", key) for key in keys] == refs
        assert (folder / "by-job.md").read_text() == text


@pytest.mark.slow
def test_draws_are_of_the_experiments_own_collection_whatever_another_makes_current(
    launched: Any, tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two experiments of one record with other chains, at once: the second one's index was measured as the first one's."""
    launch, store, _ = launched
    make_shared = running.make_shared

    def then_another(config: Any, pipeline: Pipeline, *arguments: Any) -> None:
        make_shared(config, pipeline, *arguments)
        pool = pipeline.config.pool.model_copy(update={"validation_share": 0.4})
        other = Pipeline(pipeline.config.model_copy(update={"pool": pool}))
        for _, _, call in other.steps("first", "gather"):
            call()

    monkeypatch.setattr(running, "make_shared", then_another)
    with dg.DagsterInstance.ephemeral() as instance:
        assert launch(instance).success
    pools = {
        store.manifest_at(manifest["inputs"]["candidates"]["location"])["basis"]["config"]["validation_share"]
        for key in store.keys("experiment")
        for manifest in store.all_manifests("experiment", key)
    }
    assert pools == {0.3}
    assert store.manifest(require(store, "pool", "first"))["basis"]["config"]["validation_share"] == 0.4


@pytest.mark.slow
def test_it_refuses_what_the_command_refuses_and_does_not_try_again(launched: Any) -> None:
    launch, _, folder = launched
    with dg.DagsterInstance.ephemeral() as instance:
        few = {"select": {"policy": "quality_topk"}, "collapse": 0.9}
        result = launch(instance, ratio=0.97, arms={"random": {}, "random_again": {}, "quality": few})
        errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
        assert len(errors) == 4  # each draw by itself: what one lacks stops none of the others
        assert all(
            "arm 'quality' on draw" in str(error) and "lower `ratio`" in str(error) for error in errors
        )
        assert not folder.exists()
        wrong = launch(instance, contrast=["quality", "qualty"])
        (error,) = [event.step_failure_data.error for event in wrong.all_events if event.is_step_failure]
        assert "'qualty' is no arm" in str(error)


def test_what_a_shared_stage_would_refuse_is_refused_before_any_of_them(
    launched: Any, tiny_config_file: Path, tmp_path: Path
) -> None:
    launch, _, _ = launched
    chain = yaml.safe_load(experiment_file(tmp_path, tiny_config_file).read_text())["chain"]
    chain["score"] = {"scorers": ["ruels"]}
    chain["pool"] = {"validation_share": 0.4}  # so that there would be work
    with dg.DagsterInstance.ephemeral() as instance:
        wrong = launch(instance, chain=chain)
        (error,) = [event.step_failure_data.error for event in wrong.all_events if event.is_step_failure]
        assert "'ruels'" in str(error)
        store = Store(str(tmp_path / "record"))
        assert store.manifest(require(store, "pool", "first"))["basis"]["config"]["validation_share"] == 0.3

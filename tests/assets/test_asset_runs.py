"""Assets make what the plain chain makes, and say so to Dagster."""

import base64
import html
import shutil
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.partitions import partition_key
from datamask_pipeline.demo import LAUNCHED_BY, StepFailed, run_release
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store

ASSET_OF_STAGE = {
    "ingest": "crawl_documents",
    "rejected": "rejected_documents",
    "embed": "document_embeddings",
    "score": "quality_scores",
    "pool": "candidate_documents",
    "tokenizer": "tokenizer",
    "questions": "benchmark_questions",
    "select": "selection_mask",
    "learning_curve": "learning_curve",
    "materialise": "fineweb_mask",
    "redundancy": "subset_redundancy",
    "ngram": "ngram_answers",
    "pretrain": "pretrained_model",
    "evaluate": "benchmark_results",
    "answers": "benchmark_answers",
    "compare": "comparison_report",
}


def test_both_paths_make_the_same_artefacts(dagster_run, tiny_run: Pipeline) -> None:
    for stage in ASSET_OF_STAGE:
        keys = tiny_run.store.keys(stage)
        assert keys, stage
        assert dagster_run.pipeline.store.keys(stage) == keys
        for key in keys:
            plain, orchestrated = (
                tiny_run.store.current(stage, key),
                dagster_run.pipeline.store.current(stage, key),
            )
            assert orchestrated == plain, (stage, key)


def test_every_partition_is_materialised_and_every_check_passed(
    dagster_run, tiny_defs: dg.Definitions
) -> None:
    graph = tiny_defs.resolve_asset_graph()
    for asset in ASSET_OF_STAGE.values():
        key = dg.AssetKey(asset)
        wanted = set(
            graph.get(key).partitions_def.get_partition_keys(dynamic_partitions_store=dagster_run.instance)
        )
        assert wanted, asset
        assert dagster_run.instance.get_materialized_partitions(key) == wanted
    demo = {run.run_id for run in dagster_run.instance.get_runs(dg.RunsFilter(tags=LAUNCHED_BY))}
    history = dagster_run.instance.event_log_storage.get_asset_check_execution_history
    outcomes = {
        (check.asset_key.to_user_string(), check.name, record.status)
        for check in graph.asset_check_keys
        for record in history(check, limit=100)
        if record.run_id in demo
    }
    assert {status for _, _, status in outcomes} == {AssetCheckExecutionRecordStatus.SUCCEEDED}, outcomes


def test_the_ui_finds_the_demos_runs_under_its_jobs(dagster_run) -> None:
    """Timeline and the pages of jobs show the runs of a code location alone."""
    runs = dagster_run.instance.get_runs(dg.RunsFilter(tags=LAUNCHED_BY))
    assert {run.job_name for run in runs} == {"chain_job", "crawl_job"}
    for run in runs:
        assert run.remote_job_origin.job_name == run.job_name
        assert run.tags[".dagster/repository"] == "__repository__@datamask_pipeline"
        assert run.remote_job_origin.repository_origin.get_label() == run.tags[".dagster/repository"]
        assert run.status is dg.DagsterRunStatus.SUCCESS


def test_metadata_says_what_an_artefact_is(dagster_run) -> None:
    store = dagster_run.pipeline.store
    for stage, asset in ASSET_OF_STAGE.items():
        event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey(asset))
        shown = event.asset_materialization
        metadata = {name: value.value for name, value in shown.metadata.items()}
        keys = {ref.content_digest: ref for ref in (store.current(stage, key) for key in store.keys(stage))}
        ref = keys[metadata["content digest"]]
        assert metadata["fingerprint"] == ref.fingerprint
        assert metadata["location"] == f"{store.root}/{ref.location}"
        assert shown.tags["dagster/data_version"] == ref.content_digest
        if store.part_names(ref):
            assert metadata["dagster/row_count"] == ref.rows
            manifest = store.manifest(ref)
            rows, seconds = manifest["counts"].get("rows_in", ref.rows), manifest["wall_seconds"]
            assert metadata["parts"] == len(manifest["parts"])
            assert metadata["rows per second"] == pytest.approx(rows / seconds if seconds else 0, abs=0.01)
            with store.part_file(ref, store.part_names(ref)[0]) as part:
                names = [column.name for column in metadata["dagster/column_schema"].columns]
                assert all(column.description for column in metadata["dagster/column_schema"].columns), asset
                assert names == part.schema_arrow.names


@pytest.mark.parametrize(
    ("asset", "plot"),
    [
        ("selection_mask", "learning_curve.png"),
        ("pretrained_model", "loss_curve.png"),
        ("comparison_report", "differences.png"),
    ],
)
def test_plots_are_shown(dagster_run, asset: str, plot: str) -> None:
    records = dagster_run.instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
    shown = [record.asset_materialization.metadata for record in records]
    images = [metadata[plot].value for metadata in shown if plot in metadata]
    assert images
    encoded = images[0].split("base64,")[1].rstrip(")")
    assert base64.b64decode(encoded).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("asset", "curve"),
    [
        ("selection_mask", "objective by step"),
        ("learning_curve", "objective by step"),
        ("pretrained_model", "loss by step"),
    ],
)
def test_a_curve_is_small_enough_to_be_shown_without_a_click(dagster_run, asset: str, curve: str) -> None:
    event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey(asset))
    text = event.asset_materialization.metadata[curve].value
    assert text.startswith("![")
    assert len(text) < 1000


def test_rejected_rows_are_shown_by_their_reasons(dagster_run) -> None:
    """As the runbook says of a crawl that gave no document."""
    store, asset = dagster_run.pipeline.store, dg.AssetKey("rejected_documents")
    event = dagster_run.instance.get_latest_materialization_event(asset).asset_materialization
    lines = event.metadata["reasons"].value.splitlines()
    (row,) = store.read_table(store.current("rejected", event.partition)).to_pylist()
    assert lines[0] == "| reason | rows | file of the first | its row | what decided |"
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert [cells[1], cells[3]] == ["1", str(row["row"])]
    assert [html.unescape(cells[place]) for place in (0, 2, 4)] == [
        row["reason"],
        row["shard"],
        row["detail"],
    ]
    assert len(lines) == 3


def test_headline_numbers_are_scalars(dagster_run) -> None:
    def latest(asset: str) -> dict[str, object]:
        event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey(asset))
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    assert isinstance(latest("selection_mask")["gap"], float)
    assert 0 < latest("pretrained_model")["bits_per_byte"] < 16
    results = latest("benchmark_results")
    assert {"winogrande", "race_high", "mean of tasks"} <= set(results)
    warning = str(latest("comparison_report")["what these figures do not show"])
    assert warning.startswith("NO POWER: ")
    assert "no model is clearly above chance" in warning
    assert latest("fineweb_mask")["rows: kept"] == latest("selection_mask")["rows: kept"]


def test_the_subset_says_where_its_columns_come_from(dagster_run) -> None:
    event = dagster_run.instance.get_latest_materialization_event(dg.AssetKey("fineweb_mask"))
    lineage = event.asset_materialization.metadata["dagster/column_lineage"].value.deps_by_column
    (text,), (score,) = lineage["text"], lineage["score_rules"]
    assert (text.asset_key.to_user_string(), text.column_name) == ("crawl_documents", "text")
    assert (score.asset_key.to_user_string(), score.column_name) == ("release_index", "score_rules")


def test_a_second_run_computes_nothing_and_says_so(dagster_run) -> None:
    assert set(dagster_run.outcomes) == {"computed"}
    defs, lines, narrator = dagster_run.defs()
    run_release(dagster_run.instance, defs, dagster_run.pipeline, "first", narrator)
    assert set(narrator.outcomes) == {"unchanged, reused"}
    assert len(narrator.outcomes) == len(dagster_run.outcomes)
    assert "nothing was computed again" in narrator.summary()
    assert all("unchanged, reused" in line for line in lines)


def test_a_crawl_without_a_column_that_is_scored_is_refused_before_its_vectors_are_computed(
    dagster_run, tmp_path: Path
) -> None:
    settings = {"score.scorers": ["column"], "store": str(tmp_path / "record")}
    result = dagster_run.job("crawl_job", "tiny-2024-10", **settings)
    (failed,) = result.get_step_failure_events()
    assert failed.step_key == "ingest"
    assert "reads a column that crawl 'tiny-2024-10' does not have" in failed.step_failure_data.error.message
    assert not Store(tmp_path / "record").keys("ingest")


@pytest.mark.slow
def test_another_lambda_selects_again_and_nothing_before_it(dagster_run) -> None:
    settings = {"select.lamb": 0.125}
    assert _outcomes(dagster_run.job("crawl_job", "tiny-2024-10", **settings)) == {"unchanged, reused"}
    assert _outcomes(dagster_run.job("release_job", "first", **settings)) == {"unchanged, reused"}
    arm = partition_key("arm", "first/datamask")
    assert _outcomes(dagster_run.job("arm_job", arm, **settings)) == {"computed"}
    assert _outcomes(dagster_run.job("arm_job", arm)) == {"unchanged, reused"}


def test_an_output_is_asked_for_alone_and_the_others_of_its_step_are_told_too(dagster_run) -> None:
    """Else the UI asks, in red, whether the mask may be written as well."""
    defs, _, _ = dagster_run.defs()
    key = partition_key("arm", "first/datamask")
    node = defs.resolve_asset_graph().get(dg.AssetKey("learning_curve"))
    assert node.execution_set_asset_keys == {dg.AssetKey("learning_curve")}
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=dagster_run.instance, partition_key=key, asset_selection=[dg.AssetKey("learning_curve")]
    )
    told = {found.asset_key.to_user_string(): found for found in _materializations(result)}
    assert set(told) == {"selection_mask", "learning_curve"}
    for stage, asset in (("select", "selection_mask"), ("learning_curve", "learning_curve")):
        ref = dagster_run.pipeline.store.current(stage, "first/datamask")
        assert told[asset].partition == key
        assert told[asset].tags["dagster/data_version"] == ref.content_digest


@pytest.mark.slow
def test_the_launchpad_changes_a_setting(dagster_run) -> None:
    arm = partition_key("arm", "first/random")
    result = dagster_run.job("arm_job", arm, ops={"select": {"config": {"ratio": 0.5}}})
    (mask,) = (m for m in _materializations(result) if m.asset_key.to_user_string() == "selection_mask")
    assert mask.metadata["settings"].value["ratio"] == 0.5
    assert mask.metadata["rows: kept"].value == round(0.5 * mask.metadata["dagster/row_count"].value)
    dagster_run.job("arm_job", arm)  # the configured arm is current again


def test_the_launchpad_refuses_what_is_out_of_bounds(dagster_run) -> None:
    arm = partition_key("arm", "first/random")
    result = dagster_run.job("arm_job", arm, ops={"select": {"config": {"ratio": 1.5}}})
    assert not result.success
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    description = failure.step_failure_data.user_failure_data.description
    assert "ratio" in description
    assert "1.5" in description


def test_a_later_step_of_wrong_settings_stops_the_run_before_its_first(dagster_run) -> None:
    arm = partition_key("arm", "first/random")
    result = dagster_run.job("arm_job", arm, ops={"materialise": {"config": {"batch_rows": 0}}})
    assert not result.success
    assert not _materializations(result)
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    assert failure.step_key == "select"
    assert "batch_rows" in failure.step_failure_data.user_failure_data.description


def test_a_partition_without_its_dimensions_is_refused_with_the_remedy(dagster_run) -> None:
    """As of a client, or `dagster job execute`, that gives the tag of a partition of one dimension."""
    job = dagster_run.defs(**dagster_run.settings)[0].resolve_job_def("arm_job")
    tags = {"dagster/partition": "first|random"}
    result = job.execute_in_process(instance=dagster_run.instance, tags=tags, raise_on_error=False)
    assert not result.success
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    assert "dagster/partition/release" in failure.step_failure_data.user_failure_data.description
    dimensions = {"dagster/partition/release": "first", "dagster/partition/selection_arm": "random"}
    assert job.execute_in_process(instance=dagster_run.instance, tags=tags | dimensions).success


@pytest.mark.parametrize("name", ["crawl_job", "arm_job", "chain_job"])
def test_a_run_without_a_partition_is_refused_with_the_remedy(tiny_defs: dg.Definitions, name: str) -> None:
    """As of `dagster job execute` without a tag."""
    with dg.DagsterInstance.ephemeral() as instance:
        job = tiny_defs.resolve_job_def(name)
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    told = failure.step_failure_data.user_failure_data
    assert told is not None, failure.step_failure_data.error
    assert told.description.startswith("this run has no partition")
    assert "dagster/partition" in told.description


def test_the_launchpad_refuses_unknown_fields_and_choices(dagster_run) -> None:
    arm = partition_key("arm", "first/random")
    for config in ({"latio": 0.5}, {"dtype": "float8"}):
        with pytest.raises(dg.DagsterInvalidConfigError):
            dagster_run.job("arm_job", arm, ops={"select": {"config": config}})


def test_a_failed_blocking_check_stops_what_follows(dagster_run, tmp_path: Path) -> None:
    """Vectors of another length reach the record by a damaged file: no score may be made of them."""
    source = dagster_run.pipeline.store
    ref = source.current("embed", "tiny-2024-10")
    shutil.copytree(source.root, tmp_path / "record")
    shutil.rmtree(tmp_path / "record" / "score" / "tiny-2024-10")
    path = tmp_path / "record" / ref.location / f"{source.part_names(ref)[0]}.npy"
    np.save(path, np.load(path) / np.float16(2))  # of the same size, or it would be made again

    result = dagster_run.job("crawl_job", "tiny-2024-10", store=str(tmp_path / "record"))

    assert not result.success
    failed = {check.check_name for check in result.get_asset_check_evaluations() if not check.passed}
    assert failed == {"unit_norm"}
    made = {materialization.asset_key.to_user_string() for materialization in _materializations(result)}
    assert "document_embeddings" in made
    assert "quality_scores" not in made


@pytest.mark.slow
def test_the_librarys_message_reaches_the_one_who_runs_it(dagster_run, tmp_path: Path) -> None:
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "pool.validation_share": 0.0}
    pipeline = Pipeline(load_config(str(dagster_run.config_file), settings))
    defs, _, narrator = dagster_run.defs(**settings)
    with pytest.raises(
        StepFailed,
        match="chain_job of first: questions of first: the held-out documents hold too little prose",
    ):
        run_release(dg.DagsterInstance.ephemeral(), defs, pipeline, "first", narrator)


def _materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    events = result.get_asset_materialization_events()
    return [event.step_materialization_data.materialization for event in events]


def _outcomes(result: dg.ExecuteInProcessResult) -> set[object]:
    assert result.success
    return {materialization.metadata["outcome"].value for materialization in _materializations(result)}

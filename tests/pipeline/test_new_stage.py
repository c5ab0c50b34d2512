"""A new stage is its module, its columns and one entry of the flow; everything else follows."""

import shutil
import types
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pydantic
import pytest
from typer.testing import CliRunner

from assets.partitions import partition_key
from assets.plan import release_run
from datamask_pipeline import schema
from datamask_pipeline.audit.render import story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
from datamask_pipeline.pipeline.flow import SELECTION
from datamask_pipeline.pipeline.stage import Flow, Output, Stage
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store

COLUMNS = pa.schema([("crawl", pa.string()), ("id", pa.string()), ("length", pa.int64())])


class LengthsConfig(Settings):
    """The one setting of the new stage."""

    least: int = pydantic.Field(0, ge=0, description="Shorter ids are left out.")


def run(config: LengthsConfig, *, store: Store, release: str, arm: str, mask: Ref, candidates: Ref) -> Ref:
    inputs: dict[str, Ref | str] = {"mask": mask, "candidates": candidates}
    builder = store.begin(
        "lengths", f"{release}/{arm}", version="1", config=config.result_config(), inputs=inputs
    )
    if (done := builder.finished()) is not None:
        return done
    rows = [{**row, "length": len(row["id"])} for row in store.read_table(mask, ["crawl", "id"]).to_pylist()]
    table = pa.Table.from_pylist([row for row in rows if row["length"] >= config.least], COLUMNS)
    return builder.commit([builder.write_part("00000", table.to_batches(), COLUMNS)])


LENGTHS = Stage(
    types.SimpleNamespace(STAGE="lengths", VERSION="1", run=run),  # type: ignore[arg-type]
    SELECTION,
    LengthsConfig,
    reads={"mask": "selection_mask", "candidates": "candidate_documents"},
    makes=(Output("id_lengths", "lengths", "parquet", "How long a judged document's id is."),),
)


@pytest.fixture
def with_new_stage(monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setitem(schema.TABLES, "lengths", schema.Table("release/arm", "judged document", COLUMNS))
    monkeypatch.setattr(FLOW, "stages", (*FLOW.stages, LENGTHS))
    return FLOW


@pytest.mark.slow
def test_it_runs_in_the_plain_chain_and_until_stops_there(
    with_new_stage: Flow, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    settings = ["-s", f"store={tmp_path / 'record'}", "-s", "lengths.least=3"]
    done = CliRunner().invoke(app, ["run", "-c", str(tiny_config_file), *settings, "--until", "lengths"])
    assert done.exit_code == 0, done.output
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))
    assert pipeline.store.keys("lengths") == ["first/datamask", "first/random"]
    assert not any(pipeline.store.keys(stage) for stage in ("materialise", "tokenizer", "questions"))
    stages = [stage for stage, _, _ in pipeline.steps("first")]
    assert stages.count("lengths") == 2
    with pytest.raises(ConfigurationError, match=r"lengths\.least"):
        load_config(str(tiny_config_file), {"lengths.least": -1})


def test_it_is_told_by_the_audit(
    with_new_stage: Flow, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))
    (ref,) = pipeline.run("lengths", "first", "datamask")
    row, *_ = pipeline.store.read_table(ref).to_pylist()
    story = document_story(pipeline.store, row["id"])
    (of_arm,) = (arm for arm in story["releases"][0]["arms"] if arm["arm"] == "datamask")
    ((told,),) = of_arm["further"].values()
    assert told == {**row, "record": {"artefact": ref.location, "part": "00000.parquet", "row": 0}}
    line = f"id_lengths: length {row['length']} in {ref.location}/00000.parquet row 0"
    assert [text.strip() for text in story_lines(story)].count(line) == 1


def test_it_is_an_asset_with_partitions_and_a_check_in_a_job_and_in_the_plan(
    with_new_stage: Flow, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record")}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    planned = release_run(pipeline, "first")
    other = Pipeline(load_config(str(tiny_config_file), {**settings, "lengths.least": 3}))
    assert planned != release_run(other, "first")

    defs = build_defs(config=str(tiny_config_file), settings=settings)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("releases", ["first"])
        job = defs.resolve_job_def(SELECTION.job)
        arm = partition_key("arm", "first/random")
        result = job.execute_in_process(instance=instance, partition_key=arm)
        assert instance.get_materialized_partitions(dg.AssetKey("id_lengths")) == {"first|random"}
    (check,) = (
        check
        for check in result.get_asset_check_evaluations()
        if check.asset_key == dg.AssetKey("id_lengths")
    )
    assert (check.check_name, check.passed) == ("columns", True)
    assert pipeline.store.keys("lengths") == ["first/random"]

"""An arm that was taken out of the configuration and rests on what was purged is left out of questions, not in their way."""

import json
from pathlib import Path

import duckdb
import pytest
from compliance.conftest import TAKEDOWN, run_all_but_models
from typer.testing import CliRunner

from datamask_pipeline.audit.left_over import left_over
from datamask_pipeline.audit.views import views
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.order import masks_made
from datamask_pipeline.storage import require
from datamask_pipeline.storage.releases import retire

LINE = "left out: arm datamask of release first, which no run of this configuration makes anew and which rests on "


@pytest.fixture
def left(copied: Pipeline) -> Pipeline:
    """Withdrawn, then run and purged twice without the arm `datamask`, whose mask stays."""
    pipeline = Pipeline(copied.config.model_copy(update={"arms": {"random": {"policy": "random"}}}))
    assert purge(pipeline.store, "letter 17") is not None
    run_all_but_models(pipeline)
    assert purge(pipeline.store, "letter 17, the rest") is not None
    assert left_over(pipeline.store, None) == {}
    return pipeline


@pytest.mark.slow
def test_it_is_left_out_of_all_that_is_told_and_said_to_be(
    left: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    store = left.store
    mask = store.read_table(require(store, "select", "first/datamask")).to_pylist()
    refused = []
    for row in mask:
        try:
            document_story(store, row["id"])
        except IntegrityError:
            refused.append(row["id"])
    assert refused, "of those that chosen documents crowd out, vectors are read"
    with pytest.raises(IntegrityError, match=r"was purged by request"):
        views(store)
    settings = (
        f"store={store.root}",
        "arms={random: {policy: random}}",
        f"pool.takedown={json.dumps(TAKEDOWN)}",
    )
    config = ["-c", str(tiny_config_file), *(each for pair in settings for each in ("-s", pair))]
    told = CliRunner().invoke(app, ["audit", "why", refused[0], *config])
    assert told.exit_code == 0, told.output
    assert told.stdout.count(LINE) == 1
    assert "random:" in told.stdout
    assert "\n    datamask:" not in told.stdout
    done = CliRunner().invoke(app, ["audit", "sql", "--file", str(tmp_path / "views.sql"), *config])
    assert done.exit_code == 0, done.output
    assert done.stderr.count(LINE) == 1
    connection = duckdb.connect()
    connection.execute((tmp_path / "views.sql").read_text())
    assert connection.execute("SELECT DISTINCT arm FROM decisions").fetchall() == [("random",)]
    funnel = CliRunner().invoke(app, ["audit", "funnel", "first", *config])
    assert funnel.exit_code == 0, funnel.output
    assert funnel.stdout.count(LINE) == 1


@pytest.mark.slow
def test_what_a_run_makes_anew_is_not_left_out(left: Pipeline, copied: Pipeline) -> None:
    """Nor does a mask of a retired release count as one that runs make."""
    assert {*left_over(left.store, masks_made(left))} == {"first/datamask"}
    assert left_over(left.store, masks_made(copied)) == {}
    retire(left.store, "first")
    assert masks_made(copied) == set()

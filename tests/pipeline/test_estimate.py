"""How much work steps are where files of a crawl come and go: by what was computed, not by what was carried over."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.estimate import documents_of, estimate, measured
from datamask_pipeline.storage import require


@pytest.mark.slow
def test_files_that_came_count_and_rows_that_were_carried_over_do_not(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    configured = load_config(str(tiny_config_file), {})
    root = tmp_path / "crawls"
    shutil.copytree(str(configured.source.options["root"]), root)
    settings = {"store": str(tmp_path / "record"), "source.options.root": str(root)}

    def opened() -> Pipeline:
        return Pipeline(load_config(str(tiny_config_file), settings))

    def run() -> str:
        given = [f"{name}={value}" for name, value in settings.items()]
        arguments = ["run", "-c", str(tiny_config_file), "--until", "embed"]
        result = CliRunner().invoke(app, [*arguments, *(part for one in given for part in ("-s", one))])
        assert result.exit_code == 0, result.output
        return result.output

    run()
    pipeline = opened()
    crawl, *others = pipeline.crawls()
    rows = require(pipeline.store, "ingest", crawl).rows
    took = sum(each.documents for each in measured(pipeline, "embed"))
    seconds = estimate(pipeline, "embed", crawl).seconds
    assert seconds is not None

    first = (root / crawl / "000.jsonl").read_text()
    (root / crawl / "002.jsonl").write_text(
        first.replace("urn:uuid", "urn:other").replace("Notes on", "About")
    )
    pipeline = opened()
    assert documents_of(pipeline, [crawl]) == round(rows / 2 * 3)
    assert sum(each.documents for each in measured(pipeline, "embed")) == took, "as they were read"
    assert estimate(pipeline, "embed", crawl).seconds == pytest.approx(seconds * round(rows / 2 * 3) / rows)

    output = run()
    pipeline = opened()
    made = pipeline.store.manifest(require(pipeline.store, "embed", crawl))
    new = made["rows"] - rows
    assert made["rows_carried"] == rows > 0 < new
    assert [bool(part.get("carried")) for part in made["parts"]] == [True, True, False]
    assert f"of {made['rows']:,} rows {rows:,} are carried over as they were" in output
    by_others = sum(require(pipeline.store, "ingest", other).rows for other in others)
    assert sum(each.documents for each in measured(pipeline, "embed")) == pytest.approx(
        by_others + new, abs=1
    )

    (root / crawl / "001.jsonl").unlink()
    run()
    pipeline = opened()
    made = pipeline.store.manifest(require(pipeline.store, "embed", crawl))
    assert made["rows_carried"] == made["rows"] > 0
    assert sum(each.documents for each in measured(pipeline, "embed")) == by_others, (
        "of it nothing was computed"
    )

"""`datamask metrics`: a sample for each current artefact, as its manifest has it, in the form that Prometheus reads."""

import re
from pathlib import Path

from typer.testing import CliRunner

from datamask_pipeline.audit.metrics import _escaped
from datamask_pipeline.cli.app import app
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.storage import require

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
SAMPLE = re.compile(r'(\w+)\{stage="([^"]*)",key="([^"]*)"(?:,reason="([^"]*)")?\} (\S+)')


def test_every_current_artefact_is_told_as_its_manifest_has_it(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    result = CliRunner().invoke(app, ["metrics", "-c", str(tiny_config_file)])
    assert result.exit_code == 0, result.exception
    lines = [line for line in result.output.splitlines() if not line.startswith("# ")]
    found = {match.groups()[:4]: float(match[5]) for match in map(SAMPLE.fullmatch, lines) if match}
    assert len(found) == len(lines), "each line is a sample, and none stands twice"
    store = tiny_run.store
    for artefact in [output.artefact for stage in tiny_run.config.stages() for output in stage.makes]:
        for key in store.keys(artefact):
            manifest = store.manifest(require(store, artefact, key))
            assert found[("datamask_rows", artefact, key, None)] == manifest["rows"]
            assert found[("datamask_compute_seconds", artefact, key, None)] == manifest["wall_seconds"]
            place = Path(store.root) / manifest["location"]
            files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".json"]
            assert found[("datamask_bytes", artefact, key, None)] >= sum(
                path.stat().st_size for path in files
            )
            dropped = {
                name: number for name, number in manifest["counts"].items() if name.startswith("dropped_")
            }
            for name, number in dropped.items():
                reason = name.removeprefix("dropped_")
                assert found[("datamask_rows_dropped", artefact, key, reason)] == number
            if "rows_in" in manifest["counts"]:
                kept = found[("datamask_rows_kept", artefact, key, None)]
                assert kept + sum(dropped.values()) == found[("datamask_rows_in", artefact, key, None)]
    assert {stage for _, stage, _, _ in found} <= {
        output.artefact for stage in FLOW for output in stage.makes
    }


def test_ratios_in_the_documentation_divide_samples_of_the_same_labels(
    tiny_run: Pipeline, tiny_config_file: Path
) -> None:
    output = CliRunner().invoke(app, ["metrics", "-c", str(tiny_config_file)]).output
    labels = {
        name: set(re.findall(r'(\w+)="', given))
        for name, given in re.findall(r"^(\w+)\{(.*)\}", output, re.M)
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    ratios = re.findall(r"(datamask_\w+) / (?:ignoring\((\w+)\) group_left )?(datamask_\w+)", text)
    assert ratios
    for above, ignored, below in ratios:
        assert labels[above] - {ignored} == labels[below]


def test_a_name_with_quotes_breaks_no_line() -> None:
    assert _escaped('a"b\\c\nd') == r"a\"b\\c\nd"

"""Ids are printed as they are: a console of the commands takes nothing in them for an emoji's code or markup."""

import json
from pathlib import Path

from typer.testing import CliRunner

from datamask_pipeline.cli.app import app

PACKAGE = Path(__file__).parents[2] / "datamask_pipeline"
ID = "<copy:B:[bold]1>"


def test_a_runs_log_shows_ids_as_they_are(tmp_path: Path) -> None:
    crawl = tmp_path / "data" / "one"
    crawl.mkdir(parents=True)
    rows = ({"id": str(number), "text": f"Document number {number} says little."} for number in range(20))
    (crawl / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "my.yaml"
    config.write_text(
        f"store: {tmp_path / 'record'}\nsource: {{name: local, options: {{root: {tmp_path / 'data'}}}}}\n"
        f"pool: {{takedown: ['{ID}']}}\n"
    )
    result = CliRunner().invoke(app, ["run", "-c", str(config), "--until", "pool"])
    assert result.exit_code == 0, result.output
    assert "name no document" in result.output
    assert ID in result.output


def test_a_crawls_name_neither_steers_the_terminal_nor_looks_like_a_line_of_the_log(tmp_path: Path) -> None:
    crawl = tmp_path / "data" / "x\nerror: lost\x1b[31m"
    crawl.mkdir(parents=True)
    (crawl / "a.jsonl").write_text(json.dumps({"id": "1", "text": "Some text."}) + "\n")
    config = tmp_path / "my.yaml"
    config.write_text(
        f"store: {tmp_path / 'record'}\nsource: {{name: local, options: {{root: {tmp_path / 'data'}}}}}\n"
    )
    for more in (["--dry-run"], []):
        result = CliRunner().invoke(app, ["run", "-c", str(config), "--until", "ingest", *more])
        assert result.exit_code == 0, result.output
        assert r"ingest        x\u000aerror: lost\u001b[31m" in result.output
        assert "\nerror" not in result.output
        assert "\x1b" not in result.output


def test_every_console_is_such_a_one() -> None:
    makers = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "Console(" in path.read_text()  # a call of rich's own class
    ]
    assert makers == ["cli/terminal.py"]

"""A chain whose texts, addresses, ids and names of columns are hostile, run through Dagster as the demo does."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from tiny_chain import write_tiny_config

from datamask_pipeline.definitions import build_defs
from datamask_pipeline.demo import Narrator, run_release
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store

#: What would do something wherever it is taken for more than text.
SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
LINK = "[click](javascript:alert(1)) ![seen](https://evil.example/pixel.png)"
TABLE = "| a | `b` | $x$ [bold red]c[/bold red] {{ 7 * 7 }} {% raw %}"
TERMINAL = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b1m"
TURNED = "abc\u202etxt.exe\u2066"
#: NUL is refused by ingestion; the row stands among the rejected, its id as it came.
NUL = "nul \x00 here"
PAYLOADS = (SCRIPT, IMAGE, LINK, TABLE, TERMINAL, TURNED)
COLUMN = f"<b>{LINK}|`x`</b>"


@dataclasses.dataclass(frozen=True)
class Hostile:
    """What the fixture leaves behind.

    Attributes:
        pipeline: The chain; treat its record as read-only.
        config_file: Its configuration.
        instance: Where Dagster kept what it shows.
        lines: What the demo printed of the steps.
    """

    pipeline: Pipeline
    config_file: Path
    instance: dg.DagsterInstance
    lines: list[str]

    @property
    def store(self) -> Store:
        return self.pipeline.store


@contextmanager
def hostile_run(folder: Path) -> Iterator[Hostile]:
    """The tiny chain over documents of which every second one carries a payload."""
    path = write_tiny_config(folder)
    for shard in sorted((folder / "crawls").rglob("*.jsonl")):
        rows = [json.loads(line) for line in shard.read_text().splitlines()]
        for number, row in enumerate(rows):
            _poison(row, number, PAYLOADS[number // 2 % len(PAYLOADS)]) if number % 2 else None
        rows.append(rows[1] | {"id": f"{SCRIPT}{TERMINAL}nul", "text": NUL + rows[0]["text"]})
        shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load(path.read_text())
    values["source"]["options"]["extra_columns"] = {COLUMN: "string"}
    values["copies"] = {"threshold": 0.98}
    values["evaluate"]["tasks"] = ["piqa"]
    path.write_text(yaml.safe_dump(values))
    pipeline = Pipeline(load_config(str(path)))
    lines: list[str] = []
    narrator = Narrator(lines.append)
    with dg.DagsterInstance.ephemeral() as instance:
        defs = build_defs(config=str(path), loggers={"narrator": narrator.logger()})
        run_release(instance, defs, pipeline, "first", narrator)
        yield Hostile(pipeline, path, instance, lines)


def _poison(row: dict[str, Any], number: int, payload: str) -> None:
    row["text"] = f"{payload} {row['text']} {payload}"
    row["id"] = f"{row['id']}{payload}"
    row["url"] = f"https://{payload.replace('/', '').replace(' ', '')}.example/{payload}"
    row["language"] = payload if number % 4 == 1 else row["language"]
    row["date"] = payload
    row[COLUMN] = payload

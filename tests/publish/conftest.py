"""A record whose documents carry a licence, one of them with a hostile address; and its subset published."""

import json

import pytest
import yaml
from tiny_chain import write_tiny_config

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store

HOSTILE = "https://<img src=x onerror=alert(1)>`|.example/"
LICENCES = ("CC-BY-4.0", "https://creativecommons.org/licenses/by-sa/4.0/", "CC0")


@pytest.fixture(scope="session")
def licensed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A record with two arms, run as far as their subsets; treat it as read-only."""
    folder = tmp_path_factory.mktemp("licensed")
    path = write_tiny_config(folder)
    for shard in sorted((folder / "crawls").rglob("*.jsonl")):
        rows = [json.loads(line) for line in shard.read_text().splitlines()]
        for number, row in enumerate(rows):
            row |= {"license": LICENCES[number % 3], "rank": number, "url": HOSTILE + str(number)}
        shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load(path.read_text())
    values["source"]["options"]["extra_columns"] = {"license": "string", "rank": "int64"}
    path.write_text(yaml.safe_dump(values))
    pipeline = Pipeline(load_config(str(path)))
    for _, _, call in pipeline.steps("first", until="materialise"):
        call()
    return pipeline.store

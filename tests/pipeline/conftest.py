"""The chain over crawls of six shards each, and what one process makes of it."""

from pathlib import Path

import pytest
from test_kill import digests
from tiny_chain import write_tiny_config

from datamask_pipeline.pipeline import Pipeline, load_config


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration whose crawls have 6 shards each."""
    folder = tmp_path_factory.mktemp("shards")
    config = write_tiny_config(folder)
    for file in sorted((folder / "crawls").rglob("*.jsonl")):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for part in range(3):
            name = f"{file.stem}-{part}.jsonl"
            file.with_name(name).write_text("".join(lines[part::3]), encoding="utf-8")
        file.unlink()
    return config


@pytest.fixture(scope="session")
def alone(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What one process makes of it."""
    record = tmp_path_factory.mktemp("alone") / "record"
    pipeline = Pipeline(load_config(str(many_shards), {"store": str(record)}))
    for _, _, call in pipeline.steps("first", "materialise"):
        call()
    return digests(pipeline.store)

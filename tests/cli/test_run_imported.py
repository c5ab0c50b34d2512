"""`datamask run` tells how many imported vectors it made unit."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tiny_chain import write_crawl
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app


def test_imported_vectors_made_unit_are_told(tmp_path: Path) -> None:
    write_crawl(tmp_path / "crawls", "tiny", 10, seed=1)
    vectors = np.random.default_rng(0).standard_normal((11, 768)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[:4] *= 1.003
    ids = [f"<urn:uuid:tiny-{index:05d}>" for index in range(11)]
    pq.write_table(pa.table({"id": ids, "embedding": vectors.tolist()}), tmp_path / "vectors.parquet")
    values = {
        "store": str(tmp_path / "record"),
        "source": {"name": "local", "options": {"root": str(tmp_path / "crawls")}},
        "embed": {
            "imported_file": str(tmp_path / "vectors.parquet"),
            "imported_model": "m",
            "imported_revision": "1",
            "imported_vector_column": "embedding",
        },
    }
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = ["run", "-c", str(path), "--until", "embed"]
    told = "4 imported vectors were not of unit norm and have been normalised"
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.exception
    assert told in first.output
    assert told not in CliRunner().invoke(app, command).output

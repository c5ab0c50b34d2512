"""The same fingerprints and digests up to the subset with one thread and two, in the plain chain and through Dagster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.storage import Store

PLAIN = """
import json, sys
from datamask_pipeline.pipeline import Pipeline, load_config
config, settings = sys.argv[1], json.loads(sys.argv[2])
for _, _, call in Pipeline(load_config(config, settings)).steps("first", "materialise"):
    call()
"""
DAGSTER = """
import json, sys
import dagster as dg
from assets.partitions import CRAWLS, RELEASES
from assets.plan import runs
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
config, settings = sys.argv[1], json.loads(sys.argv[2])
pipeline, defs = Pipeline(load_config(config, settings)), build_defs(config=config, settings=settings)
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions(CRAWLS.name, pipeline.release_crawls("first"))
    instance.add_dynamic_partitions(RELEASES.name, ["first"])
    needed = [stage.group for stage in FLOW.until("materialise")]
    for group in dict.fromkeys(needed):
        for run in runs(pipeline, group, "first"):
            job = defs.resolve_job_def(run.job)
            assert job.execute_in_process(instance=instance, partition_key=run.partition_key).success
"""


@pytest.mark.parametrize(
    ("program", "number"), [(PLAIN, 1), (PLAIN, 2), (DAGSTER, 2)], ids=["1", "2", "dagster"]
)
def test_any_number_of_threads_and_workers_makes_the_same(
    program: str, number: int, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    settings = {"store": str(tmp_path), "select.num_workers": number, "embed.device": ["cpu"] * number}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(number))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tiny_config_file), json.dumps(settings)],
        env=os.environ | threads,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path)
    for stage in FLOW.until("materialise"):
        for output in stage.makes:
            keys = tiny_run.store.keys(output.artefact)
            assert keys == store.keys(output.artefact) != []
            for key in keys:
                assert store.current(output.artefact, key) == tiny_run.store.current(output.artefact, key)

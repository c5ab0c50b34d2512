"""The chain up to the subset as programs of their own, plain and through Dagster; arguments: configuration, settings."""

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
from assets.partitions import CRAWLS, RELEASES, partition_key
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
config, settings = sys.argv[1], json.loads(sys.argv[2])
pipeline, defs = Pipeline(load_config(config, settings)), build_defs(config=config, settings=settings)
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions(CRAWLS.name, pipeline.release_crawls("first"))
    instance.add_dynamic_partitions(RELEASES.name, ["first"])
    needed = [stage.group for stage in FLOW.until("materialise")]
    for group in dict.fromkeys(needed):
        job = defs.resolve_job_def(group.job)
        for key in pipeline.keys(group.scope, "first"):
            partition = partition_key(group.scope, key)
            assert job.execute_in_process(instance=instance, partition_key=partition).success
"""

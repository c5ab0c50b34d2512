"""The jobs of assets: one for each group of the flow, as one job has one kind of partition. Knows no asset.

The sensor `advance` asks for the first, of one crawl; the others are for a launch by hand, of one arm or model, say, with
settings changed. All of a release in one run is `assets.chain`.
"""

import dagster as dg

from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.pipeline.flow import CRAWLS

JOBS = tuple(
    dg.define_asset_job(
        group.job,
        selection=dg.AssetSelection.groups(group.name),
        description=group.description,
        # Its steps follow each other and import the same: one process for all. Others may be launched step by step.
        executor_def=dg.in_process_executor if group is CRAWLS else None,
    )
    for group in FLOW.groups
)
CRAWL_JOB = JOBS[FLOW.groups.index(CRAWLS)]

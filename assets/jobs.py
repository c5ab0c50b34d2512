"""The jobs: one for each group of the flow, as one job has one kind of partition. Knows no asset."""

import dagster as dg

from datamask_pipeline.pipeline import FLOW

#: In the order of the flow. The sensor `advance` runs them one after the other: the whole chain.
JOBS = tuple(
    dg.define_asset_job(
        group.job, selection=dg.AssetSelection.groups(group.name), description=group.description
    )
    for group in FLOW.groups
)

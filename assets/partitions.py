"""The partitions of the assets, and how they map onto each other. Knows names only, no data.

A crawl and a release are dynamic partitions. A release's arms and runs are a second, static dimension: they
stand in the configuration. A key of the record is a partition key with its dimensions joined by ``/``.
"""

import dagster as dg

from datamask_pipeline.pipeline.config import PipelineConfig, split_run_name

RELEASE, ARM, RUN = "release", "arm", "run"

CRAWLS = dg.DynamicPartitionsDefinition(name="crawls")
RELEASES = dg.DynamicPartitionsDefinition(name="releases")


def release_arms(config: PipelineConfig) -> dg.MultiPartitionsDefinition:
    """One partition per release and arm."""
    return dg.MultiPartitionsDefinition(
        {RELEASE: RELEASES, ARM: dg.StaticPartitionsDefinition(list(config.arms))}
    )


def release_runs(config: PipelineConfig) -> dg.MultiPartitionsDefinition:
    """One partition per release and pretraining run."""
    return dg.MultiPartitionsDefinition(
        {RELEASE: RELEASES, RUN: dg.StaticPartitionsDefinition(config.run_names())}
    )


def of_every_crawl(asset: str) -> dg.AssetDep:
    """A dependency of a release on its crawls. Which ones a release froze, its record says."""
    return dg.AssetDep(asset, partition_mapping=dg.AllPartitionMapping())


def of_the_release(asset: str) -> dg.AssetDep:
    """A dependency between a release and everything of that release, in either direction."""
    return dg.AssetDep(asset, partition_mapping=dg.MultiToSingleDimensionPartitionMapping(RELEASE))


def of_the_runs_arm(asset: str, config: PipelineConfig) -> dg.AssetDep:
    """A dependency of a run on its arm in the same release."""
    runs: dict[str, list[str]] = {arm: [] for arm in config.arms}
    for run_name in config.run_names():
        runs[split_run_name(run_name)[0]].append(run_name)
    dimensions = {
        RELEASE: dg.DimensionPartitionMapping(RELEASE, dg.IdentityPartitionMapping()),
        ARM: dg.DimensionPartitionMapping(RUN, dg.StaticPartitionMapping(runs)),
    }
    return dg.AssetDep(asset, partition_mapping=dg.MultiPartitionMapping(dimensions))


def partition_key(**dimensions: str) -> str:
    """The partition key of a release's arm or run."""
    return dg.MultiPartitionKey(dimensions)


def record_key(key: str) -> tuple[str, ...]:
    """The crawl, the release, or the release and its arm or run, out of a partition key."""
    if isinstance(key, dg.MultiPartitionKey):
        dimensions = dict(key.keys_by_dimension)
        return dimensions.pop(RELEASE), *dimensions.values()
    return (key,)

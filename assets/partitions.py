"""The partitions of the assets, and how they map onto each other. Knows names only, no data.

A crawl and a release are dynamic partitions. A release's arms and runs are a second, static dimension: they
stand in the configuration. A key of the record is a partition key with its dimensions joined by ``/``.
"""

from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.utils import get_tags_from_multi_partition_key

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline.config import PipelineConfig, split_run_name
from datamask_pipeline.pipeline.stage import Scope

RELEASE = "release"
#: The second dimension. Dagster joins dimensions in the order of their names: the release has to come first.
MEMBER = {"arm": "selection_arm", "run": "training_run"}

CRAWLS = dg.DynamicPartitionsDefinition(name="crawls")
RELEASES = dg.DynamicPartitionsDefinition(name="releases")


def of_scope(scope: Scope, config: PipelineConfig) -> dg.PartitionsDefinition[Any]:
    """One partition for each crawl, release, or arm or run of a release."""
    if scope == "crawl":
        return CRAWLS
    if scope == "release":
        return RELEASES
    members = dg.StaticPartitionsDefinition(list(config.arms) if scope == "arm" else config.run_names())
    return dg.MultiPartitionsDefinition({RELEASE: RELEASES, MEMBER[scope]: members})


def mapping(*, of: Scope, onto: Scope, config: PipelineConfig) -> dg.PartitionMapping | None:
    """Which partitions of one scope those of another are made from; ``None`` where they are the same."""
    if of == onto:
        return None
    if of == "crawl":  # which crawls a release froze, its record says
        return dg.AllPartitionMapping()
    if (of, onto) != ("arm", "run"):
        return dg.MultiToSingleDimensionPartitionMapping(RELEASE)
    runs: dict[str, list[str]] = {arm: [] for arm in config.arms}
    for run_name in config.run_names():
        runs[split_run_name(run_name)[0]].append(run_name)
    return dg.MultiPartitionMapping(
        {
            RELEASE: dg.DimensionPartitionMapping(RELEASE, dg.IdentityPartitionMapping()),
            MEMBER["arm"]: dg.DimensionPartitionMapping(MEMBER["run"], dg.StaticPartitionMapping(runs)),
        }
    )


def partition_key(scope: Scope, key: str) -> str:
    """The partition of a key of the record."""
    release, _, member = key.partition("/")
    return dg.MultiPartitionKey({RELEASE: release, MEMBER[scope]: member}) if member else key


def dimension_tags(key: str) -> dict[str, str]:
    """The tags of an event by which Dagster finds it by one dimension of its partition."""
    return dict(get_tags_from_multi_partition_key(key)) if isinstance(key, dg.MultiPartitionKey) else {}


def partition_of(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> str:
    """The partition of a run.

    Raises:
        ConfigurationError: it has none, or several.
    """
    if not context.has_partition_key:
        raise ConfigurationError(
            "this run has no partition, or a range of them; give the tag dagster/partition, e.g. "
            '`--tags \'{"dagster/partition": "NAME"}\'`, or launch this from a partition\'s page'
        )
    return context.partition_key


def record_key(key: str) -> tuple[str, ...]:
    """The crawl, the release, or the release and its arm or run, out of a partition key.

    Raises:
        ConfigurationError: it has two dimensions that the run's tags do not name.
    """
    if isinstance(key, dg.MultiPartitionKey):
        dimensions = dict(key.keys_by_dimension)
        return dimensions.pop(RELEASE), *dimensions.values()
    if "|" in key:  # no name of a release has it
        tags = f"dagster/partition/{RELEASE} and dagster/partition/{' or '.join(MEMBER.values())}"
        raise ConfigurationError(
            f"partition {key!r} was given by the tag dagster/partition alone; give {tags} with it, or launch this from its "
            f"page or by `dagster asset materialize --partition {key!r}`"
        )
    return (key,)

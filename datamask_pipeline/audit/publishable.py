"""Whether a subset may be published: a stale one only if it is asked for, and then its card says so;
one of other settings not at all. Publishes nothing.
"""

from datamask_pipeline.audit.stale import retired_behind, stale
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.differences import other_settings_of_subset
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.facts import subset_of
from datamask_pipeline.storage import Store


def publishable(
    store: Store, release: str, arm: str | None, config: PublishConfig, *, even_stale: bool
) -> PublishConfig:
    """The settings by which a subset is published.

    Args:
        store: The record.
        release: The release.
        arm: The arm; ``None`` where the release has one subset.
        config: What is asked for.
        even_stale: Publish a subset that was made from something else than what is current now; the card tells why.

    Raises:
        UnknownNameError: no such release or arm.
        ConfigurationError: the subset is stale, and that was not asked for.
    """
    subset = subset_of(store, release, arm)
    reasons = stale(store, subset)
    if reasons and not even_stale:
        retired = retired_behind(store, subset)
        undo = " and ".join(f"`datamask retire {name} --undo`" for name in retired)
        first = (
            f"it rests on {', '.join(retired)}, retired, of which no run makes anything: {undo}, then "
            if retired
            else ""
        )
        raise ConfigurationError(
            f"subset {subset.key} is stale: {'; '.join(reasons)}; {first}make it anew (`datamask run --until materialise`), "
            "or publish it as it is with --stale (in Dagster `stale: true`), which the card then says"
        )
    return config.model_copy(update={"stale": tuple(reasons)})


def refuse_other_settings(pipeline: Pipeline, release: str, arm: str | None) -> None:
    """Refuse a subset that was made with other settings than the configuration's.

    Args:
        pipeline: The configuration, over the record.
        release: The release.
        arm: The arm; ``None`` where the release has one subset.

    Raises:
        UnknownNameError: no such release or arm.
        ConfigurationError: which settings differ.
    """
    subset = subset_of(pipeline.store, release, arm)
    other = other_settings_of_subset(pipeline, pipeline.store.manifest(subset))
    if other:
        listed = "; ".join(f"{line} ({', '.join(made)})" for line, made in other.items())
        raise ConfigurationError(
            f"subset {subset.key} was made with other settings than the configuration's: {listed}; make it anew (`datamask "
            "run --until materialise`), or publish it with the settings that it was made with (-s, or without -c and "
            "with -s store=PLACE alone)"
        )

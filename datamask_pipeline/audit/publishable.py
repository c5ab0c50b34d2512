"""Whether a subset may be published: a stale one only if it is asked for, and then its card says so;
one of other settings not at all. Publishes nothing.
"""

from datamask_pipeline.audit.stale import retired_behind, stale
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.differences import other_settings_of_subset
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.facts import subset_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import removed_by


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
        ConfigurationError: the subset is stale, and that was not asked for; or what it was made from was purged.
    """
    subset = subset_of(store, release, arm)
    _refuse_purged(store, subset)
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
        ConfigurationError: which settings differ; or what it was made from was purged.
    """
    subset = subset_of(pipeline.store, release, arm)
    _refuse_purged(pipeline.store, subset)
    other = other_settings_of_subset(pipeline, pipeline.store.manifest(subset))
    if other:
        listed = "; ".join(f"{line} ({', '.join(made)})" for line, made in other.items())
        raise ConfigurationError(
            f"subset {subset.key} was made with other settings than the configuration's: {listed}; make it anew (`datamask "
            "run --until materialise`), or publish it with the settings that it was made with (-s, or without -c and "
            "with -s store=PLACE alone)"
        )


def _refuse_purged(store: Store, subset: Ref) -> None:
    """Refuse a subset of which nothing can be published any more, as what it was made from is gone.

    Raises:
        ConfigurationError: a purge removed it.
    """
    for _, ref in inputs_of(store.manifest(subset)):
        if (by := removed_by(store, ref.location)) is not None:
            undo = "".join(
                f"`datamask retire {name} --undo`, then " for name in retired_behind(store, subset)
            )
            raise ConfigurationError(
                f"subset {subset.key} was made from {ref.location}, which was purged by {by.title}; {undo}make it anew from "
                "what is left (`datamask run --until materialise`)"
            )

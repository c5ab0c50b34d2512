"""Whether a subset may be published: a stale one only if it is asked for, and then its card says so. Publishes nothing."""

from datamask_pipeline.audit.stale import retired_behind, stale
from datamask_pipeline.errors import ConfigurationError
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

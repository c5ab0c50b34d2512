"""How old the newest subset may become, as Dagster's own freshness policy. Knows the configuration; looks at no clock."""

import datetime

import dagster as dg

from datamask_pipeline.pipeline import PipelineConfig

#: What a release is trained on: each new release makes it for each arm.
SUBSET = "fineweb_mask"
#: Of that age, when Dagster begins to warn.
WARNING_SHARE = 0.8


def freshness_policy(asset: str, config: PipelineConfig) -> dg.FreshnessPolicy | None:
    """The policy of an asset; ``None`` for all but the subset, or where no rolling release says how old one may become."""
    days = [release.max_age_days for release in config.releases.values() if release.max_age_days is not None]
    if asset != SUBSET or not days:
        return None
    fail = datetime.timedelta(days=min(days))
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=WARNING_SHARE * fail)

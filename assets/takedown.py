"""What Dagster shows of the requests for withdrawal."""

from assets.checks import Shown

SHOWN = {"takedown_requests": Shown(numbers=("entries", "robots_hosts"))}

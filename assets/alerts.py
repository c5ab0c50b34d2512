"""Tells a person of a run that failed: posts one JSON message to a web hook. Knows no stage, and no service by name."""

import os

import dagster as dg
import urllib3
from dagster._core.storage.tags import RUN_KEY_TAG, WILL_RETRY_TAG

from assets.freeze import freeze_job, release_of
from datamask_pipeline.printable import inert

#: Where messages go, e.g. an incoming web hook of a chat; ``text`` holds the message. Unset: the sensor is off.
ALERT_VARIABLE = "DATAMASK_ALERT_URL"
TIMEOUT_SECONDS, TRIES, PAUSE_SECONDS = 5, 4, 3.0
"""Seconds of a try, tries, and what pauses are made from: the second follows at once, the others after 6 and 12 seconds. All
that takes less than the minute that a tick may take."""
_WITHOUT_AN_ERROR = (
    "its process ended, or did not start in time, and no step says why; the run's page has its last lines. Where Dagster "
    "starts no other, run it again by hand: it goes on from what is there"
)


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING
    if os.environ.get(ALERT_VARIABLE)
    else dg.DefaultSensorStatus.STOPPED,
    description=f"Posts a message about each failed run to the web hook that {ALERT_VARIABLE} names.",
)
def tell_of_failure(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
    """Post what failed; where the web hook does not take it, the tick fails, which Dagster shows and does not repeat."""
    url = os.environ.get(ALERT_VARIABLE)
    if not url:
        return dg.SkipReason(
            f"{ALERT_VARIABLE} is not set: nobody is told of run {context.dagster_run.run_id}"
        )
    if not url.startswith(("https://", "http://")):
        raise dg.Failure(f"{ALERT_VARIABLE} is no http address", allow_retries=False)
    tries = urllib3.Retry(
        TRIES - 1, backoff_factor=PAUSE_SECONDS, status_forcelist=range(500, 600), allowed_methods=None
    )
    with urllib3.PoolManager(timeout=TIMEOUT_SECONDS, retries=tries) as pool:
        try:
            answer = pool.request("POST", url, json={"text": message(context)})
        except urllib3.exceptions.HTTPError as error:
            problem = f"no good answer in {TRIES} tries ({type(error.__cause__ or error).__name__})"
        else:
            if answer.status < 400:
                return None
            problem = f"status {answer.status}"
    run = context.dagster_run.run_id
    # The address may hold a secret.
    raise dg.Failure(f"nobody was told of run {run}: the web hook of {ALERT_VARIABLE} gave {problem}")


def message(context: dg.RunFailureSensorContext) -> str:
    """What failed, of what, and its first error; without any setting, which may hold a secret."""
    run = context.dagster_run
    asked_for = release_of(run.tags.get(RUN_KEY_TAG, "")) if run.job_name == freeze_job.name else ""
    partition = run.tags.get("dagster/partition", asked_for)
    whole = context.failure_event.job_failure_data.error
    errors = [
        event.step_failure_data.error.cause or event.step_failure_data.error
        for event in context.get_step_failure_events()
        if event.step_failure_data.error is not None
    ]
    if not errors and whole is not None:
        errors = [whole.cause or whole]
    first = errors[0].message if errors else _WITHOUT_AN_ERROR
    of = f" of {partition}" if partition else ""
    lines = [line.strip() for line in first.strip().splitlines()]
    # A check that failed is named below the line that says so.
    what = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    told = f"{run.job_name}{of} failed (run {run.run_id}): {what}"
    if run.tags.get(WILL_RETRY_TAG) == "true":
        told += "; another run goes on with it by itself, nothing is to be done unless that one fails too"
    return inert(told)

"""Tells a person of a run that failed: posts one JSON message to a web hook. Knows no stage, and no service by name."""

import json
import os
import urllib.request

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG, WILL_RETRY_TAG

from assets.freeze import freeze_job, release_of
from datamask_pipeline.printable import inert

#: Where messages go, e.g. an incoming web hook of a chat; ``text`` holds the message. Unset: the sensor is off.
ALERT_VARIABLE = "DATAMASK_ALERT_URL"
TIMEOUT_SECONDS = 10


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING
    if os.environ.get(ALERT_VARIABLE)
    else dg.DefaultSensorStatus.STOPPED,
    description=f"Posts a message about each failed run to the web hook that {ALERT_VARIABLE} names.",
)
def tell_of_failure(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
    """Post what failed; an error of the web hook fails the tick, which Dagster shows and does not repeat."""
    url = os.environ.get(ALERT_VARIABLE)
    if not url:
        return dg.SkipReason(
            f"{ALERT_VARIABLE} is not set: nobody is told of run {context.dagster_run.run_id}"
        )
    if not url.startswith(("https://", "http://")):
        raise dg.Failure(f"{ALERT_VARIABLE} is no http address", allow_retries=False)
    request = urllib.request.Request(
        url,
        data=json.dumps({"text": message(context)}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
        return None


def message(context: dg.RunFailureSensorContext) -> str:
    """What failed, of what, and its first error; without any setting, which may hold a secret."""
    run = context.dagster_run
    asked_for = release_of(run.tags.get(RUN_KEY_TAG, "")) if run.job_name == freeze_job.name else ""
    partition = run.tags.get("dagster/partition", asked_for)
    errors = [
        event.step_failure_data.error.cause or event.step_failure_data.error
        for event in context.get_step_failure_events()
        if event.step_failure_data.error is not None
    ]
    first = errors[0].message if errors else context.failure_event.message or "no message"
    of = f" of {partition}" if partition else ""
    lines = [line.strip() for line in first.strip().splitlines()]
    # A check that failed is named below the line that says so.
    what = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    told = f"{run.job_name}{of} failed (run {run.run_id}): {what}"
    if run.tags.get(WILL_RETRY_TAG) == "true":
        told += "; another run goes on with it by itself, nothing is to be done unless that one fails too"
    return inert(told)

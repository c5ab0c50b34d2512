"""Tells a person of a run that failed: posts one JSON message to a web hook. Knows no stage, and no service by name."""

import os
import queue
import threading

import dagster as dg
import urllib3
from dagster._core.events import JobFailureData
from dagster._core.storage.tags import RUN_KEY_TAG, WILL_RETRY_TAG
from dagster_shared.error import SerializableErrorInfo

from assets.freeze import freeze_job, release_of
from datamask_pipeline.printable import inert

#: Where messages go, e.g. an incoming web hook of a chat; ``text`` holds the message. Unset: the sensor is off.
ALERT_VARIABLE = "DATAMASK_ALERT_URL"
TIMEOUT_SECONDS, TRIES, PAUSE_SECONDS = 5, 4, 3.0
"""Seconds of a try, tries, and what pauses are made from: the second follows at once, the others after 6 and 12 seconds."""
#: What all tries may take: a name with many addresses, an answer that comes drop by drop or asks for a long pause take more
#: than that, and Dagster gives up a tick after a minute, forgets whom it told and evaluates it again, for ever.
MOST_SECONDS = 45
SECONDS_BETWEEN_TICKS = 5
# For the same reason a tick tells of one run; the next one tells of the next.
os.environ.setdefault("DAGSTER_RUN_STATUS_SENSOR_PROCESS_LIMIT", "1")
_WITHOUT_AN_ERROR = (
    "its process ended, or did not start in time, and no step says why{dagsters}; the run's page has its last lines. Where "
    "Dagster starts no other, run it again by hand: it goes on from what is there"
)


@dg.run_failure_sensor(
    minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
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
    problems: queue.SimpleQueue[str] = queue.SimpleQueue()
    text = message(context)
    threading.Thread(target=lambda: problems.put(_post(url, text)), daemon=True).start()
    try:
        problem = problems.get(timeout=MOST_SECONDS)
    except queue.Empty:
        problem = f"no answer in {MOST_SECONDS} seconds"
    if not problem:
        return None
    run = context.dagster_run.run_id
    # The address may hold a secret.
    raise dg.Failure(f"nobody was told of run {run}: the web hook of {ALERT_VARIABLE} gave {problem}")


def _post(url: str, text: str) -> str:
    """What a web hook that did not take the message gave; nothing where it took it."""
    tries = urllib3.Retry(
        TRIES - 1, backoff_factor=PAUSE_SECONDS, status_forcelist=range(500, 600), allowed_methods=None
    )
    with urllib3.PoolManager(timeout=TIMEOUT_SECONDS, retries=tries) as pool:
        try:
            # Of an answer the status alone is read: what follows may never end.
            status = pool.request("POST", url, json={"text": text}, preload_content=False).status
        except urllib3.exceptions.HTTPError as error:
            return f"no good answer in {TRIES} tries ({type(error.__cause__ or error).__name__})"
    return "" if status < 400 else f"status {status}"


def _said(error: SerializableErrorInfo) -> str:
    """What an error says, without the name of its class where that is Dagster's or ours: these say it in words."""
    name, _, words = error.message.partition(": ")
    is_known = name.startswith(("dagster.", "datamask_pipeline.")) and name.endswith(f".{error.cls_name}")
    return words if is_known and words.strip() else error.message


def message(context: dg.RunFailureSensorContext) -> str:
    """What failed, of what, and its first error; without any setting, which may hold a secret."""
    run = context.dagster_run
    asked_for = release_of(run.tags.get(RUN_KEY_TAG, "")) if run.job_name == freeze_job.name else ""
    partition = run.tags.get("dagster/partition", asked_for)
    data = context.failure_event.event_specific_data
    # Of a run that was killed, as of one that takes too long, Dagster writes none.
    whole = data.error if isinstance(data, JobFailureData) else None
    errors = [
        event.step_failure_data.error.cause or event.step_failure_data.error
        for event in context.get_step_failure_events()
        if event.step_failure_data.error is not None
    ]
    if not errors and whole is not None:
        errors = [whole.cause or whole]
    dagsters = f" (Dagster: {context.failure_event.message})" if context.failure_event.message else ""
    first = _said(errors[0]) if errors else _WITHOUT_AN_ERROR.format(dagsters=dagsters)
    of = f" of {partition}" if partition else ""
    lines = [line.strip() for line in first.strip().splitlines()]
    # A check that failed is named below the line that says so.
    what = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    told = f"{run.job_name}{of} failed (run {run.run_id}): {what}"
    if run.tags.get(WILL_RETRY_TAG) == "true":
        told += "; another run goes on with it by itself, nothing is to be done unless that one fails too"
    return inert(told)

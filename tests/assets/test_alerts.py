"""A failed run is told to a web hook, in one line and without settings."""

import http.server
import json
import threading
from collections.abc import Iterator
from queue import Queue

import dagster as dg
import pytest

from assets.alerts import ALERT_VARIABLE, message, tell_of_failure


@dg.op
def broken() -> None:
    raise dg.Failure("no document of release 'first' is eligible\nwith more below")


@dg.job
def broken_job() -> None:
    broken()


@pytest.fixture
def failed() -> dg.RunFailureSensorContext:
    with dg.DagsterInstance.ephemeral() as instance:
        result = broken_job.execute_in_process(instance=instance, raise_on_error=False)
        yield dg.build_run_status_sensor_context(
            sensor_name="tell_of_failure",
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        ).for_run_failure()


def test_the_web_hook_gets_one_line(failed, monkeypatch: pytest.MonkeyPatch) -> None:
    got: Queue[dict[str, str]] = Queue()

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv(ALERT_VARIABLE, f"http://127.0.0.1:{server.server_port}/hook")
        tell_of_failure(failed)
    told = got.get(timeout=30)["text"]
    run = failed.dagster_run.run_id
    assert told.startswith(f"broken_job failed (run {run}): ")
    assert "no document of release 'first' is eligible" in told
    assert "\n" not in told


def test_a_run_that_dagster_starts_again_is_told_as_that(failed) -> None:
    assert "another run goes on" not in message(failed)
    tagged = failed.dagster_run.with_tags({"dagster/will_retry": "true"})
    again = dg.build_run_status_sensor_context(
        sensor_name="tell_of_failure",
        dagster_instance=failed.instance,
        dagster_run=tagged,
        dagster_event=failed.failure_event,
    ).for_run_failure()
    assert message(again).endswith(
        "; another run goes on with it by itself, nothing is to be done unless that one fails too"
    )


def test_what_is_told_names_the_check_and_the_release_to_be_frozen() -> None:
    """Dagster names a failed check below the line that says so, and of a job without partitions nothing."""

    @dg.asset(check_specs=[dg.AssetCheckSpec("all_there", asset="made", blocking=True)])
    def made() -> Iterator[dg.MaterializeResult[None]]:
        yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=False, check_name="all_there")])

    def said(job: dg.JobDefinition, tags: dict[str, str]) -> str:
        with dg.DagsterInstance.ephemeral() as instance:
            result = job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
            return message(
                dg.build_run_status_sensor_context(
                    sensor_name="tell_of_failure",
                    dagster_instance=instance,
                    dagster_run=result.dagster_run,
                    dagster_event=result.get_run_failure_event(),
                ).for_run_failure()
            )

    defs = dg.Definitions(assets=[made], jobs=[dg.define_asset_job("a_job")])
    assert "made: all_there" in said(defs.resolve_job_def("a_job"), {})

    @dg.job(name="freeze_job")
    def freezes() -> None:
        broken()

    assert said(freezes, {"dagster/run_key": "freeze web-A"}).startswith("freeze_job of web-A failed (run ")


def test_without_an_address_nothing_is_sent(failed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALERT_VARIABLE, raising=False)
    tell_of_failure(failed)
    monkeypatch.setenv(ALERT_VARIABLE, "file:///etc/passwd")
    with pytest.raises(Exception, match="is no http address"):
        tell_of_failure(failed)

"""A failed run is told to a web hook, in one line and without settings."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.events import JobFailureData
from dagster._utils.error import SerializableErrorInfo

from assets import alerts
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


@contextlib.contextmanager
def hook(
    monkeypatch: pytest.MonkeyPatch, *statuses: int, headers: dict[str, str] | None = None, seconds: float = 0
) -> Iterator[list[str]]:
    """A web hook that answers so, one after the other, and then holds the line for so long; what it got."""
    got: list[str] = []
    left = [*statuses]

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(left.pop(0) if left else 200)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            time.sleep(seconds)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(ALERT_VARIABLE, f"http://127.0.0.1:{server.server_port}/secret")
        yield got
        server.shutdown()


def test_the_web_hook_gets_one_line(failed, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(monkeypatch) as got:
        tell_of_failure(failed)
    (told,) = got
    run = failed.dagster_run.run_id
    # In words, without the name of a class.
    assert told.startswith(f"broken_job failed (run {run}): no document of release 'first' is eligible")
    assert "\n" not in told


def test_a_web_hook_that_fails_is_tried_again(failed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PAUSE_SECONDS", 0.01)
    with hook(monkeypatch, 500, 503) as got:
        tell_of_failure(failed)
    assert len(got) == 3
    with hook(monkeypatch, 404) as got, pytest.raises(dg.Failure, match=r"nobody was told .* status 404"):
        tell_of_failure(failed)
    assert len(got) == 1, "who is refused for good is not asked again"
    with hook(monkeypatch, *[500] * 9) as got, pytest.raises(dg.Failure) as caught:
        tell_of_failure(failed)
    assert len(got) == alerts.TRIES
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None or "secret" not in str(caught.value.__cause__)


def test_a_tick_tells_of_one_run_and_the_next_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that takes a minute is given up: Dagster forgets whom it told, and all are told again, for ever."""
    defs = dg.Definitions(jobs=[broken_job], sensors=[tell_of_failure])
    with dg.DagsterInstance.ephemeral() as instance, hook(monkeypatch) as got:

        def tick(cursor: str | None) -> str | None:
            context = dg.build_sensor_context(instance, cursor, repository_def=defs.get_repository_def())
            tell_of_failure.evaluate_tick(context)
            return context.cursor

        cursor = tick(None)
        runs = [broken_job.execute_in_process(instance=instance, raise_on_error=False) for _ in range(2)]
        cursor = tick(cursor)
        assert [runs[0].run_id in told for told in got] == [True]
        tick(cursor)
    assert [runs[1].run_id in told for told in got] == [False, True]


def test_of_an_answer_the_status_alone_is_waited_for(failed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was taken is not posted again because the rest of the answer does not come."""
    monkeypatch.setattr(alerts, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(alerts, "PAUSE_SECONDS", 0.01)
    with hook(monkeypatch, headers={"Content-Length": "9"}, seconds=2.0) as got:
        tell_of_failure(failed)
    assert len(got) == 1


def test_a_web_hook_that_asks_for_a_long_pause_is_not_waited_for(
    failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "MOST_SECONDS", 0.5)
    with (
        hook(monkeypatch, 503, headers={"Retry-After": "5"}),
        pytest.raises(dg.Failure, match=r"nobody was told .* no answer in 0\.5 seconds"),
    ):
        tell_of_failure(failed)


def test_a_run_without_a_failed_step_is_told_with_its_cause(failed) -> None:
    def told(error: SerializableErrorInfo | None) -> str:
        event = dg.DagsterEvent(
            event_type_value=dg.DagsterEventType.RUN_FAILURE.value,
            job_name="broken_job",
            event_specific_data=JobFailureData(error),
        )
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_run_status_sensor_context(
                sensor_name="tell_of_failure",
                dagster_instance=instance,
                dagster_run=failed.dagster_run,
                dagster_event=event,
            )
            return message(context.for_run_failure())

    cause = SerializableErrorInfo("OperationalError: connection refused", [], "OperationalError")
    assert "connection refused" in told(SerializableErrorInfo("it failed", [], "Error", cause))
    assert ": OperationalError: " in told(cause), "whose class says more than its words"
    assert "run it again by hand" in told(None)


def test_a_run_that_dagster_itself_declares_failed_is_told() -> None:
    """As one whose process was killed: its event has no data at all."""
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(broken_job)
        context = dg.build_run_status_sensor_context(
            sensor_name="tell_of_failure",
            dagster_instance=instance,
            dagster_run=run,
            dagster_event=instance.report_run_failed(run, "Exceeded maximum runtime of 30 seconds."),
        )
        told = message(context.for_run_failure())
        assert "its process ended" in told
        assert "no step says why (Dagster: Exceeded maximum runtime of 30 seconds.); the run's page" in told


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

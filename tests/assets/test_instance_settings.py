"""What the instance of `dagster.yaml` does that the definitions alone do not."""

import itertools
import shutil
import sys
import threading
from pathlib import Path

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget, create_test_daemon_workspace_context
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.daemon import SensorDaemon, SpanMarker

ROOT = Path(__file__).parents[2]

#: Two sensors of which each waits for the other one's tick.
WAITING = """
import threading
import dagster as dg

both = threading.Barrier(2)

def waits(name):
    @dg.sensor(name=name, job_name="nothing", default_status=dg.DefaultSensorStatus.RUNNING)
    def one(_):
        both.wait(3)
        return dg.SkipReason("the other one was there")
    return one

defs = dg.Definitions(jobs=[dg.GraphDefinition("nothing").to_job()], sensors=[waits("first"), waits("second")])
"""


def test_a_sensor_waits_for_no_other(tmp_path: Path) -> None:
    """An alert whose web hook is silent takes up to 45 seconds for each failed run."""
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    code = tmp_path / "sensors.py"
    code.write_text(WAITING, encoding="utf-8")
    origin = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(code), attribute="defs")
    target = InProcessTestWorkspaceLoadTarget(InProcessCodeLocationOrigin(origin))
    with (
        dg.DagsterInstance.from_config(str(tmp_path)) as instance,
        create_test_daemon_workspace_context(target, instance) as workspace,
    ):
        with SensorDaemon(settings=instance.get_sensor_settings()) as daemon:
            loop = daemon.core_loop(workspace, threading.Event())
            list(itertools.takewhile(lambda told: told is not SpanMarker.END_SPAN, loop))
        states = instance.all_instigator_state()
        ticks = [
            tick
            for each in states
            for tick in instance.get_ticks(each.instigator_origin_id, each.selector_id)
        ]
    assert [tick.status for tick in ticks] == [TickStatus.SKIPPED] * 2

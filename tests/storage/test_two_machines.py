"""Two machines that share only a bucket: no kernel lock, own cache and temporary folders, clocks ten minutes apart.

One is killed at its work; the other takes it over, and both end with the digests of an undisturbed run.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
import yaml
from s3_server import KEYS, s3_server
from tiny_chain import write_tiny_config

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store

MACHINE = """
import fcntl, os, signal, sys, time
from datamask_pipeline.storage import Store, leases

machine, ahead, dies = sys.argv.pop(1), float(sys.argv.pop(1)), sys.argv.pop(1) == "dies"
now, now_ns, publish = time.time, time.time_ns, Store._publish
time.time, time.time_ns = lambda: now() + ahead, lambda: now_ns() + int(ahead * 1e9)
leases.this_machine = lambda: machine
leases.BEAT_SECONDS, leases.STILL_SECONDS = 1.0, 4.0
def no_lock(*_):
    raise OSError("no locks here")
fcntl.flock = fcntl.lockf = no_lock
def publish_or_die(self, private, target):
    if dies and "/embed/" in target and target.endswith(".npy"):
        os.kill(os.getpid(), signal.SIGKILL)
    publish(self, private, target)
Store._publish = publish_or_die
from datamask_pipeline.cli import main
main()
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, Any]]:
    import s3fs

    with s3_server() as url:
        s3fs.S3FileSystem(endpoint_url=url, **KEYS).call_s3("create_bucket", Bucket="shared")
        yield {"endpoint_url": url, **KEYS}


def started(config: Path, home: Path, name: str, ahead: float, fate: str) -> forked.Forked:
    """A run on a machine with folders of its own."""
    folders = {"TMPDIR": home / name / "tmp", "XDG_CACHE_HOME": home / name / "cache"}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    arguments = (name, str(ahead), fate, "run", "-c", str(config), "--until", "embed")
    environment = {variable: str(folder) for variable, folder in folders.items()}
    return forked.Forked(MACHINE, *arguments, environment=environment)


def test_a_killed_machines_work_is_taken_over_and_nothing_private_stays(
    bucket: dict[str, Any], tiny_run: Pipeline, tmp_path: Path
) -> None:
    config = write_tiny_config(tmp_path)
    values = yaml.safe_load(config.read_text(encoding="utf-8"))
    values |= {"store": "s3://shared/record", "storage_options": bucket}
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    killed = started(config, tmp_path, "early", 600.0, "dies")
    said = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, said
    other = started(config, tmp_path, "late", 0.0, "lives")
    said = other.communicate()
    assert other.returncode == 0, said
    (left,) = (tmp_path / "early" / "cache" / "datamask" / "staging").iterdir()
    assert list(left.iterdir()), "killed with a file that was not published yet"
    again = started(config, tmp_path, "early", 600.0, "lives")
    said = again.communicate()
    assert again.returncode == 0, said
    assert not list(left.iterdir())
    store = Store("s3://shared/record", bucket)
    for stage in ("ingest", "rejected", "embed"):
        for key in tiny_run.store.keys(stage):
            assert store.current(stage, key) == tiny_run.store.current(stage, key)
    assert not store.fs.exists("shared/record/.scratch")

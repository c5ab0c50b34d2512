"""Two runs at once on one record: the second waits, and both end as one alone would."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import forked

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Store, require

#: A run that takes two seconds longer over what it commits.
SLOW = """
import time
from datamask_pipeline.storage import ArtefactBuilder
commit = ArtefactBuilder.commit
def commit_late(self, *given, **named):
    time.sleep(2)
    return commit(self, *given, **named)
ArtefactBuilder.commit = commit_late
"""
RUN = "from datamask_pipeline.cli import main; main()"
#: Says that it waits, as the command line shows it.
WAITS = "another run is at work on"


def test_the_second_run_waits_for_the_first_and_reuses_its_work(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    arguments = ["run", "-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "--until", "pool"]
    command = [sys.executable, "-c", "from datamask_pipeline.cli import main; main()", *arguments]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    store = Store(tmp_path / "record")
    for stage in ("ingest", "embed", "score", "pool"):
        for key in store.keys(stage):
            assert store.current(stage, key) == tiny_run.store.current(stage, key)


def test_waiting_is_told_as_that_and_what_another_run_made_counts_as_reused(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    shutil.rmtree(record / "pool")
    arguments = ("run", "-c", str(tiny_config_file), "-s", f"store={record}", "--until", "pool")
    first = forked.Forked(SLOW + RUN, *arguments)
    deadline = time.monotonic() + 60
    while not Store(record).is_busy("pool", "first"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = forked.Forked(RUN, *arguments)
    made, waited = ("".join(run.communicate()) for run in (first, second))
    assert re.search(r"^pool .* [0-9.]+ s  \w+$", made, re.M), made
    assert "first: 1 steps computed" in made
    assert re.search(r"^pool .* unchanged, after [0-9.]+ s of waiting for another run  \w+$", waited, re.M), (
        waited
    )
    assert "first: 0 steps computed" in waited


def test_a_run_reads_what_it_made_whatever_another_makes_current_meanwhile(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    gone = tiny_run.store.read_table(require(tiny_run.store, "gather", "first"), ["id"])["id"][0].as_py()
    shared = {"store": str(record)}
    withdrawing, other = (
        Pipeline(load_config(str(tiny_config_file), shared | more))
        for more in ({"pool.takedown": [gone]}, {"select.lamb": 0.9})
    )
    for stage in ("takedown", "pool", "gather"):
        withdrawing.run(stage, "first")
    other.run("pool", "first")
    (whole,) = other.run("gather", "first")
    arm = next(iter(other.config.arms))
    chosen, _ = withdrawing.run("select", "first", arm)
    made_from = withdrawing.store.manifest(chosen)["basis"]["inputs"]["index"]
    assert made_from == withdrawing.made["gather", "first"].content_digest != whole.content_digest
    other.run("select", "first", arm)
    (subset,) = withdrawing.run("materialise", "first", arm)
    assert withdrawing.store.manifest(subset)["basis"]["inputs"]["selection"] == chosen.content_digest


def test_a_holder_keeps_others_out_until_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom datamask_pipeline.storage import Store\n"
        "with Store(sys.argv[1]).exclusive('ingest', 'crawl'):\n    print('in', flush=True)\n"
    )
    with Store(tmp_path).exclusive("ingest", "crawl"):
        with Store(tmp_path).exclusive("ingest", "other"):
            pass
        waiting = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert WAITS in waiting.stderr.readline()
        assert waiting.poll() is None
    assert waiting.communicate()[0] == "in\n"
    assert waiting.returncode == 0

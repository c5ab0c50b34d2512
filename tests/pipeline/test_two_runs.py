"""Two runs at once on one record: the second waits, and both end as one alone would."""

import subprocess
import sys
from pathlib import Path

from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store

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

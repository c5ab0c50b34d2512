"""What orchestration costs: the same chain by `datamask run`, as one job of Dagster, and under the sensor `advance`.

Each way begins with an empty record and an empty Dagster instance and ends when the report stands in the record; `job` is
`chain_job` with its own executor and retries, `advance` the daemon, the page's server and the sensor, as `make dev` has
them, their start included. A call makes one turn of each size, or of those that `--steps` names, the order of ways turning
with each, and adds it to those of the same commit in the folder of files; medians are over all of these. Seconds are by the
clock, those of processors include all child processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.data import block, texts_of
from benchmarks.harness import Context, Outcome, at_most, code_version

TITLE = "Orchestration"
QUESTION = (
    "From an empty record to the report: what do one job, and the sensor `advance`, add to `datamask run`?"
)
LONG = True
ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
WAYS = ("run", "job", "advance")
#: Of prctl: this process becomes the parent of what its children leave behind, and so can wait for it.
SET_CHILD_SUBREAPER = 36
SECONDS_TO_WAIT = 7_200
DOCUMENTS, CRAWLS, CHARACTERS = 100_000, 2, 500
DEMO, IMPORTED = SIZES = ("demo", "imported")
NAMES = {DEMO: "the demonstration", IMPORTED: f"{DOCUMENTS:,} documents with imported embeddings"}
SECONDS_OVER = {"advance": 150, "job": 75}
SHARE_OVER = 0.10
TURNS = 3
FEW_TURNS = (
    "What may not be concluded. Of fewer than three turns: that a way is the slower one. A shared machine's speed may "
    "differ more from one way to the next than the ways do, as their processor seconds show."
)

Turn = dict[str, Any]


def run(context: Context) -> Outcome:
    """One more turn, and the medians of all."""
    kept = context.folder / "orchestration.jsonl"
    turns: list[Turn] = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    turns = [turn for turn in turns if turn["shrink"] == context.shrink]
    with tempfile.TemporaryDirectory(
        dir=context.folder.resolve()
    ) as folder:  # each way runs in a folder of its own
        for size in context.steps or SIZES:
            config = DEMO if size == DEMO else str(write_imported(Path(folder), context))
            code = code_version()
            turns = [turn for turn in turns if turn["size"] != size or turn["code"] == code]
            number = sum(turn["size"] == size for turn in turns) // len(WAYS)
            for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                turn = {"code": code, "shrink": context.shrink, "size": size, "way": way}
                turn |= in_a_process(way, config, size)
                turns.append(turn)
                with kept.open("a") as file:
                    file.write(json.dumps(turn) + "\n")
    return told([turn for size in SIZES for turn in _last_measured(turns, size)])


def _last_measured(turns: list[Turn], size: str) -> list[Turn]:
    """The turns of a size, of the commit of its last one."""
    of = [turn for turn in turns if turn["size"] == size]
    return [turn for turn in of if turn["code"] == of[-1]["code"]]


def told(turns: list[Turn]) -> Outcome:
    """Rows and claims of some turns, of one commit for each size."""
    outcome = Outcome()
    seconds: dict[tuple[str, str], float] = {}
    for size in SIZES:
        for way in WAYS:
            of = [turn for turn in turns if (turn["size"], turn["way"]) == (size, way)]
            if not of:
                continue
            seconds[size, way] = median(turn["seconds"] for turn in of)
            row = {"question": NAMES[size], "method": way, "wall seconds": seconds[size, way]}
            row["processor seconds"] = median(turn["processor seconds"] for turn in of)
            row["load"], row["turns"] = median(turn["load"] for turn in of), len(of)
            row["commit"] = of[-1]["code"]
            outcome.rows.append(row)
            outcome.notes += [f"{size}, {way}: {line}" for line in of[-1]["where"]]
    for way, most in SECONDS_OVER.items() if (DEMO, "run") in seconds else ():
        over = seconds[DEMO, way] - seconds[DEMO, "run"]
        outcome.claims.append(at_most(f"{NAMES[DEMO]}: seconds of `{way}` over `datamask run`", most, over))
    for way in SECONDS_OVER if (IMPORTED, "run") in seconds else ():
        share = seconds[IMPORTED, way] / seconds[IMPORTED, "run"] - 1
        claim = f"{NAMES[IMPORTED]}: `{way}` over `datamask run`, share"
        outcome.claims.append(at_most(claim, SHARE_OVER, share))
    if any(row["turns"] < TURNS for row in outcome.rows):
        outcome.notes.append(FEW_TURNS)
    return outcome


def write_imported(folder: Path, context: Context) -> Path:
    """Crawls, their vectors and a configuration of two arms; the release is called ``imported``."""
    number = context.size(DOCUMENTS)
    vectors_ND, _ = block(context.base, number, 0)
    pieces = texts_of(context.documents, 1_000, 0)
    draw = np.random.default_rng(0)
    first_N, second_N = draw.integers(len(pieces), size=(2, number))
    texts = [
        f"{pieces[a][:CHARACTERS]}\n{pieces[b][:CHARACTERS]}\n{row}"
        for row, (a, b) in enumerate(zip(first_N, second_N, strict=True))
    ]
    ids = [f"<urn:{row}>" for row in range(number)]
    for crawl in range(CRAWLS):
        rows = range(crawl, number, CRAWLS)
        table = pa.table({"id": [ids[row] for row in rows], "text": [texts[row] for row in rows]})
        place = folder / "crawls" / f"crawl-{crawl}"
        place.mkdir(parents=True)
        pq.write_table(table, place / "000.parquet")
    flat = pa.array(np.ascontiguousarray(vectors_ND).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, vectors_ND.shape[1])
    pq.write_table(pa.table({"id": ids, "embedding": vectors}), folder / "vectors.parquet")
    absent = "url date dump file_path language language_score token_count".split()
    demo = yaml.safe_load((ROOT / "datamask_pipeline" / "configs" / "demo.yaml").read_text(encoding="utf-8"))
    values = {
        **demo,
        "name": "imported",
        "store": "record",
        "source": {
            "name": "local",
            "options": {"root": str(folder / "crawls"), "optional_columns": absent},
        },
        "embed": {"imported_file": str(folder / "vectors.parquet"), "imported_model": "made for a benchmark"},
        "score": {"scorers": ["rules"]},
        "releases": {"imported": {}},
        "arms": {"random": {"policy": "random"}, "datamask": {"policy": "datamask"}},
    }
    path = folder / "imported.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def in_a_process(way: str, config: str, release: str) -> dict[str, Any]:
    """One way in a process of its own, so that what its children used can be told."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                found = measure(way, config, release, Path(folder))
                (Path(folder) / "found.json").write_text(json.dumps(found))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status:
            log = (Path(folder) / "log").read_text()[-3000:]
            raise SystemExit(f"{way} of {config} failed: {log}")
        found = json.loads((Path(folder) / "found.json").read_text())
        print(f"{config}, {way}: {found}", flush=True)
        return dict(found)


def measure(way: str, config: str, release: str, folder: Path) -> dict[str, Any]:
    """Seconds, processor seconds and load of one way, from an empty folder."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DATAMASK_CONFIG": config,
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": str(ROOT),
    }
    record = folder / (".datamask/demo" if config == "demo" else "record")
    command = [str(BIN / "datamask"), "run"]
    if way == "job":
        command = [str(BIN / "dagster"), "job", "execute", "-j", "chain_job", "-d", str(ROOT)]
        command += ["-f", str(ROOT / "datamask_pipeline" / "definitions.py")]
        command += ["--tags", json.dumps({"dagster/partition": release})]
    if way != "run":
        made_instance(home, release)
    started = time.monotonic()
    with (folder / "log").open("wb") as log:
        if way == "advance":
            where = under_advance(environment, folder, log.fileno(), record, release)
        else:
            subprocess.run(command, env=environment, cwd=folder, stdout=log, stderr=log, check=True)
            where = []
    seconds = time.monotonic() - started
    assert (record / "compare" / release / "current.json").exists(), "there is no report"
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(seconds, 1),
        "processor seconds": round(used.ru_utime + used.ru_stime, 1),
        "load": os.getloadavg()[1],
        "where": where,
    }


def made_instance(home: Path, release: str) -> None:
    """Make the instance's data bases, which two processes may not make at once, and name the release as `discover` would."""
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs_count()
        instance.all_instigator_state()
        instance.add_dynamic_partitions("releases", [release])


def under_advance(
    environment: dict[str, str], folder: Path, log: int, record: Path, release: str
) -> list[str]:
    """`dagster dev` with the sensor switched on, until the report is there; what its runs spent their time on."""
    workspace = ["-w", str(ROOT / "workspace.yaml")]
    command = [str(BIN / "dagster"), "dev", *workspace, "-h", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
    )
    try:
        switch = [str(BIN / "dagster"), "sensor", "start", "advance", *workspace]
        subprocess.run(switch, env=environment, cwd=folder, stdout=log, stderr=log, check=True)
        report = record / "compare" / release / "current.json"
        deadline = time.monotonic() + SECONDS_TO_WAIT
        while not report.exists():
            if time.monotonic() > deadline or server.poll() is not None:
                raise SystemExit((folder / "log").read_text()[-3000:])
            time.sleep(0.5)
        return list(of_runs(environment["DAGSTER_HOME"], record))
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def of_runs(home: str, record: Path) -> Iterator[str]:
    """Where the time of the runs of an instance went, in seconds on the clock."""
    import dagster as dg

    waits: dict[str, float] = {}

    def add(what: str, seconds: float) -> None:
        waits[what] = waits.get(what, 0.0) + seconds

    with dg.DagsterInstance.from_config(home) as instance:
        runs = instance.get_run_records()
        first, last = min(run.create_timestamp.timestamp() for run in runs), 0.0
        for run in runs:
            begun, ended = run.start_time or first, run.end_time or run.start_time or first
            last = max(last, ended)
            add("runs: from asked for to begun", begun - run.create_timestamp.timestamp())
            starting: dict[str, float] = {}
            for entry in instance.all_logs(run.dagster_run.run_id):
                event = entry.dagster_event
                kind, step = (event.event_type_value, event.step_key or "") if event else ("", "")
                if kind == "STEP_START":
                    starting[step] = entry.timestamp
                elif kind == "STEP_SUCCESS":
                    add("steps: stages and their checks", entry.timestamp - starting[step])
    made = (json.loads(path.read_text()) for path in record.glob("*/**/manifest.json"))
    add("in stages themselves, as their manifests have it", sum(each["wall_seconds"] for each in made))
    parts = "; ".join(f"{what} {seconds:.0f} s" for what, seconds in waits.items())
    yield f"{len(runs)} runs within {last - first:.0f} s; {parts}"

"""The same fingerprints and digests up to the subset with one thread and more, in the plain chain and through Dagster."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chain_programs import DAGSTER, PLAIN

from datamask_pipeline.pipeline import Pipeline, crew
from datamask_pipeline.storage import Store


def test_workers_share_the_cores_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which in a container may be fewer than the machine has."""
    begun: list[dict[str, str]] = []

    class Worker:
        def __init__(self, command: list[str], *, stdin: int, env: dict[str, str]) -> None:
            begun.append(env)
            self.stdin = io.BytesIO()

        def wait(self) -> int:
            return 0

        kill = wait

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(crew, "num_cores", lambda: 8)
    monkeypatch.setattr(subprocess, "Popen", Worker)
    with crew._processes([{}] * 3, None):  # type: ignore[list-item]
        pass
    assert [each["OMP_NUM_THREADS"] for each in begun] == ["2"] * 3


@pytest.mark.parametrize(
    ("program", "number"),
    [pytest.param(PLAIN, 2, id="plain"), pytest.param(DAGSTER, 3, id="dagster", marks=pytest.mark.slow)],
)
def test_any_number_of_threads_and_workers_makes_the_same(
    program: str, number: int, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    settings = {"store": str(tmp_path), "select.num_workers": number, "embed.device": ["cpu"] * number}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(number))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tiny_config_file), json.dumps(settings)],
        env=os.environ | threads,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path)
    for stage in tiny_run.config.stages("materialise"):
        for output in stage.makes:
            keys = tiny_run.store.keys(output.artefact)
            assert keys == store.keys(output.artefact) != []
            for key in keys:
                assert store.current(output.artefact, key) == tiny_run.store.current(output.artefact, key)

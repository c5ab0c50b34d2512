"""A run whose work another machine took over meanwhile ends with what that one made, or says so."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.errors import TakenOverError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import ArtefactBuilder, Ref, leases

CRAWL = "tiny-2024-10"


@pytest.fixture
def run_of(tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path) -> Callable[..., Pipeline]:
    """Makes runs that share a copy of a record that has no vectors and no candidates."""
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    for stage in ("embed", "pool"):
        shutil.rmtree(record / stage)
    return lambda **changed: Pipeline(load_config(str(tiny_config_file), {"store": str(record), **changed}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("stage", "key"), [("embed", CRAWL), ("pool", "first")])
@pytest.mark.parametrize("what", ["made it", "made another", "is at work"])
def test_a_run_whose_work_was_taken_over(
    what: str, stage: str, key: str, run_of: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, found = ArtefactBuilder.commit, []

    def commit_late(builder: ArtefactBuilder, *given: Any, **named: Any) -> Ref:
        """Another machine does the work while this one stands still."""
        monkeypatch.setattr(ArtefactBuilder, "commit", commit)
        monkeypatch.setattr(leases, "this_machine", lambda: "this machine")
        changed = {"pool.validation_share": 0.1, "embed.max_tokens": 8} if what == "made another" else {}
        other = run_of(**changed)
        if what == "is at work":
            with other.store.exclusive(stage, key):
                return commit(builder, *given, **named)
        found.extend(other.run(stage, key))
        return commit(builder, *given, **named)

    monkeypatch.setattr(leases, "this_machine", lambda: "another machine")
    monkeypatch.setattr(leases, "BEAT_SECONDS", 1e6)
    monkeypatch.setattr(leases, "STILL_SECONDS", 0.5)
    monkeypatch.setattr(ArtefactBuilder, "commit", commit_late)
    run = run_of()
    if what == "made it":
        assert list(run.run(stage, key)) == found
    else:
        with pytest.raises(TakenOverError, match="another run took over the work of this one"):
            run.run(stage, key)
    assert run.store.current(stage, key) == (found[0] if found else None)

"""`datamask sweep`: what nothing standing refers to goes, all else stays; without `--remove` nothing is written."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from closed_folders import refuse_listings
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance.retention import Leftover, forget, leftovers
from datamask_pipeline.errors import StorageError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import Ref, Store


@pytest.fixture
def superseded(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> Pipeline:
    """A record in which one arm's mask and subset, and nothing behind them, were made anew."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "arms.datamask.lamb": 0.75}
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    for stage in ("select", "materialise", "redundancy"):
        pipeline.run(stage, "first/datamask")
    return pipeline


def files(root: str | Path) -> set[str]:
    """All but locks and leases, which no reader looks at."""
    names = (str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())
    return {name for name in names if not name.startswith(".")}


def told(pipeline: Pipeline, config: Path, *options: str) -> list[str]:
    command = ["sweep", "-c", str(config), "-s", f"store={pipeline.store.root}", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    return result.output.splitlines()


def test_what_a_model_was_made_from_stays_though_it_is_superseded(
    superseded: Pipeline, tiny_run: Pipeline
) -> None:
    """The models of the record are of the subset before; only what was measured of that subset alone may go."""
    found = {each.location for each in leftovers(superseded.store, days=0)}
    assert found == {tiny_run.store.current("redundancy", "first/datamask").location}


def test_a_folder_that_cannot_be_listed_is_refused_instead_of_taken_for_empty(
    superseded: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models' folder is closed: what they were made from would go, and a purge or an impact would know of none."""
    closed = Path(superseded.store.root) / "pretrain"
    refuse_listings(monkeypatch, closed, Path(superseded.store.root) / "lost+found")
    with pytest.raises(StorageError, match=f"{closed} cannot be listed: Permission denied; make it readable"):
        leftovers(superseded.store, days=0)


def test_it_tells_first_and_removes_when_asked(superseded: Pipeline, tiny_config_file: Path) -> None:
    root, before = superseded.store.root, files(superseded.store.root)
    (location,) = [each.location for each in leftovers(superseded.store, days=0)]
    assert told(superseded, tiny_config_file) == ["would remove 0 versions, 0 bytes"], (
        "nothing is 30 days old"
    )
    first, last = told(superseded, tiny_config_file, "--days", "0")
    assert first.startswith(f"would remove {location}: ")
    assert last.startswith("would remove 1 versions, ")
    assert files(root) == before
    assert told(superseded, tiny_config_file, "--days", "0", "--remove")[0].startswith(
        f"removed {location}: "
    )
    gone = before - files(root)
    assert gone
    assert all(name.startswith(location) for name in gone)
    assert told(superseded, tiny_config_file, "--days", "0", "--remove") == ["removed 0 versions, 0 bytes"]


def test_a_superseded_model_goes_only_when_models_are_asked_for(superseded: Pipeline) -> None:
    store = superseded.store
    run = "first/datamask.dense.seed0"
    old = {stage: store.current(stage, key).location for stage, key in (("pretrain", run), ("evaluate", run))}
    for stage in ("pretrain", "evaluate", "answers"):
        (Path(store.root) / stage / run / "current.json").unlink()
    (Path(store.root) / "compare" / "first" / "current.json").unlink()  # it names that model
    assert old["pretrain"] not in {each.location for each in leftovers(store, days=0)}
    found = {each.location for each in leftovers(store, days=0, with_models=True)}
    assert {*old.values()} <= found


def test_what_is_old_stays_for_so_many_days_since_it_was_superseded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now, day = Store(tmp_path), time.time(), 86_400

    def made(number: int, days_ago: float) -> Ref:
        monkeypatch.setattr(time, "time_ns", lambda: int((now - days_ago * day) * 1e9))
        builder = store.begin("pool", "first", version="1", config={"number": number}, inputs={})
        return builder.commit([])

    def gone(days: float) -> set[str]:
        return {each.location for each in leftovers(store, days=days)}

    first, second, third = made(1, 60), made(2, 40), made(3, 1)
    assert gone(30) == {first.location}
    assert gone(0.5) == {first.location, second.location}
    store.point_to(second)
    pointer, moment = tmp_path / "pool" / "first" / "current.json", now - 0.25 * day
    os.utime(pointer, (moment, moment))
    assert gone(0.5) == {first.location}, "another one was current until a moment ago"
    assert gone(0.125) == {first.location, third.location}


def test_unfinished_work_goes_by_age_and_never_while_somebody_is_at_it(superseded: Pipeline) -> None:
    store = superseded.store
    part = Path(store.root) / "pool" / "given-up" / ("0" * 16) / "000.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    assert str(part.parent.relative_to(store.root)) not in {
        each.location for each in leftovers(store, days=1)
    }
    old = time.time() - 2 * 86_400
    os.utime(part, (old, old))
    with Store(store.root).exclusive("pool", "given-up"):
        assert not [each for each in leftovers(store, days=1) if each.is_unfinished]
    (found,) = [each for each in leftovers(store, days=1) if each.is_unfinished]
    assert found.num_bytes == 4
    assert [*forget(store, [found])] == [found]
    assert not part.exists()


def test_rejected_rows_of_a_crawl_that_is_being_read_stay(tmp_path: Path) -> None:
    """They are published beside the documents, by whoever is at `ingest`, shard by shard."""
    store = Store(tmp_path)
    location = "rejected/given-up/" + "0" * 16
    part = Path(store.root) / location / "000.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    with Store(store.root).exclusive("ingest", "given-up/shards/001"):
        assert location not in {each.location for each in leftovers(store, days=0)}
    (found,) = [each for each in leftovers(store, days=0) if each.is_unfinished]
    assert found.location == location
    with Store(store.root).exclusive("ingest", "given-up/shards/001"):
        assert [*forget(store, [found])] == []
    (part.parent / "001.parquet").write_bytes(b"another shard")
    assert [*forget(store, [found])] == []
    assert part.exists()


def test_checkpoints_of_what_never_was_made_go_by_age(superseded: Pipeline) -> None:
    """As of an arm or a model that was given up: its key has no current artefact."""
    store = superseded.store
    builder = store.begin("pretrain", "first/given-up", version="1", config={}, inputs={})
    checkpoint, old = builder.scratch() / "checkpoint.pt", time.time() - 2 * 86_400
    checkpoint.write_bytes(b"half a model")
    assert not [each for each in leftovers(store, days=1) if each.is_unfinished]
    os.utime(checkpoint, (old, old))
    with Store(store.root).exclusive("pretrain", "first/given-up"):
        assert not [each for each in leftovers(store, days=1) if each.is_unfinished]
    part = Path(store.root) / builder.location / "00000.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"new")
    assert not [each for each in leftovers(store, days=1) if each.is_unfinished], "it is gone on with"
    os.utime(part, (old, old))
    (found,) = [each for each in leftovers(store, days=1) if each.is_unfinished]
    assert (found.location, found.num_bytes) == (builder.location, len(b"half a modelnew"))
    assert [*forget(store, [found])] == [found]
    assert not checkpoint.parent.exists()
    assert not part.exists()


def test_a_file_that_somebody_removes_meanwhile_is_of_work_that_goes_on(
    superseded: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a window's checkpoint, once its shard is whole."""
    store = superseded.store
    window = store.scratch("embed/given-up/" + "0" * 16) / "window-000000.npz"
    window.write_bytes(b"half")
    modified = store.fs.modified

    def of_one_removed(path: str) -> object:
        window.unlink()
        return modified(path)

    monkeypatch.setattr(store.fs, "modified", of_one_removed)
    assert not [each for each in leftovers(store, days=0) if each.is_unfinished]
    assert not window.exists()


def test_what_became_current_meanwhile_stays(superseded: Pipeline) -> None:
    store = superseded.store
    (found,) = leftovers(store, days=0)
    manifest = store.manifest_at(found.location)
    store.point_to(store.find(found.stage, found.key, manifest["fingerprint"]))
    assert [*forget(store, [found])] == []
    assert store.manifest_at(found.location) == manifest


@pytest.mark.parametrize("days", ["inf", "1e9", "-1"])
def test_days_that_no_calendar_has_are_refused(tiny_config_file: Path, days: str) -> None:
    result = CliRunner().invoke(app, ["sweep", "-c", str(tiny_config_file), "--days", days])
    assert result.exit_code == 2
    assert "Invalid value for '--days'" in result.output


def test_days_that_no_calendar_has_are_refused_by_dagster_in_a_sentence_and_once(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    from datamask_pipeline.definitions import build_defs

    (tmp_path / "record" / "pool").mkdir(parents=True)
    defs = build_defs(config=str(tiny_config_file), settings={"store": str(tmp_path / "record")})
    result = defs.resolve_job_def("sweep_job").execute_in_process(
        run_config={"ops": {"sweep_record": {"config": {"days": -1.0}}}},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )
    assert not [event for event in result.all_events if event.is_step_restarted]
    (failed,) = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    assert failed is not None
    assert "days=-1.0 lies outside of 0 to 36,500" in failed.message


@pytest.mark.slow
def test_the_job_tells_and_removes_alike(superseded: Pipeline, tiny_config_file: Path) -> None:
    from datamask_pipeline.definitions import build_defs

    defs = build_defs(config=str(tiny_config_file), settings={"store": superseded.store.root})
    before = files(superseded.store.root)
    for remove, left in ((False, before), (True, None)):
        values = {"remove": remove, "days": 0.0}
        result = defs.resolve_job_def("sweep_job").execute_in_process(
            run_config={"ops": {"sweep_record": {"config": values}}}, instance=dg.DagsterInstance.ephemeral()
        )
        assert result.success
        after = files(superseded.store.root)
        assert (after == left) if left else (after < before)


@pytest.mark.slow
def test_a_sweep_by_dagster_that_fails_midway_has_told_what_is_gone(
    tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assets import sweep
    from datamask_pipeline.definitions import build_defs

    def forget(store: Store, found: list[Leftover]) -> Iterator[Leftover]:
        yield Leftover("select/first/a/f", "select", "first/a", 3, False)
        yield Leftover("pool/first/e", "pool", "first", 2, True)
        raise StorageError("the disk has gone")

    (tmp_path / "record" / "pool").mkdir(parents=True)
    monkeypatch.setattr(sweep, "forget", forget)
    defs = build_defs(config=str(tiny_config_file), settings={"store": str(tmp_path / "record")})
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("sweep_job").execute_in_process(
            run_config={"ops": {"sweep_record": {"config": {"remove": True}}}},
            instance=instance,
            raise_on_error=False,
        )
        lines = [each.user_message for each in instance.all_logs(result.run_id)]
    assert not result.success
    assert "removed select/first/a/f: 3 bytes" in lines
    assert "removed unfinished pool/first/e: 2 bytes" in lines


def test_a_sweep_by_dagster_refuses_a_place_without_a_record(tiny_config_file: Path, tmp_path: Path) -> None:
    from datamask_pipeline.definitions import build_defs

    defs = build_defs(config=str(tiny_config_file), settings={"store": str(tmp_path / "nowhere")})
    with pytest.raises(dg.Failure, match=r"there is no record at .*nowhere"):
        defs.resolve_job_def("sweep_job").execute_in_process(instance=dg.DagsterInstance.ephemeral())

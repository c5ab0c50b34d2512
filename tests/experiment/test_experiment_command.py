"""The experiment as one command: from its file to its report, on a small collection; what was measured stays."""

import json
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_chain import TASKS
from tiny_experiment import ARMS, experiment_file
from typer.testing import CliRunner

from datamask_pipeline import texts
from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.experiment import proxy
from datamask_pipeline.experiment import run as running
from datamask_pipeline.experiment.arms import chosen_places
from datamask_pipeline.experiment.collection import Ruler, read_documents, read_ruler
from datamask_pipeline.experiment.config import (
    ArmConfig,
    ExperimentConfig,
    PoolConfig,
    ProxyConfig,
    load_experiment,
)
from datamask_pipeline.experiment.judged import judge, no_power_by_file
from datamask_pipeline.experiment.outside import read_outside
from datamask_pipeline.experiment.planted import VERSION
from datamask_pipeline.experiment.recommend import Recommendation, recommend
from datamask_pipeline.experiment.redraw import half_of
from datamask_pipeline.experiment.report import markdown, plot, write_report
from datamask_pipeline.experiment.report_curve import plot_of_curve
from datamask_pipeline.experiment.run import _inputs, make_shared
from datamask_pipeline.experiment.shown import signed
from datamask_pipeline.ngram.trigram import Texts
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.stages import ngram, pretrain, select
from datamask_pipeline.storage import Store, require


def run(path: Path, data: Path, record: Path, *options: str) -> str:
    arguments = ["experiment", str(path), "--data", str(data), "--store", str(record), *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    return result.output


@pytest.mark.slow
def test_it_measures_its_own_collection_while_another_experiment_runs(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another chain in the same record, which makes its own index current after each of the first one's pools."""
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    arms = {name: ARMS[name] for name in ("random", "random_again", "shuffled", "collapse_quality", "joint")}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms)
    measure, done = running.measure_draws, []

    def then_another(config: ExperimentConfig, pipeline: Pipeline, *arguments: Any, **named: Any) -> Any:
        found = measure(config, pipeline, *arguments, **named)
        pool = pipeline.config.pool.model_copy(update={"validation_share": 0.4})
        other = Pipeline(pipeline.config.model_copy(update={"pool": pool}))
        for _, _, call in other.steps("first", "gather"):
            call()
        done.append(found)
        return found

    monkeypatch.setattr(running, "measure_draws", then_another)
    run(path, tiny_config_file.parent, record, "--to", str(tmp_path / "to"))
    store = Store(record)
    shares = [
        store.manifest_at(manifest["inputs"]["candidates"]["location"])["basis"]["config"]["validation_share"]
        for key in store.keys("experiment")
        for manifest in store.all_manifests("experiment", key)
    ]
    assert len(done) == 2
    assert set(shares) == {0.3}


@pytest.mark.slow
def test_it_runs_reports_and_goes_on(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    shutil.copytree(tiny_run.store.root, record)
    path = experiment_file(tmp_path, tiny_config_file)
    told = run(path, tiny_config_file.parent, record, "--to", str(tmp_path / "first"))
    assert "pool whole: " in told
    assert "pool equal: " in told
    text = (tmp_path / "first" / "small.md").read_text()
    assert text.startswith(
        "Question, as the experiment's file states it: *Does joint selection beat the simple rival?*"
    )
    for arm in ARMS:
        assert text.count(f"\n| {arm} |") == 2
    # Of nothing that is ranked there is no plot.
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["small.md"]
    assert (
        "\n\nCollection: 130 documents of 2 crawls (tiny-2024-10, tiny-2024-18); quality by rules; vectors by "
        in text
    )
    assert "; 0 solved examples before a question; content digest of the index " in text
    assert require(Store(str(record)), "gather", "first").content_digest[:16] in text
    assert text.count("Do not subtract them: without power") == 2
    store = Store(str(record))
    for pool in ("whole", "equal"):
        for number in range(4):
            ref = require(store, "experiment", f"small/{pool}/{number:03d}")
            known = store.manifest(ref)["basis"]["config"]
            assert known["versions"] == {"select": select.VERSION, "ngram": ngram.VERSION}
            assert known["prompts"] == {"shots": 0, "fewshot_seed": 1234}
            rows = store.read_table(ref).to_pylist()
            assert len({row["tokens"] for row in rows}) == 1, "every arm learns from equally many tokens"
            bits = np.load(store.file_path(ref, "bits.npy"))
            sizes = np.load(store.file_path(ref, "bytes.npy"))
            assert bits.shape == (len(ARMS) + 3, len(sizes))
            assert bits[0].sum() == pytest.approx(
                sum(row["bits"] for row in rows if row["arm"] == "random"), rel=1e-5
            )
            assert all(row["length_median"] == 40 for row in rows if pool == "equal")
            # Each row's items are those that stand together in its place, whatever its task is called.
            begin = 0
            for row in (row for row in rows if row["arm"] == "joint"):
                end = begin + store.manifest(ref)["metadata"]["items"][row["task"]]
                mine = bits[list(ARMS).index("joint"), begin:end]
                assert mine.sum() == pytest.approx(row["bits"], rel=1e-5)
                assert sizes[begin:end].sum() == row["bytes"]
                begin = end
            assert begin == len(sizes)
    assert list(dict.fromkeys(row["task"] for row in rows)) != sorted({row["task"] for row in rows})
    for pool in ("whole", "equal"):
        section = text[text.index(f"### Pool `{pool}`") :]
        header = section[section.index("\n| arm |") :].split("\n")[1].strip("| ").split(" | ")
        for arm in ARMS:
            cells = section[section.index(f"\n| {arm} |") :].split("\n")[1].strip("| ").split(" | ")
            told = [float(cells[header.index(name)]) for name in ("right answers", "held-out documents")]
            assert told == [pytest.approx(one, abs=6e-5) for one in means_of(store, pool, arm)]
    # Where the instrument has no power nothing is ranked: no arm's difference, probability or point in the plot.
    experiment, _ = load_experiment(path, tiny_config_file.parent)
    draws = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(4)]
    verdict = judge(experiment, store, draws)
    assert as_told(judge(with_arms_reversed(experiment), store, draws)) == as_told(verdict)
    assert "intervals over 2 pairs of halves hold the truth less often" in verdict.no_power[0]
    assert ("3 random subsets a draw are too few to count" in text) == (verdict.coverage.pairs == 1)
    sound = replace(verdict, no_power=())
    with_power, without = (markdown(experiment, {"whole": each}) for each in (sound, verdict))
    random_again = [
        next(line for line in told.splitlines() if line.startswith("| random_again |"))
        for told in (with_power, without)
    ]
    # Of right answers, and of held-out documents.
    assert [line.count(" ± ") for line in random_again] == [2, 0]
    assert " ± " not in without
    assert "Do not subtract them" not in with_power
    drawn = plot(experiment, {"whole": sound})
    assert drawn is not None
    assert plot(experiment, {"whole": sound, "equal": verdict}) == drawn
    assert plot(experiment, {"whole": verdict}) is None
    (tmp_path / "stale").mkdir()
    for powerful, there in ((sound, True), (verdict, False)):
        written = write_report(tmp_path / "stale", experiment, {"whole": powerful})
        assert (tmp_path / "stale" / "small.png").exists() == there == (len(written) == 2)
    assert ("| p, corrected |" in with_power, "p, corrected" in without) == (True, False)
    assert "\n- Intervals are not corrected for their number, those in plots neither;" in with_power
    assert "| winogrande \\* |" in text
    assert "\n\\* no signal below 1 B parameters" in text
    # No text, id or address of a document is in the report.
    documents = [
        row["text"] for row in store.read_table(require(store, "ingest", "tiny-2024-10")).to_pylist()
    ]
    assert not any(line in text for document in documents for line in document.split(". ") if len(line) > 20)
    only = run(path, tiny_config_file.parent, record, "--pool", "equal", "--to", str(tmp_path / "equal"))
    assert "pool whole" not in only
    assert (tmp_path / "equal" / "small.md").read_text() in text.replace(
        text[text.index("### Pool `whole`") : text.index("### Pool `equal`")], ""
    )
    # What is there is not measured again; what is lost is, and is the same.
    lost = require(store, "experiment", "small/whole/002")
    before = np.load(store.file_path(lost, "bits.npy"))
    shutil.rmtree(record / "experiment" / "small" / "whole" / "002")
    run(path, tiny_config_file.parent, record, "--to", str(tmp_path / "again"))
    assert (tmp_path / "again" / "small.md").read_text() == text
    assert (
        np.load(store.file_path(require(store, "experiment", "small/whole/002"), "bits.npy")) == before
    ).all()


def with_arms_reversed(experiment: ExperimentConfig) -> ExperimentConfig:
    """The same experiment as a file states it that names its arms the other way round."""
    return experiment.model_copy(update={"arms": dict(reversed(experiment.arms.items()))})


def as_told(found: Any) -> Any:
    """Whatever was judged, in a spelling in which NaN is NaN and no order of names counts."""
    if is_dataclass(found) and not isinstance(found, type):
        return {field.name: as_told(getattr(found, field.name)) for field in fields(found)}
    if isinstance(found, Mapping):
        return {name: as_told(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [as_told(each) for each in found]
    return repr(found)


def means_of(store: Store, pool: str, arm: str) -> tuple[float, float]:
    """Bits per byte of right answers and of held-out documents, out of the rows alone."""
    found: dict[str, list[float]] = {}
    for number in range(4):
        for row in store.read_table(require(store, "experiment", f"small/{pool}/{number:03d}")).to_pylist():
            if row["arm"] == arm:
                found.setdefault(row["task"], []).append(row["bits"] / row["bytes"])
    held_out = found.pop("held_out_documents")
    return float(np.mean(list(found.values()))), float(np.mean(held_out))


@pytest.mark.slow
def test_a_subset_chosen_elsewhere_is_an_arm(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    store = tiny_run.store
    documents = [
        row
        for crawl in ("tiny-2024-10", "tiny-2024-18")
        for row in store.read_table(require(store, "ingest", crawl), ["id", "text"]).to_pylist()
    ]
    # Every second document, half of them by id and half by text under other ids, and two rows that are of no use.
    chosen = documents[::2]
    rows: list[dict[str, Any]] = [{"id": row["id"]} for row in chosen[::2]]
    rows += [{"id": f"theirs-{place}", "text": row["text"]} for place, row in enumerate(chosen[1::2])]
    rows += [{"id": "unknown"}, {"id": None}]
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copytree(tiny_config_file.parent / "crawls", folder / "crawls")
    theirs = folder / "theirs.jsonl"
    theirs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arms = {
        **{name: ARMS[name] for name in ("random", "random_again")},
        "theirs": {"subset": "${data}/theirs.jsonl"},
    }
    changes: dict[str, Any] = {"arms": arms, "contrast": ["theirs", "random"], "pools": {"whole": {}}}
    path = experiment_file(tmp_path, tiny_config_file, ratio=0.3, **changes)
    record = tmp_path / "record"
    shutil.copytree(store.root, record)
    told = run(path, folder, record, "--to", str(tmp_path))
    assert "theirs" in told
    store = Store(str(record))
    refs = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(4)]
    about = store.manifest(refs[0])["metadata"]["outside"]["theirs"]
    assert about["rows"] == len(rows)
    # The pool has no exact copies and no held-out documents: of half of all there are about half of its documents.
    pool = store.manifest(refs[0])["metadata"]["pool_documents"]
    assert 0.4 * pool < about["documents"] <= len(chosen)
    assert (
        f"of its {len(rows):,} rows {about['documents']:,} are documents"
        in (tmp_path / "small.md").read_text()
    )
    # Of a half it learns its own documents and no other.
    config, chain = load_experiment(path, folder)
    pipeline = Pipeline(chain.model_copy(update={"store": str(record)}))
    inputs = _inputs(pipeline, "first")
    ruler = read_ruler(store, inputs, tmp_path / "scratch")
    found = read_documents(store, inputs, ruler, {"theirs": read_outside(theirs)})
    # A row without a text stands for itself alone, not for exact copies of it.
    by_id, by_text = (
        {row[name] for row in part} for name, part in (("id", chosen[::2]), ("text", chosen[1::2]))
    )
    names = {row["text"]: row["id"] for row in documents if row["id"] in by_id}
    expected = [text in by_text or (text in names) for text in found.texts]
    held = found.outside["theirs"].tolist()
    assert not any(held and not wanted for held, wanted in zip(held, expected, strict=True))
    assert sum(held) > 0.9 * sum(expected)
    texts = by_text | set(names)
    half = found.part(half_of(config, len(found.texts), 1))
    places = chosen_places(
        config.arms["theirs"], None, half, 100, np.random.default_rng(0), {}, half.outside["theirs"]
    )
    assert {half.texts[place] for place in places} <= texts
    # Another file is another arm; the same rows in another order are not.
    theirs.write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    run(path, folder, record, "--to", str(tmp_path))
    assert require(store, "experiment", "small/whole/000") == refs[0]
    theirs.write_text("".join(json.dumps(row) + "\n" for row in rows[3:]))
    run(path, folder, record, "--to", str(tmp_path))
    assert require(store, "experiment", "small/whole/000") != refs[0]
    # What cannot be measured is refused with the reason.
    arguments = ["experiment", str(path), "--data", str(folder), "--store", str(record)]
    for content, reason in (
        ('{"id": "unknown"}\n', "none of the subset's rows is a document of the pool"),
        ('{"name": "a"}\n', "none of 1 rows has an id or a text"),
        ("".join(json.dumps(row) + "\n" for row in rows[:3]), "tokens where"),
    ):
        theirs.write_text(content)
        failed = CliRunner().invoke(app, arguments)
        assert isinstance(failed.exception, InputError)
        assert reason in str(failed.exception)
    theirs.unlink()
    failed = CliRunner().invoke(app, arguments)
    assert isinstance(failed.exception, ConfigurationError)
    assert "arms.theirs.subset: no such file or folder" in str(failed.exception)


PROXY: dict[str, Any] = {
    "epochs": 2,
    "model": {
        "preset": "smoke",
        "hidden_size": 32,
        "intermediate_size": 48,
        "sequence_length": 256,
        "batch_size": 1,
    },
}


@pytest.mark.slow
def test_networks_are_trained_on_the_same_tokens_and_held_against_the_trigram_model(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    arms = {name: ARMS[name] for name in ("random", "random_again", "shuffled", "collapse_quality", "joint")}
    pools: dict[str, Any] = {"counted": {}, "whole": {"proxy": {**PROXY, "epochs": 3, "checkpoints": 5}}}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, num_random=0, pools=pools)
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    told = run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path))
    text = (tmp_path / "small.md").read_text()
    assert "by the model that stands with each pool" in text
    assert "Asked: a network (dense, " in text
    assert "reads its arm's tokens 3 times" in text
    assert text.count("Asked: a trigram model.") == text.count("The gate: ") == 1
    assert "the interval of random_again less random " in text
    store = Store(str(tmp_path / "record"))
    ref = require(store, "experiment", "small/whole/000")
    assert store.manifest(ref)["basis"]["config"]["versions"]["pretrain"] == pretrain.VERSION
    rows = store.read_table(ref).to_pylist()
    assert len({row["tokens"] for row in rows}) == 1
    assert all(row["bits"] != row["trigram_bits"] for row in rows)
    # The other pool has the same documents and no networks: the same halves, the same choices.
    counted = require(store, "experiment", "small/counted/000")
    assert "pretrain" not in store.manifest(counted)["basis"]["config"]["versions"]
    assert store.read_table(counted).to_pylist() == [row | {"bits": row["trigram_bits"]} for row in rows]
    # So small a network after so little text is worse than three tokens of context: nothing may be ranked.
    held_out = [row for row in rows if row["task"] == "held_out_documents"]
    assert all(row["bits"] > row["trigram_bits"] for row in held_out)
    assert "NO POWER: the networks of random, random_again" in told
    # Questions that are longer than a sequence lose their beginning: counted, and told.
    about = store.manifest(ref)["metadata"]
    assert 0 < about["cut"]["race_high"] <= about["items"]["race_high"]
    assert f"race_high {about['cut']['race_high']} of {about['items']['race_high']}" in text
    assert "cut" not in store.manifest(counted)["metadata"]
    # Every checkpoint is asked; the mean of those near the end is what the table tells.
    curve = np.load(store.file_path(ref, "curve.npy"))
    tokens = store.manifest(ref)["metadata"]["curve_tokens"]
    assert len(curve) == len(tokens) > 2
    assert tokens[-1] >= 3 * rows[0]["tokens"] > tokens[-2]
    assert sum(seen >= 0.8 * tokens[-1] for seen in tokens) == 2
    assert (
        np.load(store.file_path(ref, "bits.npy")) == curve[-2:].mean(0, np.float64).astype(np.float32)
    ).all()
    assert "The mean of the last 2 columns is what stands above." in text
    assert (curve[0] > curve[-1]).mean() > 0.5
    points = next(
        line for line in text.splitlines() if line.startswith("| arm |") and line.endswith("tokens |")
    )
    assert points.count("tokens") == len(tokens)
    experiment, _ = load_experiment(path, tiny_config_file.parent)
    draws = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(4)]
    verdict = replace(judge(experiment, store, draws), no_power=())
    reordered = judge(with_arms_reversed(experiment), store, draws)
    assert as_told(reordered.curve) == as_told(verdict.curve)
    for shown, ranked in ((markdown(experiment, {"whole": verdict}), True), (text, False)):
        lines = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in shown.splitlines()}
        assert ("joint less collapse_quality" in lines) == ranked
        assert (" ± " in shown) == (" ± " in lines["joint"][-1]) == ranked
        if ranked:
            drawn = plot_of_curve(experiment, {"whole": verdict})
            assert drawn is not None
            assert drawn.startswith(b"\x89PNG")
            assert signed(verdict.contrast) in shown
    assert not (tmp_path / "small_curve.png").exists()
    # The trigram model says what it says without networks, and another run trains the same networks.
    bits = np.load(store.file_path(ref, "bits.npy"))
    assert bits.shape == (len(arms), len(np.load(store.file_path(ref, "bytes.npy"))))
    shutil.rmtree(tmp_path / "record" / "experiment" / "small" / "whole" / "000")
    run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path))
    again = require(store, "experiment", "small/whole/000")
    assert (np.load(store.file_path(again, "bits.npy")) == bits).all()


@pytest.mark.slow
def test_machines_share_draws_by_the_files_of_their_networks(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    arms = {name: ARMS[name] for name in ("random", "random_again", "collapse_quality", "joint")}
    pools: dict[str, Any] = {"whole": {}}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, num_random=0, pools=pools, proxy=PROXY)
    data, kept = tiny_config_file.parent, tmp_path / "kept"
    for machine in ("one", "other"):
        shutil.copytree(tiny_run.store.root, tmp_path / machine)
    shared = ("--kept", str(kept), "--to", str(tmp_path / "report"))
    told = run(path, data, tmp_path / "one", *shared, "--draw", "1", "--draw", "0")
    # There is no terminal: it tells of its progress in lines.
    assert "whole: arms of draw 1: 4 of 4" in told
    assert "whole: draws: 1 of 2\n" in told
    assert "without --draw judges" in told
    assert not (tmp_path / "report").exists()
    files = sorted(kept.glob("whole/*/*"))
    assert [file.parent.name for file in files] == ["000"] * 4 + ["001"] * 4
    assert {file.name.rpartition("-")[0] for file in files} == set(arms)

    def bits(machine: str, number: int) -> Any:
        store = Store(str(tmp_path / machine))
        return np.load(store.file_path(require(store, "experiment", f"small/whole/{number:03d}"), "bits.npy"))

    assert (bits("one", 0) == np.stack([bits_of(kept, 0, name) for name in arms])).all()
    # Another machine takes them as they are, trains the rest, and judges.
    marked = next(file for file in files if file.name.startswith("joint-"))
    columns = pq.read_table(marked)
    last = columns.column_names[-1]
    raised = pa.array(columns.column(last).to_numpy() + np.float32(1))
    pq.write_table(columns.set_column(columns.num_columns - 1, last, raised), marked)
    told = run(path, data, tmp_path / "other", *shared)
    assert "pool whole: " in told
    assert (bits("other", 1) == bits("one", 1)).all()
    assert (bits("other", 0)[3] == bits_of(kept, 0, "joint")).all()
    assert len(list(kept.glob("whole/*/*"))) == 4 * len(arms)
    # Another schedule is another network: what was kept does not count for it.
    longer = {**PROXY, "epochs": 3}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, num_random=0, pools=pools, proxy=longer)
    run(path, data, tmp_path / "other", *shared, "--draw", "0")
    assert len(list(kept.glob("whole/000/*"))) == 2 * len(arms)
    # A damaged file is no reason to train for hours without a word.
    (file,) = (file for file in kept.glob("whole/000/random-*") if file not in files)
    file.write_bytes(file.read_bytes()[:50])
    shutil.rmtree(tmp_path / "other" / "experiment" / "small" / "whole" / "000")
    arguments = ["experiment", str(path), "--data", str(data), "--store", str(tmp_path / "other"), *shared]
    failed = CliRunner().invoke(app, arguments)
    assert isinstance(failed.exception, InputError)
    assert str(file) in str(failed.exception)
    beyond = CliRunner().invoke(app, [*arguments, "--draw", "4"])
    assert isinstance(beyond.exception, ConfigurationError)
    assert "draws 0 to 3" in str(beyond.exception)


#: Ends itself by kill -9 once the second arm's network has passed its second checkpoint.
KILLED = """
import os, signal
from pathlib import Path
from datamask_pipeline.pretraining import checkpoints
publish = checkpoints.publish
def publish_or_die(model, models, step):
    published = publish(model, models, step)
    if models.parent.name == "random_again" and len(list(models.iterdir())) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return published
checkpoints.publish = publish_or_die
from datamask_pipeline.cli import main
main()
"""


@pytest.mark.slow
def test_killed_in_the_midst_of_a_training_it_finds_the_same_bits(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    arms = {name: ARMS[name] for name in ("random", "random_again", "joint")}
    changes: dict[str, Any] = {"arms": arms, "contrast": ["joint", "random"], "pools": {"whole": {}}}
    path = experiment_file(tmp_path, tiny_config_file, num_random=0, proxy=PROXY, **changes)
    data = tiny_config_file.parent
    found = {}
    for name in ("undisturbed", "killed"):
        record = shutil.copytree(tiny_run.store.root, tmp_path / name)
        if name == "killed":
            arguments = ["experiment", str(path), "--data", str(data), "--store", str(record), "--draw", "0"]
            done = forked.run(KILLED, *arguments)
            assert done.returncode == -signal.SIGKILL
            (scratch,) = record.glob(".scratch/**/random_again")
            assert len(list((scratch / "models").iterdir())) == 2
            assert len(list(scratch.parent.glob("random/bits-*.parquet"))) == 1  # is not trained again
        run(path, data, record, "--draw", "0")
        store = Store(str(record))
        ref = require(store, "experiment", "small/whole/000")
        found[name] = (
            ref.fingerprint,
            ref.content_digest,
            np.load(store.file_path(ref, "curve.npy")).tobytes(),
        )
    assert found["killed"] == found["undisturbed"]


def bits_of(kept: Path, number: int, arm: str) -> Any:
    (file,) = kept.glob(f"whole/{number:03d}/{arm}-" + "[0-9a-f]" * 16 + ".parquet")
    return pq.read_table(file).columns[-1].to_numpy()


@pytest.mark.slow
def test_curated_documents_are_told_of_and_are_no_benchmark(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    crawls = {crawl: require(tiny_run.store, "ingest", crawl) for crawl in tiny_run.release_crawls("first")}
    pool = require(tiny_run.store, "pool", "first")
    held_out = [text for _, text in texts.pool_documents(tiny_run.store, pool, crawls, "validation")]
    rows = [{"text": text} for text in (*held_out[:2], "The bridge near the river was built twice.")]
    (tmp_path / "curated.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arms = {name: ARMS[name] for name in ("random", "random_again", "collapse_quality", "joint")}
    changes = {"arms": arms, "num_random": 0, "pools": {"whole": {}}, "proxy": PROXY}
    path = experiment_file(tmp_path, tiny_config_file, **changes)
    plain = path.read_text()
    values = yaml.safe_load(plain)
    values["chain"]["evaluate"]["curated"] = str(tmp_path / "curated.jsonl")
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path))
    text = (tmp_path / "small.md").read_text()
    assert f" {len(held_out)} held-out documents, 3 curated documents." in text
    assert "- Documents were not held against the 3 curated documents" in text
    store = Store(str(tmp_path / "record"))
    refs = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(4)]
    found = [store.read_table(ref).to_pylist() for ref in refs]
    assert found[0][-1]["task"] == "curated_documents"
    sizes = np.load(store.file_path(refs[0], "bytes.npy"))
    bits = np.load(store.file_path(refs[0], "bits.npy"))
    first = len(sizes) - 3 - len(held_out)
    assert (sizes[first : first + 2] == sizes[-3:-1]).all()
    assert bits[:, first : first + 2] == pytest.approx(bits[:, -3:-1], rel=1e-5)

    def mean(arm: str, *tasks: str) -> float:
        of = [
            [row["bits"] / row["bytes"] for row in rows if row["arm"] == arm and row["task"] in tasks]
            for rows in found
        ]
        return float(np.mean(of))

    benchmarks = {row["task"] for row in found[0]} - {"held_out_documents", "curated_documents"}
    assert benchmarks == set(TASKS)
    experiment, _ = load_experiment(path, tiny_config_file.parent)
    draws = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(4)]
    verdict = judge(experiment, store, draws)
    ranked = markdown(experiment, {"whole": replace(verdict, no_power=())})
    lines = text.splitlines()
    tables = [place for place, line in enumerate(lines) if line.startswith("| arm |")]
    header = lines[tables[0]].split(" | ")
    assert header[-2:] == ["held-out documents", "curated documents |"]
    by_arm = {
        line.split(" | ")[0].strip("| "): line.strip(" |").split(" | ")
        for line in lines[tables[0] : tables[1]]
    }
    for arm in ("joint", "collapse_quality"):
        assert float(by_arm[arm][4]) == pytest.approx(mean(arm, *benchmarks), abs=6e-5)
        assert float(by_arm[arm][-1]) == pytest.approx(mean(arm, "curated_documents"), abs=6e-5)
        less = mean(arm, "curated_documents") - mean("random", "curated_documents")
        assert verdict.curated[arm].difference == pytest.approx(less, abs=6e-6)
        assert f" | {signed(verdict.curated[arm])} |" in ranked
    assert lines[tables[1] - 2].startswith("Along the training, right answers")
    assert lines[tables[2] - 2].startswith("The same on curated documents, which are no benchmark")
    assert "NO POWER" in text  # so along the training, too, only what each arm needs is told
    for place, column in ((tables[1], 4), (tables[2], -1)):
        for line in lines[place + 3 : place + 5]:
            cells = line.strip(" |").split(" | ")
            if cells[0] in ("joint", "collapse_quality"):
                assert cells[-1] == by_arm[cells[0]][column]
    # Without them the questions are those of before, and so is every draw.
    path.write_text(plain)
    before = require(tiny_run.store, "questions", "first")
    run(path, tiny_config_file.parent, tmp_path / "record", "--draw", "0")
    assert require(store, "questions", "first") == before
    assert store.manifest(require(store, "experiment", "small/whole/000"))["metadata"]["items"].keys() == {
        *benchmarks,
        "held_out_documents",
    }


def test_what_networks_found_before_there_were_curated_documents_is_found_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kept files are named by this digest: with another one, hours of training would be done again."""
    unread: Any = None

    def made(*lengths: int) -> Texts:
        return Texts.of([np.arange(length, dtype=np.int64) % 7 for length in lengths])

    # Less than a step, which is refused by now; the digest below was made of it.
    budget = PretrainConfig(seed=7).model_copy(update={"token_budget": 1_000})

    def digest(documents: Texts) -> str:
        ruler = Ruler(unread, 0, 8, unread, unread, [], unread, [("Is it so?", " Yes.")], documents)
        return proxy._digest(made(9), ruler, budget)

    monkeypatch.setattr(proxy, "VERSION", "2")
    monkeypatch.setattr(pretrain, "VERSION", "3")
    assert digest(made(5, 3)) == "c2deb737a5cd678b3d2ccd55d72ae62e9efd36f6458149057428d5d0349c3c7b"
    assert digest(made(5, 3, 2)) != digest(made(5, 3))


PLANTED: dict[str, Any] = {"good_documents": 2, "good_share": 0.5, "copies": 8, "boilerplate": 8, "junk": 9}


@pytest.mark.slow
def test_what_is_planted_is_embedded_scored_and_told(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    quality = {"select": {"policy": "quality_topk"}}
    arms = {
        **{name: ARMS[name] for name in ("random", "random_again", "shuffled", "joint")},
        "quality": quality,
    }
    pools = {"controlled": {"planted": PLANTED}}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, contrast=["joint", "quality"], pools=pools)
    run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path))
    text = (tmp_path / "small.md").read_text()
    assert text.count("Planted: 8 near-copies of each of 2 documents out of the best 50% by quality") == 1
    store = Store(str(tmp_path / "record"))
    refs = [require(store, "experiment", f"small/controlled/{number:03d}") for number in range(4)]
    about = [store.manifest(ref)["metadata"] for ref in refs]
    eligible = require(store, "gather", "first").rows
    for ref, each in zip(refs, about, strict=True):
        assert store.manifest(ref)["basis"]["config"]["versions"]["planted"] == VERSION
        assert each["pool_documents"] == eligible + 16 + 8 + 9
        assert set(each["planted"]) == set(arms)
    # Random documents hold of everything what the arm holds of its half: three tenths of the tokens.
    for kind in ("near_copies", "boilerplate", "junk"):
        mean = np.mean([each["planted"]["random"][f"recall_{kind}"] for each in about])
        assert 0.1 < mean < 0.6
    again = run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path / "again"))
    assert "pool controlled: " in again
    assert (tmp_path / "again" / "small.md").read_text() == text


GRID: dict[str, Any] = {"reference": "joint", "diversity": ["Pair_simi", "Facility"], "lamb": [0.25, 0.75]}


@pytest.mark.slow
def test_a_sweep_ends_in_a_recommendation(tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    arms = {name: ARMS[name] for name in ("random", "random_again", "shuffled", "joint")}
    grid = {"reference": "joint", "lamb": [0.25, 0.75], "ratio": [0.3, 0.6]}
    changes = {"arms": arms, "grid": grid, "contrast": ["joint", "random"], "redraws": 8, "num_random": 2}
    path = experiment_file(tmp_path, tiny_config_file, **changes, pools={"whole": {}})
    told = run(path, tiny_config_file.parent, tmp_path / "record", "--to", str(tmp_path))
    text = (tmp_path / "small.md").read_text()
    assert text.count("Chosen out of 4 on half of the pairs of draws and half of the questions (") == 1
    assert "Chosen out of 4" in told
    assert "on the frontier" in text
    swept = [f"lamb{lamb}-ratio{ratio}" for lamb in ("0_25", "0_75") for ratio in ("0_3", "0_6")]
    # Once among all arms, and once among those that are told without a model.
    for arm in swept:
        assert text.count(f"\n| {arm} |") == 2
    assert (tmp_path / "small_sweep.png").read_bytes().startswith(b"\x89PNG")
    store = Store(str(tmp_path / "record"))
    differences = []
    for number in range(8):
        ref = require(store, "experiment", f"small/whole/{number:03d}")
        measures = store.manifest(ref)["metadata"]["measures"]
        assert set(measures) == {*arms, *swept}
        rows = store.read_table(ref).to_pylist()
        assert len({row["tokens"] for row in rows}) == 1, (
            "whatever was chosen, equally many tokens are learnt"
        )
        for figures in measures.values():
            assert 0 <= figures["quality_rank"] <= 1
            assert figures["similarity"] <= figures["coverage"] <= 1
            assert 0 <= figures["near_copies"] < 1
            assert 1 <= figures["domains"] <= 7
        # The more quality weighs, the better what is chosen; random documents are as good as any.
        low, high = (measures[f"lamb{lamb}-ratio0_3"]["quality_rank"] for lamb in ("0_25", "0_75"))
        assert measures["random"]["quality_rank"] < low <= high
        differences.append(measures["lamb0_75-ratio0_6"]["quality_rank"] - high)
    # Of twice as much that was chosen random ones are learnt.
    assert max(differences) <= 0
    assert np.mean(differences) < -0.01
    # The recommendation cuts items where the rows say, as all else does.
    config, _ = load_experiment(path, tiny_config_file.parent)
    refs = [require(store, "experiment", f"small/whole/{number:03d}") for number in range(8)]
    bits, sizes = (
        [np.load(store.file_path(ref, name)) for ref in refs] for name in ("bits.npy", "bytes.npy")
    )
    counted = store.manifest(refs[0])["metadata"]["items"]
    in_order = {row["task"]: counted[row["task"]] for row in rows}

    def recommended(items: dict[str, int]) -> Recommendation:
        chosen = (list(config.arms), swept, "joint", "random", np.stack(bits), sizes[0], items)
        return recommend(*chosen, seed=config.seed)

    assert list(in_order) != list(counted)
    assert judge(config, store, refs).recommendation == recommended(in_order) != recommended(counted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": GRID}, "raise redraws to 8 or more"),
        ({"grid": {**GRID, "reference": "tomorrow"}, "redraws": 8}, "'tomorrow' is no arm"),
        ({"grid": GRID, "redraws": 8, "proxy": {}}, "a sweep trains no network"),
        (
            {"grid": {**GRID, "ratio": [0.1]}, "redraws": 8},
            "ratio: 0.1 is less than the experiment's ratio of 0.3",
        ),
        (
            {"grid": {**GRID, "weights": [{"edu": 1}]}, "redraws": 8},
            "no scorer 'edu'; chain.score.scorers are: rules",
        ),
        ({"grid": {**GRID, "diversity": ["Pear_simi"]}, "redraws": 8}, "Pear_simi"),
        ({"num_random": 1}, "num_random"),
        ({"contrast": ["joint", "joint"]}, "contrast: 'joint' twice"),
        ({"contrast": ["jiont", "random"]}, "contrast: 'jiont' is no arm"),
        ({"again": "random_2"}, "add `random_2: {}`"),
        ({"proxy": {"model": {"seed": 1}}}, "proxy.model.seed"),
        ({"proxy": {"model": {"checkpoint_every_steps": 1}}}, "see proxy.checkpoints"),
        ({"pools": {"whole": {"proxy": {"model": {"seed": 1}}}}}, "pools.whole.proxy.model.seed"),
        ({"grid": GRID, "redraws": 8, "pools": {"whole": {"proxy": {}}}}, "a sweep trains no network"),
        (
            {"arms": {**ARMS, "theirs": {"subset": "a.jsonl", "collapse": 0.98}}},
            "arms.theirs: a subset is chosen already",
        ),
        ({"proxy": {"model": {"hidden_sise": 1}}}, "hidden_sise"),
        ({"contrast": ["joint", "nothing"]}, "'nothing' is no arm; the arms are: random"),
        ({"redraws": 5}, "redraws"),
        ({"arms": {**ARMS, "random": {"shuffled_share": 0.1}}}, "arm 'random' has to be random"),
        ({"arms": {"first": {"lengths_of": "joint"}, **ARMS}}, "'joint' is no arm before it"),
        ({"again": "random"}, "again: 'random' is the baseline"),
        (
            {"arms": {**ARMS, "one": {"shuffled_share": 0.3}, "other": {"shuffled_share": 0.3}}},
            "arms: two have the shuffled_share 0.3",
        ),
        (
            {"arms": {**ARMS, "joint": {"select": {"policy": "datamask", "ratio": 0.1}}}},
            "sets it for all arms alike",
        ),
        ({"arms": {**ARMS, "joint": {"select": {"policy": "datamusk"}}}}, "datamusk"),
        (
            {"arms": {**ARMS, "joint": {"select": {"policy": "datamask"}, "weights": {"rules": 0}}}},
            "arms.joint.weights: the weights are all 0",
        ),
        ({"chain": {"sauce": {}}}, "sauce"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    changes: dict[str, Any], message: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    path = experiment_file(tmp_path, tiny_config_file, **changes)
    result = CliRunner().invoke(app, ["experiment", str(path), "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert str(path) in str(result.exception)


@pytest.mark.parametrize("option", ["to", "kept"])
def test_folders_that_cannot_be_written_are_refused_before_any_work(
    option: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    path = experiment_file(tmp_path, tiny_config_file)
    (tmp_path / "file").touch()
    given = ["--data", str(tiny_config_file.parent), "--store", str(tmp_path / "record")]
    refused = CliRunner().invoke(
        app, ["experiment", str(path), *given, f"--{option}", str(tmp_path / "file" / "in")]
    )
    assert isinstance(refused.exception, ConfigurationError)
    assert f"{option}: {tmp_path / 'file' / 'in'} cannot be written: " in str(refused.exception)
    assert not (tmp_path / "record").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 40),
        ({"proxy": {}}, 0),
        ({"pools": {"whole": {}, "cut": {"proxy": {}}}}, 0),
        ({"pools": {"whole": {"proxy": None}}}, 40),
        ({"proxy": {}, "num_random": 8}, 8),
    ],
)
def test_controls_train_networks_only_where_they_are_asked_for(
    changes: dict[str, Any], expected: int
) -> None:
    given = {"name": "n", "question": "?", "contrast": ["joint", "random"], "arms": ARMS, "chain": {}}
    assert ExperimentConfig.model_validate(given | changes).num_random == expected


@pytest.mark.parametrize(
    ("section", "settings", "message"),
    [
        ("score", {"scorers": ["ruels"]}, "ruels"),
        ("embed", {"imported_file": "nowhere.parquet"}, "nowhere.parquet"),
    ],
)
def test_what_a_shared_stage_would_refuse_is_refused_before_any_of_them(
    section: str, settings: dict[str, Any], message: str, tiny_config_file: Path, tmp_path: Path
) -> None:
    path = experiment_file(tmp_path, tiny_config_file)
    values = yaml.safe_load(path.read_text())
    values["chain"][section] = settings
    path.write_text(yaml.safe_dump(values))
    given = ["--data", str(tiny_config_file.parent), "--store", str(tmp_path / "record")]
    result = CliRunner().invoke(app, ["experiment", str(path), *given])
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert not Store(str(tmp_path / "record")).keys("ingest")


@pytest.mark.slow
@pytest.mark.parametrize("of_pool", [False, True])
def test_sequences_without_room_for_an_answer_are_refused_as_soon_as_questions_exist(
    of_pool: bool, tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Before anything is embedded; where that is done, before anything is chosen."""
    short = {"proxy": {"model": {"sequence_length": 8}}}
    changes = {"pools": {"whole": short}} if of_pool else {**short, "pools": {"whole": {}}}
    path = experiment_file(tmp_path, tiny_config_file, **changes)
    shutil.copytree(tiny_run.store.root, tmp_path / "made")
    setting = f"{'pools.whole.' if of_pool else ''}proxy.model.sequence_length"
    for record in ("new", "made"):
        given = ["--data", str(tiny_config_file.parent), "--store", str(tmp_path / record)]
        result = CliRunner().invoke(app, ["experiment", str(path), *given])
        assert result.exit_code == 1
        assert re.fullmatch(
            rf"{setting} 8: the answer of question \S+ of task 'race_high' has (\d+) tokens, the most of all; raise it to "
            r"\1 at least, or leave the task out of chain.evaluate.tasks",
            str(result.exception),
        )
        store = Store(str(tmp_path / record))
        assert store.keys("questions")
        assert bool(store.keys("embed")) == (record == "made")
        assert not store.keys("experiment")


def test_what_cannot_be_ranked_is_told_before_the_first_draw(tiny_config_file: Path, tmp_path: Path) -> None:
    arms = {name: ARMS[name] for name in ("random", "random_again", "collapse_quality", "joint")}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, pools={"whole": {}})
    config, chain = load_experiment(path, tiny_config_file.parent)
    told: list[str] = []
    pipeline = Pipeline(chain.model_copy(update={"store": str(tmp_path / "record")}))

    def progress(what: str, done: int, total: int | None) -> None:
        told.append(what)

    make_shared(config, pipeline, progress, told.append)
    lines = [line for line in told if line.startswith("nothing will be ranked, the report will say NO POWER")]
    assert told[:2] == lines
    assert "2 pairs of halves" in lines[0]
    assert "no arm has shuffled words that have to be found, give a random one a `shuffled_share`" in lines[1]
    sound = config.model_copy(
        update={"redraws": 8, "arms": {**config.arms, "s": ArmConfig(shuffled_share=0.5)}}
    )
    assert not [*no_power_by_file(sound)]


def test_an_arm_with_too_few_tokens_stops_it(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    arms = {**ARMS, "collapse_quality": {"select": {"policy": "quality_topk"}, "collapse": 0.9}}
    path = experiment_file(tmp_path, tiny_config_file, arms=arms, ratio=0.97)
    given = ["--data", str(tiny_config_file.parent), "--store", str(tmp_path / "record")]
    result = CliRunner().invoke(app, ["experiment", str(path), *given])
    assert result.exit_code == 1
    assert "on draw 0: it has" in str(result.exception)


def test_planting_is_refused_where_a_scorer_reads_no_text(tiny_config_file: Path, tmp_path: Path) -> None:
    """At once, whatever pool comes first: planted documents have none of the source's columns."""
    path = experiment_file(
        tmp_path, tiny_config_file, pools={"whole": {}, "controlled": {"planted": PLANTED}}
    )
    values = yaml.safe_load(path.read_text())
    values["chain"]["score"] = {
        "scorers": ["rules", "column:grade"],
        "options": {"column:grade": {"column": "grade"}},
    }
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(
        ConfigurationError, match=r"pools\.controlled\.planted: scorer 'column:grade' .* 'grade'"
    ):
        load_experiment(path, tiny_config_file.parent)
    load_experiment(path, tiny_config_file.parent, ["whole"])


def test_the_documentation_names_every_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    table = text[text.index("### What the file may say") : text.index("### The same as a Dagster job")]
    for config in (ExperimentConfig, ArmConfig, PoolConfig, ProxyConfig):
        for key in config.model_fields:
            assert f"`{key}`" in table


@pytest.mark.parametrize("name", ["ngram", "proxy", "controlled", "sweep"])
def test_those_that_come_with_the_project_can_be_read(tmp_path: Path, name: str) -> None:
    config, chain = load_experiment(Path(__file__).parents[2] / "experiments" / f"{name}.yaml", tmp_path)
    assert all(arm in config.arms for arm in config.contrast)
    assert chain.source.options["root"] == f"{tmp_path}/web"
    assert json.dumps(config.chain).count("${data}") == 0

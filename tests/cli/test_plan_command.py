"""`datamask plan`: by this record's own figures where it has some, by a benchmark's elsewhere, `?` for the rest."""

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.planning import BENCHMARKS, Machines, planned
from datamask_pipeline.storage import require


def told(*arguments: str) -> dict[str, str]:
    """By stage, its line; the others by their first words."""
    result = CliRunner().invoke(app, ["plan", *arguments])
    if result.exception is not None:
        raise result.exception
    return {line.split()[0]: line for line in result.output.splitlines() if line}


def test_a_made_up_size_is_planned_by_benchmarks_and_more_machines_take_less(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "new")}))
    rows = {row.stage: row for row in planned(pipeline, 26e9, Machines(1, 2), text_bytes=2_000)}
    wanted = BENCHMARKS["embed"].seconds / BENCHMARKS["embed"].documents * 26e9 / 2 / 3600
    assert rows["embed"].hours == pytest.approx(wanted)
    assert rows["select"].times == 2, "once for each arm"
    assert rows["ingest"].num_bytes == 26e9 * 2_000
    assert rows["embed"].num_bytes == 26e9 * 768 * 2, "the numbers of its vectors"
    assert rows["score"].hours is None
    assert rows["pool"].known_by == "stages.json"
    many = {row.stage: row for row in planned(pipeline, 26e9, Machines(100, 2, 3.0), text_bytes=2_000)}
    assert many["embed"].hours == pytest.approx(wanted / 100)
    assert many["embed"].money == pytest.approx(wanted * 3.0)
    assert many["materialise"].hours == rows["materialise"].hours, "one process does it"
    assert not (tmp_path / "new").exists()


def test_memory_grows_as_the_document_on_scale_says(tiny_config_file: Path, tmp_path: Path) -> None:
    """Bytes a document between the last two sizes, of what one process or machine does with all documents."""
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    measured = dict(re.findall(r"^\| (\w+) \| [^|]* \| [^|]*\(3 000 000\) \| (\d+) \|$", text, re.MULTILINE))
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "new")}))

    def memory(documents: float) -> dict[str, float | None]:
        rows = planned(pipeline, documents, Machines(), text_bytes=2_000)
        return {row.stage: row.gigabytes for row in rows}

    few, many = memory(1e9), memory(2e9)
    for stage in ("pool", "gather", "select", "redundancy"):
        assert many[stage] - few[stage] == pytest.approx(float(measured[stage]), abs=0.6), stage


@pytest.mark.parametrize(
    ("stage", "file", "method", "figure"),
    [
        ("ingest", "ingest.json", "four times: datamask", "peak MiB"),
        ("pool", "stages.json", "pool", "anonymous MiB"),
        ("gather", "stages.json", "gather", "anonymous MiB"),
        ("materialise", "release.json", "join", "anonymous MiB"),
        ("redundancy", "stages.json", "redundancy", "anonymous MiB"),
    ],
)
def test_memory_is_what_the_benchmark_measured_in_gigabytes(
    stage: str, file: str, method: str, figure: str
) -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results" / file
    rows = [row for row in json.loads(results.read_text())["rows"] if row["method"] == method]
    measured = {row["documents"]: row[figure] * 2**20 / 1e9 for row in rows}
    assert BENCHMARKS[stage].file == file
    assert dict(BENCHMARKS[stage].gigabytes) == pytest.approx(
        {documents: measured[documents] for documents, _ in BENCHMARKS[stage].gigabytes}, abs=5e-4
    )


def test_subsets_take_what_their_budget_says(tiny_config_file: Path, tmp_path: Path) -> None:
    def of_subsets(budget: dict[str, int], documents: float) -> float | None:
        settings = {"store": str(tmp_path / "new"), "select.ratio": None}
        settings |= {f"select.{name}": number for name, number in budget.items()}
        pipeline = Pipeline(load_config(str(tiny_config_file), settings))
        rows = planned(pipeline, documents, Machines(), text_bytes=2_000)
        return next(row.num_bytes for row in rows if row.stage == "materialise")

    assert of_subsets({"num_documents": 5_000}, 1e6) == 2 * 5_000 * 2_000, "of two arms"
    assert of_subsets({"num_documents": 5_000}, 1e3) == 2 * 1_000 * 2_000
    assert of_subsets({"num_tokens": 5_000}, 1e6) is None


def test_cores_are_those_that_this_process_may_use(tiny_config_file: Path, tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        lines = told("-c", str(tiny_config_file), "-s", f"store={tmp_path / 'new'}", "--documents", "7")
    finally:
        os.sched_setaffinity(0, allowed)
    assert lines["7"] == "7 documents on 1 x 1 cores"


def test_a_record_is_planned_by_what_it_took(tiny_config_file: Path, tiny_run: Pipeline) -> None:
    store = tiny_run.store
    taken = [store.manifest(store.current("embed", crawl)) for crawl in tiny_run.crawls()]
    documents = sum(store.current("ingest", crawl).rows for crawl in tiny_run.crawls())
    rows = {row.stage: row for row in planned(tiny_run, 10 * documents, Machines(), text_bytes=1)}
    assert rows["embed"].hours == pytest.approx(10 * sum(each["wall_seconds"] for each in taken) / 3600)
    assert rows["embed"].known_by == "this record"
    parts = [part for each in taken for part in each["parts"]]
    beside = sum(file["bytes"] for each in taken for file in each["files"])
    assert rows["embed"].num_bytes == 10 * (
        beside + sum(part["bytes"] + part["array"]["bytes"] for part in parts)
    )
    of_config = told("-c", str(tiny_config_file))
    assert f"{documents:,} documents" in of_config[f"{documents:,}"]
    assert of_config["embed"].endswith("this record")
    assert "not in it" not in " ".join(of_config.values())


def test_models_tokenizer_and_reserve_are_among_the_bytes(tiny_run: Pipeline) -> None:
    def on_disk(artefact: str) -> int:
        """Bytes of the current artefacts of that name, but for the records that every one has."""
        store = tiny_run.store
        folders = [Path(store.root) / require(store, artefact, key).location for key in store.keys(artefact)]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        records = (".parquet.json", "manifest.json")
        return sum(path.stat().st_size for path in files if not path.name.endswith(records))

    documents = sum(tiny_run.store.current("ingest", crawl).rows for crawl in tiny_run.crawls())
    rows = {row.stage: row for row in planned(tiny_run, 10 * documents, Machines(), text_bytes=1)}
    assert rows["tokenizer"].num_bytes == on_disk("tokenizer"), "it does not grow with documents"
    assert rows["pretrain"].num_bytes == pytest.approx(on_disk("pretrain"))
    assert rows["select"].num_bytes == pytest.approx(10 * (on_disk("select") + on_disk("learning_curve")))


def test_before_anything_is_read_parquet_files_state_their_rows(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    for number, rows in enumerate((3, 4)):
        (tmp_path / "crawls" / "a").mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": [f"{number}-{row}" for row in range(rows)], "text": ["some words"] * rows})
        pq.write_table(table, tmp_path / "crawls" / "a" / f"{number}.parquet")
    options = ("-s", f"store={tmp_path / 'new'}", "-s", f"source.options.root={tmp_path / 'crawls'}")
    lines = told("-c", str(tiny_config_file), *options)
    assert lines["7"].startswith("7 documents on ")
    assert lines["first:"] == "first: rows that its files state; what will be rejected is among them"
    assert not (tmp_path / "new").exists()

    # Beside a crawl of another size that was read.
    (tmp_path / "crawls" / "b").mkdir()
    table = pa.table({"id": ["b-0"], "text": ["other words"]})
    pq.write_table(table, tmp_path / "crawls" / "b" / "0.parquet")
    columns = ["dump", "url", "date", "file_path", "language", "language_score", "token_count"]
    source = {
        "store": str(tmp_path / "new"),
        "source.options": {"root": str(tmp_path / "crawls"), "optional_columns": columns},
    }
    Pipeline(load_config(str(tiny_config_file), source)).run("ingest", "b")
    lines = told("-c", str(tiny_config_file), *options)
    assert lines["8"].startswith("8 documents on ")
    assert lines["first:"].startswith("first: of crawls that were not read yet, rows that its files state; ")


def test_a_size_that_nobody_knows_is_asked_for(tiny_config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--documents"):
        told("-c", str(tiny_config_file), "-s", f"store={tmp_path / 'new'}")


def test_of_a_rolling_release_those_are_planned_that_a_run_would_make(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """Of a record that has read the crawls."""
    rolling = "releases={web: {every: crawl}, first: {}}"
    given = ["-c", str(tiny_config_file), "-s", f"store={tmp_path / 'record'}", "-s", rolling]
    pipeline = Pipeline(load_config(str(tiny_config_file), {"store": str(tmp_path / "record")}))
    for crawl in pipeline.crawls():
        pipeline.run("ingest", crawl)
    of_web, of_first = (told(*given, "--until", "pool", "--release", name) for name in ("web", "first"))
    assert of_web == of_first, "the same crawls"
    told(*given, "--until", "pool", "--release", "web", "--documents", "100")
    with pytest.raises(ConfigurationError, match="unknown release 'wep'"):
        told(*given, "--release", "wep")


def test_a_release_whose_crawl_is_gone_is_refused_as_run_refuses_it(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    """The record knows how many documents it had, but nothing makes it from nothing any more."""
    shutil.copytree(tiny_run.config.source.options["root"], tmp_path / "crawls")
    place = ["-c", str(tiny_config_file), "-s", f"source.options.root={tmp_path / 'crawls'}"]
    assert "embed" in told(*place)
    shutil.rmtree(tmp_path / "crawls" / "tiny-2024-18")
    with pytest.raises(InputError, match="no such crawl any more, though a release has it: first"):
        told(*place)
    assert "embed" in told(*place, "--documents", "1000")

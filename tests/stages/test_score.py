"""One row per document and scorer; a missing score is null with its reason."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest

from datamask_pipeline.errors import ConfigurationError, InputError, IntegrityError, UnknownNameError
from datamask_pipeline.families import SCORERS, SOURCES
from datamask_pipeline.quality import ScoreBatch, Scores
from datamask_pipeline.quality.probe import ProbeConfig
from datamask_pipeline.quality.rules import RulesScorer, rule_score
from datamask_pipeline.schema import FINEWEB, SCORES
from datamask_pipeline.stages import embed, ingest, score
from datamask_pipeline.stages.probe_examples import check_examples, read_examples
from datamask_pipeline.storage import Ref, Store, array_files, require

TOPICS = ("The cat sleeps on the mat all day", "def f(x): return x + 1  # code")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "record")


def prepared(tmp_path: Path, store: Store, number: int = 40) -> tuple[Ref, Ref]:
    """Two topics by turns, with a score column that is null for every seventh document."""
    schema = FINEWEB.append(pa.field("edu", pa.float32()))
    for shard in range(2):
        rows = [
            {
                "id": f"{shard}-{n}",
                "text": f"{TOPICS[n % 2]} {shard} {n}.",
                "edu": None if n % 7 == 0 else float(n),
                "language_score": n / 100,
            }
            for n in range(number // 2)
        ]
        path = tmp_path / "in" / "crawl" / f"{shard}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    source = SOURCES.make("local", {"root": str(tmp_path / "in")})
    documents = ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)[0]
    config = embed.EmbedConfig(max_tokens=16, dtype="float32", device="cpu")
    return documents, embed.run(config, store=store, crawl="crawl", documents=documents)


def scored(store: Store, refs: tuple[Ref, Ref], **settings: object) -> Ref:
    documents, embeddings = refs
    config = score.ScoreConfig(**settings)
    return score.run(config, store=store, crawl="crawl", documents=documents, embeddings=embeddings)


def write_examples(tmp_path: Path, number: int = 60) -> Path:
    rows = [{"text": f"{TOPICS[n % 2]}, example {n}", "label": n % 2 == 0} for n in range(number)]
    rows.append({"text": "no label", "label": None})
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_follow_the_documents_and_the_scorers(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    options = {"column": {"column": "edu", "scale_min": 0.0, "scale_max": 50.0, "model": "teacher"}}
    ref = scored(store, refs, scorers=("rules", "column"), options=options, window_documents=6)
    table = store.read_table(ref)
    assert table.schema == SCORES
    documents = store.read_table(refs[0], ["id", "text", "edu"]).to_pylist()
    rows = table.to_pylist()
    assert [row["id"] for row in rows] == [entry["id"] for entry in documents for _ in range(2)]
    assert [row["scorer"] for row in rows] == ["rules", "column"] * len(documents)
    for entry, (rules, column) in zip(documents, zip(rows[::2], rows[1::2], strict=True), strict=True):
        assert rules["score"] == rule_score(entry["text"])
        assert column["score"] == entry["edu"]
        assert (column["reason"] is None) == (entry["edu"] is not None)
    assert (rows[1]["scale_max"], rows[1]["model"]) == (50.0, "teacher")
    about = store.manifest(ref)["metadata"]["scorers"]["column"]
    known = [entry["edu"] for entry in documents if entry["edu"] is not None]
    assert (about["rows"], about["scored"], about["mean"]) == (40, len(known), pytest.approx(np.mean(known)))


@pytest.mark.slow
def test_shards_that_are_the_same_keep_their_scores(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "scorers": ("rules", "probe"),
        "options": {"probe": {"examples": str(write_examples(tmp_path))}},
    }
    scored(store, prepared(tmp_path, store), **options)
    judged: list[int] = []
    real = RulesScorer.score
    monkeypatch.setattr(
        RulesScorer, "score", lambda self, batch: judged.append(batch.documents.num_rows) or real(self, batch)
    )
    path = tmp_path / "in" / "crawl" / "1.parquet"
    pq.write_table(pq.read_table(path).slice(0, 5), path)
    source = SOURCES.make("local", {"root": str(tmp_path / "in")})
    documents = ingest.run(ingest.IngestConfig(), store=store, crawl="crawl", source=source)[0]
    config = embed.EmbedConfig(max_tokens=16, dtype="float32", device="cpu")
    embeddings = embed.run(config, store=store, crawl="crawl", documents=documents)
    ref = scored(store, (documents, embeddings), **options)
    assert judged == [5]
    other = Store(tmp_path / "anew")
    documents = ingest.run(ingest.IngestConfig(), store=other, crawl="crawl", source=source)[0]
    embeddings = embed.run(config, store=other, crawl="crawl", documents=documents)
    assert ref == scored(other, (documents, embeddings), **options)

    judged.clear()
    wider = embed.run(
        embed.EmbedConfig(max_tokens=8, dtype="float32", device="cpu"),
        store=store,
        crawl="crawl",
        documents=documents,
    )
    scored(store, (documents, wider), **options)
    assert sum(judged) == 25, "of other vectors nothing is kept"


@pytest.mark.slow
def test_windows_do_not_change_the_scores(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    one = scored(store, refs, scorers=("rules",), window_documents=3)
    other = Store(tmp_path / "other")
    two = scored(other, prepared(tmp_path, other), scorers=("rules",), window_documents=1000)
    assert one == two


def test_a_user_trains_the_probe_and_sees_how_good_it_is(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    options = {"probe": {"examples": str(write_examples(tmp_path)), "held_out_share": 0.3}}
    ref = scored(store, refs, scorers=("probe",), options=options)
    report = store.manifest(ref)["metadata"]["scorers"]["probe"]["report"]
    assert report["held_out"]["auc"] > 0.95
    assert (report["num_examples"], report["num_unlabelled"]) == (60, 1)
    scores = store.read_table(ref, ["score"]).column(0).to_numpy().reshape(2, -1)
    assert scores[:, 0::2].min() > scores[:, 1::2].max()
    trained = store.keys("probe")
    assert trained == ["labels"]
    assert scored(store, refs, scorers=("probe",), options=options) == ref


@pytest.mark.slow
def test_every_probe_setting_changes_the_probe(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    path = write_examples(tmp_path)
    renamed = pq.read_table(path).rename_columns(["words", "good"])
    pq.write_table(renamed, tmp_path / "renamed.parquet")
    base = {"examples": str(path)}
    plain = scored(store, refs, scorers=("probe",), options={"probe": base})
    for change in ({"l2": 0.1}, {"held_out_share": 0.5}):
        changed = scored(store, refs, scorers=("probe",), options={"probe": base | change})
        assert changed.content_digest != plain.content_digest
    names = {
        "examples": str(tmp_path / "renamed.parquet"),
        "text_column": "words",
        "label_column": "good",
    }
    assert scored(store, refs, scorers=("probe",), options={"probe": names}).rows == plain.rows


@pytest.mark.slow
def test_examples_with_vectors_serve_imported_embeddings(tmp_path: Path, store: Store) -> None:
    documents, embeddings = prepared(tmp_path, store)
    flat = np.concatenate([np.load(path).ravel() for path in array_files(store, embeddings).values()])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), 768)
    table = pa.table({"id": store.read_table(embeddings, ["id"]).column(0), "embedding": vectors})
    pq.write_table(table, tmp_path / "vectors.parquet")
    config = embed.EmbedConfig(imported_file=str(tmp_path / "vectors.parquet"), imported_revision="r1")
    imported = embed.run(config, store=store, crawl="crawl", documents=documents)
    refs = (documents, imported)
    with pytest.raises(ConfigurationError, match="vector_column"):
        scored(
            store, refs, scorers=("probe",), options={"probe": {"examples": str(write_examples(tmp_path))}}
        )
    labels = pa.array([float(n % 2 == 0) for n in range(20)] * 2)
    texts = store.read_table(documents, ["text"]).column(0)
    examples = pa.table({"text": texts, "label": labels, "vector": table.column("embedding")})
    pq.write_table(examples, tmp_path / "examples.parquet")
    options = {"probe": {"examples": str(tmp_path / "examples.parquet"), "vector_column": "vector"}}
    by_unit = scored(store, refs, scorers=("probe",), options=options)
    report = store.manifest(by_unit)["metadata"]["scorers"]["probe"]["report"]
    assert report["held_out"]["auc"] > 0.9
    assert report["num_normalised"] == 0

    # A model's raw vectors have other norms; the documents' were made unit, so the examples' are.
    norms = np.linspace(2, 40, 40, dtype=np.float32)[:, None]
    longer = [*(flat.reshape(-1, 768).astype(np.float32) * norms)]
    pq.write_table(
        examples.set_column(2, "vector", pa.array(longer, pa.list_(pa.float32()))),
        tmp_path / "examples.parquet",
    )
    by_raw = scored(store, refs, scorers=("probe",), options=options)
    report = store.manifest(by_raw)["metadata"]["scorers"]["probe"]["report"]
    assert report["num_normalised"] == 40
    unit_N, raw_N = (store.read_table(ref, ["score"]).column(0).to_numpy() for ref in (by_unit, by_raw))
    assert np.abs(unit_N - raw_N).max() < 1e-3

    longer[7] *= 0
    pq.write_table(
        examples.set_column(2, "vector", pa.array(longer, pa.list_(pa.float32()))),
        tmp_path / "examples.parquet",
    )
    with pytest.raises(InputError, match=r"a vector is zero.*row 7, field vector"):
        scored(store, refs, scorers=("probe",), options=options)


@pytest.mark.slow
def test_the_reference_class_of_the_installed_documentation_is_learnt(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    options = {"examples": "installed", "per_class": 40, "held_out_share": 0.4}
    ref = scored(store, refs, scorers=("probe",), options={"probe": options})
    assert store.keys("probe") == ["installed"]
    report = store.manifest(require(store, "probe", "installed"))["metadata"]
    assert report["num_examples"] == 80
    assert report["held_out"]["auc"] > 0.75
    about = store.manifest(ref)["metadata"]["scorers"]["probe"]
    assert about["report"] == {}, "nobody labelled these examples"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            b'{"text": "a", "label": 1}\n{"text": "b", "label": 1, "label": 0}',
            "key 'label' stands twice.*row 1",
        ),
        (
            b'{"text": "a", "label": 1}\r\n\r\n{"text": "b", "label": ' + b"[" * 200_000,
            "RecursionError.*row 1",
        ),
        (b'\xef\xbb\xbf{"text": "\xff", "label": 1}', "byte 10 is not UTF-8.*row 0"),
    ],
)
def test_a_line_of_examples_that_says_two_things_or_none_is_refused(
    tmp_path: Path, lines: bytes, told: str
) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_bytes(lines)
    with pytest.raises(InputError, match=f"a line is no JSON object: .*{told}"):
        read_examples(probe_config(path))


def test_a_first_line_may_be_without_a_label_and_a_label_that_no_line_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b", "label": 1}\n{"label": 0}\n{"text": "c", "label": 0}\n')
    check_examples(probe_config(path))
    found = read_examples(probe_config(path))
    assert (found.texts, found.labels_N.tolist(), found.num_unlabelled) == (["b", "c"], [1.0, 0.0], 2)
    path.write_text('{"text": "a", "lable": 1}\n{"text": "b"}\n')
    for asked in (check_examples, read_examples):
        with pytest.raises(InputError, match=r"a column is missing; there are: text, lable .*field label"):
            asked(probe_config(path))
    path.write_text('{"text": "a"}\n{"label": 1}\n')
    with pytest.raises(InputError, match="no row has both a text and a label"):
        check_examples(probe_config(path))


def test_a_file_of_examples_that_says_two_things_or_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "examples.parquet"
    twice = pa.Table.from_arrays(
        [pa.array(["a", "b"]), pa.array([1, 0]), pa.array([0, 1])], ["text", "label", "label"]
    )
    pq.write_table(twice, path)
    with pytest.raises(InputError, match=r"a column stands twice.*field label"):
        read_examples(probe_config(path))
    raw = pa.array([b"fine", b"\xff"])
    pq.write_table(
        pa.table({"text": pa.Array.from_buffers(pa.string(), 2, raw.buffers()), "label": [1, 0]}), path
    )
    with pytest.raises(InputError, match=r"not valid UTF-8.*row 1, field text"):
        read_examples(probe_config(path))


def probe_config(examples: Path) -> ProbeConfig:
    return ProbeConfig(examples=str(examples))


def test_what_cannot_be_scored_is_refused(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store, 8)
    with pytest.raises(UnknownNameError, match="rules"):
        scored(store, refs, scorers=("rulez",))
    with pytest.raises(ConfigurationError, match="column"):
        scored(store, refs, scorers=("rules",), options={"column": {}})
    with pytest.raises(InputError, match="edu"):
        scored(store, refs, scorers=("column",), options={"column": {"column": "score"}})
    bad = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": ["good", "bad"]}), bad)
    with pytest.raises(InputError, match="a label is no finite number"):
        scored(store, refs, scorers=("probe",), options={"probe": {"examples": str(bad)}})
    options = {"probe": {"examples": str(bad), "label_column": "quality"}}
    with pytest.raises(InputError, match="there are: text, label"):
        scored(store, refs, scorers=("probe",), options=options)
    with pytest.raises(InputError, match="no such file"):
        scored(store, refs, scorers=("probe",), options={"probe": {"examples": "nowhere.parquet"}})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [(Scores(np.array([np.nan])), "no reason"), (Scores(np.zeros(3)), r"\(3,\) scores")],
)
def test_a_scorer_that_breaks_its_contract_is_found_out(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, wrong: Scores, told: str
) -> None:
    def broken(self: RulesScorer, batch: ScoreBatch) -> Scores:
        return wrong if len(wrong.values_N) > 1 else Scores(np.full(batch.documents.num_rows, np.nan))

    refs = prepared(tmp_path, store, 8)
    monkeypatch.setattr(RulesScorer, "score", broken)
    with pytest.raises(IntegrityError, match=told):
        scored(store, refs, scorers=("rules",))
    assert store.current("score", "crawl") is None


def test_one_scorer_judges_by_several_columns_under_labels(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    options = {"column:edu": {"column": "edu"}, "column:certain": {"column": "language_score"}}
    ref = scored(store, refs, scorers=("rules", "column:edu", "column:certain"), options=options)
    rows = store.read_table(ref).to_pylist()
    documents = store.read_table(refs[0], ["edu", "language_score"]).to_pylist()
    for name, column in (("column:edu", "edu"), ("column:certain", "language_score")):
        found = [row["score"] for row in rows if row["scorer"] == name]
        assert found == [entry[column] for entry in documents]
    assert list(store.manifest(ref)["metadata"]["scorers"]) == ["column:certain", "column:edu", "rules"]
    for wrong in ({"scorers": ("rules", "rules")}, {"scorers": ("column:edu",) * 2}):
        with pytest.raises(pydantic.ValidationError, match="tell them apart by a label"):
            score.ScoreConfig(**wrong)
    with pytest.raises(ConfigurationError, match="must be letters"):
        scored(store, refs, scorers=("column:a b",))


def test_documents_are_scored_by_the_nearest_target(tmp_path: Path, store: Store) -> None:
    """Against the definition, in float64; other windows, and labels that leave the same examples, give the same."""
    refs = prepared(tmp_path, store)
    path = write_examples(tmp_path)
    options = {"target": {"examples": str(path), "label_column": "label"}}
    ref = scored(store, refs, scorers=("target",), options=options)
    report = store.manifest(ref)["metadata"]["scorers"]["target"]["report"]
    assert (report["num_examples"], report["num_held_out"], report["num_unlabelled"]) == (60, 0, 1)
    assert list(score.told(store.manifest(ref))) == []
    scores = store.read_table(ref, ["score"]).column(0).to_numpy()
    model = store.read_table(store.current("probe", "labels"))
    shown = np.array(model.column("coefficients").to_pylist())
    vectors = np.concatenate([np.load(part) for part in array_files(store, refs[1]).values()]).astype(float)
    cosines = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)) @ shown.T
    assert len(shown) == 30
    assert scores == pytest.approx(cosines.max(1), abs=1e-3)
    assert scores.reshape(2, -1)[:, 0::2].min() > scores.reshape(2, -1)[:, 1::2].max()
    wanted = [row for row in pq.read_table(path).to_pylist() if row["label"]]
    pq.write_table(pa.Table.from_pylist(wanted), tmp_path / "wanted.parquet")
    plain = {"target": {"examples": str(tmp_path / "wanted.parquet")}}
    again = scored(store, refs, scorers=("target",), options=plain, window_documents=7)
    assert store.read_table(again, ["score"]).column(0).to_numpy() == pytest.approx(scores, abs=1e-5)
    for examples, said in ((path, "no such column"), ("installed", "has no targets")):
        with pytest.raises((ConfigurationError, InputError), match=r"column|targets"):
            scored(
                store,
                refs,
                scorers=("target",),
                options={"target": {"examples": str(examples), "text_column": said}},
            )


@pytest.mark.slow
def test_a_probe_without_labels_tells_texts_from_their_shuffled_words(tmp_path: Path, store: Store) -> None:
    """Documentation of NumPy's functions; pairs are held out together."""
    pages = {str(getattr(np, name).__doc__) for name in np.__all__}
    texts = sorted({" ".join(page.split())[:400] for page in pages if len(page) > 500})[:40]
    path = tmp_path / "pages.parquet"
    pq.write_table(pa.table({"text": [*texts, "one", None]}), path)
    config = SCORERS.config("probe", {"examples": str(path), "label_column": None, "held_out_share": 0.4})
    found = read_examples(config)
    half = len(texts)
    assert (len(found.texts), found.num_unlabelled) == (2 * half, 2)
    assert found.held_by == found.texts[:half] * 2
    assert all(
        sorted(one.split()) == sorted(other.split()) and one != other
        for one, other in zip(found.texts[:half], found.texts[half:], strict=True)
    )
    options = {"probe": {"examples": str(path), "label_column": None, "held_out_share": 0.4}}
    ref = scored(store, prepared(tmp_path, store), scorers=("probe",), options=options)
    report = store.manifest(ref)["metadata"]["scorers"]["probe"]["report"]
    assert report["num_held_out"] % 2 == 0
    assert report["held_out"]["auc"] > 0.6
    with pytest.raises(InputError, match="shuffled words, which have no vectors"):
        read_examples(config.model_copy(update={"vector_column": "text"}))


@pytest.mark.slow
def test_two_probes_learn_two_labels(tmp_path: Path, store: Store) -> None:
    refs = prepared(tmp_path, store)
    path = write_examples(tmp_path)
    table = pq.read_table(path)
    flipped = pa.array([None if label is None else not label for label in table["label"].to_pylist()])
    pq.write_table(table.append_column("other", flipped), path)
    options = {
        "probe:one": {"examples": str(path)},
        "probe:two": {"examples": str(path), "label_column": "other"},
    }
    ref = scored(store, refs, scorers=("probe:one", "probe:two"), options=options)
    scores = store.read_table(ref, ["score"]).column(0).to_numpy().reshape(-1, 2)
    np.testing.assert_allclose(scores.sum(1), 1.0, atol=1e-6)
    assert {"probe:one", "probe:two"} <= set(store.manifest(ref)["inputs"])


KILLED = """
import os, signal, sys
from datamask_pipeline.quality.rules import RulesScorer
from datamask_pipeline.stages import score
from datamask_pipeline.storage import Store

whole, calls = RulesScorer.score, 0
def deadly(self, batch):
    global calls
    calls += 1
    if calls == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, batch)
RulesScorer.score = deadly
store = Store(sys.argv[1])
documents, embeddings = (store.current(stage, "crawl") for stage in ("ingest", "embed"))
config = score.ScoreConfig(scorers=("rules",), window_documents=5)
score.run(config, store=store, crawl="crawl", documents=documents, embeddings=embeddings)
"""


def test_windows_are_on_the_disk_before_they_have_their_names(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of vectors and of scores: a cut of power left an empty one under its name, which ended every later run."""
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
    )
    refs = prepared(tmp_path, store)
    assert synced.count("window-000000.tmp") == 2
    scored(store, refs, scorers=("rules",), window_documents=10)
    assert synced.count("window-000000.tmp") == 4
    assert synced.count("window-000001.tmp") == 2


def test_a_kill_in_mid_shard_repeats_one_window_and_ends_with_the_same_bytes(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = prepared(tmp_path, store)
    done = subprocess.run([sys.executable, "-c", KILLED, store.root], check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.current("score", "crawl") is None
    whole, seen = RulesScorer.score, 0

    def counting(self: RulesScorer, batch: ScoreBatch) -> Scores:
        nonlocal seen
        seen += batch.documents.num_rows
        return whole(self, batch)

    monkeypatch.setattr(RulesScorer, "score", counting)
    resumed = scored(store, refs, scorers=("rules",), window_documents=5)
    assert seen == 40 - 3 * 5, "three windows were finished; the fourth is repeated"
    other = Store(tmp_path / "undisturbed")
    expected = scored(other, prepared(tmp_path, other), scorers=("rules",), window_documents=5)
    assert resumed == expected
    for part in ("0", "1"):
        path = f"{resumed.location}/{part}.parquet"
        assert Path(store.root, path).read_bytes() == Path(other.root, path).read_bytes()


def test_a_stopped_run_scores_only_what_is_left(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = prepared(tmp_path, store)
    whole = RulesScorer.score
    seen: list[int] = []

    def counting(self: RulesScorer, batch: ScoreBatch) -> Scores:
        seen.append(batch.documents.num_rows)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return whole(self, batch)

    monkeypatch.setattr(RulesScorer, "score", counting)
    with pytest.raises(KeyboardInterrupt):
        scored(store, refs, scorers=("rules",), window_documents=5)
    resumed = scored(store, refs, scorers=("rules",), window_documents=5)
    assert sum(seen) == 40 + 5
    other = Store(tmp_path / "other")
    monkeypatch.undo()
    assert scored(other, prepared(tmp_path, other), scorers=("rules",)) == resumed


def stopped_at_window(
    number: int,
    store: Store,
    refs: tuple[Ref, Ref],
    monkeypatch: pytest.MonkeyPatch,
    *,
    window_documents: int,
) -> None:
    """Score by rules until the window of that number, counted from 1, is asked for."""
    whole, calls = RulesScorer.score, 0

    def stopping(self: RulesScorer, batch: ScoreBatch) -> Scores:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return whole(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(RulesScorer, "score", stopping)
        with pytest.raises(KeyboardInterrupt):
            scored(store, refs, scorers=("rules",), window_documents=window_documents)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_windows_of_another_size(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = prepared(tmp_path, store)
    stopped_at_window(2, store, refs, monkeypatch, window_documents=8)
    resumed = scored(store, refs, scorers=("rules",), window_documents=4)
    assert not list(Path(store.root).rglob("window-*"))
    other = Store(tmp_path / "other")
    assert scored(other, prepared(tmp_path, other), scorers=("rules",)) == resumed


def test_a_checkpoint_of_other_documents_is_found_out_before_anything_is_published(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = prepared(tmp_path, store)
    stopped_at_window(4, store, refs, monkeypatch, window_documents=6)
    first, second, _ = sorted(Path(store.root).rglob("window-*.arrow"))
    second.write_bytes(first.read_bytes())
    with pytest.raises(IntegrityError, match=r"not those of its window's 6 documents; delete .*; run again"):
        scored(store, refs, scorers=("rules",), window_documents=6)
    assert not list(Path(store.root, "score").rglob("*.parquet"))


def test_scores_that_exist_are_imported_and_the_documents_they_lack_are_counted(
    tmp_path: Path, store: Store
) -> None:
    refs = prepared(tmp_path, store)
    ids = store.read_table(refs[0], ["id"]).column(0).to_pylist()
    known = {name: float(number) for number, name in enumerate(ids) if number % 3}
    rows = [{"key": name, "edu": value} for name, value in reversed(known.items())]
    rows += [{"key": "of another crawl", "edu": 9.0}, {"key": ids[0], "edu": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "scores.parquet")
    options = {"file": str(tmp_path / "scores.parquet"), "id_column": "key", "score_column": "edu"}
    ref = scored(
        store, refs, scorers=("imported", "rules"), options={"imported": options}, window_documents=7
    )
    found = [row for row in store.read_table(ref).to_pylist() if row["scorer"] == "imported"]
    assert [row["score"] for row in found] == [known.get(name) for name in ids]
    assert [row["reason"] is None for row in found] == [name in known for name in ids]
    about = store.manifest(ref)["metadata"]["scorers"]
    assert (about["imported"]["rows"], about["imported"]["scored"]) == (40, len(known))
    assert about["imported"]["unscored"] == {
        "column edu is null or not finite": 1,
        "no row of the imported scores has its id": 40 - len(known) - 1,
    }
    assert about["rules"]["unscored"] == {}
    Path(options["file"]).rename(tmp_path / "moved.parquet")
    moved = {"imported": options | {"file": str(tmp_path / "moved.parquet")}}
    assert scored(store, refs, scorers=("imported", "rules"), options=moved) == ref

"""Every document of every arm has a story, and the story is what the record holds."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forger import Forger
from tiny_chain import TASKS
from typer.testing import CliRunner

from datamask_pipeline.audit.render import _copy_lines, _telling, story_lines
from datamask_pipeline.audit.why import document_story
from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.summary import release_summary
from datamask_pipeline.errors import IntegrityError, UnknownDocumentError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.stages.select import SelectConfig
from datamask_pipeline.storage import Ref, Store, open_array, require
from datamask_pipeline.storage.ref import ref_of

RELEASE = "first"


def test_every_selected_document_resolves_to_its_rows(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    for arm in tiny_run.config.arms:
        key = f"{RELEASE}/{arm}"
        subset = store.read_table(require(store, "materialise", key)).to_pylist()
        rows = store.read_table(require(store, "select", key)).to_pylist()
        selected = {row["id"]: row for row in rows if row["selected"]}
        assert {row["id"] for row in subset} == set(selected)
        for document in subset[::5]:
            story = document_story(store, document["id"])
            (verdict,) = [item for item in story["releases"][0]["arms"] if item["arm"] == arm]
            assert verdict["selected"]
            for column in ("logit", "probability", "quality", "quality_marginal", "threshold", "reason"):
                assert verdict["selection"][column] == selected[document["id"]][column]
            place = verdict["subset"]
            with store.open_parquet(f"{store.root}/{place['artefact']}/{place['part']}") as part:
                assert part.read(["id"]).column(0)[place["row"]].as_py() == document["id"]
            (model,) = verdict["models"]
            assert model["run"] == f"{arm}.dense.seed0"
            assert {result["task"] for result in model["results"]} == set(TASKS)
            (copy,) = story["copies"]
            assert {score["scorer"]: score["score"] for score in copy["scores"]} == {
                "rules": document["score_rules"]
            }


def test_a_document_left_out_says_why(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    for exclusion in ("duplicate_content", "validation"):
        row = next(row for row in candidates if row["exclusion"] == exclusion)
        story = document_story(store, row["id"])
        assert story["releases"][0]["candidate"]["exclusion"] == exclusion
        assert all(arm["selection"] is None and not arm["selected"] for arm in story["releases"][0]["arms"])
        assert f"not eligible: {exclusion}" in "\n".join(story_lines(story))


def test_settings_that_say_nothing_are_not_told(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    name = store.read_table(require(store, "materialise", "first/datamask"), ["id"]).column("id")[0].as_py()
    story = document_story(store, name)
    story["copies"][0]["scores"][0]["revision"] = ""
    told = "\n".join(story_lines(story))
    assert "settings: policy=" in told
    assert "={}" not in told
    assert "no revision stated" in told


def test_settings_that_are_not_the_defaults_are_told() -> None:
    usual = {
        "policy": "datamask",
        "diversity": "Pair_simi",
        "ratio": 0.1,
        "lamb": 0.5,
        "normalisation": "affine",
    }
    usual["scorers"] = "all, equally"
    assert _telling(SelectConfig.of({"seed": 3}).result_config()) == usual
    own = {"outlier_deviations": 6.0, "quality_pruning": 0.2, "num_kicks": 3}
    assert _telling(SelectConfig.of(own).result_config()) == usual | own
    drawn = _telling(SelectConfig.of({"policy": "random", "quality_pruning": 0.2}).result_config())
    assert drawn == {"policy": "random", "ratio": 0.1, "scorers": "all, equally", "quality_pruning": 0.2}
    foreign = SelectConfig.of(own).result_config() | {"policy": "somebody_elses"}
    assert "outlier_deviations" not in _telling(foreign)


def test_a_rejected_row_has_a_story(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    rejected = [
        row
        for crawl in store.keys("rejected")
        for row in store.read_table(require(store, "rejected", crawl)).to_pylist()
    ]
    assert rejected
    story = document_story(store, rejected[0]["id"])
    assert story["copies"] == []
    assert rejected[0]["reason"] in "\n".join(story_lines(story))


def test_the_story_is_json(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    row = store.read_table(require(store, "pool", RELEASE)).to_pylist()[0]
    story = document_story(store, row["id"], with_text=True)
    assert json.loads(json.dumps(story, allow_nan=False)) == story
    assert story["copies"][0]["text"]


def test_an_unknown_id_is_an_error(tiny_run: Pipeline) -> None:
    with pytest.raises(UnknownDocumentError, match="no document 'nobody'"):
        document_story(tiny_run.store, "nobody")


def test_a_model_of_other_documents_is_not_claimed(
    tiny_run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tiny_run.store
    real = store.manifest

    def manifest(ref: Ref) -> dict[str, Any]:
        found = real(ref)
        if ref.stage == "materialise":
            found["metadata"]["documents_digest"] = "of other documents"
        return found

    monkeypatch.setattr(store, "manifest", manifest)
    subset = store.read_table(require(store, "materialise", f"{RELEASE}/datamask")).to_pylist()
    story = document_story(store, subset[0]["id"])
    assert all(arm["models"] == [] for arm in story["releases"][0]["arms"])


def lines_of(store: Store, document_id: str) -> list[str]:
    return [line.strip() for line in story_lines(document_story(store, document_id))]


@pytest.fixture
def copied(tiny_run: Pipeline, tmp_path: Path) -> Pipeline:
    """The tiny record, to be changed, under another lambda."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.9}
    return Pipeline(load_config(config_file(tiny_run), settings))


def config_file(pipeline: Pipeline) -> str:
    return str(Path(pipeline.store.root).parent / "tiny.yaml")


def test_a_document_without_a_score_says_so(copied: Pipeline) -> None:
    store = copied.store
    mask = {
        row["id"]: row
        for row in store.read_table(require(store, "select", f"{RELEASE}/datamask")).to_pylist()
    }
    changed: list[str] = []

    def forget(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["id"] in mask)
        row |= {"score": None, "reason": "too long"}
        changed.append(row["id"])

    Forger(Path(store.root)).change_rows("score", forget)
    for stage, names in (("gather", ["first"]), ("select", ["first", "datamask"])):
        shutil.rmtree(f"{store.root}/{require(store, stage, '/'.join(names)).location}")
        copied.run(stage, *names)
    lines = lines_of(store, changed[0])
    assert "no score by rules: too long" in lines
    assert not any(line.startswith("was not among the eligible documents") for line in lines)


def test_a_copy_tells_of_its_representative_in_each_arm(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    told = set()
    for row in (row for row in candidates if row["exclusion"] == "duplicate_content"):
        lines = lines_of(store, row["id"])
        for arm in tiny_run.config.arms:
            rows = store.read_table(require(store, "select", f"{RELEASE}/{arm}")).to_pylist()
            selected = {(item["crawl"], item["id"]) for item in rows if item["selected"]}
            of = row["representative_crawl"], row["representative_id"]
            place = "IN" if of in selected else "out"
            told.add(place)
            assert f"its representative {of[1]} of {of[0]} is {place}" in lines
    assert told == {"IN", "out"}


def test_a_mask_without_its_subset_says_so(copied: Pipeline) -> None:
    row = copied.store.read_table(require(copied.store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    another = "the subset in the record is of another mask: run stage materialise"
    assert another not in lines_of(copied.store, row["id"])
    copied.run("select", "first", "datamask")
    assert lines_of(copied.store, row["id"]).count(another) == 1
    copied.run("materialise", "first", "datamask")
    assert another not in lines_of(copied.store, row["id"])


def test_settings_that_are_not_the_records_are_told(tiny_run: Pipeline) -> None:
    file, store = Path(tiny_run.store.root).parent / "tiny.yaml", tiny_run.store
    row = store.read_table(require(store, "select", f"{RELEASE}/datamask")).to_pylist()[0]
    for command in (["report"], ["report", "--json"], ["audit", "why", row["id"]]):
        for given, told in ((["-s", "select.lamb=0.25"], True), ([], False)):
            result = CliRunner().invoke(app, [*command, "-c", str(file), *given])
            assert result.exit_code == 0, result.exception
            assert ("select.lamb: record 0.5, configuration 0.25" in result.stderr) == told, command
            assert ("not as configured" in result.stderr) == told


def test_the_story_says_how_the_score_became_the_quality(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    index = store.read_table(require(store, "gather", RELEASE)).to_pylist()
    scores = np.array([row["score_rules"] for row in index])
    row = store.read_table(require(store, "select", f"{RELEASE}/datamask")).to_pylist()[5]
    (place,) = (number for number, each in enumerate(index) if each["position"] == row["position"])
    below, same = (scores < scores[place]).sum(), (scores == scores[place]).sum()
    rank = (below + (same - 1) / 2) / (len(scores) - 1)
    arm = next(
        arm for arm in document_story(store, row["id"])["releases"][0]["arms"] if arm["arm"] == "datamask"
    )
    assert arm["normalised"] == [pytest.approx(rank)] == [pytest.approx(row["quality"])]
    (line, *_) = (line for line in lines_of(store, row["id"]) if line.startswith("quality is"))
    assert line.startswith(
        f"quality is (1 x {rank:.6g} (rules {scores[place]:.6g})) / 1; of each score the rank"
    )
    quick = document_story(store, row["id"], deep=False)["releases"][0]["arms"][0]
    assert quick["normalised"] is None
    assert quick["neighbours"] is None
    assert (arm["deep"], quick["deep"]) == (True, False)
    assert "passed_over" not in arm  # of a mask's row: not selected in an earlier release


def test_the_nearest_chosen_documents_are_named(tiny_run: Pipeline) -> None:
    store, key = tiny_run.store, f"{RELEASE}/datamask"
    mask = store.read_table(require(store, "select", key)).to_pylist()
    index = {row["position"]: row for row in store.read_table(require(store, "gather", RELEASE)).to_pylist()}

    def vector(position: int) -> Any:
        at = index[position]
        found = open_array(store, require(store, "embed", at["crawl"]), at["shard"])[at["row"]].astype(
            np.float64
        )
        return found / np.linalg.norm(found)

    left_out = [row for row in mask if not row["selected"]]
    for row in left_out[::9]:
        own = vector(row["position"])
        cosines = {
            (each["crawl"], each["id"]): vector(each["position"]) @ own for each in mask if each["selected"]
        }
        nearest = sorted(cosines, key=lambda name: -cosines[name])[:5]
        arm = next(
            arm for arm in document_story(store, row["id"])["releases"][0]["arms"] if arm["arm"] == "datamask"
        )
        assert [(each["crawl"], each["id"]) for each in arm["neighbours"]] == nearest
        assert [each["cosine"] for each in arm["neighbours"]] == pytest.approx(
            [cosines[name] for name in nearest]
        )
        first = f"near it is chosen {nearest[0][1]} of {nearest[0][0]}: cosine"
        lines = lines_of(store, row["id"])
        reason = next(number for number, line in enumerate(lines) if line.startswith("below threshold"))
        assert lines[reason + 1].startswith(first)


def test_the_cut_of_the_best_by_quality_is_told(tiny_run: Pipeline, copied: Pipeline) -> None:
    store = copied.store
    settings = {"store": store.root, "arms.top": {"policy": "quality_topk"}}
    pipeline = Pipeline(load_config(config_file(tiny_run), settings))
    pipeline.run("select", "first", "top")
    rows = store.read_table(require(store, "select", f"{RELEASE}/top")).to_pylist()
    last = min(row["quality"] for row in rows if row["selected"])
    first = max(row["quality"] for row in rows if not row["selected"])
    lines = lines_of(store, rows[0]["id"])
    assert f"the last chosen has quality {last:.6g}, the first not chosen {first:.6g}" in lines
    assert any(line.endswith(f"on the objective's scale, a quality of {last:.6g}") for line in lines)


def test_under_quotas_the_cut_is_that_of_the_documents_group(tiny_run: Pipeline, copied: Pipeline) -> None:
    store = copied.store
    none, others = "tiny-2024-10", "tiny-2024-18"
    arms = {
        "arms.few": {"policy": "datamask", "quotas": {none: 0.2, others: 0.8}},
        "arms.top": {"policy": "quality_topk", "quotas": {none: 0, "*": 1}},
    }
    pipeline = Pipeline(load_config(config_file(tiny_run), {"store": store.root, **arms}))
    for arm in ("few", "top"):
        pipeline.run("select", "first", arm)
    few, top = (
        store.read_table(require(store, "select", f"{RELEASE}/{arm}")).to_pylist() for arm in ("few", "top")
    )
    for crawl in (none, others):
        mine = [row for row in few if row["crawl"] == crawl]
        totals = sorted((row["quality_marginal"] + row["diversity_marginal"] for row in mine), reverse=True)
        cut = totals[sum(row["selected"] for row in mine) - 1]
        ending = f"; threshold of quota {crawl} {cut:.6g}"
        assert any(line.endswith(ending) for line in lines_of(store, mine[0]["id"]))
    of_none = lines_of(store, next(row["id"] for row in top if row["crawl"] == none))
    assert f"quality below threshold; of quota {none} none was chosen" in of_none
    assert not any(line.startswith("the last chosen") for line in of_none)
    last = min(row["quality"] for row in top if row["selected"])
    of_others = lines_of(store, next(row["id"] for row in top if row["selected"]))
    assert any(line.startswith(f"the last chosen has quality {last:.6g}, ") for line in of_others)
    said = (line for line in of_others if "threshold of quota *" in line)
    assert next(said).endswith(f"a quality of {last:.6g}")


def test_a_takedown_forgets_no_model(tiny_run: Pipeline, copied: Pipeline) -> None:
    """What was trained on a withdrawn document stays told; what is not made anew yet is marked."""
    store = copied.store
    subset = store.read_table(require(store, "materialise", f"{RELEASE}/datamask")).to_pylist()
    withdrawn = subset[0]["id"]
    trained = f"{RELEASE}/datamask.dense.seed0"
    (model,) = (item for item in document_story(store, withdrawn)["models"] if item["key"] == trained)
    assert (model["state"], model["trained"]) == ("current", None)
    assert 0 < model["read"] < 1, "its token budget ends before the subset does"
    assert (model["num_tasks"], model["why"]) == (len(TASKS), [])
    settings = {"store": store.root, "pool.takedown": [withdrawn]}
    pipeline = Pipeline(load_config(config_file(tiny_run), settings))
    assert release_summary(pipeline, RELEASE)["stale"] == []
    pipeline.run("takedown", "first")
    pipeline.run("pool", "first")
    stale = "STALE: pool of first was made again since"
    assert sum(line.startswith(stale) for line in lines_of(store, withdrawn)) == 2  # both masks
    assert release_summary(pipeline, RELEASE)["stale"][0].startswith(stale.removeprefix("STALE: "))
    pipeline.run("gather", "first")
    for arm in ("random", "datamask"):
        pipeline.run("select", "first", arm)
        pipeline.run("materialise", "first", arm)
    story = document_story(store, withdrawn)
    assert all(arm["models"] == [] and arm["stale"] == [] for arm in story["releases"][0]["arms"])
    of_arm = [item for item in story["subsets"] if item["key"] == f"{RELEASE}/datamask"]
    assert [item["state"] for item in of_arm] == ["superseded"]
    (told,) = (item for item in story["models"] if item["key"] == trained)
    assert (told["state"], told["trained"], told["model"]) == ("stale", None, model["model"])
    lines = lines_of(store, withdrawn)
    assert "not eligible: takedown" in lines
    assert any(
        line.startswith("may be trained on it, it read ") and f"tokens: {trained} " in line for line in lines
    )
    left_in = next(row["id"] for row in subset[1:] if row["id"] != withdrawn)
    assert any(item["key"] == trained for item in document_story(store, left_in)["models"])


@pytest.mark.slow
def test_a_copy_and_what_stands_for_it_lead_to_each_other(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    places = set()
    for row in (row for row in candidates if row["exclusion"] == "duplicate_content"):
        first = row["representative_crawl"], row["representative_id"]
        of_first = document_story(store, first[1])
        assert (row["crawl"], row["id"]) in {
            (each["crawl"], each["id"]) for each in of_first["releases"][0]["copies"]
        }
        mine = document_story(store, row["id"])
        for arm, other in zip(mine["releases"][0]["arms"], of_first["releases"][0]["arms"], strict=True):
            (line,) = (line for line in lines_of(store, row["id"]) if line.startswith(f"{arm['arm']}: "))
            place = f"its text is IN, as {first[1]} of {first[0]}" if other["selected"] else "out"
            assert line.startswith(f"{arm['arm']}: {place}  (")
            places.add(other["selected"])
        assert {item["artefact"] for item in mine["subsets"]} == {
            item["artefact"] for item in of_first["subsets"]
        }
        assert len(mine["models"]) == len(of_first["models"])
    assert places == {True, False}


@pytest.mark.slow
def test_the_text_of_a_near_duplicate_or_near_copy_is_not_in(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    """Whether it was selected, and whether a model was trained on it, is told of its own text; and of what stands for it."""
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    settings = {
        "store": str(tmp_path / "record"),
        "pool.near_duplicates": {"shingle_words": 1, "threshold": 0.7, "num_permutations": 64},
        "copies.threshold": 0.9,
    }
    pipeline = Pipeline(load_config(str(tiny_config_file), settings))
    for _, _, call in pipeline.steps(RELEASE, "materialise"):
        call()
    store = pipeline.store
    contents, told = {}, set()
    for row in store.read_table(require(store, "pool", RELEASE)).to_pylist():
        contents[row["crawl"], row["id"]] = row["content_hash"]
    in_subset = set()
    for manifest in store.all_manifests("materialise"):
        in_subset |= {
            contents[row["crawl"], row["id"]] for row in store.read_table(ref_of(manifest)).to_pylist()
        }
    for (crawl, name), content in contents.items():
        story = document_story(store, name)
        lines = [line.strip() for line in story_lines(story)]
        (release,) = (each for each in story["releases"] if each["candidate"]["crawl"] == crawl)
        if (of := release["representative"]) is not None:
            is_copy = contents[of["crawl"], of["id"]] == content
            assert (of["by"] == "copy") == is_copy
            for arm in release["arms"]:
                what = {"near_duplicate": "a near-duplicate", "near_copy": "a near-copy"}.get(of["by"])
                place = f"its text is IN, as {of['id']} of {of['crawl']}"
                if not is_copy:
                    place = f"out; {of['id']} of {of['crawl']}, which it is {what} of, is IN"
                shown = f"{arm['arm']}: {place}  ("
                assert any(line.startswith(shown) for line in lines) == arm["representative"]["selected"]
                told.add((of["by"], arm["representative"]["selected"]))
        by_text = {each["by"] in (None, "copy") for each in story["subsets"]}
        assert (True in by_text) == (content in in_subset)
        if story["subsets"] and content not in in_subset:
            assert not any(each["trained"] for each in story["models"])
            assert not [line for line in lines if line.startswith("trained on it")]
            told |= {("trained on", each["by"]) for each in story["models"] if each["trained"] is False}
    kinds = {"near_duplicate", "near_copy"}
    assert {(by, selected) for by in kinds for selected in (True, False)} <= told
    assert {each for each in told if each[0] == "trained on"} <= {("trained on", by) for by in kinds}
    assert [each for each in told if each[0] == "trained on"]


@pytest.mark.parametrize("stage", ["ingest", "embed", "score", "pool", "gather", "select", "materialise"])
def test_no_story_is_told_from_altered_bytes(copied: Pipeline, stage: str) -> None:
    store = copied.store
    row = store.read_table(require(store, "materialise", f"{RELEASE}/datamask")).to_pylist()[0]
    key = {
        "ingest": row["crawl"],
        "embed": row["crawl"],
        "score": row["crawl"],
        "pool": RELEASE,
        "gather": RELEASE,
    }
    ref = require(store, stage, key.get(stage, f"{RELEASE}/datamask"))
    for path in sorted(Path(store.root, ref.location).glob("*.parquet")):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    result = CliRunner().invoke(app, ["audit", "why", row["id"], "-s", f"store={store.root}"])
    assert isinstance(result.exception, IntegrityError)
    assert f"{ref.location}/" in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


def test_a_copy_of_a_document_held_out_says_so_and_each_release_names_the_crawl(tiny_run: Pipeline) -> None:
    store = tiny_run.store
    candidates = store.read_table(require(store, "pool", RELEASE)).to_pylist()
    held = {(row["crawl"], row["id"]) for row in candidates if row["exclusion"] == "validation"}
    told = set()
    for row in (row for row in candidates if row["exclusion"] == "duplicate_content"):
        of = row["representative_crawl"], row["representative_id"]
        lines = lines_of(store, row["id"])
        assert (f"its text is held out for validation, as {of[1]} of {of[0]}" in lines) == (of in held)
        (line,) = (line for line in lines if line.startswith(f"release {RELEASE} ("))
        assert line.endswith(f", crawl {row['crawl']}")
        told.add(of in held)
    assert told == {True, False}


def test_what_a_source_does_not_state_is_said_so() -> None:
    copy = {
        "crawl": "A",
        "shard": "0",
        "row": 1,
        "url": "",
        "date": None,
        "language": "en",
        "token_count": None,
    }
    assert [*itertools.islice(_copy_lines(copy), 2)][1] == (
        "    url   date not stated  language en  tokens not stated"
    )


@pytest.mark.parametrize(
    ("model", "revision", "line"),
    [
        ("mini", "", "mini, no revision stated"),
        ("", "", "no model stated, no revision stated"),
        ("mini", "1", "mini revision 1"),
    ],
)
def test_what_imported_vectors_do_not_state_is_said_so(model: str, revision: str, line: str) -> None:
    row = {"artefact": "embed/A/0", "part": "0.parquet", "row": 1}
    copy = {
        "crawl": "A",
        "shard": "0",
        "row": 1,
        "url": "",
        "date": None,
        "language": "en",
        "token_count": 1,
        "content_hash": "0",
        "record": row,
        "embedding": {"model": model, "revision": revision, "record": row},
        "scores": [],
        "stale": [],
        "further": {},
    }
    assert f"    embedding: {line}" in [*_copy_lines(copy)]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("ngram.max_tokens=100", "ngram.max_tokens: record 3000000, configuration 100 (random, datamask)"),
        ("seeds=[0,1]", "seeds: 1 only in the configuration (first)"),
        ("arms.another={policy: random}", "arms: another only in the configuration (first)"),
        ("architectures.moe={architecture: moe}", "architectures: moe only in the configuration (first)"),
        ("evaluate.questions=gold", "evaluate.questions: record local, configuration gold (first)"),
        ("evaluate.curated=good.jsonl", "evaluate.curated: record None, configuration good.jsonl (first)"),
        ("pool.validation_share=0.25", "pool.validation_share: record 0.3, configuration 0.25 (first)"),
        ("tokenizer.vocab_size=300", "tokenizer.vocab_size: record 400, configuration 300 (first)"),
        ("copies.threshold=0.9", "stage copies: only in the configuration (first)"),
        ("pool.takedown=[some-id]", "stage takedown: only in the configuration (first)"),
        (
            "score.scorers=[fineweb_edu]",
            "score.scorers: record ['rules'], configuration ['fineweb_edu'] (tiny-2024-10, ",
        ),
        ("embed.max_tokens=8", "embed.max_tokens: record 16, configuration 8 (tiny-2024-10, tiny-2024-18)"),
        ("redundancy.threshold=0.9", "redundancy.threshold: record 0.98, configuration 0.9 ("),
    ],
)
def test_a_report_tells_what_of_all_behind_it_is_not_as_configured(
    tiny_run: Pipeline, given: str, line: str
) -> None:
    file = Path(tiny_run.store.root).parent / "tiny.yaml"
    result = CliRunner().invoke(app, ["report", "-c", str(file), "-s", given])
    assert result.exit_code == 0, result.exception
    told = [one for one in result.stderr.splitlines() if one.startswith("not as configured")]
    assert len(told) == 1
    assert told[0].startswith(f"not as configured: {line}")


def test_a_report_tells_of_arms_that_are_configured_no_more(tiny_run: Pipeline, tmp_path: Path) -> None:
    file = Path(tiny_run.store.root).parent / "tiny.yaml"
    values = yaml.safe_load(file.read_text())
    del values["arms"]["datamask"]
    (tmp_path / "fewer.yaml").write_text(yaml.safe_dump(values))
    result = CliRunner().invoke(app, ["report", "-c", str(tmp_path / "fewer.yaml")])
    assert result.exit_code == 0, result.exception
    assert "not as configured: arms: datamask only in the record (first)" in result.stderr

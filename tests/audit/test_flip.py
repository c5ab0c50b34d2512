"""`audit flip`: what it says agrees with the threshold rule tried at either side, and with real selections of top-k arms."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from datamask_pipeline import schema
from datamask_pipeline.audit.flip import Flip, Turn, _both_ways, flips
from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.flip import _turn
from datamask_pipeline.errors import IntegrityError, UnknownDocumentError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.quality.combine import combine_scores
from datamask_pipeline.selection.ratio import documents_of, least_ratio
from datamask_pipeline.stages import gather, select
from datamask_pipeline.storage import Ref, Store, require

NUM_DOCUMENTS = 90
HOSTILE = "<urn:\x1b[31m>"


class Record:
    """Candidates, embeddings and two scores of one crawl, as the stages before write them; some documents are alike."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        generator = np.random.default_rng(1)
        ids = [f"d{number:02d}" for number in range(NUM_DOCUMENTS - 1)] + [HOSTILE]
        vectors = generator.normal(size=(NUM_DOCUMENTS, schema.EMBEDDING_DIM)).astype(np.float16)
        vectors /= np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True).astype(np.float16)
        table = pa.table({"id": ids, "content_hash": ids}, schema=schema.EMBEDDINGS)
        self.embeddings = {"one": self.write("embed", "one", table, vectors)}
        self.scores = {name: generator.integers(0, 25, NUM_DOCUMENTS) / 25 for name in ("probe", "rules")}
        scores = [
            {"id": each, "scorer": name, "score": float(values[number]), "scale_min": 0.0, "scale_max": 1.0}
            for number, each in enumerate(ids)
            for name, values in self.scores.items()
        ]
        pool = [
            {
                "position": number,
                "crawl": "one",
                "shard": "00000",
                "id": each,
                "content_hash": each,
                "domain": f"site{number % 2}.example",
                "token_count": 10 + number % 7,
                "eligible": True,
            }
            for number, each in enumerate(ids)
        ]
        counts = {"rows_in": NUM_DOCUMENTS, "kept": NUM_DOCUMENTS}
        self.index = gather.run(
            gather.GatherConfig(),
            store=self.store,
            release="r",
            candidates=self.write(
                "pool", "r", pa.Table.from_pylist(pool, schema=schema.CANDIDATES), None, counts
            ),
            embeddings=self.embeddings,
            scores={"one": self.write("score", "one", pa.Table.from_pylist(scores, schema=schema.SCORES))},
        )

    def write(
        self, stage: str, key: str, table: pa.Table, vectors: Any = None, counts: dict[str, int] | None = None
    ) -> Ref:
        builder = self.store.begin(stage, key, version="1", config={}, inputs={})
        array = None
        if vectors is not None:
            array = builder.write_array("00000", [vectors], dtype=schema.EMBEDDING_DTYPE, shape=vectors.shape)
        return builder.commit(
            [builder.write_part("00000", table.to_batches(), table.schema, array=array)], counts=counts
        )

    def select(self, arm: str, **settings: Any) -> list[dict[str, Any]]:
        ref, _ = select.run(
            select.SelectConfig(**settings),
            store=self.store,
            release="r",
            arm=arm,
            index=self.index,
            embeddings=self.embeddings,
        )
        return self.store.read_table(ref).to_pylist()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record(tmp_path_factory.mktemp("flip"))


ARMS: dict[str, dict[str, Any]] = {
    "plain": {"ratio": 0.3},
    "facility": {"diversity": "Facility", "num_documents": 20, "lamb": 0.4},
    "quotas": {"ratio": 0.3, "quota_by": "domain", "quotas": {"site0.example": 0.6, "site1.example": 0.4}},
    "blocks": {"ratio": 0.3, "block_rows": 40},
    "pruned": {"ratio": 0.2, "quality_pruning": 0.25, "scorers": {"probe": 0.5, "rules": 2.0}},
}


def turns_of(flip: Flip) -> dict[str, Turn]:
    return {turn.name: turn for turn in flip.turns}


def ends_of(turn: Turn, *, most: float = np.inf) -> list[tuple[float, float]]:
    """Values just before and just beyond where the side changes."""
    step = 1e-6
    below = [] if turn.below is None else [(turn.below + step, turn.below - step)]
    above = [] if turn.above is None else [(turn.above - step, turn.above + step)]
    return [pair for pair in (*below, *above) if min(pair) > 0 and max(pair) < most]


@pytest.mark.parametrize("arm", ARMS)
def test_the_threshold_rule_agrees_at_either_side(record: Record, arm: str) -> None:
    settings = {"policy": "datamask", **ARMS[arm]}
    rows = record.select(arm, **settings)
    config = select.SelectConfig(**settings)
    blocks = record.store.manifest(require(record.store, "select", f"r/{arm}"))["metadata"]["blocks"]
    of_block = np.zeros(NUM_DOCUMENTS, int)
    for number, block in enumerate(select.blocks_of(NUM_DOCUMENTS, config)):
        of_block[block] = number
    kept = np.array([row["reason"] != "pruned by quality" for row in rows])
    group = np.arange(NUM_DOCUMENTS) % 2 if arm == "quotas" else np.zeros(NUM_DOCUMENTS, int)
    selected = np.array([row["selected"] for row in rows])
    parts = {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows])
        for name in ("quality_marginal", "diversity_marginal")
    }

    def is_in(place: int, total: np.ndarray) -> bool:
        rivals = kept & (of_block == of_block[place]) & (group == group[place])
        return bool((total[rivals] > total[place]).sum() < selected[rivals].sum())

    def at_lambda(value: float, place: int) -> bool:
        quality = parts["quality_marginal"] * value / config.lamb
        return is_in(place, quality + parts["diversity_marginal"] * (1 - value) / (1 - config.lamb))

    def at_weight(name: str) -> Callable[[float, int], bool]:
        def of(value: float, place: int) -> bool:
            weights = (config.scorers or {"probe": 1.0, "rules": 1.0}) | {name: value}
            quality = combine_scores(record.scores, weights, normalisation="rank")
            block = blocks[of_block[place]]
            zero, one = block["normalisation"]["quality"]
            scaled = config.lamb * (quality - zero) / (one - zero) / block["record"]["selected"]
            return is_in(place, scaled + parts["diversity_marginal"])

        return of

    told, exceptions = 0, 0
    for place, row in [*enumerate(rows)][::2]:
        (flip,) = flips(record.store, row["id"], arm=arm)
        assert (flip.cannot is None) == (kept[place] and not row["reason"].startswith("exception"))
        exceptions += row["reason"].startswith("exception")
        turns = turns_of(flip)
        for name, tried, most in (
            ("lambda", at_lambda, 1.0),
            ("weight of probe", at_weight("probe"), np.inf),
            ("weight of rules", at_weight("rules"), np.inf),
        ):
            if flip.cannot is not None:
                continue
            turn = turns[name]
            assert tried(turn.now, place) == row["selected"]
            for before, beyond in ends_of(turn, most=most):
                told += 1
                assert tried(before, place) == row["selected"], (row["id"], turn)
                assert tried(beyond, place) != row["selected"], (row["id"], turn)
            ends = [turn.below or 0.0, turn.above or min(most, 4.0)]
            inside = np.linspace(*ends, 7)[1:-1]
            assert {tried(float(value), place) for value in inside} == {row["selected"]}
    assert told > 15
    assert exceptions < NUM_DOCUMENTS / 4


@pytest.mark.parametrize("off", [-1e-9, 0.0, 1e-9])
def test_no_end_of_the_range_is_told_for_a_crossing(off: float) -> None:
    """The two documents are equal at lambda 1, or at 0, but for rounding."""
    for slope in (0.2, -0.2):
        standing_n, slope_n = np.array([0.5, 0.4]), np.array([0.0, slope + off])
        assert _both_ways(standing_n, slope_n, 0, 1, None, 0.5, 0.0, 1.0) == (None, None)


@pytest.mark.parametrize("num_rows", [2, 7, 90, 246, 10_000_019])
def test_the_least_ratio_that_selects_so_many_is_the_engines(num_rows: int) -> None:
    for wanted in {1, 2, num_rows // 3 or 1, num_rows - 1, num_rows}:
        ratio = least_ratio(wanted, num_rows)
        assert documents_of(ratio, num_rows) == wanted
        assert documents_of(float(np.nextafter(ratio, 0)), num_rows) == wanted - 1


def test_a_printed_budget_changes_the_side() -> None:
    assert _turn(Turn("ratio", 0.3, above=76.5 / 246, kind="exact"), selected=False) == "comes in at 0.310976"
    assert (
        _turn(Turn("ratio", 0.3, below=0.2123456789, kind="exact"), selected=True) == "goes out at 0.212345"
    )
    assert _turn(Turn("num_tokens", 3e6, above=3_456_789), selected=False) == (
        "comes in at 3456789 (first order)"
    )


def test_a_top_k_arm_selects_as_it_was_told(record: Record) -> None:
    """With equal scores, of which lots decide."""
    base: dict[str, Any] = {"policy": "quality_topk", "ratio": 0.3}
    rows = record.select("topk", **base)
    tried: dict[str, list[dict[str, Any]]] = {}
    told = 0
    for place in range(0, NUM_DOCUMENTS, 12):
        (flip,) = flips(record.store, rows[place]["id"], arm="topk")
        turns = turns_of(flip)
        assert "does not read it" in str(turns["lambda"].cannot)
        for name in ("ratio", "weight of probe"):
            turn = turns[name]
            assert turn.kind == "exact"
            if name == "ratio":
                end = turn.below if flip.selected else turn.above
                near = None if end is None else float(np.nextafter(end, 1.0 if flip.selected else 0.0))
                pairs = (
                    [] if end is None or near is None or min(end, near) * NUM_DOCUMENTS < 2 else [(near, end)]
                )
            else:
                pairs = ends_of(turn)
            for pair in pairs:
                for value, side in zip(pair, (flip.selected, not flip.selected), strict=True):
                    changed = (
                        {"ratio": value} if name == "ratio" else {"scorers": {"probe": value, "rules": 1.0}}
                    )
                    key = json.dumps(changed)
                    if key not in tried:
                        tried[key] = record.select("tried", **(base | changed))
                    assert tried[key][place]["selected"] == side, (rows[place]["id"], turn, value)
                    told += 1
    assert told > 20


def test_what_cannot_be_told_is_said(record: Record) -> None:
    record.select("drawn", policy="random", ratio=0.3)
    record.select("pure", policy="datamask", ratio=0.3, lamb=1.0, scorers={"rules": 1.0})
    (drawn,), (pure,) = (flips(record.store, "d03", arm=arm) for arm in ("drawn", "pure"))
    assert "compares no numbers" in str(drawn.cannot)
    assert drawn.turns == ()
    turns = turns_of(pure)
    assert turns["lambda"].cannot == "at 1 the marginals of diversity are stored as 0"
    assert "no other score has a weight" in str(turns["weight of rules"].cannot)
    with pytest.raises(UnknownDocumentError, match="no selection decided about document 'none'"):
        flips(record.store, "none")
    with pytest.raises(UnknownNameError, match="unknown arm 'nowhere'"):
        flips(record.store, "d03", arm="nowhere")


def test_of_a_copy_the_answer_is_that_of_what_stands_for_it(many_arms: Pipeline) -> None:
    store = many_arms.store
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
    arm = next(key.split("/")[1] for key in store.keys("select"))
    by_name = {(row["crawl"], row["id"]): row for row in pool}
    copies = [row for row in pool if row["exclusion"] == "duplicate_content"]
    told = 0
    for copy in copies:
        first = by_name[copy["representative_crawl"], copy["representative_id"]]
        (answer,) = flips(store, copy["id"], "first", arm)
        assert answer.crawl == copy["crawl"]
        assert answer.representative == {
            "crawl": first["crawl"],
            "id": first["id"],
            "why": "duplicate_content",
        }
        if first["exclusion"] is None:
            (own,) = flips(store, first["id"], "first", arm)
            assert own.representative is None
            alike = dataclasses.replace(answer, representative=None, crawl=own.crawl)
            assert alike == own
            told += 1
        else:
            assert (answer.selected, answer.reason, answer.turns) == (False, first["exclusion"], ())
    assert told > 2
    out = next(row for row in pool if row["exclusion"] == "validation")
    (answer,) = flips(store, out["id"], "first", arm)
    assert (answer.selected, answer.reason) == (False, "validation")
    assert "left out before anything was selected: validation" in str(answer.cannot)
    call = ["audit", "flip", copies[0]["id"], "--arm", arm, "-s", f"store={store.root}"]
    printed = CliRunner().invoke(app, call)
    assert f"an exact copy of {copies[0]['representative_id']} of" in printed.stdout


def test_a_budget_is_never_told_that_would_be_refused(record: Record) -> None:
    rows = record.select("few", policy="quality_topk", num_documents=3, quality_pruning=0.1)
    best = sorted((row for row in rows if row["selected"]), key=lambda row: -row["quality"])
    budgets = [turns_of(flips(record.store, row["id"], arm="few")[0])["num_documents"].below for row in best]
    assert budgets == [None, None, 2.0]
    (flip,) = flips(record.store, best[0]["id"], arm="few")
    assert turns_of(flip)["weight of probe"].kind == "first order"


def test_a_mask_whose_sides_contradict_its_reasons_is_refused(record: Record) -> None:
    record.select("swapped", policy="datamask", **ARMS["plain"])
    ref = require(record.store, "select", "r/swapped")
    made, table = record.store.manifest(ref), record.store.read_table(ref)
    selected = table["selected"].to_pylist()
    two = selected.index(True), selected.index(False)
    for place in two:
        selected[place] = not selected[place]
    at = table.schema.get_field_index("selected")
    table = table.set_column(at, table.schema.field(at), pa.array(selected))
    inputs = {name: Ref(**item) for name, item in made["inputs"].items()}
    builder = record.store.begin(
        "select", ref.key, version="swapped", config=made["basis"]["config"], inputs=inputs
    )
    part = builder.write_part("00000", table.to_batches(), table.schema)
    ref = builder.commit([part], counts=made["counts"], metadata=made["metadata"])
    for place in (*two, 50):
        with pytest.raises(IntegrityError, match=f"{ref.location}.* row {min(two)} .*audit prove"):
            flips(record.store, table["id"][place].as_py(), arm="swapped")


def test_the_command_is_read_by_people_and_programs(record: Record) -> None:
    record.select("plain", policy="datamask", **ARMS["plain"])
    place = ["-s", f"store={record.store.root}", "--arm", "plain"]
    lines = CliRunner().invoke(app, ["audit", "flip", HOSTILE, *place]).output
    assert "\x1b" not in lines
    assert "place " in lines
    assert "lambda 0.5: " in lines
    (line,) = CliRunner().invoke(app, ["audit", "flip", "d03", *place, "--json"]).output.splitlines()
    (flip,) = flips(record.store, "d03", arm="plain")
    assert json.loads(line) == json.loads(json.dumps(dataclasses.asdict(flip)))

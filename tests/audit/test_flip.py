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
from datamask_pipeline.audit.flip import Flip, Turn, _both_ways, _quotas_of, _shares, _smallest_budget, flips
from datamask_pipeline.audit.neighbours import _chosen_positions
from datamask_pipeline.audit.reader import Reader
from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.flip import _turn
from datamask_pipeline.errors import IntegrityError, UnknownDocumentError, UnknownNameError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.quality.combine import combine_scores
from datamask_pipeline.selection.ratio import documents_of, least_ratio
from datamask_pipeline.selection.reasons import HELD, PASSED_OVER
from datamask_pipeline.stages import gather, select
from datamask_pipeline.storage import Ref, Store, require

NUM_DOCUMENTS = 90
NUM_ADDED = 40
HOSTILE = "<urn:\x1b[31m>"


class Record:
    """Candidates, embeddings and two scores of two crawls, as the stages before write them; some documents are alike.

    Release `r` has the first crawl; `later` goes on from it with the second.
    """

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.embeddings: dict[str, Ref] = {}
        self.score_refs: dict[str, Ref] = {}
        self.pool: list[dict[str, Any]] = []
        self.scores = self.add_crawl(
            "one", 1, [f"d{number:02d}" for number in range(NUM_DOCUMENTS - 1)] + [HOSTILE]
        )
        self.index = self.gather("r")

    def add_crawl(self, crawl: str, seed: int, ids: list[str]) -> dict[str, np.ndarray]:
        """Write one; returns its scores."""
        generator = np.random.default_rng(seed)
        vectors = generator.normal(size=(len(ids), schema.EMBEDDING_DIM)).astype(np.float16)
        vectors /= np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True).astype(np.float16)
        table = pa.table({"id": ids, "content_hash": ids}, schema=schema.EMBEDDINGS)
        self.embeddings[crawl] = self.write("embed", crawl, table, vectors)
        found = {name: generator.integers(0, 25, len(ids)) / 25 for name in ("probe", "rules")}
        scores = [
            {"id": each, "scorer": name, "score": float(values[number]), "scale_min": 0.0, "scale_max": 1.0}
            for number, each in enumerate(ids)
            for name, values in found.items()
        ]
        self.score_refs[crawl] = self.write(
            "score", crawl, pa.Table.from_pylist(scores, schema=schema.SCORES)
        )
        self.pool += [
            {
                "position": len(self.pool) + number,
                "crawl": crawl,
                "shard": "00000",
                "id": each,
                "content_hash": each,
                "domain": f"site{number % 2}.example",
                "token_count": 10 + number % 7,
                "eligible": True,
            }
            for number, each in enumerate(ids)
        ]
        return found

    def gather(self, release: str) -> Ref:
        """The index of a release with the crawls so far, over a pool with a part for each."""
        builder, parts = self.store.begin("pool", release, version="1", config={}, inputs={}), []
        for number, crawl in enumerate(self.embeddings):
            rows = [row for row in self.pool if row["crawl"] == crawl]
            table = pa.Table.from_pylist(rows, schema=schema.CANDIDATES)
            parts.append(builder.write_part(f"{number:05d}", table.to_batches(), table.schema))
        counts = dict.fromkeys(("rows_in", "kept"), len(self.pool))
        return gather.run(
            gather.GatherConfig(),
            store=self.store,
            release=release,
            candidates=builder.commit(parts, counts=counts),
            embeddings=self.embeddings,
            scores=self.score_refs,
        )

    def write(self, stage: str, key: str, table: pa.Table, vectors: Any = None) -> Ref:
        builder = self.store.begin(stage, key, version="1", config={}, inputs={})
        array = None
        if vectors is not None:
            array = builder.write_array("00000", [vectors], dtype=schema.EMBEDDING_DTYPE, shape=vectors.shape)
        return builder.commit([builder.write_part("00000", table.to_batches(), table.schema, array=array)])

    def select(self, arm: str, **settings: Any) -> list[dict[str, Any]]:
        ref, _ = select.run(
            select.SelectConfig(**settings),
            store=self.store,
            release="r",
            arm=arm,
            index=self.index,
            embeddings={"one": self.embeddings["one"]},
        )
        return self.store.read_table(ref).to_pylist()

    def go_on(self, arm: str, **settings: Any) -> list[dict[str, Any]]:
        """The arm's mask in `later`, given that of `r` as it stands."""
        if "two" not in self.embeddings:
            self.added = self.add_crawl("two", 2, [f"e{number:02d}" for number in range(NUM_ADDED)])
            self.later = self.gather("later")
        ref, _ = select.run(
            select.SelectConfig(**settings),
            store=self.store,
            release="later",
            arm=arm,
            index=self.later,
            embeddings=self.embeddings,
            given="r",
            held=require(self.store, "select", f"r/{arm}"),
        )
        return self.store.read_table(ref).to_pylist()


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record(tmp_path_factory.mktemp("later"))


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


@pytest.mark.sampled(1)
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
    for place, row in [*enumerate(rows)][::4]:
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
    assert told > 10
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
    assert _turn(Turn("ratio", 0.3), selected=False) == "no ratio up to 1 takes it"
    assert _turn(Turn("num_tokens", 3e6, above=3_456_789), selected=False) == (
        "comes in at 3456789 (first order)"
    )


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"ratio": 0.3}, {"num_documents": 12}, {"ratio": 0.4, "block_rows": 25}])
def test_an_arm_that_goes_on_adds_as_it_was_told(record: Record, budget: dict[str, Any]) -> None:
    """Places and budgets are of what is added, whatever is held; a ratio below that of two adds nothing."""
    arm, name = f"added by {'-'.join(budget)}", next(iter(budget))
    held = sum(row["selected"] for row in record.select(arm, policy="quality_topk", **budget))
    rows = record.go_on(arm, policy="quality_topk", **budget)
    added, told = [place for place, row in enumerate(rows) if row["crawl"] == "two"], 0
    for place in added[::4]:
        (flip,) = flips(record.store, rows[place]["id"], "later", arm)
        turn = turns_of(flip)[name]
        assert (flip.held, flip.added) == (held, NUM_ADDED)
        assert flip.rank is not None
        assert flip.places is not None
        assert flip.competitors == NUM_ADDED / (2 if "block_rows" in budget else 1)
        assert (flip.rank <= flip.places) == flip.selected
        end = turn.below if flip.selected else turn.above
        if end is None:
            assert flip.rank <= 2
            assert name == "num_documents"
            continue
        near = end + (1 if flip.selected else -1)
        if name == "ratio":
            near = float(np.nextafter(end, 1.0 if flip.selected else 0.0))
            if "block_rows" in budget and documents_of(end, NUM_ADDED) < 4:
                continue  # two blocks would be refused it
        for value, side in ((near, flip.selected), (end, not flip.selected)):
            setting = value if name == "ratio" else int(value)
            tried = record.go_on(arm, policy="quality_topk", **budget | {name: setting})
            assert tried[place]["selected"] == side, (rows[place]["id"], turn, value)
            told += 1
        record.go_on(arm, policy="quality_topk", **budget)
    assert told > 10


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("budget", [{"ratio": 0.3}, {"num_tokens": 150}])
def test_an_arm_that_goes_on_is_told_of_what_it_judged(record: Record, budget: dict[str, Any]) -> None:
    """By marginals: a reserve competes too, and adds nothing to what a ratio is of."""
    arm = f"judged by {'-'.join(budget)}"
    settings: dict[str, Any] = {"policy": "datamask", **budget}
    record.select(arm, **settings)
    rows = record.go_on(arm, **settings)
    made = record.store.manifest(require(record.store, "select", f"later/{arm}"))["metadata"]
    judged = np.array([row["quality_marginal"] is not None for row in rows])
    assert made["given"]["reserve"] > 0
    assert judged.sum() == NUM_ADDED + made["given"]["reserve"]
    parts = {
        part: np.array([row[part] or 0.0 for row in rows])
        for part in ("quality_marginal", "diversity_marginal")
    }
    total = np.where(judged, parts["quality_marginal"] + parts["diversity_marginal"], -np.inf)
    tokens = np.array([row["token_count"] for row in record.pool])
    places = sum(row["selected"] for row in rows) - made["given"]["held"]
    scores = {name: np.concatenate([record.scores[name], record.added[name]]) for name in record.scores}
    (block,) = made["blocks"]
    zero, one = block["normalisation"]["quality"]

    def scaled(weights: dict[str, float]) -> np.ndarray:
        quality = combine_scores(scores, weights, normalisation="rank")
        return 0.5 * (quality - zero) / (one - zero) / (places + made["given"]["held"])

    assert np.ptp((scaled({"probe": 1, "rules": 1}) - parts["quality_marginal"])[judged]) < 1e-9
    told, none = 0, 0
    for place in np.flatnonzero(judged)[::2]:
        (flip,) = flips(record.store, rows[place]["id"], "later", arm)
        if flip.cannot is not None:
            continue
        before = total > total[place]
        assert (flip.rank, flip.competitors, flip.places) == (before.sum() + 1, judged.sum(), places)
        turns = turns_of(flip)
        turn, (name, _) = turns[next(iter(budget))], *budget.items()
        needed = tokens[before].sum() + tokens[place]
        if name == "ratio":
            needed = least_ratio(max(flip.rank, 2), NUM_ADDED)
        if turn.cannot is not None:
            assert (turn.below, turn.above, name) == (None, None, "num_tokens")
            assert "more than half of a budget are left out" in turn.cannot
            assert tokens[judged].max() > (needed - 1 if flip.selected else needed) / 2
        elif flip.selected:
            assert turn.below == (float(np.nextafter(needed, 0)) if name == "ratio" else needed - 1)
        else:
            assert turn.above == (None if name == "ratio" and needed > 1 else needed)
            none += turn.above is None
        for end in (turns["weight of probe"].below, turns["weight of probe"].above):
            for value in () if end is None else (end - 1e-6, end + 1e-6):
                tried = np.where(
                    judged, scaled({"probe": value, "rules": 1}) + parts["diversity_marginal"], -np.inf
                )
                inside = (value > end) == (end == turns["weight of probe"].below)
                assert ((tried > tried[place]).sum() < places) == (flip.selected == inside)
                told += 1
    assert told > 7
    assert (none > 0) == ("ratio" in budget)
    out = next(row["id"] for row in rows if row["reason"] == "below threshold")
    printed = (
        CliRunner()
        .invoke(app, ["audit", "flip", out, "--arm", arm, "-r", "later", "-s", f"store={record.store.root}"])
        .output
    )
    assert (
        f"of {judged.sum()} documents for {places} places, beside {made['given']['held']} held\n" in printed
    )
    assert (
        "ratio 0.3 of 40 new documents: " if "ratio" in budget else "num_tokens 150 to add: comes in at"
    ) in printed


@pytest.mark.slow
def test_coverage_in_tokens_is_not_told_by_marginals_of_a_document(record: Record) -> None:
    rows = record.select("covered", policy="datamask", diversity="Facility", num_tokens=400)
    told = [flips(record.store, row["id"], "r", "covered")[0] for row in rows]
    turns = [turns_of(flip)["num_tokens"] for flip in told if flip.cannot is None]
    assert len(turns) > 10
    assert all(turn.cannot and "a token" in turn.cannot for turn in turns)


@pytest.mark.slow
def test_a_budget_in_tokens_that_others_fill_is_not_told(tmp_path: Path) -> None:
    record = Record(tmp_path)
    for number, row in enumerate(record.pool):
        row["token_count"] = 10 if number % 4 else 90
    record.index = record.gather("with long ones")
    rows = record.select("filled", policy="datamask", num_tokens=900)
    chosen, left = (
        [row for row in rows if row["reason"] == f"{side} threshold"] for side in ("above", "below")
    )
    best = max(left, key=lambda row: row["quality_marginal"] + row["diversity_marginal"])
    turns = []
    for row in (chosen[0], best):
        (told,) = flips(record.store, row["id"], "r", "filled")
        turns.append(turns_of(told)["num_tokens"])
    assert turns[0].below is not None
    assert turns[0].below < 900
    assert turns[1] == Turn("num_tokens", 900.0, cannot=turns[1].cannot)
    assert "out of turn" in str(turns[1].cannot)


def test_a_budget_in_tokens_that_lets_longer_documents_in_is_not_told(tmp_path: Path) -> None:
    record = Record(tmp_path)
    for number, row in enumerate(record.pool):
        row["token_count"] = 10 if number % 9 else 70
    record.index = record.gather("with too long ones")
    rows = record.select("short", policy="quality_topk", num_tokens=120)
    left = sorted(
        (row for row in rows if row["reason"] == "quality below threshold"), key=lambda row: row["quality"]
    )
    near, far = (
        turns_of(flips(record.store, row["id"], "r", "short")[0])["num_tokens"] for row in (left[-1], left[0])
    )
    assert near.above is not None
    assert near.above < 140
    assert far == Turn("num_tokens", 120.0, cannot=far.cannot)
    assert "others would be compared" in str(far.cannot)


def test_what_was_chosen_beside_a_document_is_its_block_s_and_what_is_held(record: Record) -> None:
    settings: dict[str, Any] = {"policy": "quality_topk", "ratio": 0.4, "block_rows": 25}
    record.select("beside", **settings)
    rows = record.go_on("beside", **settings)
    mask = record.store.manifest(require(record.store, "select", "later/beside"))
    held = {place for place, row in enumerate(rows) if row["reason"] == HELD}
    (first, second) = (
        {int(place) for place in block + NUM_DOCUMENTS if rows[place]["selected"]}
        for block in select.blocks_of(NUM_ADDED, select.SelectConfig(**settings))
    )
    reader = Reader(record.store, rows[0]["id"])
    for place, chosen in (
        (min(held), held | first | second),
        (min(first), held | first),
        (min(second), held | second),
    ):
        assert {*_chosen_positions(reader, mask, place).tolist()} == chosen
    reader.tables.close()


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


def test_of_a_copy_the_answer_is_that_of_what_stands_for_it(tiny_run: Pipeline) -> None:
    store, arm = tiny_run.store, "datamask"
    pool = store.read_table(require(store, "pool", "first")).to_pylist()
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


def test_no_budget_is_told_that_leaves_a_block_one_document(record: Record) -> None:
    """The engine asks two of each; beside what is held, a ratio too small for two in all adds none instead."""
    settings: dict[str, Any] = {"policy": "quality_topk", "ratio": 0.1, "block_rows": 45}

    def ratio_without_a_second(release: str, rows: list[dict[str, Any]], **settings: Any) -> float | None:
        """The largest ratio at which the second best of the first block is out."""
        judged = np.array([row["reason"] not in (HELD, PASSED_OVER) for row in rows])
        block = select.blocks_of(len(rows), select.SelectConfig(**settings), judged)[0]
        second = sorted((rows[place] for place in block), key=lambda row: -row["quality"])[1]
        (flip,) = flips(record.store, second["id"], release, "few in blocks")
        assert flip.rank == 2
        return turns_of(flip)["ratio"].below

    assert ratio_without_a_second("r", record.select("few in blocks", **settings), **settings) is None
    settings |= {"ratio": 0.2, "block_rows": 20}
    adds_nothing = ratio_without_a_second("later", record.go_on("few in blocks", **settings), **settings)
    assert adds_nothing is not None
    assert documents_of(adds_nothing, NUM_ADDED) == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("small", [0.0, 0.2])
def test_no_budget_takes_what_its_quota_leaves_no_place(record: Record, small: float) -> None:
    """Nor one that asks more of another group than it has; the engine refuses that."""
    quotas = {"site0.example": 1 - small, "site1.example": small}
    base: dict[str, Any] = {"policy": "quality_topk", "ratio": 0.1, "quota_by": "domain", "quotas": quotas}
    rows = record.select("small quota", **base)
    of_small = [place for place in range(1, NUM_DOCUMENTS, 2) if not rows[place]["selected"]]
    ends = {}
    for place in of_small:
        (flip,) = flips(record.store, rows[place]["id"], arm="small quota")
        ends[place] = turns_of(flip)["ratio"].above
    # Of the other group all are taken at last, and as many as go with them of this one.
    most = sum(row["selected"] for row in rows[1::2]) + sum(end is not None for end in ends.values())
    assert most == round(NUM_DOCUMENTS / 2 * small / (1 - small))
    for place, end in ends.items():
        if end is not None:
            assert record.select("tried", **(base | {"ratio": end}))[place]["selected"]


def test_the_nearest_budget_is_told_where_a_group_s_places_fall_as_the_budget_grows() -> None:
    draws, fallen = np.random.default_rng(0), 0
    for _ in range(60):
        quotas = draws.dirichlet([2.0] * 5)
        config = select.SelectConfig(quota_by="domain", quotas=dict(zip("abcde", quotas, strict=True)))
        blocks = [np.arange(size) for size in draws.integers(100, 400, 2)]
        total = sum(map(len, blocks))
        shares = [_shares(blocks, whole)[1] for whole in range(total + 1)]
        got = np.array([_quotas_of(config, share)[2] for share in shares])
        fallen += bool((np.diff(got) < 0).any())
        for now, needed in draws.integers((20, 1), (total, got.max() + 1), (10, 2)).tolist():
            found = _smallest_budget(config, blocks, 1, 2, needed, total, now)
            if got[now] >= needed:
                assert found == np.flatnonzero(got[:now] < needed).max() + 1
            else:
                others = now + np.flatnonzero(got[now:] >= needed)
                assert found == (others.min() if len(others) else None)
    assert fallen > 10

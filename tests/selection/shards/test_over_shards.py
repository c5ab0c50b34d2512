"""One objective over all shards: the same bytes from any processes, as good as in one, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamask_pipeline import spill
from datamask_pipeline.errors import ConfigurationError, InputError, LostMemberError, StorageError
from datamask_pipeline.selection import marginal_swaps
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.reasons import TOO_LONG
from datamask_pipeline.selection.shards import member
from datamask_pipeline.selection.shards.api import (
    jobs_of,
    over_shards,
    select_over_shards,
    sorted_scores,
)
from datamask_pipeline.selection.shards.learner import Learner
from datamask_pipeline.selection.shards.processes import Processes
from datamask_pipeline.selection.shards.source import Shard, numbered

CASES = [("Pair_simi", "documents"), ("DiSF_uncentred", "quotas"), ("DiSF_uncentred", "tokens")]
SETTINGS = {"chunk_rows": 64, "seed": 3, "num_steps": 5, "sample_documents": 256}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.npy"))}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("metric", "kind"), CASES)
def test_no_cut_order_or_process_changes_a_byte(
    metric: str,
    kind: str,
    cut: Any,
    budgets: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        spill, "LONG", 1
    )  # in this process all columns lie in files, in those begun by it none
    wanted = {**SETTINGS, **budgets[kind], "diversity": metric}
    one = select_over_shards(cut(), tmp_path / "one", engine="here", **wanted)
    ways: list[tuple[Any, dict[str, Any]]] = [
        (cut((0, 5, 300, 901), (2, 0, 3, 1)), {"workers": 4, "engine": "processes"}),
    ]
    if kind == "documents":
        ways.append((cut((0, 640)), {"workers": 20, "engine": "here"}))  # more than there are units
    if kind == "tokens":
        ways.append((cut((0, 100), (1, 0)), {"workers": 2, "engine": "processes"}))
    for number, (shards, how) in enumerate(ways):
        other = select_over_shards(shards, tmp_path / str(number), **how, **wanted)
        assert bytes_of(other.folder) == bytes_of(one.folder)
        assert (other.objective, other.certificate, other.threshold) == (
            one.objective,
            one.certificate,
            one.threshold,
        )
        assert other.record == one.record
        assert other.held.digest == one.held.digest
        assert other.curve.drop_columns("wall_seconds").equals(one.curve.drop_columns("wall_seconds"))


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("metric", "budget", "short"),
    [
        ("Pair_simi", {"num_documents": 60}, 0.012),
        ("DiSF_uncentred", {"num_documents": 20}, 0.012),
        ("LogDet", {"num_documents": 20}, 0.012),
        ("Pair_simi", {"num_tokens": 2000}, 0.06),
    ],
)
def test_few_documents_end_near_what_one_process_finds_without_kicks(
    metric: str, budget: dict[str, int], short: float, tmp_path: Path
) -> None:
    draws = np.random.default_rng(8)
    vectors = draws.standard_normal((2000, 16)).astype(np.float32)
    quality, tokens = draws.random(2000), draws.integers(1, 100, 2000)
    for name, values in (("v", vectors), ("q", quality), ("t", tokens)):
        np.save(tmp_path / f"{name}.npy", values)
    shard = Shard(
        vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"}, token_counts=tmp_path / "t.npy"
    )
    wanted = {"diversity": metric, "lamb": 0.5, "dtype": "float32", **budget}
    found = select_over_shards([shard], tmp_path / "out", engine="here", workers=2, **wanted)
    whole = select_documents(
        vectors,
        quality,
        token_counts=tokens if "num_tokens" in budget else None,
        normalisation_constants=found.normalisation,
        num_kicks=0,
        num_restarts=0,
        **wanted,
    )
    assert found.objective.value >= whole.objective.value - short
    plain = select_over_shards([shard], tmp_path / "plain", engine="here", **wanted, num_swap_rounds=0)
    assert found.objective.value > plain.objective.value, "nothing is exchanged where nothing is swapped"


@pytest.mark.slow
def test_whoever_leads_may_have_any_number_of_threads(tmp_path: Path) -> None:
    """Wide enough that torch would cut the sums over matrices among its threads, and in half precision."""
    draws = np.random.default_rng(2)
    vectors = draws.standard_normal((900, 320)) + draws.standard_normal((3, 320))[draws.integers(0, 3, 900)]
    np.save(tmp_path / "v.npy", (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))
    np.save(tmp_path / "q.npy", draws.random(900))
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    wanted = {
        **SETTINGS,
        "ratio": 0.1,
        "diversity": "DiSF_uncentred",
        "dtype": "bfloat16",
    }
    before = torch.get_num_threads()
    found = []
    try:
        for threads, workers, engine in ((1, 1, "here"), (4, 2, "processes"), (3, 3, "here")):
            torch.set_num_threads(threads)
            found.append(
                select_over_shards([shard], tmp_path / str(threads), workers=workers, engine=engine, **wanted)
            )
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert bytes_of(other.folder) == bytes_of(found[0].folder)
        assert (other.objective, other.certificate) == (found[0].objective, found[0].certificate)
        assert other.normalisation == found[0].normalisation


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("held", [0, 40])
def test_marginals_of_the_mask_prove_as_much_as_another_pass(
    seed: int, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = np.random.default_rng(seed)
    vectors = draws.standard_normal((3000, 160)) + draws.standard_normal((5, 160))[draws.integers(0, 5, 3000)]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    quality = draws.random(3000)
    np.save(tmp_path / "v.npy", vectors)
    np.save(tmp_path / "q.npy", quality)
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    given = Given.of(vectors[:held], {"quality": quality[:held]}) if held else None
    wanted = {**SETTINGS, "ratio": 0.2, "num_steps": 20, "diversity": "DiSF_uncentred", "dtype": "bfloat16"}
    found = select_over_shards([shard], tmp_path / "out", workers=2, engine="here", given=given, **wanted)
    monkeypatch.setattr(Learner, "proves_by_marginals", False)
    wanted["normalisation_constants"] = found.normalisation
    whole = select_over_shards([shard], tmp_path / "whole", workers=2, engine="here", given=given, **wanted)
    distance = whole.objective.value - whole.objective.random
    assert found.certificate.bound is not None
    assert found.certificate.bound >= whole.objective.value - 1e-7
    assert whole.certificate.bound >= found.objective.value - 1e-7
    assert found.objective.value >= whole.objective.value - 0.001 * distance
    assert found.certificate.bound <= whole.certificate.bound + 0.001 * distance


@pytest.mark.slow
def test_the_ascent_goes_on_where_half_precision_said_too_early_that_it_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = np.random.default_rng(0)
    vectors = draws.standard_normal((1_500, 140))
    np.save(tmp_path / "v.npy", (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))
    np.save(tmp_path / "q.npy", draws.random(1_500))
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    climbs, ascend = [], Learner.ascend

    def counted(self: Learner, climb: Any, num_steps: int, on_step: Any) -> Any:
        climbs.append(climb.step)

        def early(climb: Any, value: float, bound: float | None) -> bool:
            return on_step(climb, value, bound) or (len(climbs) == 1 and climb.step == 3)

        return ascend(self, climb, num_steps, early)

    monkeypatch.setattr(Learner, "ascend", counted)
    wanted = {**SETTINGS, "num_steps": 30, "ratio": 0.2, "lamb": 0.0, "dtype": "bfloat16"}
    found = select_over_shards([shard], tmp_path / "out", engine="here", diversity="DiSF_uncentred", **wanted)
    assert climbs == [0, 3]
    assert found.record["learner"]["steps"] > 3
    assert found.certificate.bound is not None
    assert found.objective.value <= found.certificate.bound


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("metric", "kind"), [*CASES, ("Vendi", "documents")])
def test_as_good_as_in_one_process(
    metric: str,
    kind: str,
    cut: Any,
    columns: dict[str, Any],
    budgets: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Over shards nothing is exchanged for what then fits of a budget in tokens.
    monkeypatch.setattr(marginal_swaps, "_num_looks", lambda _: 0)
    wanted = {"chunk_rows": 64, "num_kicks": 0, **budgets[kind], "diversity": metric}
    alone = select_documents(
        columns["vectors"],
        columns["quality"],
        token_counts=columns["token_counts"],
        groups=columns["groups"].tolist(),
        **wanted,
    )
    wanted["normalisation_constants"] = alone.normalisation
    found = select_over_shards(cut(), tmp_path, workers=3, engine="here", **wanted)
    distance = alone.objective.value - alone.objective.random
    # A block this small is exchanged to the end in one process, where the swaps of a band end earlier.
    assert found.objective.value >= alone.objective.value - (0.003 if metric != "Vendi" else 0.03) * distance
    assert found.record["embeddings_digest"] == alone.record["embeddings_digest"]
    if kind == "tokens":
        assert found.certificate.bound is None
        assert columns["token_counts"][found.column("mask")].sum() <= wanted["num_tokens"]
    else:
        assert found.certificate.bound is not None
        assert found.column("mask").sum() == 110
        assert alone.objective.value <= found.certificate.bound + 1e-9
    read = found.in_memory()
    totals = read.marginals.total_N
    assert {"below threshold", "above threshold"} <= set(read.reasons)
    if kind == "documents":
        assert (
            (totals >= read.threshold) == np.isin(read.reasons, ["above threshold", read.reasons[0]])
        ).any()
        assert read.threshold == np.sort(totals)[-110]
    np.testing.assert_allclose(
        1 / (1 + np.exp(-np.clip(read.logits, -40, 40))), read.probabilities, atol=1e-12
    )


def test_marginals_and_value_are_those_of_the_mask(
    cut: Any, columns: dict[str, Any], budgets: dict[str, Any], tmp_path: Path
) -> None:
    wanted = {**SETTINGS, "ratio": 0.1, "diversity": {"DiSF_uncentred": 1.0, "Pair_simi": 2.0}}
    found = select_over_shards(cut((0, 400)), tmp_path, workers=2, engine="here", **wanted)
    rows, mask = columns["vectors"].astype(np.float64), np.array(found.column("mask"))
    chosen = rows[mask]
    gram = chosen @ chosen.T
    assert found.objective.raw["DiSF_uncentred"] == pytest.approx(-(gram**2).mean(), rel=1e-5)
    pairs = (gram.sum() - np.trace(gram)) / (110 * 109)
    assert found.objective.raw["Pair_simi"] == pytest.approx(-pairs, rel=1e-5)
    zero, one = found.normalisation["quality"]
    quality = ((columns["quality"] - zero) / (one - zero))[mask].mean()
    assert found.objective.quality == pytest.approx(quality)
    np.testing.assert_allclose(
        found.column("quality_marginal"), 0.5 * (columns["quality"] - zero) / (one - zero) / 110
    )


@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
def test_the_bound_holds_for_every_mask(metric: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    vectors = draws.standard_normal((11, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    quality = draws.random(11)
    np.save(tmp_path / "v.npy", vectors.astype(np.float32))
    np.save(tmp_path / "q.npy", quality)
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    found = select_over_shards(
        [shard], tmp_path / "out", num_documents=4, normalisation="none", lamb=0.3, diversity=metric
    )
    values = []
    for mask in itertools.combinations(range(11), 4):
        gram = vectors[list(mask)] @ vectors[list(mask)].T
        off = gram[~np.eye(4, dtype=bool)]
        diversity = -off.mean() if metric == "Pair_simi" else -(gram**2).mean()
        values.append(0.3 * quality[list(mask)].mean() + 0.7 * diversity)
    assert found.certificate.bound is not None
    assert max(values) <= found.certificate.bound + 1e-6
    assert found.objective.value >= max(values) - 0.1 * (max(values) - np.mean(values))


@pytest.mark.slow
def test_what_is_held_counts(cut: Any, columns: dict[str, Any], tmp_path: Path) -> None:
    held = Given.of(columns["vectors"][:40], {"quality": columns["quality"][:40]})
    wanted = {**SETTINGS, "ratio": 0.05, "num_steps": 30, "diversity": "DiSF_uncentred"}
    alone = select_documents(columns["vectors"], columns["quality"], given=held, **wanted)
    wanted["normalisation_constants"] = alone.normalisation
    found = select_over_shards(cut((0, 700)), tmp_path, workers=2, engine="here", given=held, **wanted)
    assert found.held.count == 95
    assert found.objective.random == pytest.approx(0, abs=1e-3)
    assert found.objective.value >= alone.objective.value - 0.003 * alone.objective.value
    assert found.certificate.bound is not None
    assert found.certificate.bound >= alone.objective.value


def test_vectors_of_another_norm_or_type_are_brought_to_one(
    cut: Any, columns: dict[str, Any], tmp_path: Path
) -> None:
    np.save(tmp_path / "v.npy", columns["vectors"] * np.linspace(1, 3, 1100, dtype=np.float32)[:, None])
    shard = Shard(vectors=tmp_path / "v.npy", quality=cut()[0].quality)
    wanted = {**SETTINGS, "num_steps": 2, "ratio": 0.1}
    found = select_over_shards([shard], tmp_path / "out", workers=2, engine="here", **wanted)
    assert found.record["rows_normalised_to_unit"] > 1000
    assert found.held.squared == pytest.approx(110, rel=1e-6)


def test_everything_fits(cut: Any, tmp_path: Path) -> None:
    found = select_over_shards(cut(), tmp_path, engine="here", num_documents=1100, chunk_rows=64)
    assert found.column("mask").all()
    assert found.certificate.gap == 0


def test_what_cannot_be_kept_is_refused(cut: Any, tmp_path: Path) -> None:
    for settings, words in (
        ({"policy": "random"}, "only policy 'datamask'"),
        ({"diversity": {"Facility": 1.0, "DiSF": 1.0}}, "or Facility alone"),
        ({"quality_pruning": 0.3}, "pruned by quality"),
        ({"outlier_deviations": 6.0}, "no neighbours are sought"),
        ({"max_copies": 2}, "no `max_copies`: every document is taken once"),
        ({"target": [[1.0]]}, "no `target`: give likeness as a score"),
        ({"checkpoint_dir": "there"}, "no `checkpoint_dir`: a killed selection begins again"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            over_shards(None, settings)
    for settings, words in (
        ({"num_documents": 5000}, "5000 of 1100"),
        ({"num_tokens": 10**9}, "more than the shards'"),
        ({"quotas": {"crawl-0": 1.0}}, "has no quota"),
        (
            {"quotas": {"crawl-00": 0.5, "*": 0.5}},
            r"'crawl-00' \(.*crawl-0.*name a group that documents have",
        ),
    ):
        with pytest.raises((ConfigurationError, InputError), match=words):
            select_over_shards(cut((0, 600)), tmp_path, workers=2, engine="here", **settings)
    shards = cut((0, 600))
    with pytest.raises(InputError, match="600 is expected"):
        numbered([shards[0], cut((0, 600, 700))[2]])


def test_a_row_is_told_by_its_number(cut: Any, columns: dict[str, Any], tmp_path: Path) -> None:
    vectors = columns["vectors"].copy()
    vectors[777, 3] = np.nan
    np.save(tmp_path / "v.npy", vectors)
    shard = Shard(vectors=tmp_path / "v.npy", quality=cut()[0].quality)
    with pytest.raises(InputError, match="row 777") as failure:
        select_over_shards([shard], tmp_path / "out", workers=5, engine="here", chunk_rows=64)
    assert failure.value.row == 777


def test_a_process_that_ends_is_told_of(cut: Any) -> None:
    config, _ = over_shards(None, {"chunk_rows": 64})
    with Processes(jobs_of(numbered(cut()), config, 1)) as team:
        team._processes[0].kill()
        with pytest.raises(LostMemberError, match="process 0 of 1 that held documents ended with status -9"):
            team.ask("open")


def test_a_file_that_cannot_be_written_is_told_by_its_name(cut: Any, tmp_path: Path) -> None:
    config, _ = over_shards(None, {"chunk_rows": 64})
    with Processes(jobs_of(numbered(cut()), config, 1)) as team:
        (part,) = team.ask("open")[1]
        team.ask("begin", normalise=False, dim=part["dim"], num_groups=1, most_cost=None)
        missing = str(tmp_path / "nowhere.npy")
        with pytest.raises(StorageError, match=r"from row 0 on: .*nowhere\.npy.*check that it exists"):
            team.ask("write", files={"reason": missing}, weights="", scores="", low=0.0, high=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["Pair_simi", "Facility"])
def test_a_process_that_ends_in_the_midst_is_made_good(
    metric: str, cut: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {**SETTINGS, "normalisation": "none", "diversity": metric}
    one = select_over_shards(cut(), tmp_path / "one", engine="here", **wanted)
    send, journeys, lost = Processes._send, itertools.count(), []

    def lose_one(self: Processes, steps: Any) -> Any:
        if next(journeys) in (6, 9):
            lost.append(self._processes[1].pid)
            self._processes[1].kill()
        return send(self, steps)

    monkeypatch.setattr(Processes, "_send", lose_one)
    two = select_over_shards(cut(), tmp_path / "two", workers=2, **wanted)
    assert len(set(lost)) == 2  # of two teams, one after the other
    assert bytes_of(two.folder) == bytes_of(one.folder)
    assert two.certificate == one.certificate


def test_processes_that_end_again_and_again_stop_it(
    cut: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Processes] = []

    def always(self: Processes, steps: Any) -> Any:
        begun.append(self)
        self._processes[1].kill()
        self._lost(1)

    monkeypatch.setattr(Processes, "_send", always)
    with pytest.raises(LostMemberError, match=r"process 1 of 2 .*, and 2 before it; run it again"):
        select_over_shards(cut(), tmp_path, workers=2, **SETTINGS)
    assert len({id(team) for team in begun}) == 3


@pytest.mark.slow
def test_what_is_too_long_is_left_out_with_that_reason(
    cut: Any, columns: dict[str, Any], tmp_path: Path
) -> None:
    tokens = columns["token_counts"].copy()
    tokens[[3, 640, 641, 1099]] = 5_001
    np.save(tmp_path / "t.npy", tokens)
    (shard,) = cut()
    shards = [replace(shard, token_counts=tmp_path / "t.npy")]
    wanted = {**SETTINGS, "num_tokens": 10_001, "diversity": "Pair_simi"}
    one = select_over_shards(shards, tmp_path / "one", engine="here", **wanted)
    two = select_over_shards(shards, tmp_path / "two", engine="here", workers=3, **wanted)
    alone = select_documents(
        columns["vectors"], columns["quality"], token_counts=tokens, **wanted, num_kicks=0, num_restarts=0
    )
    assert bytes_of(one.folder) == bytes_of(two.folder)
    found, long = one.in_memory(), np.flatnonzero(tokens > 5_000)
    for result in (found, alone):
        assert (result.reasons[long] == TOO_LONG).all()
        assert result.record["reasons"][TOO_LONG] == 4
        assert sum(result.record["reasons"].values()) == len(tokens)
        assert not result.mask[long].any()
        assert np.isnan(result.marginals.total_N[long]).all()
        assert np.isneginf(result.logits[long]).all()
    assert np.isfinite(np.delete(found.marginals.total_N, long)).all()
    assert tokens[found.mask].sum() <= 10_001
    assert one.record["rows_too_long"] == alone.record["rows_too_long"] == 4
    # Over shards nothing is exchanged for what then fits, and zeros of tokens are means of masks drawn by other lots.
    assert one.objective.quality == pytest.approx(alone.objective.quality, rel=0.1)
    assert one.objective.raw["Pair_simi"] == pytest.approx(alone.objective.raw["Pair_simi"], abs=0.05)
    with pytest.raises(InputError, match=r"num_tokens 8 is too small: .*; raise num_tokens"):
        select_over_shards(shards, tmp_path / "none", engine="here", **wanted | {"num_tokens": 8})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_drawn_cases_keep_their_promises(seed: int, tmp_path: Path) -> None:
    draws = np.random.default_rng(seed)
    size, wanted = 150, int(draws.integers(2, 75))
    vectors = draws.standard_normal((size, 8))
    vectors[75:] = vectors[:75]  # every document twice
    quality, tokens = (
        np.round(draws.standard_normal(size), 1),
        draws.integers(1, 100, size).astype(np.float64),
    )
    for name, values in (("v", vectors.astype(np.float16)), ("q", quality), ("t", tokens)):
        np.save(tmp_path / f"{name}.npy", values)
    np.save(tmp_path / "g.npy", np.array([f"g{group}" for group in draws.integers(0, 3, size)]))
    budget = [
        {"num_documents": wanted},
        {"num_tokens": 30 * wanted + 200},
        {"num_documents": wanted, "quotas": {"g0": 0.25, "g1": 0.0, "*": 0.75}},
        {"num_documents": wanted, "normalisation": "none"},
    ][seed]
    settings = {"chunk_rows": 64, "seed": seed, "num_steps": 6, "sample_documents": 256, **budget}
    metric = ("LogDet", "DiSF_uncentred", "DiSF", "Vendi")[seed]

    def found(workers: int) -> Any:
        starts = np.unique([0, *draws.integers(1, size, 3)])
        shards = [
            Shard(
                vectors=tmp_path / "v.npy",
                quality={"quality": tmp_path / "q.npy"},
                token_counts=tmp_path / "t.npy",
                groups=tmp_path / "g.npy",
                start=int(start),
                num_rows=int(stop - start),
                first=int(start),
            )
            for start, stop in zip(starts, [*starts[1:], size], strict=True)
        ]
        folder = tmp_path / str(workers)
        return select_over_shards(
            shards[::-1], folder, workers=workers, engine="here", diversity=metric, **settings
        )

    one, four = (found(workers) for workers in (1, 4))
    assert bytes_of(one.folder) == bytes_of(four.folder)
    mask, bound = one.column("mask"), one.certificate.bound
    if "num_tokens" in budget:
        left = budget["num_tokens"] - tokens[mask].sum()
        assert 0 <= left < tokens[~mask].min()
    else:
        assert mask.sum() == wanted
    assert bound is None or one.objective.value <= bound


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vectors": 5}, "field vectors, value 'int'"),
        ({"vectors": np.zeros((3, 4))}, "field vectors, value 'ndarray'"),
        ({"quality": "q.npy"}, "field quality, value 'q.npy'"),
        ({"quality": {"q": None}}, r"field quality\['q'\], value 'NoneType'"),
        ({"rows": 7}, "field rows, value 'int'"),
        ({"start": -1}, "field start, value -1"),
        ({"num_rows": 2.5}, "field num_rows, value 2.5"),
        ({"first": True}, "field first, value true"),
    ],
)
def test_a_shard_of_what_is_no_file_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Shard(**{"vectors": "v.npy", "quality": {"q": "q.npy"}, **given})


@pytest.mark.parametrize("shards", [5, "abc", [5], {"a": 1}])
def test_shards_are_a_list_of_them(shards: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a list of Shard"):
        select_over_shards(shards, tmp_path, engine="here", ratio=0.1)


@pytest.mark.parametrize(
    ("name", "length"), [("quality", 1100), ("groups", 1500), ("token_counts", 500), ("rows", 800)]
)
def test_files_of_different_lengths_are_refused(name: str, length: int, tmp_path: Path) -> None:
    lengths = {"vectors": 900, "quality": 900, "groups": 900, "token_counts": 900, name: length}
    files = {one: tmp_path / f"{one}.npy" for one in lengths}
    for one, rows in lengths.items():
        np.save(files[one], np.ones((rows, 4) if one == "vectors" else rows, np.float32))
    shard = Shard(**{**files, "quality": {"q": files["quality"]}})  # type: ignore[arg-type]
    first, other = (files["rows"], files["quality"]) if name == "rows" else (files["vectors"], files[name])
    with pytest.raises(InputError) as refused:
        select_over_shards([shard], tmp_path / "out", engine="here", ratio=0.1)
    said = str(refused.value)
    assert f"{first} has {800 if name == 'rows' else 900} documents" in said
    assert f"file {other}, value ({900 if name == 'rows' else length},)" in said
    with pytest.raises(InputError, match="begins at row 901 of 900"):
        numbered([Shard(vectors=files["vectors"], quality={}, start=901)])


@pytest.mark.parametrize("rows", [np.arange(40) + 0.9, np.arange(40) % 2 == 0, np.arange(40).astype(str)])
def test_rows_that_are_no_whole_numbers_are_refused(rows: Any, tmp_path: Path) -> None:
    """Of a mask documents 0 and 1 were made, again and again."""
    draws = np.random.default_rng(0)
    for name, array in (("v", draws.normal(size=(40, 4))), ("q", draws.random(40)), ("rows", rows)):
        np.save(tmp_path / f"{name}.npy", array)
    shard = Shard(vectors=tmp_path / "v.npy", quality={"q": tmp_path / "q.npy"}, rows=tmp_path / "rows.npy")
    with pytest.raises(InputError, match=r"whole numbers \(file .*rows.npy, field rows, value .*flatnonzero"):
        select_over_shards([shard], tmp_path / "out", engine="here", num_documents=4)


def test_scores_are_added_up_in_the_same_order_however_shards_name_them() -> None:
    def shard(*names: str) -> Shard:
        return Shard(vectors=Path("v.npy"), quality={name: Path(f"{name}.npy") for name in names}, num_rows=1)

    assert sorted_scores([shard("c", "a", "b"), shard("b", "c", "a")]) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", ["LogDet", "Vendi"])
def test_zero_is_told_from_as_many_random_masks_as_in_one_process(
    metric: str, cut: Any, columns: dict[str, Any], tmp_path: Path
) -> None:
    settings = {**SETTINGS, "diversity": metric, "num_documents": 8}
    few = {"num_workers": 1, "num_kicks": 0, "num_restarts": 0}
    alone = select_documents(columns["vectors"], columns["quality"], **settings, **few)
    found = select_over_shards(cut(), tmp_path / "masks", engine="here", **settings)
    zero, one = alone.normalisation[metric]
    assert abs(found.normalisation[metric][0] - zero) < 0.25 * (one - zero)


@pytest.mark.slow
def test_a_group_has_one_name_in_files_of_any_kind(
    cut: Any, columns: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are looked at together. Arrays of text and of bytes, or of whole numbers with a sign and without, have no
    common kind of their own.
    """
    names = np.where(columns["groups"] == "crawl-0", "é", "7")
    signed, unsigned = np.full(550, 7), np.full(550, 7, np.uint64)
    cuts = cut((0, 550))
    wanted = {**SETTINGS, "engine": "here", "num_documents": 20, "diversity": "Pair_simi"}

    def found(kind: str, first: Any, second: Any, quotas: dict[str, float]) -> Any:
        shards = []
        for shard, groups in zip(cuts, (first, second), strict=True):
            file = tmp_path / f"{kind}{shard.first}.npy"
            np.save(file, np.concatenate([groups, groups]))
            shards.append(replace(shard, groups=file))
        return select_over_shards(shards, tmp_path / kind, quotas=quotas, **wanted)

    plain = found("text", names[:550], names[550:], {"é": 0.5, "7": 0.5})
    mixed = found("mixed", names[:550], np.char.encode(names[550:], "utf-8"), {"é": 0.5, "7": 0.5})
    assert bytes_of(mixed.folder) == bytes_of(plain.folder)
    assert found("numbers", signed, unsigned, {"7": 1.0}).column("mask").sum() == 20
    monkeypatch.setattr(member, "GROUPS_AT_ONCE", 300)
    in_pieces = found("pieces", names[:550], names[550:], {"é": 0.5, "7": 0.5})
    assert bytes_of(in_pieces.folder) == bytes_of(plain.folder)
    late = np.where(np.arange(550) < 449, "é", "7")
    with pytest.raises(InputError, match=r"has no quota \(row 999, field groups, value '7'\)"):
        found("late", np.full(550, "é"), late, {"é": 1.0})
    with pytest.raises(
        InputError, match=r"no name \(file .*truths550\.npy, row 550, field groups, value True\)"
    ):
        found("truths", names[:550], np.full(550, True), {"é": 0.5, "*": 0.5})

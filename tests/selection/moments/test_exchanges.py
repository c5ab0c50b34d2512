"""Greedy and exchanges on whole blocks: budgets are kept, values never fall, and no exchange is left that gains, nor, of
quadratic metrics, two at once."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.moments import MomentMetric
from datamask_pipeline.diversity.swap_models import Floats, Places
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.exchanges import SEARCH_MOVES, Exchanges
from datamask_pipeline.selection.moments.pairs import Search
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.moments.values import value_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

MOMENTS = [name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric)]
QUADRATIC = [name for name in MOMENTS if METRICS.classes()[name].quadratic]
LIMITS = {"documents": (9.0,), "quotas": (5.0, 4.0, 0.0), "tokens": (260.0,)}


class Block:
    """Rows around a common direction, a third of them near-copies, with quality; D is more or less than documents."""

    def __init__(self, name: str, kind: str, seed: int, dim: int, size: int = 45) -> None:
        draws = torch.Generator().manual_seed(seed)
        rows_ND = torch.randn(size, dim, generator=draws) + 0.3
        rows_ND[: size // 3] = rows_ND[-(size // 3) :] + 0.02 * torch.randn(size // 3, dim, generator=draws)
        self.rows_ND = torch.nn.functional.normalize(rows_ND)
        term = Term(name=name, metric=METRICS.make(name), weight=1.0)
        quality_N = torch.rand(size, generator=draws, dtype=torch.float64)
        self.function = ObjectiveFunction(lamb=0.1, quality_N=quality_N, terms=(term,))
        tokens = kind == "tokens"
        self.budget = Budget(
            costs_N=torch.randint(1, 60, (size,), generator=draws).double()
            if tokens
            else torch.ones(size).double(),
            groups_N=torch.arange(size) % 3 if kind == "quotas" else torch.zeros(size, dtype=torch.int64),
            limits=LIMITS[kind],
            tokens=tokens,
            seed=seed,
        )

    def exchanges(self) -> Exchanges:
        with Workers(1) as workers:
            rows = MemoryRows(self.rows_ND, 64)
            statistics = Statistics(
                rows=rows,
                workers=workers,
                squared_N=squared_of(rows, workers),
                needs_second=self.function.needs_second,
            )
            made = Exchanges.of(statistics, MomentObjective(objective=self.function), self.budget)
        assert made is not None
        return made

    def value(self, mask_N: torch.Tensor) -> float:
        raw = self.function.terms[0].metric.values(self.rows_ND.double(), mask_N[None])
        return 0.1 * float(self.function.quality_N[mask_N].mean()) + 0.9 * float(raw[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", list(LIMITS))
@pytest.mark.parametrize("name", MOMENTS)
def test_no_exchange_is_left_that_gains(name: str, kind: str) -> None:
    for seed, dim in ((0, 6), (1, 24)):
        block = Block(name, kind, seed, dim)
        first_N = block.budget.random("first")
        mask_N = block.exchanges().improved(first_N)
        assert block.budget.breach(mask_N) is None
        value = block.value(mask_N)
        assert value >= block.value(first_N) - 1e-9
        for out, into in product(np.flatnonzero(mask_N), np.flatnonzero(~mask_N)):
            other_N = mask_N.clone()
            other_N[out], other_N[into] = False, True
            if block.budget.breach(other_N) is None:
                # Token budgets have marginals at the number of documents that the mask has.
                assert block.value(other_N) <= value + 1e-6, (seed, out, into)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["documents", "quotas"])
@pytest.mark.parametrize("name", QUADRATIC)
def test_no_two_exchanges_are_left_that_gain_together(name: str, kind: str) -> None:
    for seed in range(4):
        block = Block(name, kind, seed, 6, size=24)
        mask_N = block.exchanges().improved(block.budget.random("first"))
        inside, outside = (np.flatnonzero(side_N) for side_N in (mask_N, ~mask_N))
        others = []
        for out, into in product(combinations(inside, 2), combinations(outside, 2)):
            other_N = mask_N.clone()
            other_N[list(out)], other_N[list(into)] = False, True
            if block.budget.breach(other_N) is None:
                others.append(other_N)
        others_GN = torch.stack(others)
        raw_G = METRICS.make(name).values(block.rows_ND.double(), others_GN)
        values_G = 0.1 * others_GN.double() @ block.function.quality_N / 9 + 0.9 * raw_G
        assert float(values_G.max()) <= block.value(mask_N) + 1e-6, seed


@pytest.mark.parametrize("kind", ["documents", "quotas"])
@pytest.mark.parametrize("name", MOMENTS)
def test_starts_and_kicks_keep_the_budget(name: str, kind: str) -> None:
    block = Block(name, kind, 2, 8)
    exchanges = block.exchanges()
    starts = list(exchanges.starts())
    assert len(starts) == 2
    kicked = [exchanges.kicked(starts[0], turn) for turn in range(4)]
    anew = [exchanges.restarted(turn) for turn in range(8)]
    assert all(block.budget.breach(mask_N) is None for mask_N in starts + kicked + anew)
    assert len({tuple(mask_N.tolist()) for mask_N in anew}) > 4
    assert all((exchanges.restarted(turn) == mask_N).all() for turn, mask_N in enumerate(anew))
    assert all(0 < int((mask_N & ~starts[0]).sum()) <= 5 for mask_N in kicked)
    assert len({tuple(mask_N.tolist()) for mask_N in kicked}) > 1
    assert exchanges.num_kicks(starts[0]) > 0
    assert exchanges.num_restarts(starts[0]) > 0


@pytest.mark.parametrize("name", MOMENTS)
def test_where_the_objective_is_not_concave_masks_begin_anew_from_drawn_ones_and_searches_have_more_time(
    name: str,
) -> None:
    block = Block(name, "documents", 2, 8)
    exchanges = block.exchanges()
    whole = [exchanges._restored(exchanges.budget.random("restarts", turn)) for turn in range(8)]
    drawn = [bool((exchanges.restarted(turn) == mask_N).all()) for turn, mask_N in enumerate(whole)]
    concave = METRICS.make(name).concave
    assert drawn == ([False, True] * 4 if concave else [True] * 8)
    mask_N = exchanges.restarted(1)
    begins = exchanges.num_restarts(mask_N) * 2 * 9
    walks = exchanges.num_walks(mask_N) * (9 + SEARCH_MOVES)
    assert (walks > begins) is not concave


@pytest.mark.parametrize("rounds", [4, 2])
def test_each_document_is_looked_at_in_turn_from_the_start_where_there_is_time(rounds: int) -> None:
    """Of an exact model whose pairs are dear to look at; the promising ones come first where time is short."""
    block = Block("DiSF", "documents", 3, 6)
    exchanges = block.exchanges()
    mask_N = block.budget.random("first")
    inner_N = mask_N[exchanges.order_N]
    model = exchanges._model(inner_N)
    assert model.in_turn
    model.affordable = rounds * 9 * 36
    looked: list[int] = []
    table = model.table

    def noted(outside: Places, inside: Places) -> Floats:
        looked.append(len(inside))
        return table(outside, inside)

    model.table = noted  # type: ignore[method-assign]
    Search(model, inner_N.numpy(), block.budget.groups_N.numpy(), None).thorough(9)
    assert (looked[0] == 1) is (rounds >= 3)
    assert looked[-1] == 1


@pytest.mark.parametrize("kind", ["documents", "quotas"])
def test_a_mask_of_few_is_drawn_anew_in_turns(kind: str) -> None:
    block = Block("DiSF", kind, 2, 8)
    block.budget = replace(block.budget, limits=(3.0,) if kind == "documents" else (1.0, 2.0, 0.0))
    exchanges = block.exchanges()
    first_N = block.budget.random("first")
    moved = [int((exchanges.kicked(first_N, turn) & ~first_N).sum()) for turn in range(4)]
    assert moved == ([1, 3, 1, 3] if kind == "documents" else [2, 3, 2, 3])


@pytest.mark.slow
def test_the_best_of_all_masks_is_found_where_no_path_of_exchanges_leads() -> None:
    """Orthogonal vectors: where whole dimensions are constant correlations jump, and good masks lie apart."""
    metric, quality_N = METRICS.make("DiSF"), torch.arange(11.0).double()
    chosen = torch.tensor(list(combinations(range(11), 4)))
    masks_GN = torch.zeros(len(chosen), 11, dtype=torch.bool).scatter_(1, chosen, value=True)
    for seed in (4, 12, 19, 24):
        rows_ND = np.eye(7, dtype=np.float32)[np.random.default_rng(seed).integers(7, size=11)]
        raw_G = metric.values(torch.from_numpy(rows_ND).double(), masks_GN)
        values_G = 0.1 * (masks_GN.double() @ quality_N) / 40 + 0.9 * (raw_G + 2) / 2
        result = select_documents(
            rows_ND,
            quality_N.numpy(),
            diversity="DiSF",
            lamb=0.1,
            ratio=None,
            num_documents=4,
            normalisation_constants={"quality": (0.0, 10.0), "DiSF": (-2.0, 0.0)},
        )
        own = values_G[(masks_GN == torch.from_numpy(result.mask)).all(1)]
        assert float(own) == pytest.approx(float(values_G.max()), abs=1e-6), seed


def test_a_large_block_is_left_alone() -> None:
    block = Block("LogDet", "documents", 0, 8)
    block.rows_ND = torch.zeros(2**21, 8)
    with Workers(1) as workers:
        rows = MemoryRows(block.rows_ND, 2**20)
        statistics = Statistics(rows=rows, workers=workers, squared_N=torch.zeros(1), needs_second=True)
        assert Exchanges.of(statistics, MomentObjective(objective=block.function), block.budget) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LogDet", "Vendi", "DiSF"])
def test_few_documents_of_small_blocks_are_chosen_best(name: str) -> None:
    """Exhaustively: of all masks none is better by more than .02 of the distance from random, on average by .002."""
    missed = []
    for seed in range(8):
        rows_ND = Block(name, "documents", seed, 5, size=14).rows_ND
        quality_N = np.random.default_rng(seed).normal(size=14)
        result = select_documents(
            rows_ND.numpy(), quality_N, num_documents=4, diversity=name, lamb=0.3, seed=seed, num_workers=1
        )
        (zero, one), (low, high) = result.normalisation[name], result.normalisation["quality"]
        masks_GN = torch.tensor(
            [np.isin(np.arange(14), chosen).tolist() for chosen in combinations(range(14), 4)]
        )
        raw_G = METRICS.make(name).values(rows_ND.double(), masks_GN).numpy()
        quality_G = masks_GN.double().numpy() @ quality_N / 4
        values_G = 0.3 * (quality_G - low) / (high - low) + 0.7 * (raw_G - zero) / (one - zero)
        objective, bound = result.objective, result.certificate.bound
        assert bound is not None
        assert values_G.max() <= bound + 1e-5
        missed.append((values_G.max() - objective.value) / (values_G.max() - objective.random))
    assert max(missed) < 0.02
    assert np.mean(missed) < 0.002


@pytest.mark.parametrize("dim", [8, 48])
@pytest.mark.parametrize("name", MOMENTS)
def test_a_mask_of_few_documents_is_worth_what_its_moments_say(name: str, dim: int) -> None:
    block = Block(name, "documents", 0, dim)
    with Workers(1) as workers:
        rows = MemoryRows(block.rows_ND, 64)
        squared_N = squared_of(rows, workers)
        statistics = Statistics(
            rows=rows, workers=workers, squared_N=squared_N, needs_second=block.function.needs_second
        )
        objective, mask_N = MomentObjective(objective=block.function), block.budget.random("first")
        by_moments = objective.value(mask_N, statistics.moments(mask_N))
        assert value_of(objective, statistics, mask_N) == pytest.approx(by_moments, rel=1e-6)
        held = statistics.moments(block.budget.random("held"))
        beside = replace(statistics, held=held)
        union = value_of(objective, beside, mask_N)
        assert union == pytest.approx(objective.value(mask_N, beside.moments(mask_N)))
        assert union != pytest.approx(by_moments)

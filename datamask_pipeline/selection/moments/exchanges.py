"""Greedy and exchanges on a block that fits in memory, by exact models of what they do. Knows no relaxation.

Shape suffixes: N documents, D embedding dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.diversity.swap_models import SwapModel
from datamask_pipeline.hardware import torch_threads
from datamask_pipeline.selection.budget import Budget, lots
from datamask_pipeline.selection.moments.pairs import Search, TokensLeft
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.tabu import EXCHANGED, Masks, Quadratic, best_found, kicked, walked
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.seeds import generator

MOST_NUMBERS = 2**23
"""Numbers of a block whose rows are held in float64: 64 MiB."""
LEAST_GAIN = 1e-7
"""Of an exchange, in the objective's units: many smaller ones together are below what a gap is told in."""
MOST_WORK = 1e10
"""Numbers that all moves of one search may read: a few seconds."""
KICKED = (0.15, 0.3)
"""Shares of a mask that a kick exchanges at random, in turns; each of them costs about two exchanges more to repair."""
FEWEST_KICKED = (1, 4)
"""Documents that it exchanges at least, in the same turns: a mask of so few is drawn anew."""
MOST_EXCHANGES = 4
"""Exchanges for each document of a mask."""
MOST_BENDS = 2**25
"""Pairs of documents whose second derivatives are held in float32: 128 MiB."""
SEARCHES, SEARCH_MOVES = 16, 100
"""Tabu searches side by side, and moves of each in each turn besides one for each document of the mask."""
MOST_SEARCHED = 2.5e8
"""Documents that all moves of all of them may look at: a few seconds."""


@dataclass(frozen=True)
class SearchWork:
    """Numbers that all drawn masks may read together, all tabu searches by exact models, and all kicks."""

    restarts: float
    walks: float
    kicks: float


CONCAVE, UNEVEN = SearchWork(8e9, 3e9, 3e8), SearchWork(3e9, 9e9, 3e8)
"""Of metrics whose relaxation is concave, and of others: in the same time tabu searches then find more."""


@dataclass(frozen=True, kw_only=True)
class Exchanges:
    """A block with its rows in float64, for masks that are filled and exchanged document by document.

    Inside, documents stand in an order drawn by lot, so that of equal ones, of which the first is taken, none is favoured.

    Attributes:
        order_N: The block's documents in that order.
        rows_ND: Theirs, as are the rows of `objective` and `budget`.
        held: Moments of documents that stand beside every mask.
    """

    order_N: Tensor
    rows_ND: Tensor
    held: Moments
    objective: MomentObjective
    budget: Budget
    work: SearchWork

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        objective: MomentObjective,
        budget: Budget,
        work: SearchWork | None = None,
    ) -> Exchanges | None:
        """Those of a block; none where it is too large, or where a metric has no exact model."""
        if not objective.exact_exchanges or statistics.rows.num_rows * statistics.rows.dim > MOST_NUMBERS:
            return None
        order_N = torch.argsort(lots(budget.seed, statistics.rows.num_rows), descending=True, stable=True)
        return cls(
            order_N=order_N,
            rows_ND=statistics.rows.everything().double().cpu()[order_N],
            held=statistics.held or Moments.zero(statistics.rows.dim, statistics.needs_second),
            objective=objective.reordered(order_N),
            budget=replace(budget, costs_N=budget.costs_N[order_N], groups_N=budget.groups_N[order_N]),
            work=work or (CONCAVE if objective.concave else UNEVEN),
        )

    def starts(self) -> Iterator[Tensor]:
        """Masks to improve: greedy's and that of the best quality; none where they would take too long."""
        size = self.budget.num_documents
        if size > self._most_moves(size):
            return
        if not self.budget.tokens:
            yield self.greedy()
        yield self._restored(self.budget.best(self.objective.objective.quality_N, exact=True))

    def greedy(self, first: int | None = None) -> Tensor:
        """The mask that takes the document of the largest gain again and again, a lot deciding between equal ones.

        Args:
            first: What is taken before all others, by its place here.
        """
        size = int(sum(self.budget.limits))
        mask_N = torch.zeros(len(self.rows_ND), dtype=torch.bool)
        model = self.objective.filling_model(self.held, size, self.rows_ND)
        left = np.array(self.budget.limits)
        groups_N = self.budget.groups_N.numpy()
        closed_N = np.where(left[groups_N] > 0, 0.0, -np.inf)
        for _ in range(size):
            gains_N = model.additions() + closed_N
            pick = int(gains_N.argmax()) if first is None else first
            first = None
            mask_N[pick], closed_N[pick] = True, -np.inf
            left[groups_N[pick]] -= 1
            if left[groups_N[pick]] == 0:
                closed_N[groups_N == groups_N[pick]] = -np.inf
            model.add(pick)
        return self._restored(mask_N)

    def improved(self, mask_N: Tensor) -> Tensor:
        """The mask after exchanges, each the best found, until no pair of documents that was looked at gains."""
        size, inner_N = int(mask_N.sum()), mask_N[self.order_N]
        model = self._model(inner_N)
        if not model.follows:
            return mask_N
        tokens = TokensLeft(self.budget, inner_N, torch.arange(len(mask_N))) if self.budget.tokens else None
        search = Search(model, inner_N.numpy(), self.budget.groups_N.numpy(), tokens, LEAST_GAIN)
        search.thorough(min(MOST_EXCHANGES * size, self._most_moves(size)))
        return self._restored(torch.from_numpy(search.selected_T))

    def num_turns(self, mask_N: Tensor) -> int:
        """How many turns of tabu searches there is time for; none where the objective is not quadratic or pairs are many."""
        size = len(mask_N)
        if not self.objective.quadratic or self.budget.tokens or size**2 > MOST_BENDS:
            return 0
        return int(MOST_SEARCHED / (SEARCHES * size * (int(mask_N.sum()) + SEARCH_MOVES)))

    def searched(self, mask_N: Tensor, num_turns: int, num_searches: int) -> Tensor:
        """The best mask that tabu searches find from this one, exchanged in part, and from where others begin anew."""
        inner_N = mask_N[self.order_N].numpy()
        problem = self._quadratic(inner_N)
        draws = self._draws("tabu")
        greedy = self.num_restarts(mask_N)
        starts = [inner_N]
        for number in range(1, num_searches):
            if number % 2:
                starts.append(kicked(inner_N, problem.groups_N, EXCHANGED[-1], draws))
            else:
                starts.append(
                    self.restarted(number if number <= greedy else number + 1)[self.order_N].numpy()
                )
        found_N = best_found(
            problem,
            np.stack(starts),
            num_turns=num_turns,
            num_moves=int(inner_N.sum()) + SEARCH_MOVES,
            draws=draws,
        )
        return self.improved(self._restored(torch.from_numpy(found_N)))

    def num_walks(self, mask_N: Tensor) -> int:
        """How many tabu searches by exact models there is time for; none where the objective is quadratic."""
        size = int(mask_N.sum())
        if self.objective.quadratic or self.budget.tokens:
            return 0
        return int(self._most_moves(size) * self.work.walks / MOST_WORK / (size + SEARCH_MOVES))

    def walked(self, mask_N: Tensor, turn: int) -> Tensor:
        """The best mask that a tabu search by exact models comes by from this one."""
        inner_N = mask_N[self.order_N]
        model, draws = self._model(inner_N), self._draws("walks", turn)
        if not model.follows:
            return mask_N
        groups_N, num_moves = self.budget.groups_N.numpy(), int(inner_N.sum()) + SEARCH_MOVES
        return self._restored(torch.from_numpy(walked(model, inner_N.numpy(), groups_N, num_moves, draws)))

    def _draws(self, *names: str | int) -> np.random.Generator:
        seed = torch.randint(2**62, (1,), generator=generator(self.budget.seed, *names))
        return np.random.default_rng(int(seed))

    def _quadratic(self, inner_N: Masks) -> Quadratic:
        """The objective of masks with as many documents as this one."""
        rows_ND = self.rows_ND.float()
        moments = self._moments(torch.from_numpy(inner_N))
        with torch_threads(1):  # sums depend on how many share them
            bends = self.objective.interaction(moments, rows_ND, rows_ND)
        assert bends is not None, "quadratic"
        bends_NN = bends.numpy().astype(np.float32, copy=False)
        problem = Quadratic(
            linear_N=np.zeros(len(inner_N)), bends_NN=bends_NN, groups_N=self.budget.groups_N.numpy()
        )
        scores_N = self._model(torch.from_numpy(inner_N)).additions() - np.diag(bends_NN) / 2
        return replace(problem, linear_N=scores_N - problem.bent(inner_N[None])[0])

    def restarted(self, turn: int) -> Tensor:
        """Another mask to improve: greedy's after a document that is drawn, and one that is drawn whole, in turns.

        Where the objective is not concave all are drawn whole, as exchanges of greedy's masks end lower there.

        Where few documents are chosen of many that are alike in nothing, masks that exchanges end at are as many as the
        places they begin at, and which of them is high is a matter of luck.
        """
        draws = generator(self.budget.seed, "restarts", turn)
        if turn % 2 or not self.objective.concave:
            return self._restored(self.budget.random("restarts", turn))
        open_N = torch.tensor(self.budget.limits)[self.budget.groups_N] > 0
        return self.greedy(int(torch.multinomial(open_N.to(torch.float64), 1, generator=draws)))

    def num_restarts(self, mask_N: Tensor) -> int:
        """How often there is time to begin anew: about two moves for each document of a mask."""
        size = int(mask_N.sum())
        return int(self._most_moves(size) * self.work.restarts / MOST_WORK / (2 * size))

    def num_kicks(self, mask_N: Tensor) -> int:
        """How often it costs little to kick a mask and to improve it again."""
        size = int(mask_N.sum())
        return int(self._most_moves(size) * self.work.kicks / MOST_WORK / (3 * KICKED[0] * size))

    def kicked(self, mask_N: Tensor, turn: int) -> Tensor:
        """The mask with some documents exchanged at random.

        Source: iterated local search, Lourenço, Martin and Stützle 2003. Where few documents are chosen there are many
        masks that no single exchange improves.
        """
        inner_N, kicked_N = mask_N[self.order_N], mask_N[self.order_N].clone()
        share, fewest = KICKED[turn % len(KICKED)], FEWEST_KICKED[turn % len(FEWEST_KICKED)]
        draws, size = generator(self.budget.seed, "kicks", turn), int(inner_N.sum())
        for group in range(len(self.budget.limits)):
            members_N = self.budget.groups_N == group
            sides = [torch.nonzero(members_N & side_N).squeeze(1) for side_N in (inner_N, ~inner_N)]
            count = max(math.ceil(share * len(sides[0])), -(-fewest * len(sides[0]) // size))
            count = min(count, *map(len, sides))
            for side, value in zip(sides, (False, True), strict=True):
                kicked_N[side[torch.randperm(len(side), generator=draws)[:count]]] = value
        return self._restored(kicked_N)

    def _restored(self, inner_N: Tensor) -> Tensor:
        """A mask in the block's order."""
        mask_N = torch.empty_like(inner_N)
        mask_N[self.order_N] = inner_N
        return mask_N

    def _most_moves(self, size: float) -> int:
        """Documents that may be added or exchanged one by one."""
        num_rows, dim = self.rows_ND.shape
        return int(MOST_WORK / self.objective.work(num_rows, size, dim))

    def _model(self, inner_N: Tensor) -> SwapModel:
        """What exchanges do to a mask."""
        inside_I = None if self.held.count else np.flatnonzero(inner_N)
        return self.objective.exchange_model(self._moments(inner_N), self.rows_ND, inside_I)

    def _moments(self, inner_N: Tensor) -> Moments:
        """Those of a mask and of what is held."""
        return self.held.plus(moments_of(self.rows_ND, inner_N, self.objective.objective.needs_second))

"""Documents of all processes as whoever leads sees them: sums, thresholds, projections. Knows no metric's formula.

Shape suffixes: G groups, D embedding dimensions.

Every figure is a function of the documents' own numbers and of whole numbers that add up: no process, and no order in
which they answer, changes a bit of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, Moments
from datamask_pipeline.selection.budget import TIE
from datamask_pipeline.selection.shards.keys import Keys, salt, value_of
from datamask_pipeline.selection.shards.sums import group_numbers, number_of, scale_bits
from datamask_pipeline.selection.shards.team import Team
from datamask_pipeline.selection.shards.view import Terms

FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
NEAR = 1e-10
"""A projection ends where what is taken is this share of its limit from it."""
MOST_ROUNDS = 200


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a mask may hold, as `budget.Budget`: whole numbers.

    Attributes:
        limits_G: Documents or tokens by group.
        tokens: Whether it is tokens.
        sizes_G: Documents there are, by group.
        totals_G: What they take.
        most_cost: What the largest takes.
        seed: For ties and draws.
    """

    limits_G: NDArray[np.int64]
    tokens: bool
    sizes_G: NDArray[np.int64]
    totals_G: NDArray[np.int64]
    most_cost: int
    seed: int

    @property
    def num_documents(self) -> float:
        """The number of documents of a mask: exact for a budget in documents, expected for one in tokens."""
        total = int(self.limits_G.sum())
        return total / (int(self.totals_G.sum()) / int(self.sizes_G.sum())) if self.tokens else float(total)

    @property
    def takes_everything(self) -> bool:
        """Whether every document fits."""
        return bool(self.limits_G.sum() >= self.totals_G.sum())

    @property
    def grouped(self) -> bool:
        """Whether there are quotas."""
        return len(self.limits_G) > 1


class Population:
    """The documents of one view.

    Args:
        team: Who holds them.
        view: Its name there.
        limits: Of a mask of these documents.
        dim: D.
        held: Moments of what stands beside every mask, if anything does.
        second: Whether second moments are wanted.
    """

    def __init__(
        self, team: Team, view: str, limits: Limits, dim: int, held: Moments | None, second: bool
    ) -> None:
        self.team, self.view, self.limits, self.dim = team, view, limits, dim
        self.held, self.second = held, second
        self.num_rows = int(limits.sizes_G.sum())

    def with_limits(self, limits: Limits) -> Population:
        """The same documents under another budget."""
        return Population(self.team, self.view, limits, self.dim, self.held, self.second)

    # -- columns ------------------------------------------------------------------------------------------

    def call(self, method: str, **arguments: Any) -> None:
        """A method of `View` that changes columns."""
        self.team.later("call", view=self.view, method=method, arguments=arguments)

    def combine(self, into: str, *terms: tuple[float, str | None]) -> None:
        """See `View.combine`."""
        self.call("combine", into=into, terms=terms)

    def copy(self, into: str, name: str) -> None:
        """See `View.copy`."""
        self.call("copy", into=into, name=name)

    def drop(self, *names: str) -> None:
        """See `View.drop`."""
        self.call("drop", names=names)

    def dots(self, *pairs: tuple[str | Terms, str | Terms | None]) -> list[float]:
        """See `View.dots`."""
        found = self.team.sums("dots", view=self.view, pairs=pairs)["dots"]
        return [number_of(limbs_L) for limbs_L in found]

    def counts(self, mask: str) -> NDArray[np.int64]:
        """Documents and costs of a mask by group: shape (2, G)."""
        return self.team.sums("counts", view=self.view, mask=mask)["counts"]

    def tally(self, *columns: str | Terms) -> NDArray[np.int64]:
        """See `View.tally`."""
        return self.team.sums("tally", view=self.view, columns=columns)["counts"]

    # -- vectors ------------------------------------------------------------------------------------------

    def own_moments(self, column: str | Terms) -> Moments:
        """Moments of a mask, relaxed or not, or of a sum of some."""
        bits = scale_bits(self.num_rows)
        sums = self.team.sums("moments", view=self.view, column=column, second=self.second, bits=bits)
        count, squared = (number_of(limbs_L) for limbs_L in sums["dots"])
        scale = 2.0**-bits
        second_DD = torch.from_numpy(sums["second"]).to(torch.float64).mul_(scale) if self.second else None
        return Moments(
            count=count,
            first_D=torch.from_numpy(sums["first"]).to(torch.float64).mul_(scale),
            second_DD=second_DD,
            squared=squared,
        )

    def moments(self, column: str) -> Moments:
        """Moments of a mask and of what is held."""
        own = self.own_moments(column)
        return own if self.held is None else own.plus(self.held)

    def moved(self, moments: Moments, before: str, after: str) -> Moments:
        """Moments of a relaxed mask from those of another one, see `Statistics.moved`."""
        change: Terms = [(1.0, after), (-1.0, before)]
        changed, kept = self.tally(change, after)[:, 0]
        if changed >= kept:
            return self.moments(after)
        count = self.dots((after, None))[0] + (0.0 if self.held is None else self.held.count)
        return replace(moments.plus(self.own_moments(change)), count=count)

    def gradient(self, into: str, form: LinearForm, quality: float, dtype: str) -> tuple[float, float]:
        """A column of a form's scores and of quality times a factor; its smallest and largest, NaN where one is."""
        parts = self.team.parts(
            "gradient",
            view=self.view,
            into=into,
            vector=form.vector_D.numpy(),
            matrix=None if form.matrix_DD is None else form.matrix_DD.numpy(),
            squared=form.squared,
            quality=quality,
            dtype=dtype,
        )
        low_W, high_W = ([part[name] for part in parts] for name in ("low", "high"))
        return float(np.min(low_W)), float(np.max(high_W))

    def rows(self, *masks: str, beside: str | None = None) -> dict[str, Tensor]:
        """The documents of some masks, few of them, with their vectors.

        Args:
            masks: Which documents.
            beside: The mask that says whether a document is selected; their groups, costs and quality come with it.
        """
        parts = self.team.parts("rows", view=self.view, masks=masks, beside=beside)
        # Concatenated by torch, whose tensors begin at addresses that products do not depend on.
        return {name: torch.cat([torch.from_numpy(part[name]) for part in parts]) for name in parts[0]}

    # -- order --------------------------------------------------------------------------------------------

    def _order(
        self,
        name: str | None,
        *,
        sign: float = 1.0,
        spread: float = 0.0,
        stream: Sequence[str | int] = ("ties",),
        absolute: bool = False,
        grouped: bool = False,
    ) -> None:
        salted = salt(self.limits.seed, *stream)
        self.call(
            "order",
            name=name,
            sign=sign,
            spread=spread,
            salted=salted,
            absolute=absolute,
            grouped=grouped and self.limits.grouped,
        )

    def _cut(
        self, limits_G: NDArray[np.int64], weighted: bool, by_value: bool = False
    ) -> tuple[Keys, Keys] | None:
        """Key and lot of the first document by group that is not among the first ones that meet the limits.

        Args:
            limits_G: Of the sums of costs, or of numbers.
            weighted: Whether it is costs.
            by_value: Whether its exact key is wanted, and its lot is not.

        Returns:
            Of a group whose documents all fit, zeros; none where there is no document at all.
        """
        bits = 16 if len(limits_G) == 1 else 8
        keys_G, ties_G = np.zeros(len(limits_G), np.uint64), np.zeros(len(limits_G), np.uint64)
        left_G, open_G = limits_G.astype(np.int64).copy(), np.ones(len(limits_G), bool)
        row_G = np.arange(len(limits_G))
        for by_tie in (False, True):
            known_G = keys_G.copy() if by_tie else np.zeros_like(keys_G)
            for shift in range(64 - bits, -1, -bits):
                counts_GB = self.team.sums(
                    "histogram",
                    view=self.view,
                    prefixes_G=known_G,
                    open_G=open_G,
                    shift=shift,
                    bits=bits,
                    by_tie=by_tie,
                    weighted=weighted,
                )["counts"]
                if not by_tie and shift == 64 - bits:
                    totals_G = counts_GB.sum(1)
                    if not totals_G.any():
                        return None
                    open_G &= totals_G > left_G
                downwards_GB = np.cumsum(counts_GB[:, ::-1], axis=1)
                turn_G = (downwards_GB > left_G[:, None]).argmax(1)
                bucket_G = (1 << bits) - 1 - turn_G
                above_G = downwards_GB[row_G, turn_G] - counts_GB[row_G, bucket_G]
                left_G[open_G] -= above_G[open_G]
                if by_tie and shift == 64 - bits:
                    known_G[:] = 0
                known_G = np.where(
                    open_G, (known_G << np.uint64(bits)) | bucket_G.astype(np.uint64), known_G
                ).astype(np.uint64)
                if not by_value:
                    # Nothing of this bucket fits any more: whatever its further bits are, it is out.
                    done_G = open_G & (left_G == 0)
                    rest = np.uint64((1 << shift) - 1)
                    if by_tie:
                        ties_G[done_G] = (known_G[done_G] << np.uint64(shift)) | rest
                    else:
                        keys_G[done_G] = (known_G[done_G] << np.uint64(shift)) | rest
                        ties_G[done_G] = FULL
                    open_G &= ~done_G
                if not open_G.any():
                    return keys_G, ties_G
            if by_tie:
                ties_G[open_G] = known_G[open_G]
            else:
                keys_G[open_G] = known_G[open_G]
                if by_value:
                    return keys_G, ties_G
        return keys_G, ties_G

    def _limits(self, counts_G: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.limits.limits_G if counts_G is None else counts_G

    def _choose(
        self, into: str, counts_G: NDArray[np.int64] | None, weighted: bool, beside: str | None = None
    ) -> bool:
        """The mask of the first documents of the order; false where none was left to choose from."""
        found = self._cut(self._limits(counts_G), weighted)
        if found is None:
            return False
        self.call("choose", into=into, keys_G=found[0], ties_G=found[1], beside=beside)
        return True

    def kth(self, name: str, counts_G: Sequence[int], *, absolute: bool = False) -> NDArray[np.float64]:
        """The number that so many documents reach: of each group if there are as many counts; infinite for none."""
        grouped = len(counts_G) > 1
        self._order(name, absolute=absolute, grouped=grouped)
        wanted_G = np.array(counts_G, np.int64)
        found = self._cut(np.maximum(wanted_G - 1, 0), weighted=False, by_value=True)
        assert found is not None, "there are documents"
        return np.where(wanted_G > 0, value_of(found[0]), np.inf)

    def median(self, name: str, *, absolute: bool = False) -> float:
        """The lower median, as torch takes it."""
        return float(self.kth(name, [self.num_rows - (self.num_rows - 1) // 2], absolute=absolute)[0])

    def best(self, into: str, name: str, *, exact: bool = False, fill: bool = True) -> None:
        """The mask of the highest numbers, see `Budget.best`."""
        spread = 0.0 if exact else TIE * self.median(name, absolute=True)
        self._order(name, spread=spread, grouped=True)
        self._first(into, fill)

    def random(self, into: str, *stream: str | int) -> None:
        """A uniformly random mask of a named stream."""
        self._order(None, stream=stream, grouped=True)
        self._first(into, fill=False)

    def drawn(self, into: str, weights: str, turn: int = 0) -> None:
        """A mask that holds each document with about its weight; another one each turn."""
        salted = salt(self.limits.seed, "rounding", *([turn] if turn else []))
        self.call("combine_draw", into="draw", weights=weights, salted=salted)
        self._order("draw", grouped=True)
        self.drop("draw")
        self._first(into, fill=True)

    def filled(self, into: str, mask: str, weights: str) -> None:
        """The mask of a budget in tokens, filled up with documents of large weight, see `rounding.filled`."""
        salted = salt(self.limits.seed, "filling")
        self.call("combine_filling", into="filling", mask=mask, weights=weights, salted=salted)
        self._order("filling")
        self.drop("filling")
        self._first(into, fill=True)

    def sample(self, into: str, count: int, *stream: str | int) -> None:
        """The mask of a uniform sample of this many documents."""
        self._order(None, stream=stream)
        self._choose(into, np.array([count]), weighted=False)

    def nearest(self, into: str, name: str, mask: str, count: int, inside: bool) -> None:
        """The mask of those of each group in (or out of) a mask that are nearest to leaving (or entering) it."""
        self._order(name, sign=-1.0 if inside else 1.0, stream=("swaps", inside), grouped=True)
        self.call("consider", mask=mask, inside=inside, most_cost=None)
        share = np.full(len(self.limits.limits_G), max(1, count // len(self.limits.limits_G)))
        if not self._choose(into, share, weighted=False):
            self.call("consider", mask="all", inside=False, most_cost=None)
            self.call(
                "choose",
                into=into,
                keys_G=np.zeros_like(share, np.uint64),
                ties_G=np.zeros_like(share, np.uint64),
                beside=None,
            )

    def _first(self, into: str, fill: bool) -> None:
        weighted = self.limits.tokens
        self._choose(into, None, weighted)
        while weighted and fill:
            left = int(self.limits.limits_G[0] - self.counts(into)[1, 0])
            if left <= 0:
                break
            self.call("consider", mask=into, inside=False, most_cost=left)
            if not self._choose(into, np.array([left]), weighted, beside=into):
                break

    def most(self, name: str) -> float:
        """The largest sum of a column that any mask of documents reaches, see `Budget.most`."""
        self._order(name, grouped=True)
        self._choose("most", None, weighted=False)
        return self.dots(("most", name))[0]

    # -- projection ---------------------------------------------------------------------------------------

    def project(self, into: str, name: str) -> None:
        """The nearest relaxed mask, see `Budget.project`: by Newton's method inside ever narrower ends."""
        parts = self.team.parts("thresholds", view=self.view, name=name)
        low_G = np.min([part["low"] for part in parts], axis=0)
        high_G = np.max([part["high"] for part in parts], axis=0)
        limits_G, most = self.limits.limits_G.astype(np.float64), float(self.limits.most_cost)
        bare_G = self.limits.sizes_G == 0
        low_G, high_G = np.where(bare_G, 0.0, low_G), np.where(bare_G, 0.0, high_G)
        full_G = self.limits.limits_G >= self.limits.totals_G
        none_G = self.limits.limits_G == 0
        taus_G = np.clip(0.0, low_G, high_G)
        taus_G = np.where(full_G, low_G, np.where(none_G, high_G, taus_G))
        done_G = full_G | none_G
        for _ in range(MOST_ROUNDS):
            if done_G.all():
                break
            halves = self.team.sums("taken", view=self.view, name=name, taus=taus_G, most=most)["taken"]
            over_G = group_numbers(halves[0]) * most - limits_G
            slopes_G = group_numbers(halves[1]) * most * most
            done_G |= np.abs(over_G) <= NEAR * limits_G
            low_G = np.where(~done_G & (over_G > 0), taus_G, low_G)
            high_G = np.where(~done_G & (over_G <= 0), taus_G, high_G)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton_G = taus_G + over_G / slopes_G
            inside_G = (newton_G > low_G) & (newton_G < high_G)
            middle_G = (low_G + high_G) / 2
            done_G |= ~((middle_G > low_G) & (middle_G < high_G))  # to the last bit of a double
            taus_G = np.where(done_G, taus_G, np.where(inside_G, newton_G, middle_G))
        self.call("clip", into=into, name=name, taus_G=taus_G)

    # -- views --------------------------------------------------------------------------------------------

    def part(self, name: str, mask: str, columns: Sequence[str]) -> Population:
        """Some of the documents as a population of their own: their share of the documents, without quotas or costs.

        Args:
            name: Of the view.
            mask: The documents.
            columns: What is kept of their columns.
        """
        counts = self.team.sums("view", name=name, mask=mask, columns=list(columns))["counts"]
        share = int(counts[0].sum()) / self.num_rows
        total = max(2, round(self.limits.num_documents * share))
        limits = replace(
            self.limits,
            limits_G=np.array([total]),
            tokens=False,
            sizes_G=np.array([counts[0].sum()]),
            totals_G=np.array([counts[0].sum()]),
            most_cost=1,
        )
        beside = None
        if self.held is not None:
            beside = self.held.plus(self.held, total / self.limits.num_documents - 1)
        return Population(self.team, name, limits, self.dim, beside, self.second)


def plain_moments(moments: Moments) -> Mapping[str, Any]:
    """Moments as a message has them."""
    return {
        "count": moments.count,
        "first": moments.first_D.numpy(),
        "second": None if moments.second_DD is None else moments.second_DD.numpy(),
        "squared": moments.squared,
    }

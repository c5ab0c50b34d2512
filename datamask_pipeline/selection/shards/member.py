"""One process's documents: it reads their vectors, and does with them what it is told. Knows no other process.

Shape suffixes: N documents of this process, n rows of a chunk, D embedding dimensions.

Steps are methods whose names begin with ``do_``; each answers sums, which add up over processes, and parts, which do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, squared_norms
from datamask_pipeline.errors import DataMaskError, InputError, StorageError
from datamask_pipeline.hardware import device_of_place
from datamask_pipeline.products import second_moment
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.groups import MOST_NAMES, groups_of, names_of
from datamask_pipeline.selection.inputs import checked_quality, checked_scores, inspected, require_floats
from datamask_pipeline.selection.metrics import metrics_of
from datamask_pipeline.selection.normalisation import combined_quality
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.result import log_odds
from datamask_pipeline.selection.rows import MappedRows, Rows
from datamask_pipeline.selection.shards.source import Shard, opened, unit_rows
from datamask_pipeline.selection.shards.view import Span, Terms, View
from datamask_pipeline.spill import Room

WHOLE = "whole"
ALIGNED = 64
"""Bytes: where products begin at such addresses, their bits do not depend on where an array happens to lie."""

LEFT_OUT = {
    "mask": False,
    "probability": 0.0,
    "logit": -np.inf,
    "quality_marginal": np.nan,
    "diversity_marginal": np.nan,
    "reason": 4,
    "tangent": np.nan,
    "dual": np.nan,
}
"""What the columns say of a document that was left out before anything was learnt."""

GROUPS_AT_ONCE = 1 << 18
"""Of how many documents at a time the names of groups are looked at."""

Answer = tuple[dict[str, NDArray[np.int64]], dict[str, Any]]
"""Sums by name, and what else this process has to tell."""


class Member:
    """The documents of one process.

    Args:
        job: As `api` makes it: settings, shards, number of documents of all processes, threads.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.config = SelectionConfig.of(job["config"])
        self.shards = [Shard(**shard) for shard in job["shards"]]
        self.num_rows, self.tokens = job["num_rows"], job["tokens"]
        self.score_names = list(job["scores"])
        self.place, self.num_members, self.room = job["place"], job["num_members"], Room(job["room"])
        self.first = self.shards[0].first or 0 if self.shards else 0
        self.workers = Workers(job["threads"])
        self.metrics = {metric.name: metric for metric, _ in metrics_of(self.config)}
        self.views: dict[str, View] = {}
        self.rows: dict[str, Rows] = {}
        self.squared: dict[str, Tensor] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.workers)
        self._stack.enter_context(torch.inference_mode())
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def device(self) -> torch.device:
        """Where this process computes."""
        return device_of_place(self.config.device, self.place)

    def answer(self, steps: Sequence[tuple[str, Mapping[str, Any]]]) -> Answer:
        """Do these steps, at least one, and answer the last.

        Raises:
            StorageError: a file cannot be read or written.
        """
        try:
            for step, arguments in steps:
                found: Answer = getattr(self, f"do_{step}")(**arguments)
        except DataMaskError:
            raise
        except OSError as error:
            raise StorageError(
                f"cannot read or write a file for the documents from row {self.first:,} on: {error}; check that it exists, "
                "that the disk has room, and who may write there"
            ) from error
        return found

    # -- reading ------------------------------------------------------------------------------------------

    def do_open(self) -> Answer:
        """Open the shards and look at every vector and number, see `inputs.checked_rows`."""
        if not self.shards:
            return {}, {"digests": np.zeros(0, np.uint8), "num_normalised": 0, "dim": 0}
        self.workers.device = self.device()
        with self._numbered():
            held = opened(self.shards, self.tokens, self.config.quotas is not None, self.room)
            require_floats(held.vectors.dtype)
            num_rows = len(held.vectors)
            tokens_N, groups_N = held.columns.pop("\0token_counts", None), held.columns.pop("\0groups", None)
            self.scores = {}
            for name, scores_N in checked_quality(held.columns, num_rows).items():
                self.scores[name] = torch.from_numpy(self.room.array(num_rows, np.float64)).copy_(scores_N)
            costs_N = self.room.array(num_rows, np.int64)
            costs_N[:] = 1 if tokens_N is None else _whole(tokens_N)
            chunk_rows = self.config.chunk_rows
            cpu = torch.device("cpu")
            source = MappedRows(held.vectors, chunk_rows, cpu, normalise=False)
            digests, num_normalised, first = [], 0, 0
            squared_N = self.room.array(num_rows, np.float64)
            inspect = partial(inspected, source, chunk_rows)
            for count, digest, squared_n in self.workers.map(inspect, source.spans()):
                num_normalised += count
                digests.append(np.frombuffer(digest, np.uint8))
                squared_N[first : first + len(squared_n)] = squared_n.numpy()
                first += len(squared_n)
            unit = unit_rows(self.num_rows, chunk_rows)
            spans = [(start, min(start + unit, num_rows)) for start in range(0, num_rows, unit)]
            num_groups = len(self.config.quotas or [None])
            places_N, names = self.room.array(num_rows, np.int32), list[str]()
            places_N[:] = 0
            if groups_N is not None:
                names = self._places(groups_N, places_N)
        numbers_N = self.room.array(num_rows, np.int64)
        for start, stop in spans:
            numbers_N[start:stop] = np.arange(self.first + start, self.first + stop)
        self.views[WHOLE] = View(numbers_N, spans, places_N, costs_N, num_groups, self.room)
        self.vectors, self.squared[WHOLE] = held.vectors, torch.from_numpy(squared_N)
        told = {
            "digests": np.concatenate(digests),
            "num_normalised": num_normalised,
            "dim": held.vectors.shape[1],
            "dtype": str(held.vectors.dtype),
            "groups": names,
        }
        return {}, told

    @contextmanager
    def _numbered(self) -> Iterator[None]:
        """What is wrong with a row is told by its global number."""
        try:
            yield
        except InputError as error:
            if error.row is None:
                raise
            raise InputError(
                error.problem,
                file=error.file,
                row=error.row + (self.first if error.file is None else 0),
                field=error.field,
                value=error.value,
                remedy=error.remedy,
            ) from error

    def _places(self, groups_N: NDArray[Any], places_N: NDArray[np.int32]) -> list[str]:
        """Write down the place of each document's quota; the groups' names, of too many to tell them none."""
        known = set[str]()
        for start in range(0, len(groups_N), GROUPS_AT_ONCE):
            piece = slice(start, start + GROUPS_AT_ONCE)
            names, inverse_n = np.unique(groups_N[piece], return_inverse=True)
            try:
                places = groups_of(self.config.quotas or {}, names).numpy()
            except InputError as error:  # its row is that of a name
                row = start + int(np.argmax(inverse_n == error.row))
                raise InputError(
                    error.problem, row=row, field=error.field, value=error.value, remedy=error.remedy
                ) from error
            places_N[piece] = places[inverse_n]
            if len(known) <= MOST_NAMES:
                known.update(names_of(names))
        return sorted(known) if len(known) <= MOST_NAMES else []

    def do_begin(self, normalise: bool, dim: int, num_groups: int, most_cost: int | None) -> Answer:
        """Make everything ready, now that it is known whether vectors have to be normalised.

        Args:
            normalise: Whether they have to.
            dim: D.
            num_groups: Of the quotas.
            most_cost: Documents that take more are left out.
        """
        self.dim, self.normalise = dim, normalise
        if not self.shards:
            empty = np.zeros(0, np.int64)
            self.views[WHOLE] = View(empty, [], empty.astype(np.int32), empty, num_groups, self.room)
            self.squared[WHOLE] = torch.zeros(0, dtype=torch.float64)
            self.scores = {name: torch.zeros(0, dtype=torch.float64) for name in self.score_names}
        else:
            device, chunk_rows = self.device(), self.config.chunk_rows
            self.rows[WHOLE] = MappedRows(self.vectors, chunk_rows, device, normalise)
        view = self.views[WHOLE]
        self.num_own, own_tokens = len(view), int(view.costs_N.sum())
        largest = int(view.costs_N.argmax()) if len(view) else 0
        told = {
            "largest": int(view.costs_N[largest]) if len(view) else 0,
            "largest_row": int(view.numbers_N[largest]) if len(view) else 0,
        }
        if most_cost is not None and told["largest"] > most_cost:
            places_n = np.flatnonzero(view.costs_N <= most_cost)
            self.views[WHOLE] = view = view.at(places_n)
            self.rows[WHOLE] = self.rows[WHOLE].chosen(torch.from_numpy(places_n))
            self.squared[WHOLE] = self._taken(self.squared[WHOLE], places_n)
            self.scores = {name: self._taken(scores_N, places_n) for name, scores_N in self.scores.items()}
        if self.shards and normalise:
            self._fill(WHOLE, "squared", lambda rows_nD, span: squared_norms(rows_nD))
            self.squared[WHOLE] = torch.from_numpy(view.floats["squared"])
        view.floats["squared"] = self.squared[WHOLE].numpy()
        for name, scores_N in self.scores.items():
            view.floats[f"score/{name}"] = scores_N.numpy()
        view.masks["all"] = view.column(bool)
        view.masks["all"][:] = True
        left_out = [self.num_own - len(view), own_tokens - int(view.costs_N.sum())]
        told["most_cost"] = int(view.costs_N.max()) if len(view) else 0
        return {"counts": view.counts("all"), "left_out": np.array(left_out)}, told

    def do_quality(
        self, weights: Mapping[str, float] | None, constants: Mapping[str, tuple[float, float]]
    ) -> Answer:
        """The weighted, normalised quality of each document."""
        pairs = {name: (zero, one) for name, (zero, one) in constants.items()}
        view = self.views[WHOLE]
        quality_N = view.column(np.float64)
        for piece in view.pieces():
            scores = {name: scores_N[piece] for name, scores_N in self.scores.items()}
            quality_N[piece] = combined_quality(scores, weights, pairs).numpy()
        view.floats["quality"] = quality_N
        return {}, {}

    def do_view(self, name: str, mask: str, columns: Sequence[str]) -> Answer:
        """Some of the documents as a view of their own."""
        view, places_n = self.views[WHOLE].chosen(mask, columns)
        self.views[name] = view
        self.squared[name] = self._taken(self.squared[WHOLE], places_n)
        if self.shards:
            self.rows[name] = self.rows[WHOLE].chosen(torch.from_numpy(places_n))
        view.masks["all"] = np.ones(len(view), bool)
        return {"counts": view.counts("all")}, {}

    def do_forget(self, name: str) -> Answer:
        """Give a view back."""
        for kept in (self.views, self.rows, self.squared):
            kept.pop(name, None)
        return {}, {}

    def _taken(self, values_N: Tensor, places_n: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.room.taken(values_N.numpy(), places_n))

    # -- vectors ------------------------------------------------------------------------------------------

    def _chunk(self, view: str, span: Span, dtype: torch.dtype = torch.float32) -> Tensor:
        return _aligned(self.rows[view].chunk(*span, dtype))

    def _fill(self, view: str, into: str, function: Callable[[Tensor, Span], Tensor]) -> None:
        """A column of what a function makes of each chunk; chunks are cut by units, wherever a process ends."""
        of, size = self.views[view], self.config.chunk_rows

        def part(span: Span) -> tuple[Span, Tensor]:
            return span, function(_aligned(self.rows[view].chunk(*span)), span).to("cpu", torch.float64)

        column_N = of.column(np.float64)
        for (start, stop), part_n in self.workers.map(part, _chunks(of.units, size)):
            column_N[start:stop] = part_n.numpy()
        of.floats[into] = column_N

    def do_moments(self, view: str, column: str | Terms, second: bool, bits: int) -> Answer:
        """Moments of a mask, relaxed or not, or of a sum of some, to so many bits; only its rows are read."""
        of, size = self.views[view], self.config.chunk_rows
        scale = float(1 << bits)
        is_mask = column in of.masks if isinstance(column, str) else False

        def part(span: Span) -> tuple[Tensor, Tensor | None]:
            weights_u = of.values(column, slice(*span))
            places_n = np.flatnonzero(weights_u)
            first_D = torch.zeros(self.dim, dtype=torch.int64)
            second_DD = torch.zeros(self.dim, self.dim, dtype=torch.int64) if second else None
            for start in range(0, len(places_n), size):
                index_n = torch.from_numpy(places_n[start : start + size])
                rows_nD = _aligned(self.rows[view].take(index_n + span[0]).float())
                weighted_nD = rows_nD
                if not is_mask:
                    weighted_nD = rows_nD * torch.from_numpy(weights_u)[index_n].to(rows_nD)[:, None]
                first_D += _fixed(weighted_nD.sum(0, dtype=torch.float64), scale)
                if second_DD is not None:
                    second_DD += _fixed(second_moment(rows_nD, weighted_nD), scale)
            return first_D, second_DD

        first_D = torch.zeros(self.dim, dtype=torch.int64)
        second_DD = torch.zeros(self.dim, self.dim, dtype=torch.int64) if second else None
        for unit_first_D, unit_second_DD in self.workers.map(part, [u for u in of.units if u[0] < u[1]]):
            first_D += unit_first_D
            if second_DD is not None and unit_second_DD is not None:
                second_DD += unit_second_DD
        sums = {"first": first_D.numpy(), "dots": of.dots([(column, None), (column, "squared")])}
        if second_DD is not None:
            sums["second"] = second_DD.numpy()
        return sums, {}

    def do_gradient(
        self,
        view: str,
        into: str,
        vector: NDArray[np.float64],
        matrix: NDArray[np.float64] | None,
        squared: float,
        quality: float,
        dtype: str,
    ) -> Answer:
        """A linear form's score of every document, and its quality times a factor."""
        form = LinearForm(
            vector_D=torch.from_numpy(vector),
            matrix_DD=None if matrix is None else torch.from_numpy(matrix),
            squared=squared,
        )
        squared_N, kind, of = self.squared[view], getattr(torch, dtype), self.views[view]
        quality_N = torch.from_numpy(of.floats["quality"])

        def scores(rows_nD: Tensor, span: Span) -> Tensor:
            scores_n = form.scores(rows_nD, squared_N[slice(*span)], kind)
            return scores_n.cpu() + quality * quality_N[slice(*span)]

        self._fill(view, into, scores)
        low, high = of.ends(into)
        return {}, {"low": low, "high": high}

    def do_marginals(
        self,
        view: str,
        into: str,
        mask: str,
        moments: Mapping[str, Any],
        factors: Mapping[str, float],
        own: str | None,
    ) -> Answer:
        """What each document adds to the diversity part, by the metrics' own marginals at these moments.

        Args:
            own: Column of what a document's product with itself is worth, where every metric is quadratic.
        """
        of = self.views[view]
        at = Moments(
            count=moments["count"],
            first_D=torch.from_numpy(moments["first"]),
            second_DD=None if moments["second"] is None else torch.from_numpy(moments["second"]),
            squared=moments["squared"],
        )
        metrics = [(self.metrics[name], factor) for name, factor in factors.items()]
        marginals = [
            (metric.marginals_at(at), factor)
            for metric, factor in metrics
            if isinstance(metric, MomentMetric)
        ]

        def of_rows(rows_nD: Tensor, span: Span) -> Tensor:
            weights_n = torch.from_numpy(of.part(mask, slice(*span))).to(rows_nD.device)
            total_n = torch.zeros_like(weights_n)
            for function, factor in marginals:
                total_n += factor * function(rows_nD, weights_n)
            return total_n

        self._fill(view, into, of_rows)
        if own is not None:
            own_N = of.column(np.float64)
            for piece in of.pieces():
                own_N[piece] = 0
                for metric, factor in metrics:
                    if isinstance(metric, MomentMetric):
                        own_N[piece] += factor * metric.self_products(at, self.squared[view][piece]).numpy()
            of.floats[own] = own_N
        return {}, {}

    def do_reach(self, view: str, mask: str, rows: NDArray[np.float32]) -> Answer:
        """The largest similarity of each of some vectors to a document of a mask here, -1 where there is none."""
        of, size = self.views[view], self.config.chunk_rows
        references_RD = torch.from_numpy(rows).to(self.device())
        places_N = np.flatnonzero(of.masks[mask])

        def part(span: Span) -> Tensor:
            start, stop = np.searchsorted(places_N, span)
            most_R = torch.full((len(rows),), -1.0)
            for first in range(start, stop, size):
                index_n = torch.from_numpy(places_N[first : min(first + size, stop)])
                products_nR = _aligned(self.rows[view].take(index_n)) @ references_RD.T
                most_R = most_R.maximum(products_nR.amax(0).cpu())
            return most_R

        most_R = torch.full((len(rows),), -1.0)
        for found_R in self.workers.map(part, of.units):
            most_R = most_R.maximum(found_R)
        return {}, {"most": most_R.numpy()}

    # -- regions ------------------------------------------------------------------------------------------

    def do_gather(self, folder: str, shards: Sequence[Mapping[str, Any]], seed: int) -> Answer:
        """Be ready for parts that lie in any shard."""
        from datamask_pipeline.selection.shards.regions import Regions

        self.regions = Regions(self, folder, shards, seed)
        return {}, {}

    def do_regions(self, method: str, arguments: Mapping[str, Any]) -> Answer:
        """A method of `Regions`."""
        found: Answer = getattr(self.regions, method)(**arguments)
        return found

    def do_rows(self, view: str, masks: Sequence[str], beside: str | None) -> Answer:
        """The documents of some masks, with their vectors; with what swaps of a mask need to know of them."""
        of = self.views[view]
        places_n = np.flatnonzero(np.logical_or.reduce([of.masks[name] for name in masks]))
        rows_nD = np.zeros((0, self.dim), np.float32)
        if len(places_n):
            rows_nD = self.rows[view].take(torch.from_numpy(places_n)).cpu().numpy()
        told = {"numbers": of.numbers_N[places_n], "rows": rows_nD}
        if beside is not None:
            told |= {
                "selected": of.masks[beside][places_n],
                "groups": of.groups_N[places_n],
                "costs": of.costs_N[places_n],
                "quality": of.floats["quality"][places_n],
            }
        return {}, told

    def do_settle(
        self, view: str, mask: str, numbers: NDArray[np.int64], selected: NDArray[np.bool_]
    ) -> Answer:
        """Put these documents in or out."""
        of = self.views[view]
        places_n = np.searchsorted(of.numbers_N, numbers)
        mine_n = places_n < len(of)
        mine_n[mine_n] = of.numbers_N[places_n[mine_n]] == numbers[mine_n]
        mask_N = of.column(bool)
        mask_N[:] = of.masks[mask]
        mask_N[places_n[mine_n]] = selected[mine_n]
        of.masks[mask] = mask_N
        return {}, {}

    # -- numbers ------------------------------------------------------------------------------------------

    def do_dots(self, view: str, pairs: Sequence[tuple[str | Terms, str | Terms | None]]) -> Answer:
        """See `View.dots`."""
        return {"dots": self.views[view].dots(pairs)}, {}

    def do_counts(self, view: str, mask: str) -> Answer:
        """See `View.counts`."""
        return {"counts": self.views[view].counts(mask)}, {}

    def do_thresholds(self, view: str, name: str) -> Answer:
        """See `View.thresholds`."""
        low_G, high_G = self.views[view].thresholds(name)
        return {}, {"low": low_G, "high": high_G}

    def do_taken(self, view: str, name: str, taus: NDArray[np.float64], most: float) -> Answer:
        """See `View.taken`."""
        return {"taken": self.views[view].taken(name, taus, most)}, {}

    def do_histogram(self, view: str, **arguments: Any) -> Answer:
        """See `View.histogram`."""
        return {"counts": self.views[view].histogram(**arguments)}, {}

    def do_call(self, view: str, method: str, arguments: Mapping[str, Any]) -> Answer:
        """A method of the view that only changes its columns."""
        getattr(self.views[view], method)(**arguments)
        return {}, {}

    def do_range(self, name: str) -> Answer:
        """See `View.ends`."""
        low, high = self.views[WHOLE].ends(name)
        return {}, {"low": low, "high": high}

    def do_tally(self, view: str, columns: Sequence[str | Terms]) -> Answer:
        """See `View.tally`."""
        return {"counts": self.views[view].tally(columns)}, {}

    # -- results ------------------------------------------------------------------------------------------

    def do_reasons(self, name: str, mask: str, cuts: NDArray[np.float64]) -> Answer:
        """What each document's marginal and mask say, as 0 to 3, see `reasons.decided`; how often each."""
        of = self.views[WHOLE]
        self.reasons_N, counts = of.column(np.uint8), np.zeros(4, np.int64)
        for piece in of.pieces():
            reasons_n = of.masks[mask][piece] + 2 * (of.floats[name][piece] >= cuts[of.groups_N[piece]])
            self.reasons_N[piece], counts = reasons_n, counts + np.bincount(reasons_n, minlength=4)
        return {"count": counts}, {}

    def do_write(
        self, files: Mapping[str, str], weights: str, scores: str, low: float, high: float
    ) -> Answer:
        """Put this process's part of every column into the files, which lie ready."""
        of = self.views[WHOLE]
        if self.num_own:
            span = high - low

            def ranks(scores_n: NDArray[np.float64]) -> NDArray[np.float64]:
                return (scores_n - low) / span if span > 0 else np.full(len(scores_n), 0.5)

            for name, path in files.items():
                own_N = np.load(path, mmap_mode="r+")[self.first : self.first + self.num_own]
                if len(of) < self.num_own:
                    own_N[:] = LEFT_OUT[name]
                for piece in of.pieces():
                    place = piece if len(of) == self.num_own else of.numbers_N[piece] - self.first
                    if name == "reason":
                        own_N[place] = self.reasons_N[piece]
                    elif name == "logit":
                        own_N[place] = log_odds(of.part(weights, piece), of.part(scores, piece), ranks)
                    else:
                        own_N[place] = of.part(name, piece)
                own_N.flush()
        return {}, {}


def _chunks(units: Sequence[Span], size: int) -> Iterator[Span]:
    for start, stop in units:
        for first in range(start, stop, size):
            yield first, min(first + size, stop)


def _fixed(values: Tensor, scale: float) -> Tensor:
    # Scaled by a power of two, floats keep every bit; what lies behind the point is cut off.
    return values.mul(scale).to("cpu", torch.int64)


def _aligned(rows_nD: Tensor) -> Tensor:
    return rows_nD if rows_nD.data_ptr() % ALIGNED == 0 else rows_nD.clone()


def _whole(tokens_N: NDArray[Any]) -> NDArray[np.int64]:
    """Token counts, refused where they are not whole numbers above 0."""
    numbers_N = checked_scores(tokens_N, len(tokens_N), "token_counts", "token count").numpy()
    bad_N = (numbers_N != np.rint(numbers_N)) | (numbers_N > 2**52)
    for wrong_N, problem in (
        (numbers_N <= 0, "a token count is not above 0"),
        (bad_N, "a token count is no whole number"),
    ):
        if wrong_N.any():
            row = int(np.argmax(wrong_N))
            raise InputError(problem, row=row, field="token_counts", value=float(numbers_N[row]))
    return numbers_N.astype(np.int64)


def digest_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """The digest of all vectors, as `inputs.checked_rows` makes it in one process."""
    return hashlib.sha256(b"".join(part["digests"].tobytes() for part in parts)).hexdigest()

"""What one process does for a coverage metric: regions of documents that are alike, whoever holds them. Knows no objective.

Shape suffixes: N documents of this process, n documents of a part, C regions, P parts, G groups, s sampled references, D
embedding dimensions.

A document covers what is like it, so documents that compete have to be looked at together. Each process says which of
its documents belong to which part of which region, in files that every process can open; whoever is at work on a part
reads its vectors from the shards. A part is cut by numbers of documents and by sums over all of them, and so is the same
from any number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.disk import save_array
from datamask_pipeline.selection.facility.choose import first_length
from datamask_pipeline.selection.facility.dense import dense_lazy_greedy
from datamask_pipeline.selection.facility.evaluate import (
    Coverage,
    completed,
    coverage_of,
    listed_coverage,
    listed_marginals,
)
from datamask_pipeline.selection.facility.exchanges import Exchanges
from datamask_pipeline.selection.facility.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.solve import CoverageTask, Improve, certified_mask
from datamask_pipeline.selection.rows import MappedRows
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.selection.shards.keys import lots, salt
from datamask_pipeline.selection.shards.source import Shard
from datamask_pipeline.selection.shards.sums import limbs_of

if TYPE_CHECKING:
    from datamask_pipeline.selection.shards.member import Answer, Member

SPARE, FEWEST_SPARE = 4, 64
"""Documents that greedy ranks in a part: so many times the share it would have by size, and so many more."""
UNRANKED = -1e300
"""What a document that greedy did not reach is ranked by."""
PER_DOCUMENT = ("numbers", "quality", "groups", "costs")


@dataclass(frozen=True, kw_only=True)
class Part:
    """The documents of one part, in seeded order, so that equal ones are taken by lot.

    Attributes:
        numbers_n: Their global numbers.
        order_n: The place of each by rising number, which is the order of files.
        quality_n: float64.
        groups_n: int64.
        costs_n: int64.
    """

    numbers_n: NDArray[np.int64]
    order_n: NDArray[np.int64]
    quality_n: NDArray[np.float64]
    groups_n: NDArray[np.int64]
    costs_n: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers_n)

    def by_number(self, values_n: NDArray[Any]) -> NDArray[Any]:
        """Values in the order of files."""
        found_n = np.empty_like(values_n)
        found_n[self.order_n] = values_n
        return found_n


class Regions:
    """The parts that one process is at work on, and where its own documents are.

    Args:
        member: Its documents.
        folder: Of the files that processes tell each other by.
        shards: All of them.
        seed: Of lots.
    """

    def __init__(self, member: Member, folder: str, shards: Sequence[Mapping[str, Any]], seed: int) -> None:
        self.member, self.folder, self.seed = member, Path(folder), seed
        self.shards = [Shard(**shard) for shard in shards]
        self.firsts = np.array([shard.first for shard in self.shards], np.int64)

    # -- own documents ------------------------------------------------------------------------------------

    def assign(self, centroids: NDArray[np.float32]) -> Answer:
        """The region of each own document, that of the most similar centroid; how many each one has."""
        member, view = self.member, self.member.views["whole"]
        centroids_CD = torch.from_numpy(centroids).to(member.device())
        if len(view):
            member._fill("whole", "region", lambda rows_nD, span: (rows_nD @ centroids_CD.T).argmax(1))
        else:
            view.floats["region"] = np.zeros(0)
        regions_N = view.floats.pop("region").astype(np.int64)
        self.regions_N = regions_N
        return {"counts": np.bincount(regions_N, minlength=len(centroids))}, {}

    def spread(self, offsets: NDArray[np.int64]) -> Answer:
        """Write down the own documents part by part; each part's documents by group.

        Args:
            offsets: The first part of each region, and their end; documents of a region in several parts are dealt by lot.
        """
        view = self.member.views["whole"]
        pieces_N = np.diff(offsets)[self.regions_N].astype(np.uint64)
        dealt_N = lots(view.numbers_N, salt(self.seed, "regions")) % np.maximum(pieces_N, np.uint64(1))
        self.parts_N = (offsets[self.regions_N] + dealt_N.astype(np.int64)).astype(np.int32)
        del self.regions_N
        num_parts = int(offsets[-1])
        self.order_n = np.argsort(self.parts_N, kind="stable")
        self.ends_P1: NDArray[np.int64] = np.concatenate(
            [[0], np.bincount(self.parts_N, minlength=num_parts).cumsum()]
        )
        columns: list[NDArray[Any]] = [
            view.numbers_N,
            view.floats["quality"],
            view.groups_N,
            view.costs_N,
        ]
        for name, column_N in zip(PER_DOCUMENT, columns, strict=True):
            save_array(self._own(name), column_N[self.order_n])
        save_array(self._own("ends"), self.ends_P1)
        return self.taken("all", weighted=False)

    def taken(self, mask: str, weighted: bool = True) -> Answer:
        """What the documents of a mask take, or their number, by part and group: shape (P, G)."""
        view = self.member.views["whole"]
        taken_PG = np.zeros((len(self.ends_P1) - 1, view.num_groups), np.int64)
        chosen_n: NDArray[np.int64] = np.flatnonzero(view.masks[mask])
        costs_n = view.costs_N[chosen_n] if weighted else np.ones_like(chosen_n)
        np.add.at(taken_PG, (self.parts_N[chosen_n], view.groups_N[chosen_n]), costs_n)
        return {"taken": taken_PG}, {}

    def fetch(self, names: Sequence[str]) -> Answer:
        """Columns of what was found in parts, for the own documents."""
        view = self.member.views["whole"]
        found = {name: np.empty(len(view), bool if name == "mask" else np.float64) for name in names}
        for part in np.flatnonzero(np.diff(self.ends_P1)).tolist():
            start, stop = self.ends_P1[part : part + 2]
            places_n = self.order_n[start:stop]
            first = self._before(part)
            for name, column_N in found.items():
                column_N[places_n] = self._found(name, part)[first : first + stop - start]
        for name, column_N in found.items():
            if name == "mask":
                view.masks[name] = column_N
            else:
                view.floats[name] = column_N
        return {}, {}

    def deliver(self) -> Answer:
        """Tell the parts which own documents are in the mask now."""
        mask_N = self.member.views["whole"].masks["mask"]
        for part in np.flatnonzero(np.diff(self.ends_P1)).tolist():
            start, stop = self.ends_P1[part : part + 2]
            first = self._before(part)
            mask_n = np.load(self._name("mask", part), mmap_mode="r+")
            mask_n[first : first + stop - start] = mask_N[self.order_n[start:stop]]
            mask_n.flush()
        return {}, {}

    def duals(self, numbers: NDArray[np.int64]) -> Answer:
        """Dual variable and part of those of some documents that are here, and their places among those asked for."""
        view = self.member.views["whole"]
        places_n = np.searchsorted(view.numbers_N, numbers)
        here_n = places_n < len(view)
        here_n[here_n] = view.numbers_N[places_n[here_n]] == numbers[here_n]
        mine_n = places_n[here_n]
        told = {"asked": np.flatnonzero(here_n), "dual": view.floats["dual"][mine_n]}
        return {}, told | {"part": self.parts_N[mine_n].astype(np.int64)}

    def outside(self, numbers: NDArray[np.int64], parts: NDArray[np.int64]) -> Answer:
        """The largest similarity of each of some documents to an own one of another part, -1 where there is none."""
        member, view = self.member, self.member.views["whole"]
        device = member.device()
        most_s = torch.full((len(numbers),), -1.0)
        if len(view):
            sampled_sD = self._vectors(numbers)
            parts_s = torch.from_numpy(parts).to(device)
            size = member.config.chunk_rows

            def work(span: tuple[int, int]) -> Tensor:
                products_ns = member._chunk("whole", span) @ sampled_sD.T
                own_n = torch.from_numpy(self.parts_N[slice(*span)].astype(np.int64)).to(device)
                products_ns.masked_fill_(own_n[:, None] == parts_s[None, :], -1.0)
                return products_ns.amax(0).cpu()

            spans = [
                (first, min(first + size, stop))
                for start, stop in view.units
                for first in range(start, stop, size)
            ]
            for found_s in member.workers.map(work, spans):
                most_s = most_s.maximum(found_s)
        return {}, {"most": most_s.numpy()}

    # -- parts --------------------------------------------------------------------------------------------

    def rank(
        self, owners: NDArray[np.int64], scale: Mapping[str, float], limits: NDArray[np.int64]
    ) -> Answer:
        """Lists of every part that is this process's, kept in files, and greedy's ranking of its documents.

        Args:
            owners: Which process is at work on each part.
            scale: ``linear``, what a document's quality is multiplied by; ``weight`` of the coverage; ``documents`` that
                there are and ``selected`` ones.
            limits: What each group may take of all.
        """
        for part in self._mine(owners):
            found = self._part(part)
            rows_nD = self._vectors(found.numbers_n)
            share = len(found) / scale["documents"]
            length, _ = first_length(len(found), max(1.0, scale["selected"] * share))
            lists = nearest(rows_nD, torch.arange(len(found)), length, self.member.workers)
            self._keep(part, lists)
            totals_G = np.bincount(found.groups_n, found.costs_n, len(limits)).astype(np.int64)
            spare = FEWEST_SPARE * int(found.costs_n.max())
            most_G = np.minimum(totals_G, np.ceil(SPARE * limits * share).astype(np.int64) + spare)
            state = empty_state(lists, found.quality_n * scale["linear"], scale["weight"] * share)
            costs_n = found.costs_n.astype(np.float64)
            picks_P, gains_P = lazy_greedy(state, costs_n, found.groups_n, most_G.tolist())
            rank_n = np.full(len(found), UNRANKED)
            rank_n[picks_P] = gains_P / costs_n[picks_P]
            save_array(self._name("rank", part), found.by_number(rank_n))
        return {}, {}

    def learn(
        self,
        owners: NDArray[np.int64],
        scale: Mapping[str, float],
        limits: NDArray[np.int64],
        tokens: bool,
        exchanges: Mapping[str, int],
    ) -> Answer:
        """The mask of every part that is this process's under its share of the budget, and what its bound needs.

        Args:
            owners: As of `rank`.
            scale: As of `rank`.
            limits: What each group may take of each part, shape (P, G).
            tokens: Whether that is tokens.
            exchanges: How often documents of a small part are exchanged from masks that are drawn and that are changed at
                random, as `Exchanges.best` takes them; nothing where documents are not exchanged at all.
        """
        num_swaps = 0
        for part in self._mine(owners):
            found, lists = self._part(part), self._lists(part)
            task = self._task(found, lists, scale, limits[part])
            picks_T = task.picks(lists)
            if tokens or not len(picks_T):
                dual_R = lists.similarities_Rk[:, :2][:, -1].maximum(lists.lowest_R).double()
            else:
                improve = self._exchanged(found, task, exchanges) if exchanges else None
                certified = certified_mask(task, lists, task.measured(picks_T), improve)
                picks_T, dual_R = certified.mask.selected_T, certified.dual_R
                num_swaps += certified.num_swaps
            mask_n = np.zeros(len(found), bool)
            mask_n[picks_T.numpy()] = True
            above_Rk = (lists.similarities_Rk.double() - dual_R[:, None]).clamp_(min=0)
            offered_n = np.bincount(
                lists.documents_Rk.reshape(-1).numpy(), above_Rk.reshape(-1).numpy(), len(found)
            )
            values = {"mask": mask_n, "dual": dual_R.numpy(), "offered": offered_n}
            for name, values_n in values.items():
                save_array(self._name(name, part), found.by_number(values_n))
        return {"swaps": np.array([num_swaps])}, {}

    def weigh(
        self, owners: NDArray[np.int64], scale: Mapping[str, float], near: Sequence[Sequence[int]]
    ) -> Answer:
        """How much selected documents of near parts cover those of every part that is this process's, summed; marginals.

        A document's marginal is what it changes for documents of its own part.

        Args:
            owners: As of `rank`.
            scale: As of `rank`.
            near: The parts whose selected documents are looked at for each part, itself among them.
        """
        sums = [0.0]
        for part in self._mine(owners):
            found, lists = self._part(part), self._lists(part)
            others = [other for other in near[part] if self._spans(other)]
            numbers_T = np.concatenate([self._numbers(other)[self._found("mask", other)] for other in others])
            coverage = self._coverage(found, numbers_T)
            sums.append(float(coverage.best_R.double().sum()))
            factor = scale["weight"] * len(found) / scale["documents"]
            marginal_n = listed_marginals(lists, coverage).numpy() * factor
            save_array(self._name("diversity_marginal", part), found.by_number(marginal_n))
        return {"covered": limbs_of(np.array(sums))}, {}

    def _coverage(self, part: Part, numbers_T: NDArray[np.int64]) -> Coverage:
        """What selected documents cover of a part; the owner of a document, where it is of the part itself."""
        size, count = len(part), len(part) + len(numbers_T)
        if not len(numbers_T):
            nothing_R, nobody_R = torch.zeros(size), torch.full((size,), -1)
            return Coverage(best_R=nothing_R, second_R=nothing_R, owner_R=nobody_R, runner_R=nobody_R)
        rows_nD = torch.cat([self._vectors(part.numbers_n), self._vectors(numbers_T)])
        selected_T, workers = torch.arange(size, count), self.member.workers
        found = coverage_of(rows_nD, torch.arange(size), selected_T, workers, torch.float32)
        by_number_n = np.argsort(part.numbers_n)
        places_T = np.searchsorted(part.numbers_n[by_number_n], numbers_T).clip(max=size - 1)
        own_T = by_number_n[places_T]
        own_T[part.numbers_n[own_T] != numbers_T] = -1
        return replace(found, owner_R=torch.from_numpy(own_T)[found.owner_R - size])

    def _task(
        self, part: Part, lists: NeighbourLists, scale: Mapping[str, float], limits_G: NDArray[np.int64]
    ) -> CoverageTask:
        rows_nD, references_R = self._vectors(part.numbers_n), torch.arange(len(part))

        def cover(selected_T: Tensor) -> Coverage:
            listed = listed_coverage(lists, selected_T)
            workers = self.member.workers
            return completed(lists, listed, rows_nD, references_R, selected_T, workers, torch.float32)

        return CoverageTask(
            linear_N=torch.from_numpy(part.quality_n * scale["linear"]),
            weight=scale["weight"] * len(part) / scale["documents"],
            costs_N=torch.from_numpy(part.costs_n.astype(np.float64)),
            groups_N=torch.from_numpy(part.groups_n),
            limits=tuple(float(limit) for limit in limits_G),
            cover=cover,
        )

    def _exchanged(self, part: Part, task: CoverageTask, exchanges: Mapping[str, int]) -> Improve | None:
        """Exchanges on every similarity of a small part, as in one block."""
        rows_nD, workers = self._vectors(part.numbers_n), self.member.workers
        block = Exchanges.of(rows_nD, task.linear_N, task.weight, task.groups_N, self.seed, workers)
        if block is None:
            return None
        limits = tuple(int(limit) for limit in task.limits)

        def improve(masks: list[Tensor], bound: float) -> Tensor:
            greedy_T = dense_lazy_greedy(
                rows_nD,
                torch.arange(len(part)),
                task.linear_N,
                task.weight,
                task.groups_N,
                limits,
                workers,
                lambda _: None,
            )
            return block.best([*masks, greedy_T], goal=bound, **exchanges)

        return improve

    # -- files --------------------------------------------------------------------------------------------

    def _own(self, name: str) -> Path:
        return self.folder / f"process-{self.member.place}-{name}.npy"

    def _name(self, name: str, part: int) -> Path:
        return self.folder / f"part-{part}-{name}.npy"

    def _found(self, name: str, part: int) -> NDArray[Any]:
        """What was found of a part's documents, in the order of their numbers."""
        values_n: NDArray[Any] = np.load(self._name(name, part), mmap_mode="r")
        return values_n

    def _mine(self, owners: NDArray[np.int64]) -> list[int]:
        """The parts of this process that have a document: lots may leave one without any."""
        mine: list[int] = np.flatnonzero(owners == self.member.place).tolist()
        return [part for part in mine if self._spans(part)]

    @cached_property
    def _ends(self) -> list[NDArray[np.int64]]:
        """Where each part ends in the files of each process, once all of them have written theirs."""
        return [
            np.load(self.folder / f"process-{place}-ends.npy") for place in range(self.member.num_members)
        ]

    def _spans(self, part: int) -> list[tuple[int, int, int]]:
        """Process, start and stop of a part's documents in the files of each process that has some."""
        spans = [(place, *map(int, ends_P1[part : part + 2])) for place, ends_P1 in enumerate(self._ends)]
        return [(place, start, stop) for place, start, stop in spans if start < stop]

    def _before(self, part: int) -> int:
        """A part's documents that processes before this one have."""
        return sum(stop - start for place, start, stop in self._spans(part) if place < self.member.place)

    def _column(self, name: str, part: int) -> NDArray[Any]:
        parts = [
            np.load(self.folder / f"process-{place}-{name}.npy", mmap_mode="r")[start:stop]
            for place, start, stop in self._spans(part)
        ]
        return np.concatenate(parts)

    def _numbers(self, part: int) -> NDArray[np.int64]:
        return self._column("numbers", part)

    def _part(self, part: int) -> Part:
        numbers_n, quality_n, groups_n, costs_n = (self._column(name, part) for name in PER_DOCUMENT)
        order_n = np.argsort(lots(numbers_n, salt(self.seed, "order")))
        return Part(
            numbers_n=numbers_n[order_n],
            order_n=order_n,
            quality_n=quality_n[order_n],
            groups_n=groups_n[order_n].astype(np.int64),
            costs_n=costs_n[order_n],
        )

    def _keep(self, part: int, lists: NeighbourLists) -> None:
        assert lists.ceiling_R is not None, "exact lists have one"
        save_array(self._name("documents", part), lists.documents_Rk.numpy().astype(np.int32))
        save_array(self._name("similarities", part), lists.similarities_Rk.numpy())
        save_array(self._name("ceiling", part), lists.ceiling_R.numpy())

    def _lists(self, part: int) -> NeighbourLists:
        documents_Rk, similarities_Rk, ceiling_R = (
            torch.from_numpy(np.load(self._name(name, part)))
            for name in ("documents", "similarities", "ceiling")
        )
        return NeighbourLists(
            num_documents=len(documents_Rk),
            documents_Rk=documents_Rk.long(),
            similarities_Rk=similarities_Rk,
            ceiling_R=ceiling_R,
        )

    def _vectors(self, numbers_n: NDArray[np.int64]) -> Tensor:
        """Any documents' unit vectors, read from the shards: float32 of shape (n, D)."""
        places_n = np.searchsorted(self.firsts, numbers_n, side="right") - 1
        names: list[str] = []
        rows_n, files_n = np.empty(len(numbers_n), np.int64), np.empty(len(numbers_n), np.int64)
        for place in np.unique(places_n).tolist():
            shard, chosen_n = self.shards[place], places_n == place
            inside_n = numbers_n[chosen_n] - self.firsts[place]
            rows_n[chosen_n] = (
                shard.start + inside_n if shard.rows is None else shard.column(shard.rows)[inside_n]
            )
            files_n[chosen_n] = len(names)
            names.append(str(shard.vectors))
        device, config = self.member.device(), self.member.config
        vectors = ShardedVectors(names, files_n, rows_n)
        rows_nD = MappedRows(vectors, config.chunk_rows, device, self.member.normalise).everything()
        return rows_nD if rows_nD.data_ptr() % 64 == 0 else rows_nD.clone()

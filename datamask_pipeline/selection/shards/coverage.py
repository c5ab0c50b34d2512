"""A coverage metric over documents of several processes, region by region. Knows no process, file or report.

Shape suffixes: C regions, P parts, G groups, R references, s sampled references, D embedding dimensions.

Documents that are alike form regions (k-means of a sample; large regions are cut by lot). Each region is selected from as
one block is, with exact lists; how much of the budget it gets follows from one threshold on greedy's gains over all
regions. What is lost against one block is what documents of one region do for another: the value counts it where it is
found, the choice does not foresee it.

The certificate is of the union. With dual variables ``u_y`` that the regions end at, no mask of all documents exceeds

    ``weight * mean of max(u_y, M_y) + sum of the K largest [linear_i + weight / N * sum over y of i's region of max(0,
    sim(i, y) - u_y)]``,

``M_y`` the largest similarity of y to a document of another part: raising a dual variable to it leaves nothing outside
above it, and raises what no document of the region offers. The mean of what ``M_y`` adds is bounded from a sample of
references, see `facility.sampled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.facility.sampled import ERROR_PROBABILITY, mean_at_most
from datamask_pipeline.selection.kmeans import unit_means
from datamask_pipeline.selection.objective import ObjectiveFunction
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.shards.population import Population
from datamask_pipeline.selection.shards.source import Shard
from datamask_pipeline.selection.shards.sums import number_of

REGION_DOCUMENTS, MOST_DOCUMENTS = 16_384, 24_576
"""Documents of a region on average, and of a part of one at most, but for the lot that deals them."""
MEANS_SAMPLE, SAMPLE_PER_REGION, ROUNDS, CUTS = 4096, 64, 8, 3
"""Documents that regions are found on: their vectors travel; rounds of k-means; how often large regions are cut again."""
NEAR_REGIONS = 8
"""Regions whose selected documents a document's coverage is looked for in: those of the nearest centroids."""
CERTIFIED_REFERENCES, DRAWS = 4096, 65_536
"""References that the certificate is sampled at: their vectors travel; drawn until so many draws are used up."""


@dataclass(frozen=True, kw_only=True)
class Covered:
    """What the processes' columns ``mask``, ``dual`` and ``diversity_marginal`` are worth.

    Attributes:
        raw: The metric of the mask, never overstated.
        bound: Of every mask's objective; none for a budget in tokens.
        method: The argument that it rests on.
        notes: For the record.
    """

    raw: float
    bound: float | None
    method: str
    notes: dict[str, Any]


def choose_by_regions(
    people: Population,
    function: ObjectiveFunction,
    options: DataMaskConfig,
    shards: Sequence[Shard],
    folder: Path,
    num_rows: int,
) -> Covered:
    """Column ``mask``: the documents of all regions under one budget.

    Args:
        people: The documents, with column ``quality``.
        function: The objective, of one coverage metric.
        options: How often documents of small regions are exchanged.
        shards: Where the documents lie, numbered.
        folder: Empty, for files that processes tell each other by.
        num_rows: Documents of the shards.
    """
    (term,) = function.terms
    weight, limits = (1 - function.lamb) * term.scale, people.limits
    plain = [shard.plain() for shard in shards]
    people.team.later("gather", folder=str(folder), shards=plain, seed=limits.seed)
    centroids_CD, counts_C = _regions(people)
    pieces_C = -(-counts_C // MOST_DOCUMENTS)
    offsets_C1 = np.concatenate([[0], pieces_C.cumsum()])
    sizes_PG = people.team.sums("regions", method="spread", arguments={"offsets": offsets_C1})["taken"]
    owners_P = _owners(sizes_PG.sum(1), people.team.num_members)
    scale = {
        "linear": function.lamb / limits.num_documents,
        "weight": weight,
        "documents": people.num_rows,
        "selected": limits.num_documents,
    }

    def later(method: str, **arguments: Any) -> None:
        people.team.later("regions", method=method, arguments=arguments)

    # Answered at once: what one process writes down here, another one reads in the next step.
    people.team.ask(
        "regions", method="rank", arguments={"owners": owners_P, "scale": scale, "limits": limits.limits_G}
    )
    later("fetch", names=["rank"])
    people.best("share", "rank", exact=True)
    shares_PG = people.team.sums("regions", method="taken", arguments={"mask": "share"})["taken"]
    exchanges = {"most_restarts": options.num_restarts, "most_kicks": options.num_kicks}
    arguments = {
        "owners": owners_P,
        "scale": scale,
        "limits": shares_PG,
        "tokens": limits.tokens,
        "exchanges": exchanges if options.num_swap_rounds else {},
    }
    (swaps,) = people.team.sums("regions", method="learn", arguments=arguments)["swaps"]
    later("fetch", names=["mask", "dual", "offered"])
    if limits.tokens:
        people.filled("mask", "mask", "rank")
        # Answered at once, as above.
        people.team.ask("regions", method="deliver", arguments={})
    arguments = {"owners": owners_P, "scale": scale, "near": _near_parts(centroids_CD, offsets_C1)}
    covered = people.team.sums("regions", method="weigh", arguments=arguments)["covered"]
    people.team.ask("regions", method="fetch", arguments={"names": ["diversity_marginal"]})
    notes = {
        "lists": "exact" if len(sizes_PG) == 1 else "from regions",
        "regions": len(centroids_CD),
        "parts": int(offsets_C1[-1]),
        "swaps": int(swaps),
    }
    raw = number_of(covered) / people.num_rows
    if limits.tokens:
        method = "no bound: over shards none is computed where the budget is in tokens"
        return Covered(raw=raw, bound=None, method=method, notes=notes)
    bound, missed, method = _bound(people, function, scale, len(sizes_PG) == 1, num_rows)
    return Covered(raw=raw, bound=bound, method=method, notes=notes | {"missed_excess": missed})


def _regions(people: Population) -> tuple[Tensor, NDArray[np.int64]]:
    """Unit means of regions, of a sample by lot, and the documents of each; one with too many is cut again."""
    number = -(-people.num_rows // REGION_DOCUMENTS)
    size = min(people.num_rows, max(MEANS_SAMPLE, SAMPLE_PER_REGION * number))
    people.sample("sampled", size, "regions")
    rows_nD = people.rows("sampled")["rows"]
    draws = generator(people.limits.seed, "regions", "order")
    rows_nD = rows_nD[torch.randperm(len(rows_nD), generator=draws)]
    centroids_CD, counts_C = _means(rows_nD, number), np.zeros(0, np.int64)
    for cut in range(CUTS + 1):
        arguments = {"centroids": centroids_CD.numpy()}
        counts_C = people.team.sums("regions", method="assign", arguments=arguments)["counts"]
        if cut == CUTS or (counts_C <= MOST_DOCUMENTS).all():
            break
        owner_n = (rows_nD @ centroids_CD.T).argmax(1)
        pieces_C = -(-counts_C // REGION_DOCUMENTS)
        pieces_C[counts_C <= MOST_DOCUMENTS] = 1
        centroids_CD = torch.cat(
            [
                centroids_CD[region : region + 1]
                if pieces < 2
                else _means(rows_nD[owner_n == region], pieces)
                for region, pieces in enumerate(pieces_C.tolist())
            ]
        )
    return centroids_CD, counts_C


def _means(rows_nD: Tensor, number: int) -> Tensor:
    sample = MemoryRows(rows_nD, len(rows_nD))
    return unit_means(sample, sample.chunk(0, min(number, len(rows_nD))), ROUNDS, torch.float32)


def _owners(sizes_P: NDArray[np.int64], num_members: int) -> NDArray[np.int64]:
    """Which process is at work on each part: all pairs of a part are compared, the largest are given away first."""
    owners_P, loads = np.zeros(len(sizes_P), np.int64), [0] * num_members
    for part in np.argsort(-sizes_P, kind="stable").tolist():
        owners_P[part] = loads.index(min(loads))
        loads[owners_P[part]] += int(sizes_P[part]) ** 2
    return owners_P


def _near_parts(centroids_CD: Tensor, offsets_C1: NDArray[np.int64]) -> list[list[int]]:
    """The parts of the regions nearest to each part's own, in rising order."""
    near_Cn = (centroids_CD @ centroids_CD.T).topk(min(NEAR_REGIONS, len(centroids_CD)), dim=1).indices
    found = []
    for region, near_n in enumerate(near_Cn.tolist()):
        parts = {
            part for other in {region, *near_n} for part in range(offsets_C1[other], offsets_C1[other + 1])
        }
        found += [sorted(parts)] * int(offsets_C1[region + 1] - offsets_C1[region])
    return found


def _bound(
    people: Population,
    function: ObjectiveFunction,
    scale: Mapping[str, float],
    alone: bool,
    num_rows: int,
) -> tuple[float, float, str]:
    """The bound, what of it stands for pairs of documents of different parts in the metric's units, and its argument."""
    (term,) = function.terms
    weight = scale["weight"]
    people.combine("offer", (scale["linear"], "quality"), (weight / people.num_rows, "offered"))
    mean = people.dots(("dual", None))[0] / people.num_rows
    bound = weight * mean + people.most("offer") + (1 - function.lamb) * term.offset
    if alone:
        return bound, 0.0, "Lagrangian dual on exact neighbour lists"
    missed = max(0.0, 1 - mean) * mean_at_most(_shares_outside(people, num_rows))
    method = (
        "Lagrangian dual on exact neighbour lists of regions, what documents do for other regions bounded by a sample of "
        f"references; holds with probability {1 - ERROR_PROBABILITY}"
    )
    return bound + weight * missed, missed, method


def _shares_outside(people: Population, num_rows: int) -> Tensor:
    """How much of what a dual variable leaves below 1 the nearest document of another part takes, at sampled references.

    References are drawn with replacement, with chances in proportion to what is left below 1: uniform draws are kept
    with that chance.
    """
    draws = np.random.default_rng((people.limits.seed, 1))
    numbers_s = draws.integers(0, num_rows, DRAWS)
    chances_s = draws.random(DRAWS)
    parts_s, duals_s = np.full(DRAWS, -1), np.ones(DRAWS)
    asked = {"method": "duals", "arguments": {"numbers": numbers_s}}
    for told in people.team.parts("regions", **asked):
        parts_s[told["asked"]], duals_s[told["asked"]] = told["part"], told["dual"]
    kept = np.flatnonzero(chances_s < 1 - duals_s)[:CERTIFIED_REFERENCES]
    if not len(kept):
        return torch.ones(1, dtype=torch.float64)
    arguments = {"numbers": numbers_s[kept], "parts": parts_s[kept]}
    most = [told["most"] for told in people.team.parts("regions", method="outside", arguments=arguments)]
    margin = people.dim * 2.0**-23
    excess_s = np.max(most, axis=0).astype(np.float64) + margin - duals_s[kept]
    return torch.from_numpy(np.clip(excess_s / (1 - duals_s[kept]), 0, 1))

"""At which lambda, budget or score weight a document would change sides, from what a selection stored. Learns nothing.

An answer of the first order, at the stored mask: everything but the one value is held still, the other documents, their
diversity marginals, the scale and the budget among them. A selection at that value would move them too. Policies that
rank by quality have nothing that moves, and their answers are exact.

Shape suffixes: N rows of the selection, n of those that compete with the document: of its block and quota, not pruned.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline.audit.crossings import ahead_of, nearest_crossing
from datamask_pipeline.audit.reader import Reader
from datamask_pipeline.audit.recompute import given_settings
from datamask_pipeline.audit.stale import stale
from datamask_pipeline.audit.standing import standings
from datamask_pipeline.errors import IntegrityError, UnknownDocumentError, UnknownNameError
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.quality.combine import combine_scores
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.selection.ratio import least_ratio
from datamask_pipeline.selection.reasons import HELD, NEVER_JUDGED, PASSED_OVER, PRUNED, Decision
from datamask_pipeline.stages.gather import index_scores
from datamask_pipeline.stages.held import documents_in
from datamask_pipeline.stages.select import SelectConfig, blocks_of, judged_in
from datamask_pipeline.storage import Ref, Store

#: How near the answer is to what a selection at the value would do.
Kind = Literal["exact", "first order"]
#: How near an end of its range a value is that end; six digits are printed.
_ROUNDING: Final = 1e-6
_NUMBERS: Final = ("quality", "quality_marginal", "diversity_marginal", "logit")


@dataclasses.dataclass(frozen=True)
class Turn:
    """One value of the selection, and where the document changes sides if it alone moves.

    Attributes:
        name: `lambda`, `num_documents`, `ratio`, `num_tokens`, or `weight of <scorer>`.
        now: Its value.
        below: Nearest value under it beyond which the document is on the other side; none: there is none in the range.
        above: Nearest value over it beyond which it is on the other side.
        kind: Whether a selection would do the same.
        cannot: Why it cannot be told; none where it can.
    """

    name: str
    now: float
    below: float | None = None
    above: float | None = None
    kind: Kind = "first order"
    cannot: str | None = None


@dataclasses.dataclass(frozen=True)
class Flip:
    """One arm's answer for one document.

    Attributes:
        release: The release.
        arm: The arm.
        crawl: The document's crawl.
        selected: Whether the arm selected it, or what stands for its text.
        reason: Why, as the record says.
        representative: What stands for its text, of which all the rest is then told: ``crawl``, ``id``, and as ``why`` what
            the document is to it; none where it stands for itself.
        rank: Its place among its competitors, counted from 1; none where the policy compares no numbers.
        places: How many of them are selected.
        competitors: Documents of its block and quota that were not pruned, itself among them; of a release that goes on from
            another, of those that it judged.
        held: Of a release that goes on from another, what it holds of that beside the places; none for any other.
        added: Of such a release, the new documents, which its ratio is of.
        turns: What would change that.
        cannot: Why nothing can be told.
        stale: What the mask was made from that is another by now, one line each.
    """

    release: str
    arm: str
    crawl: str
    selected: bool
    reason: str
    representative: dict[str, str] | None = None
    rank: int | None = None
    places: int | None = None
    competitors: int | None = None
    held: int | None = None
    added: int | None = None
    turns: tuple[Turn, ...] = ()
    cannot: str | None = None
    stale: tuple[str, ...] = ()


def flips(store: Store, document_id: str, release: str | None = None, arm: str | None = None) -> list[Flip]:
    """What would change the side of a document, by release, arm and crawl; of a copy, the side of what stands for it.

    Args:
        store: The record.
        document_id: The id as in the crawl.
        release: One release; none takes all.
        arm: One arm; none takes all.

    Raises:
        UnknownDocumentError: no current selection that was asked for was made from a pool with such a document.
        UnknownNameError: no such release or arm.
        IntegrityError: a mask contradicts itself.
    """
    keys = [key.split("/") for key in store.keys("select")]
    for family, wanted, place in (("release", release, 0), ("arm", arm, 1)):
        if wanted is not None and wanted not in {key[place] for key in keys}:
            raise UnknownNameError(family, wanted, {key[place] for key in keys})
    found: list[Flip] = []
    reader = Reader(store, document_id)
    try:
        for one, other in keys:
            if release in (None, one) and arm in (None, other):
                ref = reader.ref("selection_mask", f"{one}/{other}")
                assert ref is not None, "a key has a current artefact"
                old = tuple(stale(store, ref))
                found += (dataclasses.replace(each, stale=old) for each in _of_selection(reader, ref))
    finally:
        reader.tables.close()
    if not found:
        raise UnknownDocumentError(
            f"no selection decided about document {document_id!r}; `datamask audit why` tells whether it was ingested, and "
            "what left it out before"
        )
    return found


def _of_selection(reader: Reader, ref: Ref) -> Iterator[Flip]:
    found = list(standings(reader, ref))
    if not found:
        return
    manifest = reader.manifest(ref)
    config = SelectConfig.of(given_settings(manifest["basis"]["config"]))
    release, _, arm = ref.key.partition("/")
    decision: Decision = POLICIES.find(config.policy).decision
    table = reader.store.read_table(ref, ["crawl", "selected", "reason", *_NUMBERS])
    _check_sides(ref, table, decision)
    for standing in found:
        if standing.place is None:
            reason = str(standing.reason)
            cannot = f"it, or what stands for it, was left out before anything was selected: {reason}"
            yield Flip(release, arm, standing.crawl, False, reason, standing.representative, cannot=cannot)
            continue
        place = standing.place
        row = table.slice(place, 1).to_pylist()[0]
        told = Flip(release, arm, standing.crawl, row["selected"], row["reason"], standing.representative)
        if (cannot_be := _cannot(row, config, decision)) is not None:
            yield dataclasses.replace(told, cannot=cannot_be)
            continue
        if (given := manifest["metadata"].get("given")) is not None:
            added = int(judged_in(table["reason"]).sum()) - given["reserve"]
            told = dataclasses.replace(told, held=given["held"], added=added)
        numbers = {name: table[name].to_numpy() for name in _NUMBERS}
        pruned_N = pc.is_in(table["reason"], pa.array(NEVER_JUDGED)).to_numpy()
        yield _answered(
            reader.store,
            manifest,
            config,
            decision,
            told,
            place,
            numbers,
            table["selected"].to_numpy(),
            pruned_N,
            judged_in(table["reason"]),
        )


def _check_sides(ref: Ref, table: pa.Table, decision: Decision) -> None:
    """Refuse a mask in which a document is on the other side than its reason says."""
    wrong_N = np.zeros(table.num_rows, bool)
    selected_N = table["selected"].to_numpy()
    for side_N, words in (
        (selected_N, [decision.out, decision.out_all_the_same, *NEVER_JUDGED]),
        (~selected_N, [decision.into, decision.in_all_the_same]),
    ):
        wrong_N |= side_N & pc.is_in(table["reason"], pa.array(words)).to_numpy()
    if wrong_N.any():
        row = int(np.argmax(wrong_N))
        side = "selected" if selected_N[row] else "not selected"
        raise IntegrityError(
            f"the mask {ref.location} contradicts itself: row {row} is {side}, for the reason "
            f"{table['reason'][row].as_py()!r}, and {int(wrong_N.sum())} rows are so; `datamask audit prove` tells more"
        )


def _cannot(row: Mapping[str, Any], config: SelectConfig, decision: Decision) -> str | None:
    if row["reason"] in (HELD, PASSED_OVER):
        return f"it was decided by an earlier release, and stands: {row['reason']}"
    if row["reason"] == PRUNED:
        return "it was pruned by quality before anything was compared; `quality_pruning` decides"
    if row["reason"] in NEVER_JUDGED:
        return f"it was left out before anything was compared: {row['reason']}"
    if decision.compared is None:
        return f"policy {config.policy} compares no numbers that were stored: {row['reason']}"
    if decision.compared == "marginals" and row["diversity_marginal"] is None:
        return "its diversity metric has no marginals"
    by_rank = decision.compared == "scores" and config.num_tokens is None
    if row["reason"].startswith("exception") and not by_rank:
        return (
            f"its side is not that of the threshold ({row['reason']}), so no threshold tells when it changes"
        )
    return None


def _answered(
    store: Store,
    manifest: Mapping[str, Any],
    config: SelectConfig,
    decision: Decision,
    told: Flip,
    place: int,
    numbers: Mapping[str, NDArray[np.float64]],
    selected_N: NDArray[np.bool_],
    pruned_N: NDArray[np.bool_],
    judged_N: NDArray[np.bool_],
) -> Flip:
    index = Ref(**manifest["inputs"]["index"])
    rows = _IndexRows.read(store, index, config)
    blocks = blocks_of(len(selected_N), config, judged_N)
    number = next(number for number, block in enumerate(blocks) if place in block)
    block = blocks[number][~pruned_N[blocks[number]]]
    rivals_n = block if rows.groups_N is None else block[rows.groups_N[block] == rows.groups_N[place]]
    mine = int(np.flatnonzero(rivals_n == place)[0])
    places = int(selected_N[rivals_n].sum())
    of_n = {name: values[rivals_n] for name, values in numbers.items()}
    compared = decision.compared
    total_n = of_n["quality_marginal"] + of_n["diversity_marginal"]
    standing_n = {"marginals": total_n, "scores": of_n["quality"], "logits": of_n["logit"]}[str(compared)]
    lot_n = None
    if compared == "scores":
        lot_n = _lots(config.seed, len(block))[np.isin(block, rivals_n)]
    before_n = ahead_of(standing_n, mine, lot_n)
    kind: Kind = "exact" if compared == "scores" and config.num_tokens is None else "first order"
    turns = [_lambda(config, compared, of_n, mine, places)]
    now = config.num_tokens or int(selected_N.sum())
    turns.append(_budget(config, rows, blocks, number, told, before_n, rivals_n, place, kind, now))
    if compared == "logits":
        turns += [Turn(f"weight of {name}", weight, cannot=_LEARNT) for name, weight in rows.weights.items()]
    else:
        found = manifest["metadata"]["blocks"][number]
        by_quality = compared == "scores"
        zero, one = found["normalisation"]["quality"]
        counted = documents_in(found["record"])
        gain = 1.0 if by_quality else config.lamb / (counted * (one - zero))
        rest_n = np.zeros(len(rivals_n)) if by_quality else of_n["diversity_marginal"]
        # With other weights, pruning would leave others, and lots would fall to others.
        of_weights: Kind = "first order" if config.quality_pruning else kind
        turns += _weights(rows, rivals_n, rest_n, gain, mine, places, lot_n, of_weights)
    return dataclasses.replace(
        told, rank=int(before_n.sum()) + 1, places=places, competitors=len(rivals_n), turns=tuple(turns)
    )


_BY_WORTH: Final = "documents come in by what they add a token, and their marginals are of a document"
_FILLED: Final = "others were chosen out of turn, to fill the tokens, so that its place does not decide"
_OTHERS: Final = (
    "documents of more than half of a budget are left out, so that others would be compared where it turns"
)
_LEARNT: Final = "its logits were learnt at this value, and no marginals decide"


def _lambda(
    config: SelectConfig,
    compared: str | None,
    of_n: Mapping[str, NDArray[np.float64]],
    mine: int,
    places: int,
) -> Turn:
    """Both parts of a marginal are lines in lambda: what it is without its weight stands still."""
    lamb = config.lamb
    if compared == "scores":
        return Turn("lambda", lamb, cannot=f"policy {config.policy} does not read it")
    if compared == "logits":
        return Turn("lambda", lamb, cannot=_LEARNT)
    if lamb in (0.0, 1.0):
        lost = "quality" if lamb == 0 else "diversity"
        return Turn("lambda", lamb, cannot=f"at {lamb:g} the marginals of {lost} are stored as 0")
    quality_n, diversity_n = of_n["quality_marginal"] / lamb, of_n["diversity_marginal"] / (1 - lamb)
    standing_n = of_n["quality_marginal"] + of_n["diversity_marginal"]
    below, above = _both_ways(standing_n, quality_n - diversity_n, mine, places, None, lamb, 0.0, 1.0)
    return Turn("lambda", lamb, below, above)


def _both_ways(
    standing_n: NDArray[np.float64],
    slope_n: NDArray[np.float64],
    mine: int,
    places: int,
    lot_n: NDArray[np.float64] | None,
    now: float,
    lowest: float,
    highest: float,
) -> tuple[float | None, float | None]:
    """The nearest value below and above that is inside the range and has the document change sides beyond it.

    One that is at an end of the range but for rounding is none.
    """
    down = nearest_crossing(standing_n, -slope_n, mine, places, lot_n)
    up = nearest_crossing(standing_n, slope_n, mine, places, lot_n)
    below = None if down is None or now - down <= lowest + _ROUNDING * now else now - down
    above = None if up is None or now + up >= highest - _ROUNDING else now + up
    return below, above


def _budget(
    config: SelectConfig,
    rows: "_IndexRows",
    blocks: list[NDArray[np.int64]],
    number: int,
    told: Flip,
    before_n: NDArray[np.bool_],
    rivals_n: NDArray[np.int64],
    place: int,
    kind: Kind,
    now: int,
) -> Turn:
    """The smallest budget that holds the document where those before it come first, and how it is written.

    Of a release that goes on from another, a budget is of what is added: a ratio is of the new documents, of which too few
    for two add nothing at all, and no more than was judged is added by any.
    """
    total, fewest = sum(map(len, blocks)), 2
    if config.budget == "num_tokens" and _covers(config):
        return Turn(config.budget, float(config.num_tokens or 0), cannot=_BY_WORTH)
    if config.budget == "num_tokens":
        needed = int(rows.tokens_N[rivals_n[before_n]].sum() + rows.tokens_N[place])
        enough = -(-needed * total // len(blocks[number]))
        most = math.inf if told.held is None else float(rows.tokens_N[np.concatenate(blocks)].sum())
    else:
        needed, enough, most = int(before_n.sum()) + 1, total, math.inf
    group = None if rows.groups_N is None else int(rows.groups_N[place])
    whole = _smallest_budget(config, blocks, number, group, needed, enough, now)
    if whole is None or (rows.groups_N is not None and not _meets(config, blocks, rows.groups_N, whole)):
        return Turn(config.budget, float(getattr(config, config.budget)), kind=kind)
    if config.num_tokens is not None and (whole <= config.num_tokens) != told.selected:
        return Turn(config.budget, float(config.num_tokens), cannot=_FILLED)
    if config.num_tokens is not None and _admits_others(config, rows, blocks, number, whole):
        return Turn(config.budget, float(config.num_tokens), cannot=_OTHERS)
    new = total
    if told.added is not None and config.budget == "ratio":
        whole, fewest, new = max(whole, 2), 1, told.added
    return _step(config, whole, new, told, kind, fewer=_fewer(config, blocks, whole, fewest), most=most)


def _fewer(config: SelectConfig, blocks: list[NDArray[np.int64]], whole: int, fewest: int) -> int | None:
    """The largest budget below one that a selection takes; none where none is.

    Of documents each block selects two at least; one in all, where that is the fewest, adds nothing.
    """
    fewer = whole - 1
    if config.budget != "num_tokens" and fewer > 1 and min(_shares(blocks, fewer)) < 2:
        fewer = 1
    return fewer if fewer >= fewest else None


def _admits_others(
    config: SelectConfig, rows: "_IndexRows", blocks: list[NDArray[np.int64]], number: int, whole: int
) -> bool:
    """Whether the block would compare others by such a budget: what takes more than half of its part is left out."""
    tokens_n = rows.tokens_N[blocks[number]]
    now, then = (_shares(blocks, budget)[number] / 2 for budget in (config.num_tokens or 0, whole))
    return bool(((tokens_n > min(now, then)) & (tokens_n <= max(now, then))).any())


def _covers(config: SelectConfig) -> bool:
    """Whether its marginals are of coverage, in part at least, and decide."""
    from datamask_pipeline.diversity.base import CoverageMetric  # here, as it imports torch

    by_marginals = POLICIES.find(config.policy).decision.compared == "marginals"
    return by_marginals and any(
        issubclass(METRICS.find(name), CoverageMetric) for name in config.diversity_weights
    )


def _step(
    config: SelectConfig, whole: int, new: int, told: Flip, kind: Kind, *, fewer: int | None, most: float
) -> Turn:
    """In from so many documents or tokens on, or the least ratio that is so many of the new ones; out at so many fewer, or
    at the largest ratio that is no more than these.
    """
    by_ratio = config.budget == "ratio"
    needed, most = (least_ratio(whole, new), 1.0) if by_ratio else (float(whole), most)
    turn = Turn(config.budget, float(getattr(config, config.budget)), kind=kind)
    if told.selected:
        if fewer is None:
            return turn
        largest = math.nextafter(least_ratio(fewer + 1, new), 0.0) if by_ratio else float(fewer)
        return dataclasses.replace(turn, below=largest)
    return dataclasses.replace(turn, above=needed if needed <= most else None)


def _smallest_budget(
    config: SelectConfig,
    blocks: list[NDArray[np.int64]],
    number: int,
    group: int | None,
    needed: int,
    enough: int,
    now: int,
) -> int | None:
    """Documents or tokens in all, from which on to the budget as it is, or above it, the block, or its group of documents
    under quotas, gets what is needed; none where none that is enough gives that.

    What a block or group gets may fall as the budget grows, by one: parts are dealt out by largest remainders.
    """
    quota = 1.0 if group is None else config.quotas[sorted(config.quotas)[group]]  # type: ignore[index,arg-type]
    part = quota * len(blocks[number]) / sum(map(len, blocks))
    off = (quota if len(blocks) > 1 else 0.0) + (group is not None)

    @functools.cache
    def of_share(share: int) -> int:
        return share if group is None else _quotas_of(config, share)[group]

    def held(whole: int) -> bool:
        return of_share(_shares(blocks, whole)[number]) >= needed

    if held(now):
        surely = math.ceil((needed + off) / part) if part else now
        return next(whole + 1 for whole in range(min(now, surely), -1, -1) if not held(whole))
    never = math.floor((needed - off) / part) if part else enough
    return next((whole for whole in range(max(now, never, 0), enough + 1) if held(whole)), None)


def _meets(
    config: SelectConfig, blocks: list[NDArray[np.int64]], groups_N: NDArray[np.int64], whole: int
) -> bool:
    """Whether every block has as many documents of each group as such a budget asks of it; else it is refused."""
    return all(
        (np.bincount(groups_N[block], minlength=len(config.quotas or {})) >= _quotas_of(config, share)).all()
        for block, share in zip(blocks, _shares(blocks, whole), strict=True)
    )


def _shares(blocks: list[NDArray[np.int64]], whole: int) -> list[int]:
    """Each block's part of a budget."""
    from datamask_pipeline.selection.budget import shared_out

    sizes = [len(block) for block in blocks]
    return shared_out([whole * size / sum(sizes) for size in sizes], whole)


def _quotas_of(config: SelectConfig, share: int) -> list[int]:
    """Each group's part of a block's."""
    from datamask_pipeline.selection.budget import shared_out

    assert config.quotas is not None, "groups come of quotas"
    return shared_out([config.quotas[name] * share for name in sorted(config.quotas)], share)


def _weights(
    rows: "_IndexRows",
    rivals_n: NDArray[np.int64],
    rest_n: NDArray[np.float64],
    gain: float,
    mine: int,
    places: int,
    lot_n: NDArray[np.float64] | None,
    kind: Kind,
) -> Iterator[Turn]:
    """Times the sum of the weights, standing is a line in each weight, as long as its sign stays."""
    values = {name: of_N[rivals_n] for name, of_N in rows.scores.items()}
    for name, weight in rows.weights.items():
        others = {other: w for other, w in rows.weights.items() if other != name and w != 0}
        if not others:
            yield Turn(
                f"weight of {name}",
                weight,
                cannot="no other score has a weight, so that its size changes nothing",
            )
            continue
        sign, size = (-1.0 if weight < 0 else 1.0), abs(weight)
        fixed = sum(abs(w) for w in others.values())
        sum_n = sum((w * values[other] for other, w in others.items()), np.zeros(len(rivals_n)))
        slope_n = rest_n + gain * sign * values[name]
        standing_n = rest_n * fixed + gain * sum_n + size * slope_n
        smaller, larger = _both_ways(standing_n, slope_n, mine, places, lot_n, size, 0.0, np.inf)
        ends = [None if end is None else sign * end for end in (smaller, larger)]
        below, above = ends if sign > 0 else ends[::-1]
        yield Turn(f"weight of {name}", weight, below, above, kind)


def _lots(seed: int, num_rows: int) -> NDArray[np.float64]:
    """What decides between documents of equal quality, as `selection.budget.Budget.best` draws it."""
    from datamask_pipeline.selection.budget import lots

    drawn: NDArray[np.float64] = lots(seed, num_rows).numpy()
    return drawn


@dataclasses.dataclass(frozen=True)
class _IndexRows:
    """What the index says of the selection's rows: normalised scores and their weights, tokens, groups of the quotas."""

    scores: dict[str, NDArray[np.float64]]
    weights: dict[str, float]
    tokens_N: NDArray[np.float64]
    groups_N: NDArray[np.int64] | None

    @classmethod
    def read(cls, store: Store, index: Ref, config: SelectConfig) -> "_IndexRows":
        known = [name.removeprefix(SCORE_PREFIX) for name in index_scores(store, index).names]
        weights = dict(sorted(config.scorers.items())) or dict.fromkeys(known, 1.0)
        columns = ["token_count", *(SCORE_PREFIX + name for name in weights)]
        by = config.quota_by if config.quotas else None
        table = store.read_table(index, [*columns, *([by] if by else [])])
        numbers = {name: table[name].cast("double").to_numpy() for name in columns}
        scores = {name: numbers[SCORE_PREFIX + name] for name in weights}
        scored_R = ~np.any([np.isnan(values) for values in scores.values()], axis=0)
        groups_N = None
        if by is not None:
            from datamask_pipeline.selection.groups import groups_of

            groups_N = groups_of(config.quotas or {}, table[by].filter(scored_R).to_pylist()).numpy()
        return cls(
            scores={
                name: combine_scores(
                    {name: values[scored_R]}, {name: 1.0}, normalisation=config.score_normalisation
                )
                for name, values in scores.items()
            },
            weights=weights,
            tokens_N=numbers["token_count"][scored_R],
            groups_N=groups_N,
        )

"""Gather: one index of a release, which all arms read: where each eligible document's vector lies, and its scores.

Joins rows of the crawls by their position; knows no scorer, no learner and no vector's numbers. No vector is copied:
a further crawl adds its own part, and a release that goes on from another carries the parts of its crawls over.
"""

import itertools
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline import schema
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.settings import Settings
from datamask_pipeline.stages.going_on import goes_on
from datamask_pipeline.stages.index_rows import index_rows, scorers_of
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "gather"
VERSION: Final = "1"


class GatherConfig(Settings):
    """Nothing to set: the index is read and written side by side, in memory that does not grow."""


def run(
    config: GatherConfig,
    *,
    store: Store,
    release: str,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    scores: Mapping[str, Ref],
    copies: Ref | None = None,
    held: Ref | None = None,
) -> Ref:
    """Write the index of one release.

    Args:
        config: How to write.
        store: The record.
        release: The release's name.
        candidates: The release's candidates: one part a crawl, every document of it in order.
        embeddings: Embeddings of each crawl, in the release's order.
        scores: Quality scores of each crawl, in the same order.
        copies: The release's near-copies, which are left out; ``None`` where they are not sought.
        held: The index of the release that this one goes on from, if it does.

    Returns:
        One row per eligible document in canonical order, one part per crawl: the shard and row of its vector, how many
        near-copies it stands for if these are left out, and a column ``score_<scorer>`` for each scorer of the crawls,
        null where it gave the document no score.

    Raises:
        IntegrityError: candidates, vectors and scores are not of the same documents, or near-copies were sought among
            others.
    """
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    if copies is not None:
        inputs["copies"] = copies
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    inputs |= {f"scores/{crawl}": ref for crawl, ref in scores.items()}
    if held is not None:
        inputs["held"] = held
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    if copies is not None:
        _refuse_other_inputs(store, copies, inputs)
    before = _before(store, held, settings, inputs)
    known = [] if before is None else _names_of(store, before)
    num_before = 0 if before is None else len(store.part_names(before))
    scorers = {crawl: scorers_of(store, ref) for crawl, ref in list(scores.items())[num_before:]}
    if before is not None and not {*itertools.chain(*scorers.values())} <= {*known}:
        before, known, num_before = None, [], 0  # a column more
        scorers = {crawl: scorers_of(store, ref) for crawl, ref in scores.items()}
    names = dict.fromkeys(itertools.chain(known, *scorers.values()))
    columns = index_schema([*names], near_copies=copies is not None)
    parts = [] if before is None else builder.carry_parts(before)
    for number, (crawl, ref) in list(enumerate(embeddings.items()))[num_before:]:
        rows = index_rows(
            store,
            candidates=candidates,
            number=number,
            crawl=crawl,
            embeddings=ref,
            scores=scores[crawl],
            scorers=scorers[crawl],
            copies=copies,
            columns=columns,
            prefix=SCORE_PREFIX,
        )
        parts.append(builder.write_part(f"{number:05d}", rows, columns))
    kept = sum(int(part["rows"]) for part in parts)
    eligible = kept if copies is None else copies.rows
    counts = {"rows_in": candidates.rows, "kept": kept, "dropped_not_eligible": candidates.rows - eligible}
    if copies is not None:
        counts["dropped_near_copy"] = eligible - kept
    return builder.commit(parts, counts=counts, metadata={"crawls": list(embeddings)}, carried=before)


def _before(
    store: Store, held: Ref | None, settings: Mapping[str, Any], inputs: Mapping[str, Ref | str]
) -> Ref | None:
    """The earlier index, where its parts are those of this one's first crawls."""
    by_parts = ("candidates", "copies")
    stands = goes_on(store, held, version=VERSION, settings=settings, inputs=inputs, by_parts=by_parts)
    return held if stands else None


def _names_of(store: Store, index: Ref) -> list[str]:
    """The scorers that an index has columns of."""
    return [name.removeprefix(SCORE_PREFIX) for name in index_scores(store, index).names]


def index_schema(scorers: list[str], *, near_copies: bool) -> pa.Schema:
    """The index's columns, with those of the scorers sorted by name."""
    counted = [schema.NUM_NEAR_COPIES] if near_copies else []
    return pa.schema([*schema.RELEASE_INDEX, *counted, *map(schema.score_column, sorted(scorers))])


def index_extra(store: Store, index: Ref) -> pa.Schema:
    """The columns that an index has beyond those of every index: number of near-copies, scores."""
    (first, *_) = store.part_names(index)
    with store.part_file(index, first) as part:
        return pa.schema(list(part.schema_arrow)[len(schema.RELEASE_INDEX) :])


def index_scores(store: Store, index: Ref) -> pa.Schema:
    """The columns of scores that an index has."""
    return pa.schema([field for field in index_extra(store, index) if field.name.startswith(SCORE_PREFIX)])


def _refuse_other_inputs(store: Store, copies: Ref, inputs: Mapping[str, Ref | str]) -> None:
    """Near-copies were sought among these candidates by these vectors."""
    for name, digest in store.manifest(copies)["basis"]["inputs"].items():
        if name == "held":  # of another release
            continue
        ref = inputs.get(name)
        if not isinstance(ref, Ref) or ref.content_digest != digest:
            raise IntegrityError(
                f"the near-copies of release {copies.key!r} were sought with other {name}; run stage 'copies' again"
            )

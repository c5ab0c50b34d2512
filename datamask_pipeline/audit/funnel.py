"""Where the documents of a release went: from the crawls' rows to each arm's subset, stage by stage and rule by rule.

Each arm's funnel follows the versions that its mask was made from. Documents and tokens are counted in the tables and held
against the manifests' counters; a funnel that does not balance is refused. Changes nothing.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.errors import IntegrityError, UnknownNameError
from datamask_pipeline.publish.behind import inputs_of, made_from
from datamask_pipeline.storage import Ref, Store, require
from datamask_pipeline.storage.ref import ref_of

if TYPE_CHECKING:
    import duckdb

#: Examples of each rule.
EXAMPLES: Final = 3
#: No part has so many rows: places in the canonical order are made of a part's number and a row's.
_PART_ROWS: Final = 1 << 40
Level = dict[str, Any]


def funnel(store: Store, release: str) -> dict[str, Any]:
    """The funnel of every arm of a release.

    Args:
        store: The record.
        release: The release.

    Returns:
        ``release`` and ``arms``: of each, ``arm``, ``subset_is_older`` and ``levels`` from ``ingest`` of each crawl to
        ``materialise``. A level has ``stage``, ``key``, ``documents_in``, ``documents``, ``tokens_in``, ``tokens`` (what it
        kept) and ``dropped``: of each rule the documents, tokens and a few ids. Tokens are the source's; documents without
        a count add none, and those of rejected rows are not known: null.

    Raises:
        UnknownNameError: the record has no mask of such a release.
        IntegrityError: a level does not balance, or a manifest counts otherwise than its table.
    """
    keys = [key for key in store.keys("select") if key.split("/")[0] == release]
    if not keys:
        known = {key.split("/")[0] for key in store.keys("select")}
        raise UnknownNameError(
            "release", release, known, remedy="`datamask run --until select` makes the masks of one"
        )
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        arms = [_arm(store, connection, require(store, "select", key)) for key in keys]
    return {"release": release, "arms": arms}


def funnel_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line a level and a rule; what several arms share stands once."""
    shown: list[Level] = []
    for arm in found["arms"]:
        for level in arm["levels"]:
            if level in shown:
                continue
            shown.append(level)
            yield f"{level['stage']:<12}{level['key']:<40}{_amount(level['documents_in'], level['tokens_in'])}"
            for drop in level["dropped"]:
                examples = ", ".join(drop["examples"])
                amount = _amount(drop["documents"], drop["tokens"])
                yield f"  {'- ' + drop['rule']:<50}{amount}" + (f"  e.g. {examples}" if examples else "")
            yield f"  {'= kept':<50}{_amount(level['documents'], level['tokens'])}"
        if arm["subset_is_older"]:
            yield f"  {arm['arm']}: no subset was made from this mask yet: run stage materialise"


def _amount(documents: int, tokens: int | None) -> str:
    return f"{documents:>14,} documents" + (f"{tokens:>18,} tokens" if tokens is not None else "")


def made_of(store: Store, selection: Ref) -> tuple[Ref, Ref | None]:
    """The candidates that a mask was made from, and the near-copies, where they were collapsed."""
    inputs = dict(inputs_of(store.manifest(selection)))
    index = inputs.get("index")  # records of version 0.1 have none: the mask read the candidates
    of_index = dict(inputs_of(store.manifest(index))) if index is not None else inputs
    return of_index["candidates"], of_index.get("copies")


def decisions_sql(store: Store, candidates: Ref, copies: Ref | None, selection: Ref) -> str:
    """Every document of a release's crawls under one arm: at which stage it was left out, and why; in canonical order of
    ``place``. ``left_at`` is null where the arm's subset has it.
    """
    documents = "crawl, id, content_hash, domain, token_count, eligible, exclusion, representative_id"
    judged = (
        "crawl, id, selected, quality, probability, quality_marginal, diversity_marginal, threshold, reason"
    )
    near = "SELECT NULL::VARCHAR AS crawl, NULL::VARCHAR AS id, NULL::VARCHAR AS near_copy_of LIMIT 0"
    if copies is not None:
        near = f"SELECT crawl, id, near_copy_of FROM {duck.parts_sql(store, [copies], 'crawl, id, near_copy_of')}"
    return f"""
        SELECT c.crawl, c.id, c.content_hash, c.domain, c.token_count, c.part_order * {_PART_ROWS} + c.part_row AS place,
            CASE WHEN NOT c.eligible THEN 'pool' WHEN n.near_copy_of IS NOT NULL THEN 'copies'
                WHEN s.id IS NULL OR NOT s.selected THEN 'select' END AS left_at,
            CASE WHEN NOT c.eligible THEN c.exclusion WHEN n.near_copy_of IS NOT NULL THEN 'near_copy'
                WHEN s.id IS NULL THEN 'no_score' ELSE s.reason END AS reason,
            coalesce(n.near_copy_of, c.representative_id) AS representative_id, s.selected, s.quality, s.probability,
            s.quality_marginal, s.diversity_marginal, s.threshold
        FROM {duck.parts_sql(store, [candidates], documents)} AS c
        LEFT JOIN ({near}) AS n ON c.eligible AND n.crawl = c.crawl AND n.id = c.id
        LEFT JOIN (SELECT {judged} FROM {duck.parts_sql(store, [selection], judged)}) AS s
        ON c.eligible AND s.crawl = c.crawl AND s.id = c.id
    """


def _arm(store: Store, connection: "duckdb.DuckDBPyConnection", selection: Ref) -> dict[str, Any]:
    candidates, copies = made_of(store, selection)
    documents = {
        name.removeprefix("documents/"): ref
        for name, ref in inputs_of(store.manifest(candidates))
        if name.startswith("documents/")
    }
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE chain AS
        SELECT crawl, id, coalesce(token_count, 0) AS tokens, place, left_at, reason AS rule
        FROM ({decisions_sql(store, candidates, copies, selection)})
    """)
    levels = [_ingest(store, connection, crawl, ref) for crawl, ref in documents.items()]
    later = [_level(connection, "pool", candidates.key)]
    if copies is not None:
        later.append(_level(connection, "copies", copies.key))
    later.append(_level(connection, "select", selection.key))
    for level, ref in zip(later, filter(None, (candidates, copies, selection)), strict=True):
        _check_counts(level, store.manifest(ref)["counts"])
    subset = made_from(store, "materialise", selection.key, "selection", selection.content_digest)
    if subset is not None:
        kept, counted = later[-1], store.manifest(subset)["metadata"]["tokens"]  # null where one states none
        tokens = kept["tokens"] if counted is None else counted
        later.append(
            _made("materialise", selection.key, kept["documents"], kept["tokens"], [], subset.rows, tokens)
        )
    _check_chain(levels, later)
    return {
        "arm": selection.key.partition("/")[2],
        "subset_is_older": subset is None,
        "levels": [*levels, *later],
    }


def _level(connection: "duckdb.DuckDBPyConnection", stage: str, key: str) -> Level:
    """What one stage left out of what reached it."""
    order = ["pool", "copies", "select"]
    earlier = ", ".join(map(duck.literal, order[: order.index(stage)])) or "''"
    ((documents_in, tokens_in, documents, tokens),) = connection.execute(f"""
        SELECT count(*), coalesce(sum(tokens), 0)::BIGINT, count(*) FILTER (left_at IS DISTINCT FROM '{stage}'),
            coalesce(sum(tokens) FILTER (left_at IS DISTINCT FROM '{stage}'), 0)::BIGINT
        FROM chain WHERE left_at IS NULL OR left_at NOT IN ({earlier})
    """).fetchall()
    rows = connection.execute(f"""
        SELECT rule, count(*), sum(tokens)::BIGINT, arg_min(id, place, {EXAMPLES})
        FROM chain WHERE left_at = '{stage}' GROUP BY rule ORDER BY 2 DESC, 1
    """).fetchall()
    dropped = [
        {"rule": rule, "documents": number, "tokens": of_rule, "examples": examples}
        for rule, number, of_rule, examples in rows
    ]
    return _made(stage, key, documents_in, tokens_in, dropped, documents, tokens)


def _ingest(store: Store, connection: "duckdb.DuckDBPyConnection", crawl: str, ref: Ref) -> Level:
    """The rows of one crawl: what became no document, by the counters of its manifest."""
    counts = store.manifest(ref)["counts"]
    rejected = _rejected_beside(store, ref)
    examples: dict[str, list[str]] = {}
    if rejected is not None and rejected.rows:
        sql = duck.parts_sql(store, [rejected], "id, shard, row, reason")
        place = "(part_order, part_row)"
        examples = dict(
            connection.execute(f"""
                SELECT reason, arg_min(coalesce(id, shard || ' row ' || row), {place}, {EXAMPLES}) FROM {sql} GROUP BY 1
            """).fetchall()
        )
    ((tokens,),) = connection.execute(
        "SELECT coalesce(sum(tokens), 0)::BIGINT FROM chain WHERE crawl = ?", [crawl]
    ).fetchall()
    rules = {
        name.removeprefix("dropped_"): number
        for name, number in counts.items()
        if name.startswith("dropped_")
    }
    dropped = [
        {"rule": rule, "documents": number, "tokens": None, "examples": examples.get(rule, [])}
        for rule, number in sorted(rules.items(), key=lambda item: (-item[1], item[0]))
        if number
    ]
    return _made("ingest", crawl, counts["rows_in"], None, dropped, counts["kept"], tokens)


def _rejected_beside(store: Store, documents: Ref) -> Ref | None:
    """The rejected rows that the same run of ingestion wrote beside a crawl's documents."""
    basis = store.manifest(documents)["basis"]
    for manifest in store.all_manifests(f"rejected/{documents.key}"):
        if all(manifest["basis"][name] == basis[name] for name in ("version", "config", "inputs")):
            return ref_of(manifest)
    return None


def _made(
    stage: str,
    key: str,
    documents_in: int,
    tokens_in: int | None,
    dropped: list[dict[str, Any]],
    documents: int,
    tokens: int | None,
) -> Level:
    """One level, balanced.

    Raises:
        IntegrityError: documents, or tokens that are known, were lost or invented.
    """
    lost = sum(drop["documents"] for drop in dropped)
    lost_tokens = None if tokens_in is None else sum(drop["tokens"] for drop in dropped)
    unbalanced = lost_tokens is not None and tokens is not None and tokens_in != tokens + lost_tokens
    if documents_in != documents + lost or unbalanced:
        raise IntegrityError(
            f"the funnel of {key} does not balance at {stage}: {documents_in} documents and {tokens_in} tokens in, "
            f"{documents} and {tokens} kept, {lost} and {lost_tokens} dropped; `datamask audit prove` names what is wrong"
        )
    return {
        "stage": stage,
        "key": key,
        "documents_in": documents_in,
        "tokens_in": tokens_in,
        "dropped": dropped,
        "documents": documents,
        "tokens": tokens,
    }


def _check_counts(level: Level, counts: Mapping[str, int]) -> None:
    """The manifest counts what its table holds."""
    found = {drop["rule"]: drop["documents"] for drop in level["dropped"]}
    if level["stage"] == "select":
        without = found.pop("no_score", 0)
        found = {"no_score": without, "not_selected": sum(found.values())}
    said = {
        name.removeprefix("dropped_"): number
        for name, number in counts.items()
        if name.startswith("dropped_")
    }
    same = {name: number for name, number in said.items() if number} == {
        name: number for name, number in found.items() if number
    }
    if not same or (counts["rows_in"], counts["kept"]) != (level["documents_in"], level["documents"]):
        raise IntegrityError(
            f"the manifest of {level['stage']} of {level['key']} counts {dict(counts)}, and its table holds "
            f"{level['documents_in']} in, {level['documents']} kept, {found}; `datamask audit prove` names what is wrong"
        )


def _check_chain(crawls: list[Level], later: list[Level]) -> None:
    """What one level kept reaches the next."""
    kept = (sum(level["documents"] for level in crawls), sum(level["tokens"] for level in crawls))
    for level in later:
        if (level["documents_in"], level["tokens_in"]) != kept:
            raise IntegrityError(
                f"{kept[0]} documents were kept before {level['stage']} of {level['key']}, which had "
                f"{level['documents_in']}; run that stage again"
            )
        kept = (level["documents"], level["tokens"])
